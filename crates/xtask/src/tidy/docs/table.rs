//! Tables in Markdown that are also read by a check.

pub(crate) struct Table {
    pub(crate) rows: Vec<Row>,
}

pub(crate) struct Row {
    pub(crate) line: usize,
    cells: Vec<String>,
}

impl Row {
    /// The words between backticks in a column.
    pub(crate) fn code_spans(&self, column: usize) -> Vec<&str> {
        let cell = self.cells.get(column).map_or("", String::as_str);
        cell.split('`').skip(1).step_by(2).collect()
    }
}

/// The table after a line that is `marker`, without its heading. `None` if there is none.
pub(crate) fn marked_table(page: &str, marker: &str) -> Option<Table> {
    let lines = page.lines().enumerate().skip_while(|(_, line)| line.trim() != marker).skip(1);
    let table = lines.skip_while(|(_, line)| line.trim().is_empty());
    let rows: Vec<Row> = table
        .take_while(|(_, line)| line.starts_with('|'))
        .map(|(index, line)| {
            let cells = line.trim().trim_matches('|').split('|');
            Row { line: index + 1, cells: cells.map(|cell| cell.trim().to_string()).collect() }
        })
        // Its heading, and the line below.
        .skip(2)
        .collect();
    if rows.is_empty() { None } else { Some(Table { rows }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_found_by_its_marker() {
        let page = "| a |\n|---|\n| `x` |\n\n<!-- here -->\n\n| b | c |\n|---|---|\n\
                    | `y`, `z` and w | `v` |\n\n| d |\n";
        let table = marked_table(page, "<!-- here -->").unwrap();
        assert_eq!(table.rows.len(), 1);
        assert_eq!(table.rows[0].line, 9);
        assert_eq!(table.rows[0].code_spans(0), ["y", "z"]);
        assert_eq!(table.rows[0].code_spans(1), ["v"]);
        assert!(marked_table(page, "<!-- there -->").is_none());
    }
}

//! Tables for people: headings and rows, in columns that line up.

use crate::sanitize::sanitize;

/// The space between two columns.
const GAP: &str = "  ";

/// A table of text cells.
#[derive(Debug)]
pub(crate) struct Table {
    /// The headings, then the rows.
    rows: Vec<Vec<String>>,
    /// Which columns are aligned to the right.
    right: Vec<bool>,
}

impl Table {
    /// A table with these headings. A heading that starts with `>` aligns its column to the right, for numbers.
    pub(crate) fn new(headings: &[&str]) -> Table {
        let right = headings.iter().map(|heading| heading.starts_with('>')).collect();
        let headings =
            headings.iter().map(|heading| heading.trim_start_matches('>').to_owned()).collect();
        Table { rows: vec![headings], right }
    }

    /// Adds a row with one cell for each heading.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(N, self.right.len());
        // Sanitized here, because a `Screen` shows tables, too.
        self.rows.push(cells.map(|cell| sanitize(&cell)).into());
    }

    /// Adds a column of numbers at the right end, one cell for each row.
    pub(crate) fn column(&mut self, heading: &str, cells: impl IntoIterator<Item = String>) {
        self.right.push(true);
        let cells = std::iter::once(heading.to_owned()).chain(cells);
        // Rows beyond the given cells get an empty one.
        for (row, cell) in self.rows.iter_mut().zip(cells.chain(std::iter::repeat(String::new()))) {
            row.push(sanitize(&cell));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// The headings and the rows as lines.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let widths = self.widths();
        self.rows.iter().map(move |row| {
            let cells = row.iter().zip(&widths).zip(&self.right);
            let cells = cells.map(|((cell, &width), right)| match right {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            });
            cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
        })
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max();
        (0..self.right.len()).map(|column| width(column).unwrap_or(0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["NAME", ">COUNT"]);
        table.row(["é".into(), "7".into()]);
        table.row(["camera\n".into(), "12345678".into()]);
        let lines: Vec<String> = table.lines().collect();
        assert_eq!(lines, ["NAME        COUNT", "é               7", "camera?  12345678"]);
        table.column("MORE", ["1".into()]);
        let lines: Vec<String> = table.lines().collect();
        assert_eq!(
            lines,
            ["NAME        COUNT  MORE", "é               7     1", "camera?  12345678"]
        );
    }
}

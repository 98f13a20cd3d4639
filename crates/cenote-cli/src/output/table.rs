//! Rows under heads, as wide as they need to be.

use crate::output::clean;

/// What is between two columns.
const GAP: &str = "  ";

/// A table for people.
#[derive(Debug)]
pub(crate) struct Table {
    /// The heads first. A column whose head begins with `>` stands to the right, as numbers do.
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
}

impl Table {
    pub(crate) fn new(heads: &[&str]) -> Table {
        let right = heads.iter().map(|head| head.starts_with('>')).collect();
        let heads = heads.iter().map(|head| head.trim_start_matches('>').to_owned()).collect();
        Table { rows: vec![heads], right }
    }

    /// Adds a row with as many cells as there are heads.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(N, self.right.len());
        // Cleaned here, for it may be a screen where it is shown.
        self.rows.push(cells.map(|cell| clean(&cell)).into());
    }

    /// Adds a column to the right of numbers, one for each row.
    pub(crate) fn column(&mut self, head: &str, cells: impl IntoIterator<Item = String>) {
        self.right.push(true);
        let cells = std::iter::once(head.to_owned()).chain(cells);
        // A row without a cell of its own gets an empty one.
        for (row, cell) in self.rows.iter_mut().zip(cells.chain(std::iter::repeat(String::new()))) {
            row.push(clean(&cell));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// Heads and rows as lines.
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

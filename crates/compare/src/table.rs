//! Rows as text: for a terminal, and for Markdown.

use crate::found::Fact;
use crate::growth;
use crate::series::{Row, Series};

const HEADS: [&str; 9] = ["work", "", "cores", "rounds", "p50", "p99", "p99.9", "max", "floor"];

/// All rows of all series, those of one work together, the quickest first.
pub(crate) fn rows(all: &[Series]) -> Vec<Row> {
    let mut works: Vec<(&str, &str)> = Vec::new();
    for one in all {
        if !works.contains(&(&one.group, &one.work)) {
            works.push((&one.group, &one.work));
        }
    }
    works.iter().flat_map(|work| rows_of(all, *work)).collect()
}

fn rows_of(all: &[Series], (group, work): (&str, &str)) -> Vec<Row> {
    let of_work = all.iter().filter(|one| one.group == group && one.work == work);
    let mut rows: Vec<Row> = of_work.flat_map(Series::rows).collect();
    match group {
        // In the order of what grows.
        growth::GROUP => rows.sort_by_key(|row| row.place),
        _ => rows.sort_by(|a, b| a.place.cmp(&b.place).then(a.times.p50.total_cmp(&b.times.p50))),
    }
    rows
}

/// With a heading for each group.
pub(crate) fn plain(rows: &[Row]) -> String {
    let cells: Vec<[String; 9]> = rows.iter().map(cells).collect();
    let width = |column: usize| {
        let all = cells.iter().map(|row| row[column].chars().count());
        all.chain([HEADS[column].len()]).max().unwrap_or(0)
    };
    let widths: [usize; 9] = std::array::from_fn(width);
    let mut text = String::new();
    let mut group = "";
    for (row, cells) in rows.iter().zip(&cells) {
        if row.group != group {
            group = &row.group;
            text += &format!("\n{group}\n{}\n", line(&HEADS.map(String::from), &widths));
        }
        text += &line(cells, &widths);
        text.push('\n');
    }
    text
}

fn line(cells: &[String; 9], widths: &[usize; 9]) -> String {
    let cell = |(column, (text, width)): (usize, (&String, &usize))| match column {
        0..3 => format!("{text:<width$}"),
        _ => format!("{text:>width$}"),
    };
    let cells: Vec<String> = cells.iter().zip(widths).enumerate().map(cell).collect();
    format!("  {}", cells.join("  ").trim_end())
}

/// One table for each group.
pub(crate) fn markdown(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut group = "";
    for row in rows {
        if row.group != group {
            group = &row.group;
            text += &format!("\n### {}\n\n| {} |\n", capital(group), HEADS.join(" | "));
            text += "|---|---|---|--:|--:|--:|--:|--:|--:|\n";
        }
        text += &format!("| {} |\n", cells(row).join(" | "));
    }
    text
}

/// Facts, for a terminal.
pub(crate) fn facts_plain(facts: &[Fact]) -> String {
    let line = |fact: &Fact| {
        let value = format!("{} {}", hundredths(fact.value), fact.unit);
        format!("  {:<50} {value:>24}  ({})\n", fact.what, fact.from)
    };
    facts.iter().map(line).collect()
}

/// Facts, as a table.
pub(crate) fn facts_markdown(facts: &[Fact]) -> String {
    let line = |fact: &Fact| {
        format!("| {} | {} {} | {} |\n", fact.what, hundredths(fact.value), fact.unit, fact.from)
    };
    let lines: String = facts.iter().map(line).collect();
    format!("| | | |\n|---|--:|---|\n{lines}")
}

/// Without a sign where it is as good as nothing.
fn hundredths(value: f64) -> String {
    format!("{:.2}", if value.abs() < 0.005 { 0.0 } else { value })
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn cells(row: &Row) -> [String; 9] {
    let times = row.times;
    [
        row.work.clone(),
        row.who.clone(),
        row.place.name().into(),
        row.rounds.to_string(),
        time(times.p50),
        time(times.p99),
        time(times.p999),
        time(times.max),
        row.floor.map(time).unwrap_or_default(),
    ]
}

/// Nanoseconds, with three digits that matter.
pub(crate) fn time(nanos: f64) -> String {
    match nanos {
        ..9.995 => format!("{nanos:.2} ns"),
        ..99.95 => format!("{nanos:.1} ns"),
        ..999.5 => format!("{nanos:.0} ns"),
        ..999_500.0 => format!("{} µs", digits(nanos / 1e3)),
        ..999_500_000.0 => format!("{} ms", digits(nanos / 1e6)),
        _ => format!("{} s", digits(nanos / 1e9)),
    }
}

fn digits(number: f64) -> String {
    match number {
        ..9.995 => format!("{number:.2}"),
        ..99.95 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::{Floors, Take};

    fn series(work: &str, who: &str, time: f64) -> Series {
        let floors = Some(Floors { before: 150.0, after: 150.0, one_core: false });
        let takes = vec![Take { round: 0, floors, samples: vec![time] }];
        Series { takes, ..Series::new("hand-off", work, who) }
    }

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let shown = [3.1, 42.0, 512.4, 1_240.0, 61_000.0, 999_499.0, 2_100_000.0, 3.5e9].map(time);
        assert_eq!(
            shown,
            ["3.10 ns", "42.0 ns", "512 ns", "1.24 µs", "61.0 µs", "999 µs", "2.10 ms", "3.50 s"]
        );
    }

    #[test]
    fn works_stay_together_and_the_quickest_is_first() {
        let all = [series("b", "slow", 9.0), series("a", "x", 1.0), series("b", "quick", 2.0)];
        let found: Vec<_> = rows(&all).into_iter().map(|row| row.work + " " + &row.who).collect();
        assert_eq!(found, ["b quick", "b slow", "a x"]);
    }

    #[test]
    fn columns_line_up() {
        let text = plain(&rows(&[series("round trip", "cenote", 412.0), series("x", "µ", 5e6)]));
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("  ")).collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].ends_with("floor") && lines[1].ends_with("150 ns"), "{text}");
        let lengths: Vec<usize> = lines.iter().map(|line| line.chars().count()).collect();
        assert!(lengths.iter().all(|length| *length == lengths[0]), "{text}");
    }

    #[test]
    fn markdown_has_as_many_cells_in_every_line() {
        let text = markdown(&rows(&[series("round trip", "cenote", 412.0)]));
        let pipes: Vec<usize> = text
            .lines()
            .filter(|line| line.starts_with('|'))
            .map(|l| l.matches('|').count())
            .collect();
        assert_eq!(pipes, [10, 10, 10], "{text}");
    }
}

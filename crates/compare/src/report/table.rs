//! Rows as tables: for a terminal, and for Markdown.

use crate::measure::series::{ResultRow, Series};
use crate::report::unit::time;
use crate::results::Fact;

const HEADS: [&str; 9] =
    ["work", "subject", "cores", "rounds", "p50", "p99", "p99.9", "max", "floor"];

/// The rows of all series. Rows of one workload are together, the fastest first.
pub(crate) fn rows(all: &[Series]) -> Vec<ResultRow> {
    let mut works: Vec<(&str, &str)> = Vec::new();
    for one in all {
        if !works.contains(&(&one.group, &one.work)) {
            works.push((&one.group, &one.work));
        }
    }
    works.iter().flat_map(|work| rows_of(all, *work)).collect()
}

fn rows_of(all: &[Series], (group, work): (&str, &str)) -> Vec<ResultRow> {
    let of_work = all.iter().filter(|one| one.group == group && one.work == work);
    let mut rows: Vec<ResultRow> = of_work.flat_map(Series::rows).collect();
    // Subjects that are sizes stay in the order of their size.
    match rows.iter().all(|row| row.who.parse::<f64>().is_ok()) {
        true => rows.sort_by_key(|row| row.cores),
        false => {
            rows.sort_by(|a, b| a.cores.cmp(&b.cores).then(a.times.p50.total_cmp(&b.times.p50)));
        }
    }
    rows
}

/// The table for a terminal, with a heading for each group.
pub(crate) fn plain(rows: &[ResultRow]) -> String {
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

/// The tables for Markdown, one for each group.
pub(crate) fn markdown(rows: &[ResultRow]) -> String {
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

/// Single numbers, for a terminal.
pub(crate) fn facts_plain(facts: &[Fact]) -> String {
    let line = |fact: &Fact| {
        let value = format!("{} {}", hundredths(fact.value), fact.unit);
        format!("  {:<50} {value:>24}  ({})\n", fact.what, fact.from)
    };
    facts.iter().map(line).collect()
}

/// Single numbers, as a Markdown table.
pub(crate) fn facts_markdown(facts: &[Fact]) -> String {
    let line = |fact: &Fact| {
        format!("| {} | {} {} | {} |\n", fact.what, hundredths(fact.value), fact.unit, fact.from)
    };
    let lines: String = facts.iter().map(line).collect();
    format!("| what | value | measured |\n|---|--:|---|\n{lines}")
}

/// Two decimals, and no minus sign before 0.00.
fn hundredths(value: f64) -> String {
    format!("{:.2}", if value.abs() < 0.005 { 0.0 } else { value })
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn cells(row: &ResultRow) -> [String; 9] {
    let times = row.times;
    [
        row.work.clone(),
        row.who.clone(),
        row.cores.name().into(),
        row.rounds.to_string(),
        time(times.p50),
        time(times.p99),
        time(times.p999),
        time(times.max),
        row.floor.map(time).unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::series::{Floors, Take};

    fn series(work: &str, who: &str, time: f64) -> Series {
        let floors = Some(Floors { before: 150.0, after: 150.0, one_core: false });
        let takes = vec![Take { round: 0, floors, samples: vec![time] }];
        Series { takes, ..Series::new("hand-off", work, who) }
    }

    #[test]
    fn rows_of_a_workload_are_together_and_the_fastest_is_first() {
        let all = [series("b", "slow", 9.0), series("a", "x", 1.0), series("b", "fast", 2.0)];
        let found: Vec<_> = rows(&all).into_iter().map(|row| row.work + " " + &row.who).collect();
        assert_eq!(found, ["b fast", "b slow", "a x"]);
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
    fn every_markdown_line_has_the_same_number_of_cells() {
        let text = markdown(&rows(&[series("round trip", "cenote", 412.0)]));
        let pipes: Vec<usize> = text
            .lines()
            .filter(|line| line.starts_with('|'))
            .map(|l| l.matches('|').count())
            .collect();
        assert_eq!(pipes, [10, 10, 10], "{text}");
    }
}

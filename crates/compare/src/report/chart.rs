//! A chart of some medians: bars on a logarithmic scale, one block for each workload.

use crate::measure::series::{CoreDistance, ResultRow};
use crate::report::unit::time;

/// The workloads in the chart.
const WORKS: [(&str, &str); 8] = [
    ("hand-off", "round trip, 1080p"),
    ("hand-off", "one way, 1080p"),
    ("hand-off", "wake-up round trip"),
    ("set-up", "publisher and subscriber"),
    ("pool", "alloc + drop, 1080p"),
    ("memory", "map, shm"),
    ("buffers", "acquire + release, 6 MB"),
    ("python", "image echo, 1080p"),
];

const WIDTH: f64 = 860.0;
const LEFT: f64 = 290.0;
const RIGHT: f64 = 80.0;
const LINE: f64 = 20.0;
const OURS: &str = "#0b6e99";
const THEIRS: &str = "#b5bcc2";

/// The chart as SVG.
pub(crate) fn svg(rows: &[ResultRow]) -> String {
    let blocks: Vec<(String, Vec<&ResultRow>)> =
        WORKS.iter().filter_map(|work| block(rows, *work)).collect();
    let shown = || blocks.iter().flat_map(|(_, rows)| rows.iter().map(|row| row.times.p50));
    let scale = Scale::over(shown());
    let lines: usize = blocks.iter().map(|(_, rows)| rows.len() + 2).sum();
    let height = LINE * (lines as f64 + 2.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text += &scale.grid(height);
    let mut y = LINE;
    for (title, rows) in &blocks {
        text += &format!(
            "<text x=\"8\" y=\"{}\" font-weight=\"bold\">{}</text>\n",
            y + 14.0,
            escape(title)
        );
        y += LINE;
        for row in rows {
            text += &bar(row, y, scale);
            y += LINE;
        }
        y += LINE;
    }
    text + "</svg>\n"
}

fn decade(exponent: f64) -> f64 {
    10_f64.powf(exponent)
}

/// The title and the rows of a workload, at the smallest distance of the cores that was measured.
fn block<'a>(
    rows: &'a [ResultRow],
    (group, work): (&str, &str),
) -> Option<(String, Vec<&'a ResultRow>)> {
    let of_work = || rows.iter().filter(|row| row.group == group && row.work == work);
    let cores =
        of_work().map(|row| row.cores).filter(|cores| *cores != CoreDistance::Moved).min()?;
    let title = match cores {
        CoreDistance::One => format!("{group}: {work}"),
        _ => format!("{group}: {work} (cores {})", cores.name()),
    };
    Some((title, of_work().filter(|row| row.cores == cores).collect()))
}

#[derive(Debug, Clone, Copy)]
struct Scale {
    least: f64,
    most: f64,
}

impl Scale {
    /// From the power of ten below the smallest time to the one above the largest. Without times, one decade.
    fn over(shown: impl Iterator<Item = f64>) -> Scale {
        let (least, most) = shown.fold((f64::MAX, 1.0), |(least, most), nanos| {
            (f64::min(least, nanos), f64::max(most, nanos))
        });
        let least = least.clamp(1.0, most).log10().floor();
        let most = most.log10().ceil().max(least + 1.0);
        Scale { least: decade(least), most: decade(most) }
    }

    fn at(self, nanos: f64) -> f64 {
        let share = (nanos.max(self.least) / self.least).log10() / (self.most / self.least).log10();
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn powers(self) -> impl Iterator<Item = f64> {
        let next = |nanos: &f64| Some(nanos * 10.0);
        std::iter::successors(Some(self.least), next)
            .take_while(move |nanos| *nanos <= self.most * 1.01)
    }

    fn grid(self, height: f64) -> String {
        let mut text = String::new();
        for nanos in self.powers() {
            let x = self.at(nanos);
            text += &format!(
                "<line x1=\"{x:.1}\" y1=\"{LINE}\" x2=\"{x:.1}\" y2=\"{:.0}\" stroke=\"#e6e9eb\"/>\n\
                 <text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"#666\">{}</text>\n",
                height - LINE,
                height - 5.0,
                label(nanos),
            );
        }
        text
    }
}

/// The label of a power of ten, without decimals.
fn label(nanos: f64) -> String {
    match nanos {
        ..999.0 => format!("{nanos:.0} ns"),
        ..999_000.0 => format!("{:.0} µs", nanos / 1e3),
        ..999_000_000.0 => format!("{:.0} ms", nanos / 1e6),
        _ => format!("{:.0} s", nanos / 1e9),
    }
}

fn bar(row: &ResultRow, y: f64, scale: Scale) -> String {
    let colour = if row.who.starts_with("cenote") { OURS } else { THEIRS };
    let end = scale.at(row.times.p50).max(LEFT + 1.0);
    format!(
        "<text x=\"{}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>\
         <rect x=\"{LEFT}\" y=\"{:.0}\" width=\"{:.1}\" height=\"13\" fill=\"{colour}\"/>\
         <text x=\"{:.1}\" y=\"{:.0}\">{}</text>\n",
        LEFT - 8.0,
        y + 13.0,
        escape(&row.who),
        y + 3.0,
        end - LEFT,
        end + 5.0,
        y + 13.0,
        time(row.times.p50),
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::series::{Series, Take};

    fn rows(who: &str, nanos: f64) -> Vec<ResultRow> {
        let takes = vec![Take { round: 0, floors: None, samples: vec![nanos] }];
        Series { takes, ..Series::new("pool", "alloc + drop, 1080p", who) }.rows()
    }

    #[test]
    fn every_decade_has_the_same_width() {
        let scale = Scale { least: 10.0, most: 1e5 };
        let wide = |nanos: f64| scale.at(nanos * 10.0) - scale.at(nanos);
        assert!((wide(10.0) - wide(1e4)).abs() < 1e-9);
        assert!((scale.at(1e5) - (WIDTH - RIGHT)).abs() < 1e-9);
        assert!((scale.at(1.0) - LEFT).abs() < 1e-9, "never to the left of the axis");
    }

    #[test]
    fn a_scale_has_whole_decades_around_all_times() {
        let scale = Scale::over([40.0, 2_500.0].into_iter());
        assert_eq!(scale.powers().map(f64::round).collect::<Vec<_>>(), [10.0, 100.0, 1e3, 1e4]);
        assert_eq!(Scale::over(std::iter::empty()).powers().count(), 2);
    }

    #[test]
    fn every_row_of_a_charted_workload_has_a_bar() {
        let all = [rows("cenote", 40.0), rows("a < b", 90.0)].concat();
        let text = svg(&all);
        assert_eq!(text.matches("height=\"13\"").count(), 2, "{text}");
        assert!(text.contains("a &lt; b") && text.contains("40.0 ns"), "{text}");
    }

    #[test]
    fn no_rows_make_an_empty_chart() {
        assert!(svg(&[]).ends_with("</svg>\n"));
    }
}

//! Times with a unit.

/// A time in nanoseconds as text, with three significant digits.
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

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let shown = [3.1, 42.0, 512.4, 1_240.0, 61_000.0, 999_499.0, 2_100_000.0, 3.5e9].map(time);
        assert_eq!(
            shown,
            ["3.10 ns", "42.0 ns", "512 ns", "1.24 µs", "61.0 µs", "999 µs", "2.10 ms", "3.50 s"]
        );
    }
}

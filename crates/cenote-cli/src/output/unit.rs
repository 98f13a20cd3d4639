//! Numbers with units, as people read them.

/// `6.2 MB`.
#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, &["B", "kB", "MB", "GB", "TB"])
}

/// `373 MB/s`.
pub(crate) fn bandwidth(bytes_per_second: f64) -> String {
    format!("{}/s", scaled(bytes_per_second, &["B", "kB", "MB", "GB", "TB"]))
}

/// `59.9 Hz`.
pub(crate) fn rate(hz: f64) -> String {
    scaled(hz, &["Hz", "kHz", "MHz"])
}

/// `41.2 µs`, from nanoseconds.
pub(crate) fn nanos(nanos: f64) -> String {
    scaled(nanos, &["ns", "µs", "ms", "s"])
}

/// Three digits, in the largest unit that leaves a digit before the point.
fn scaled(mut value: f64, units: &[&str]) -> String {
    let mut units = units.iter().peekable();
    let mut unit = *units.next().unwrap_or(&"");
    while value.abs() >= 999.5 && units.peek().is_some() {
        value /= 1000.0;
        unit = units.next().unwrap_or(&"");
    }
    let whole = value.fract() == 0.0;
    match value.abs() {
        size if whole || size >= 99.95 => format!("{value:.0} {unit}"),
        size if size >= 9.995 => format!("{value:.1} {unit}"),
        _ => format!("{value:.2} {unit}"),
    }
}

/// A number, or `-` if it is unknown.
pub(crate) fn or_dash<T: ToString>(number: Option<T>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// A sum that saturates: other processes report the numbers, and they may report anything.
pub(crate) fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_the_largest_unit_that_fits() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(6_220_800), "6.22 MB");
        assert_eq!(bytes(999_999), "1.00 MB");
        assert_eq!(bandwidth(373_248_000.0), "373 MB/s");
        assert_eq!(rate(59.94), "59.9 Hz");
        assert_eq!(nanos(41_234.0), "41.2 µs");
        assert_eq!(nanos(5e12), "5000 s");
    }
}

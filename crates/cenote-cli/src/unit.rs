//! Numbers as people read and give them.

use std::ops::RangeInclusive;

/// A number that somebody gave as an argument, if it is within bounds.
pub(crate) fn within(bounds: RangeInclusive<f64>, given: &str) -> Result<f64, String> {
    let number: f64 = given.parse().map_err(|_| "not a number".to_owned())?;
    match bounds.contains(&number) {
        true => Ok(number),
        false => Err(format!("it must be from {} to {}", bounds.start(), bounds.end())),
    }
}

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

/// Three digits, and the unit that fits.
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

/// The sum of what others tell, who may tell anything.
pub(crate) fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_the_unit_that_fits() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(6_220_800), "6.22 MB");
        assert_eq!(bytes(999_999), "1.00 MB");
        assert_eq!(bandwidth(373_248_000.0), "373 MB/s");
        assert_eq!(rate(59.94), "59.9 Hz");
        assert_eq!(nanos(41_234.0), "41.2 µs");
        assert_eq!(nanos(5e12), "5000 s");
    }

    #[test]
    fn numbers_out_of_bounds_are_refused_with_the_bounds() {
        assert_eq!(within(0.5..=600.0, "0.5"), Ok(0.5));
        assert_eq!(within(0.5..=600.0, "600"), Ok(600.0));
        for bad in ["0.4", "601", "-1", "inf", "nan"] {
            let refused = Err("it must be from 0.5 to 600".to_owned());
            assert_eq!(within(0.5..=600.0, bad), refused, "{bad}");
        }
        assert_eq!(within(0.5..=600.0, "ten"), Err("not a number".to_owned()));
    }
}

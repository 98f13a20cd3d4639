//! Numbers on the command line, checked against their bounds.

use std::ops::RangeInclusive;

/// Parses a number. Returns an error text if it is none, or out of bounds.
pub(crate) fn number_within(bounds: RangeInclusive<f64>, given: &str) -> Result<f64, String> {
    let number: f64 = given.parse().map_err(|_| "not a number".to_owned())?;
    match bounds.contains(&number) {
        true => Ok(number),
        false => Err(format!("it must be from {} to {}", bounds.start(), bounds.end())),
    }
}

/// Parses a time in seconds, from 10 ms to a day.
pub(crate) fn seconds(given: &str) -> Result<f64, String> {
    number_within(0.01..=86_400.0, given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_out_of_bounds_is_refused_with_the_bounds() {
        assert_eq!(number_within(0.5..=600.0, "0.5"), Ok(0.5));
        assert_eq!(number_within(0.5..=600.0, "600"), Ok(600.0));
        for bad in ["0.4", "601", "-1", "inf", "nan"] {
            let refused = Err("it must be from 0.5 to 600".to_owned());
            assert_eq!(number_within(0.5..=600.0, bad), refused, "{bad}");
        }
        assert_eq!(number_within(0.5..=600.0, "ten"), Err("not a number".to_owned()));
    }
}

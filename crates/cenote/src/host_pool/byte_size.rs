//! Sizes as people write them: `4096`, `100MiB`, `1GB`.

/// The format that [`parse`] accepts, for error messages.
pub(super) const EXPECTED: &str = "a number of bytes such as 4096, 64KiB, 100MiB or 1GB";

/// Units and their factors. A unit comes before the units that it ends with.
const UNITS: [(&str, u64); 10] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
];

/// Parses a number of bytes. None if the format is wrong or the number does not fit.
pub(super) fn parse(text: &str) -> Option<usize> {
    let text = text.trim();
    let (digits, factor) = UNITS
        .iter()
        .find_map(|&(unit, factor)| Some((text.strip_suffix(unit)?.trim_end(), factor)))
        .unwrap_or((text, 1));
    // Checked because `u64::from_str` accepts a leading plus sign.
    digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(())?;
    let bytes = digits.parse::<u64>().ok()?.checked_mul(factor)?;
    usize::try_from(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_and_without_a_unit_are_accepted() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            (" 512 B ", 512),
            ("100MiB", 100 << 20),
            ("1GB", 1_000_000_000),
            ("2 KiB", 2048),
        ] {
            assert_eq!(parse(text), Some(bytes), "{text:?}");
        }
    }

    #[test]
    fn any_other_text_is_rejected() {
        for text in ["", "MiB", "-1", "+1", "1.5GB", "10 bananas", "0x10", "99999999999TiB", "1 2"]
        {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}

//! Sizes as people write them: `4096`, `100MiB`, `1GB`.

/// What [`parse`] understands, for error messages.
pub(super) const EXPECTED: &str = "a number of bytes such as 4096, 64KiB, 100MiB or 1GB";

/// Units and their factors. The longer name stands before its own ending.
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

/// The bytes that `text` stands for; none if it is not understood or does not fit.
pub(super) fn parse(text: &str) -> Option<usize> {
    let text = text.trim();
    let (digits, factor) = UNITS
        .iter()
        .find_map(|&(unit, factor)| Some((text.strip_suffix(unit)?.trim_end(), factor)))
        .unwrap_or((text, 1));
    // `usize::from_str` would also take a leading plus sign.
    digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(())?;
    let bytes = digits.parse::<u64>().ok()?.checked_mul(factor)?;
    usize::try_from(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_understood() {
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
    fn anything_else_is_not() {
        for text in ["", "MiB", "-1", "+1", "1.5GB", "10 bananas", "0x10", "99999999999TiB", "1 2"]
        {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}

//! The name of a message type, shortened for tables.

/// The name of a type without its size and the fields of its structs.
pub(crate) fn short(carries: &str) -> String {
    // The size follows in parentheses.
    let text = carries.rsplit_once(" (").map_or(carries, |(text, _)| text);
    let (mut short, mut depth) = (String::new(), 0_usize);
    for c in text.chars() {
        match c {
            '{' => {
                short.truncate(short.trim_end().len());
                depth += 1;
            }
            '}' => depth = depth.saturating_sub(1),
            c if depth == 0 => short.push(c),
            _ => {}
        }
    }
    short
}

/// The first `width` characters of a text. If it is longer, the last of them is `…`.
pub(crate) fn truncate(text: &str, width: usize) -> String {
    match text.chars().count() <= width {
        true => text.to_owned(),
        false => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_name_has_no_fields_and_no_size() {
        for (carries, name) in [
            ("Image", "Image"),
            ("f64 (8 bytes, aligned to 8)", "f64"),
            ("[f32; 2] (8 bytes, aligned to 4)", "[f32; 2]"),
            ("Pose { position: [f64; 3] at 0 } (24 bytes, aligned to 8)", "Pose"),
            ("A { b: B { c: u8 at 0 } at 0, d: u8 at 1 } (2 bytes, aligned to 1)", "A"),
            ("[A { b: u8 at 0 }; 2] (2 bytes, aligned to 1)", "[A; 2]"),
            ("() (0 bytes, aligned to 1)", "()"),
            ("Long { b: u8 at 0, c: .. 0123456789abcdef (99 bytes, aligned to 1)", "Long"),
            ("} {", ""),
        ] {
            assert_eq!(short(carries), name, "{carries}");
        }
    }

    #[test]
    fn a_truncated_text_ends_with_an_ellipsis() {
        assert_eq!(
            (truncate("Pöse", 4), truncate("Pöses", 4)),
            ("Pöse".to_owned(), "Pös…".to_owned())
        );
    }
}

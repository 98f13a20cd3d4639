//! What a topic carries, in as many words as there is room for.

/// The name of a type, without the fields of its structs and its size: what a list has room for.
pub(crate) fn brief(carries: &str) -> String {
    // What follows is how many bytes it is.
    let text = carries.rsplit_once(" (").map_or(carries, |(text, _)| text);
    let (mut brief, mut depth) = (String::new(), 0_usize);
    for c in text.chars() {
        match c {
            '{' => {
                brief.truncate(brief.trim_end().len());
                depth += 1;
            }
            '}' => depth = depth.saturating_sub(1),
            c if depth == 0 => brief.push(c),
            _ => {}
        }
    }
    brief
}

/// At most so many characters of a text.
pub(crate) fn cut(text: &str, width: usize) -> String {
    match text.chars().count() <= width {
        true => text.to_owned(),
        false => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_known_by_their_names() {
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
            assert_eq!(brief(carries), name, "{carries}");
        }
    }

    #[test]
    fn what_is_cut_is_seen_to_be() {
        assert_eq!((cut("Pöse", 4), cut("Pöses", 4)), ("Pöse".to_owned(), "Pös…".to_owned()));
    }
}

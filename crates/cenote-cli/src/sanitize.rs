//! Removes terminal control characters: much of the text that this program prints comes from other processes.

/// Whether a character controls a terminal (ECMA-48) or the direction of the text around it (Unicode TR 9),
/// instead of being visible.
fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text as one line, with `?` in place of each control character.
pub(crate) fn sanitize(text: &str) -> String {
    text.replace(is_control, "?")
}

/// The same JSON, with control characters inside strings escaped. `serde_json` has escaped those below 0x20
/// already; the line breaks between values stay.
pub(crate) fn escape_json(json: &str) -> String {
    let escape = |character: char| match character {
        '\0'..='\x7e' => character.to_string(),
        control if is_control(control) => format!("\\u{:04x}", u32::from(control)),
        visible => visible.to_string(),
    };
    json.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(sanitize("a\x1b]0;x\x07\n\u{9b}2J\u{202e}b"), "a?]0;x???2J?b");
        assert_eq!(sanitize("Ωmega 1.5 µs"), "Ωmega 1.5 µs");
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let text = "a\x1b\u{9b}\x7f\u{202e}µ\n";
        let json = serde_json::to_string_pretty(&[text]).unwrap();
        let escaped = escape_json(&json);
        assert!(escaped.chars().all(|c| c == '\n' || !is_control(c)), "{escaped:?}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&escaped).unwrap(), [text]);
    }
}

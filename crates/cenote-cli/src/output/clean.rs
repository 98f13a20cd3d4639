//! Text as a terminal may be given it: much of it comes from other processes.

/// Whether a character does something to a terminal, or to the order of what is around it, instead of being
/// seen: controls (ECMA-48), and marks that turn the direction of writing (Unicode TR 9).
fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// One line of nothing but what can be seen.
pub(crate) fn clean(text: &str) -> String {
    text.replace(is_unseen, "?")
}

/// The same JSON, with what a terminal could take for a command spelled out. (What stands between values,
/// such as the ends of lines, stays.)
pub(crate) fn spelled_out(json: &str) -> String {
    let spell = |character: char| match character {
        '\0'..='\x7e' => character.to_string(),
        unseen if is_unseen(unseen) => format!("\\u{:04x}", u32::from(unseen)),
        seen => seen.to_string(),
    };
    json.chars().map(spell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_commands_terminals_is_not_there() {
        assert_eq!(clean("a\x1b]0;x\x07\n\u{9b}2J\u{202e}b"), "a?]0;x???2J?b");
        assert_eq!(clean("Ωmega 1.5 µs"), "Ωmega 1.5 µs");
    }

    #[test]
    fn json_says_the_same() {
        let text = "a\x1b\u{9b}\x7f\u{202e}µ\n";
        let json = serde_json::to_string_pretty(&[text]).unwrap();
        let spelled = spelled_out(&json);
        assert!(spelled.chars().all(|c| c == '\n' || !is_unseen(c)), "{spelled:?}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&spelled).unwrap(), [text]);
    }
}

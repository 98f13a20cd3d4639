//! Rust source as words and signs, without comments, literals and code for tests.

/// The tokens of a file: identifiers, `::`, and single signs. A literal is left out.
pub(super) fn tokens(source: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = skipped_length(rest);
        if length > 0 {
            rest = &rest[length..];
            continue;
        }
        let length = match first {
            _ if is_identifier(first) => identifier_length(rest),
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        if !first.is_whitespace() {
            tokens.push(token);
        }
        rest = after;
    }
    tokens
}

fn is_identifier(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn identifier_length(text: &str) -> usize {
    text.find(|c| !is_identifier(c)).unwrap_or(text.len())
}

/// The length of the comment or literal that the text begins with, or 0.
fn skipped_length(text: &str) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return block_comment_length(text);
    }
    // Prefixes of strings: b, c, r, br, cr.
    let prefix = text.find(|c| !"bcr".contains(c)).unwrap_or(0);
    let (before, literal) = text.split_at(prefix.min(2));
    if before.ends_with('r') && literal.trim_start_matches('#').starts_with('"') {
        return prefix + raw_string_length(literal);
    }
    match literal.chars().next() {
        Some('"') => prefix + quoted_length(literal, '"'),
        Some('\'') if prefix == 0 || before == "b" => match character_length(literal) {
            0 => 0,
            length => prefix + length,
        },
        _ => 0,
    }
}

/// Block comments nest.
fn block_comment_length(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let step = rest.chars().next().map_or(1, char::len_utf8);
        match () {
            () if rest.starts_with("/*") => (depth, at) = (depth + 1, at + 2),
            () if rest.starts_with("*/") => (depth, at) = (depth - 1, at + 2),
            () => at += step,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn raw_string_length(text: &str) -> usize {
    let hashes = text.len() - text.trim_start_matches('#').len();
    let end = format!("\"{}", "#".repeat(hashes));
    let start = hashes + 1;
    text[start..].find(&end).map_or(text.len(), |at| start + at + end.len())
}

fn quoted_length(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character literal, or 0 for a lifetime.
fn character_length(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    match (characters.next(), characters.next()) {
        (Some((_, '\\')), _) => quoted_length(text, '\''),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

/// The tokens without items that only tests compile, and the names of modules among those items that
/// are files: `#[cfg(test)] mod tests;`.
pub(super) fn without_tests<'a>(tokens: &[&'a str]) -> (Vec<&'a str>, Vec<&'a str>) {
    let mut kept = Vec::new();
    let mut test_modules = Vec::new();
    let mut rest = tokens;
    while let Some((first, after)) = rest.split_first() {
        let attribute = attribute_length(rest);
        if attribute > 0 && is_for_tests(&rest[..attribute]) {
            let item = &rest[attribute..];
            let length = item_length(item);
            if let Some(name) = module_file(&item[..length]) {
                test_modules.push(name);
            }
            rest = &item[length..];
        } else {
            kept.push(*first);
            rest = after;
        }
    }
    (kept, test_modules)
}

/// The length of `#[...]` if the tokens begin with one, or 0.
fn attribute_length(tokens: &[&str]) -> usize {
    if !tokens.starts_with(&["#", "["]) {
        return 0;
    }
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match *token {
            "[" => depth += 1,
            "]" if depth == 1 => return index + 1,
            "]" => depth -= 1,
            _ => {}
        }
    }
    0
}

/// `#[cfg(test)]` or `#[cfg(all(test, ...))]`.
fn is_for_tests(attribute: &[&str]) -> bool {
    let mut conditions: Vec<&str> = Vec::new();
    let mut previous = "";
    for token in &attribute[2..] {
        match *token {
            "(" => conditions.push(previous),
            ")" => drop(conditions.pop()),
            "test" if conditions == ["cfg"] || conditions == ["cfg", "all"] => return true,
            _ => {}
        }
        previous = token;
    }
    false
}

/// The length of the item that the tokens begin with: up to a `;`, or to the end of its block.
fn item_length(tokens: &[&str]) -> usize {
    let mut depth = 0_usize;
    let mut is_import = false;
    for (index, token) in tokens.iter().enumerate() {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 && !is_import {
                    return index + 1;
                }
            }
            ";" if depth == 0 => return index + 1,
            // The block of an import ends with a `;`.
            "use" if depth == 0 => is_import = true,
            _ => {}
        }
    }
    tokens.len()
}

/// The name in `mod NAME;`.
fn module_file<'a>(item: &[&'a str]) -> Option<&'a str> {
    match item {
        [.., "mod", name, ";"] => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_left_out() {
        let source = r##"
            // use crate::a;
            /* use /* crate::b */ ; */
            let s = "use \" crate::c" + r#"crate::"d"# + b"e" + '"' + b'\'' ; f::<'a>(x)
        "##;
        let words = "let s = + + + + ; f :: < ' a > ( x )";
        assert_eq!(tokens(source), words.split(' ').collect::<Vec<_>>());
    }

    #[test]
    fn names_that_begin_like_a_literal_are_kept() {
        assert_eq!(tokens("crate::b::r"), ["crate", "::", "b", "::", "r"]);
    }

    #[test]
    fn code_for_tests_is_left_out() {
        let source = "
            use a;
            #[cfg(test)] use b::{c, d};
            #[cfg(all(test, loom))] mod loom;
            #[cfg(not(test))] use e;
            #[cfg(any(test, loom))] use f;
            #[cfg(test)] mod tests { fn g() {} }
            use h;
        ";
        let tokens = tokens(source);
        let (kept, test_modules) = without_tests(&tokens);
        let kept = kept.join(" ");
        for name in ["a", "e", "f", "h"] {
            assert!(kept.contains(&format!("use {name} ;")), "{kept}");
        }
        assert!(!kept.contains("use b") && !kept.contains("mod"), "{kept}");
        assert_eq!(test_modules, ["loom"]);
    }
}

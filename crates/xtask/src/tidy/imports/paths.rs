//! The paths that a file names: those of its `use` declarations, and others in its code.

/// A path as it is written: `super::Name`, `crate::sys::mapping`.
#[derive(Debug, PartialEq)]
pub(super) struct NamedPath {
    /// The inline modules around it, from the outside.
    pub(super) inside: Vec<String>,
    pub(super) segments: Vec<String>,
    /// The name that a `use` declaration gives to it here. `None` in other code, and for `use a::*`.
    pub(super) imported_as: Option<String>,
    /// Whether other modules may use that name.
    pub(super) is_public: bool,
}

/// The paths of `use` declarations, and those in other code that begin with `crate`, `self`, `super`,
/// `std` or `core`.
pub(super) fn named_paths(tokens: &[&str]) -> Vec<NamedPath> {
    let mut paths = Vec::new();
    let mut inline_modules: Vec<(String, usize)> = Vec::new();
    let mut depth = 0_usize;
    let mut index = 0;
    while index < tokens.len() {
        let inside = || inline_modules.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        match tokens[index..] {
            ["mod", name, "{", ..] => {
                inline_modules.push((name.to_string(), depth));
                index += 2;
                continue;
            }
            ["{", ..] => depth += 1,
            ["}", ..] => {
                depth = depth.saturating_sub(1);
                inline_modules.retain(|(_, outer)| *outer < depth);
            }
            ["use", ..] => {
                let end = tokens[index..].iter().position(|token| *token == ";");
                let end = end.map_or(tokens.len(), |length| index + length);
                let is_public = is_public(&tokens[..index]);
                for (segments, imported_as) in tree(&tokens[index + 1..end]) {
                    paths.push(NamedPath { inside: inside(), segments, imported_as, is_public });
                }
                index = end;
            }
            ["crate" | "self" | "super" | "std" | "core", "::", ..] => {
                let length = path_length(&tokens[index..]);
                let segments = tokens[index..index + length].iter().step_by(2);
                let segments = segments.map(ToString::to_string).collect();
                let inside = inside();
                paths.push(NamedPath { inside, segments, imported_as: None, is_public: false });
                index += length - 1;
            }
            _ => {}
        }
        index += 1;
    }
    paths
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Whether the tokens end with `pub` or `pub(...)`.
fn is_public(before: &[&str]) -> bool {
    match before {
        [.., "pub"] => true,
        [.., ")"] => {
            let open = before.iter().rposition(|token| *token == "(");
            open.is_some_and(|open| before[..open].ends_with(&["pub"]))
        }
        _ => false,
    }
}

/// The number of tokens of a path such as `a::b::C`.
fn path_length(tokens: &[&str]) -> usize {
    let mut length = 1;
    while let [_, "::", next, ..] = tokens[length - 1..]
        && is_name(next)
    {
        length += 2;
    }
    length
}

type Import = (Vec<String>, Option<String>);

/// The paths of a `use` tree, `a::{b, c as d}`, each with the name that it gets.
fn tree(tokens: &[&str]) -> Vec<Import> {
    let open = tokens.iter().position(|token| *token == "{");
    let Some(open) = open else { return vec![leaf(tokens)] };
    let prefix: Vec<String> = names(&tokens[..open]);
    let close = tokens.iter().rposition(|token| *token == "}").unwrap_or(tokens.len());
    let mut imports = Vec::new();
    for branch in branches(&tokens[open + 1..close]) {
        for (segments, name) in tree(branch) {
            let mut path = prefix.clone();
            // `a::{self}` is `a`.
            match segments.as_slice() {
                [this] if this == "self" => {
                    let name = name.filter(|name| name != "self").or_else(|| path.last().cloned());
                    imports.push((path, name));
                }
                _ => {
                    path.extend(segments);
                    imports.push((path, name));
                }
            }
        }
    }
    imports
}

fn leaf(tokens: &[&str]) -> Import {
    let alias = tokens.iter().position(|token| *token == "as");
    let segments = names(&tokens[..alias.unwrap_or(tokens.len())]);
    let name = match alias {
        Some(alias) => tokens.get(alias + 1).map(ToString::to_string),
        None if tokens.ends_with(&["*"]) => None,
        None => segments.last().cloned(),
    };
    (segments, name)
}

fn names(tokens: &[&str]) -> Vec<String> {
    tokens.iter().filter(|token| is_name(token)).map(ToString::to_string).collect()
}

/// Splits at the commas that are in no inner braces.
fn branches<'a, 'b>(tokens: &'a [&'b str]) -> Vec<&'a [&'b str]> {
    let mut depth = 0_usize;
    let split = tokens.split(move |token| {
        match *token {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        *token == "," && depth == 0
    });
    split.filter(|branch| !branch.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::imports::tokens::tokens;

    /// `path as name`, with `+` for names that others may use.
    fn described(source: &str) -> Vec<String> {
        let describe = |path: NamedPath| {
            let plus = if path.is_public { "+" } else { "" };
            let inside: String = path.inside.iter().map(|name| format!("{name}/")).collect();
            let name = path.imported_as.unwrap_or_default();
            format!("{inside}{} as {plus}{name}", path.segments.join("::"))
        };
        named_paths(&tokens(source)).into_iter().map(describe).collect()
    }

    #[test]
    fn use_trees_are_expanded() {
        assert_eq!(
            described("use a::{b, c::{self, D as E}}; pub(crate) use super::F; pub use g::*;"),
            ["a::b as b", "a::c as c", "a::c::D as E", "super::F as +F", "g as +",]
        );
    }

    #[test]
    fn paths_in_code_are_found() {
        assert_eq!(
            described("fn f(x: crate::A) -> std::D { super::b::c(Vec::<u8>::new(), child::g()) }"),
            ["crate::A as ", "std::D as ", "super::b::c as "]
        );
    }

    #[test]
    fn inline_modules_are_around_their_paths() {
        assert_eq!(
            described("use a; mod b { use super::c; mod d { use e; } use f; } use g;"),
            ["a as a", "b/super::c as c", "b/d/e as e", "b/f as f", "g as g"]
        );
    }
}

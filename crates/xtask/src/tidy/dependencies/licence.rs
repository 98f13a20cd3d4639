//! Licence expressions: `(MIT OR Apache-2.0) AND Unicode-3.0`.

#[derive(Debug, PartialEq)]
pub(super) enum Expression {
    /// With its exception, if it has one: `Apache-2.0 WITH LLVM-exception`.
    Licence(String),
    And(Box<Expression>, Box<Expression>),
    Or(Box<Expression>, Box<Expression>),
}

impl Expression {
    /// `None` if the text is not an expression. `MIT/Apache-2.0` is an old form of `OR`.
    pub(super) fn parse(text: &str) -> Option<Expression> {
        let spaced = text.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let mut rest = words.as_slice();
        let expression = alternatives(&mut rest)?;
        if rest.is_empty() { Some(expression) } else { None }
    }

    /// Whether allowed licences suffice.
    pub(super) fn is_satisfied(&self, is_allowed: &dyn Fn(&str) -> bool) -> bool {
        match self {
            Expression::Licence(name) => is_allowed(name),
            Expression::And(a, b) => a.is_satisfied(is_allowed) && b.is_satisfied(is_allowed),
            Expression::Or(a, b) => a.is_satisfied(is_allowed) || b.is_satisfied(is_allowed),
        }
    }
}

/// `AND` binds more tightly than `OR`.
fn alternatives(words: &mut &[&str]) -> Option<Expression> {
    let mut expression = conjunction(words)?;
    while next_is(words, "OR") {
        expression = Expression::Or(Box::new(expression), Box::new(conjunction(words)?));
    }
    Some(expression)
}

fn conjunction(words: &mut &[&str]) -> Option<Expression> {
    let mut expression = operand(words)?;
    while next_is(words, "AND") {
        expression = Expression::And(Box::new(expression), Box::new(operand(words)?));
    }
    Some(expression)
}

fn operand(words: &mut &[&str]) -> Option<Expression> {
    if next_is(words, "(") {
        let expression = alternatives(words)?;
        return if next_is(words, ")") { Some(expression) } else { None };
    }
    let name = take(words)?;
    if ["AND", "OR", "WITH", ")"].contains(&name) {
        return None;
    }
    let mut name = name.to_string();
    if next_is(words, "WITH") {
        name = format!("{name} WITH {}", take(words)?);
    }
    Some(Expression::Licence(name))
}

fn take<'a>(words: &mut &[&'a str]) -> Option<&'a str> {
    let (first, rest) = words.split_first()?;
    *words = rest;
    Some(first)
}

/// Takes the next word if it is this one.
fn next_is(words: &mut &[&str], word: &str) -> bool {
    let is_next = words.first() == Some(&word);
    if is_next {
        *words = &words[1..];
    }
    is_next
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_satisfied(text: &str, allowed: &[&str]) -> bool {
        Expression::parse(text).unwrap().is_satisfied(&|name| allowed.contains(&name))
    }

    #[test]
    fn one_alternative_suffices_and_all_of_a_conjunction_are_needed() {
        assert!(is_satisfied("GPL-3.0 OR MIT", &["MIT"]));
        assert!(!is_satisfied("GPL-3.0 AND MIT", &["MIT"]));
        assert!(is_satisfied("GPL-3.0/MIT", &["MIT"]));
        assert!(is_satisfied("(MIT OR Apache-2.0) AND Unicode-3.0", &["MIT", "Unicode-3.0"]));
        assert!(!is_satisfied("(MIT OR Apache-2.0) AND Unicode-3.0", &["MIT"]));
        // AND first.
        assert!(is_satisfied("MIT OR GPL-3.0 AND Zlib", &["MIT"]));
    }

    #[test]
    fn an_exception_is_part_of_the_licence() {
        let text = "Apache-2.0 WITH LLVM-exception";
        assert!(is_satisfied(text, &["Apache-2.0 WITH LLVM-exception"]));
        assert!(!is_satisfied(text, &["Apache-2.0"]));
    }

    #[test]
    fn other_texts_are_no_expressions() {
        for text in ["", "MIT OR", "(MIT", "MIT)", "MIT Apache-2.0", "OR MIT"] {
            assert_eq!(Expression::parse(text), None, "{text}");
        }
    }
}

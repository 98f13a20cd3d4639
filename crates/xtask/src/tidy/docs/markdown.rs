//! The parts of Markdown that checks read: headings, code blocks and links.

/// A code block between fences.
#[derive(Debug, PartialEq)]
pub(super) struct Fence {
    /// What follows the opening fence: `rust,no_run`.
    info: String,
}

impl Fence {
    pub(super) fn all(text: &str) -> Vec<Fence> {
        let mut fences = Vec::new();
        for_each_line(text, |_, line, place| {
            if place == Place::Opening {
                let info = line.trim_start().trim_start_matches(['`', '~']).trim();
                fences.push(Fence { info: info.to_string() });
            }
        });
        fences
    }

    /// Whether it has Rust or Python code. To rustdoc a block without a language is Rust.
    pub(super) fn is_runnable(&self) -> bool {
        let language = self.info.split([',', ' ']).next().unwrap_or_default();
        ["", "rust", "python", "no_run", "should_panic", "compile_fail"].contains(&language)
    }
}

/// A link to a page, an image or a place in a page.
#[derive(Debug, PartialEq)]
pub(super) struct Link {
    pub(super) line: usize,
    pub(super) target: String,
}

impl Link {
    /// Links of the form `[text](target)` and `[text]: target`, outside code.
    pub(super) fn all(text: &str) -> Vec<Link> {
        let mut links = Vec::new();
        for_each_line(text, |line, text, place| {
            if place != Place::Text {
                return;
            }
            let text = without_code(text);
            let mut push = |target: &str| {
                let target = target.split_whitespace().next().unwrap_or_default();
                links.push(Link { line, target: target.trim_matches(['<', '>']).to_string() });
            };
            for (at, _) in text.match_indices("](") {
                if let Some((target, _)) = text[at + 2..].split_once(')') {
                    push(target);
                }
            }
            if let Some((name, target)) = text.split_once("]: ")
                && name.starts_with('[')
            {
                push(target);
            }
        });
        links
    }

    /// Whether it leads to another site, or is one of Rust's documentation.
    pub(super) fn is_external(&self) -> bool {
        self.target.contains("://")
            || self.target.starts_with("mailto:")
            || self.target.contains("::")
    }
}

#[derive(Debug, PartialEq)]
pub(super) struct Heading {
    title: String,
}

impl Heading {
    pub(super) fn all(text: &str) -> Vec<Heading> {
        let mut headings = Vec::new();
        for_each_line(text, |_, text, place| {
            let title = text.trim_start_matches('#');
            if place == Place::Text && title.len() < text.len() && title.starts_with(' ') {
                headings.push(Heading { title: title.trim().to_string() });
            }
        });
        headings
    }

    /// The part of an address after `#`.
    pub(super) fn anchor(&self) -> String {
        let kept = self.title.to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    }
}

/// The words between backticks outside code blocks, with their lines.
pub(super) fn spans_by_line(text: &str) -> Vec<(usize, &str)> {
    let mut spans = Vec::new();
    for_each_line(text, |line, text, place| {
        if place == Place::Text {
            spans.extend(text.split('`').skip(1).step_by(2).map(|span| (line, span)));
        }
    });
    spans
}

/// Where a line stands.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Text,
    Opening,
    Code,
}

/// Calls `visit` with the number of each line (from 1), its text and its place.
fn for_each_line<'a>(text: &'a str, mut visit: impl FnMut(usize, &'a str, Place)) {
    let mut fence = None;
    for (index, line) in text.lines().enumerate() {
        let start = line.trim_start();
        let marker = ["```", "~~~"].into_iter().find(|marker| start.starts_with(marker));
        let place = match (fence, marker) {
            (None, Some(_)) => {
                fence = marker;
                Place::Opening
            }
            (Some(open), Some(found)) if open == found => {
                fence = None;
                Place::Code
            }
            (Some(_), _) => Place::Code,
            (None, None) => Place::Text,
        };
        visit(index + 1, line, place);
    }
}

/// The line with its code spans blanked: links in those are text.
fn without_code(line: &str) -> String {
    let mut parts = line.split('`');
    let mut text = parts.next().unwrap_or_default().to_string();
    // An odd backtick at the end opens nothing.
    let parts: Vec<&str> = parts.collect();
    for (index, part) in parts.iter().enumerate() {
        let is_code = index % 2 == 0 && index + 1 < parts.len();
        text.push('`');
        text.push_str(&if is_code { " ".repeat(part.len()) } else { part.to_string() });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# One page

See [that](other.md#part) and `[not](this.md)` and [`code`](a.md).

```rust
[neither](this.md)
# not a heading
```

## A part: with `code`!

[named]: named.md \"title\"
";

    #[test]
    fn links_are_found_outside_code() {
        let targets: Vec<String> = Link::all(PAGE).into_iter().map(|link| link.target).collect();
        assert_eq!(targets, ["other.md#part", "a.md", "named.md"]);
    }

    #[test]
    fn code_spans_are_found_outside_code_blocks() {
        assert_eq!(
            spans_by_line("a `b` c `d`\n```\n`e`\n```\n`f`"),
            [(1, "b"), (1, "d"), (5, "f")]
        );
    }

    #[test]
    fn headings_have_anchors() {
        let anchors: Vec<String> = Heading::all(PAGE).iter().map(Heading::anchor).collect();
        assert_eq!(anchors, ["one-page", "a-part-with-code"]);
    }

    #[test]
    fn code_blocks_know_their_language() {
        let fences = Fence::all("```rust,no_run\n```\n```sh\n```\n```\n```\n");
        let runnable: Vec<bool> = fences.iter().map(Fence::is_runnable).collect();
        assert_eq!(runnable, [true, false, true]);
    }
}

//! Files import only from rooms of lower layers, in the order that ARCHITECTURE.md gives.

use crate::tidy::architecture::PAGE;
use crate::tidy::docs::marked_table;
use crate::tidy::exceptions::{Counts, Measured, Slack};
use crate::tidy::files::Files;
use crate::tidy::finding::Finding;
use crate::tidy::imports::ImportGraph;

const LIBRARY: &str = "crates/cenote/src/";

/// A table follows this marker. Its first column names rooms, the lowest layer first. A room is a file
/// or a folder of the library: `copies.rs`, `ipc/ring/`.
const MARKER: &str = "<!-- layers of crates/cenote/src -->";

/// Rooms in one row are of one layer: they do not import each other.
struct Layers {
    /// Each room with the number of its layer.
    rooms: Vec<(String, usize)>,
    /// The rows of the table.
    lines: Vec<usize>,
}

impl Layers {
    fn parse(page: &str) -> Option<Layers> {
        let table = marked_table(page, MARKER)?;
        let mut rooms = Vec::new();
        for (layer, row) in table.rows.iter().enumerate() {
            let names = row.code_spans(0).into_iter();
            let names = names.map(|name| name.trim_end_matches('/').trim_end_matches(".rs"));
            rooms.extend(names.map(|name| (name.to_string(), layer)));
        }
        Some(Layers { rooms, lines: table.rows.iter().map(|row| row.line).collect() })
    }

    /// The innermost room of a file, and its layer.
    fn room_of(&self, file: &str) -> Option<&(String, usize)> {
        let file = file.strip_prefix(LIBRARY)?.strip_suffix(".rs")?;
        let rooms = self.rooms.iter().filter(|(room, _)| {
            file.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        rooms.max_by_key(|(room, _)| room.len())
    }
}

/// Every file of the library is in a room, and every room has a file.
pub(crate) fn check(files: &Files) -> Vec<Finding> {
    let Some(layers) = Layers::parse(files.get(PAGE).unwrap_or_default()) else {
        return vec![Finding::in_file(PAGE, format!("no table after `{MARKER}`"))];
    };
    let mut findings = Vec::new();
    let sources: Vec<&str> = files.under(LIBRARY, ".rs").map(|(path, _)| path).collect();
    for path in sources.iter().filter(|path| !is_list_of_modules(path)) {
        if layers.room_of(path).is_none() {
            findings.push(Finding::in_file(*path, format!("in no room of the table in {PAGE}")));
        }
    }
    for (room, layer) in &layers.rooms {
        if !sources.iter().any(|path| layers.room_of(path).is_some_and(|(name, _)| name == room)) {
            let message = format!("the room {room} does not exist");
            findings.push(Finding::at(PAGE, layers.lines[*layer], message));
        }
    }
    findings
}

/// `lib.rs`, and the `mod.rs` of a room that the table divides, as `ipc/mod.rs`.
fn is_list_of_modules(path: &str) -> bool {
    path.ends_with("/lib.rs") || path.ends_with("/mod.rs")
}

/// The imports against the order, by the file and the room that it imports from. A number counts the
/// files that it imports from there.
pub(crate) fn measure(files: &Files) -> Measured {
    let mut counts = Counts::new();
    if let Some(layers) = Layers::parse(files.get(PAGE).unwrap_or_default()) {
        for (file, imported) in &ImportGraph::of(files, LIBRARY).imports {
            let Some((room, layer)) = layers.room_of(file) else { continue };
            for (other, other_layer) in imported.iter().filter_map(|file| layers.room_of(file)) {
                if other != room && other_layer >= layer {
                    *counts.entry(format!("{file} -> {other}")).or_default() += 1;
                }
            }
        }
    }
    Measured { list: "layers", unit: "imports", slack: Slack::Refused, counts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::finding::texts;

    const TABLE: &str = "<!-- layers of crates/cenote/src -->\n| rooms |\n|---|\n\
                         | `low.rs` |\n| `a.rs`, `b/` |\n| `ipc/ring/` |\n| `ipc/` |\n";

    fn library(sources: &[(&str, &str)]) -> Files {
        let mut all = vec![(PAGE.to_string(), TABLE)];
        all.extend(sources.iter().map(|(path, text)| ([LIBRARY, path].concat(), *text)));
        let all: Vec<(&str, &str)> =
            all.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        Files::from(&all)
    }

    #[test]
    fn imports_from_the_same_layer_or_above_are_found() {
        let files = library(&[
            ("low.rs", "use crate::a::A;"),
            ("a.rs", "use crate::low::Low; use crate::b::B;"),
            ("b/mod.rs", "use crate::low::Low;"),
            ("b/x.rs", "use super::Y; use crate::ipc::ring::Ring; use crate::ipc::ring::x::X;"),
            ("ipc/ring/mod.rs", "use crate::ipc::topic::T;"),
            ("ipc/ring/x.rs", ""),
            ("ipc/topic.rs", "use crate::ipc::ring::Ring; use crate::a::A;"),
        ]);
        let expected = [
            ("a.rs -> b", 1),
            ("b/x.rs -> ipc/ring", 2),
            ("ipc/ring/mod.rs -> ipc", 1),
            ("low.rs -> a", 1),
        ];
        let expected = expected.map(|(name, count)| ([LIBRARY, name].concat(), count));
        assert_eq!(measure(&files).counts, expected.into());
    }

    #[test]
    fn every_file_has_a_room_and_every_room_a_file() {
        let files = library(&[("low.rs", ""), ("lower.rs", ""), ("a.rs", ""), ("ipc/ring.rs", "")]);
        assert_eq!(
            texts(&check(&files)),
            [
                "crates/cenote/src/lower.rs: in no room of the table in ARCHITECTURE.md",
                "ARCHITECTURE.md:5: the room b does not exist",
                "ARCHITECTURE.md:7: the room ipc does not exist",
            ]
        );
        assert_eq!(check(&Files::from(&[(PAGE, "")])).len(), 1);
    }
}

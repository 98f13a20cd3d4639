//! The layout of plain data, parsed from the type text of its publisher (`cenote::Plain`):
//! `Pose { position: [f64; 3] at 0, frame: u32 at 24 }`.

use cenote::DType;
use serde_json::Value;

use super::shown_value::{ShownValue, value};

/// The layout of a type.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// A number of a type that tensors have.
    Number(DType),
    /// A 128-bit integer, which tensors do not have.
    Wide {
        signed: bool,
    },
    Array(Box<Layout>, usize),
    Struct(Vec<Field>),
}

/// A field of a struct, with the offset of its first byte.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Field {
    name: String,
    layout: Layout,
    offset: usize,
}

impl Layout {
    /// Parses a type text; `None` if it is truncated or invalid.
    pub(super) fn parse(text: &str) -> Option<Layout> {
        let mut rest = Text(text);
        let layout = rest.layout()?;
        rest.0.is_empty().then_some(layout)
    }

    /// The size in bytes; plain data has no padding. `None` if it overflows: the text comes from another process,
    /// which may claim anything.
    pub(super) fn size(&self) -> Option<usize> {
        match self {
            Layout::Number(dtype) => Some(dtype.size()),
            Layout::Wide { .. } => Some(size_of::<u128>()),
            Layout::Array(item, count) => item.size()?.checked_mul(*count),
            Layout::Struct(fields) => fields.iter().try_fold(0, |size: usize, field| {
                Some(size.max(field.offset.checked_add(field.layout.size()?)?))
            }),
        }
    }

    /// Decodes the bytes, of which there must be at least [`Layout::size`]. Stops after `left` numbers, and subtracts
    /// the decoded ones from `left`.
    pub(super) fn show(&self, bytes: &[u8], left: &mut usize) -> ShownValue {
        match self {
            Layout::Number(dtype) => {
                *left = left.saturating_sub(1);
                ShownValue::Scalar(value(*dtype, bytes))
            }
            Layout::Wide { signed } => {
                *left = left.saturating_sub(1);
                ShownValue::Scalar(wide(*signed, bytes))
            }
            Layout::Array(item, count) => ShownValue::List(show_all(item, *count, bytes, left)),
            Layout::Struct(fields) => {
                let mut shown = Vec::new();
                for field in fields {
                    let Some(bytes) = bytes.get(field.offset..).filter(|_| *left > 0) else {
                        break;
                    };
                    shown.push((field.name.clone(), field.layout.show(bytes, left)));
                }
                ShownValue::Fields(shown)
            }
        }
    }
}

/// Decodes the items of an array until `left` numbers are decoded. Items without bytes are left out.
fn show_all(item: &Layout, count: usize, bytes: &[u8], left: &mut usize) -> Vec<ShownValue> {
    let Some(size) = item.size().filter(|size| *size > 0) else { return Vec::new() };
    let mut shown = Vec::new();
    for bytes in bytes.chunks_exact(size).take(count) {
        if *left == 0 {
            break;
        }
        let before = *left;
        shown.push(item.show(bytes, left));
        // An item without numbers counts as one.
        *left -= usize::from(*left == before);
    }
    shown
}

/// A 128-bit integer as a string, because many JSON parsers cannot read such a number.
fn wide(signed: bool, bytes: &[u8]) -> Value {
    let Some(Ok(bytes)) = bytes.get(..size_of::<u128>()).map(TryInto::try_into) else {
        return Value::Null;
    };
    match signed {
        true => i128::from_ne_bytes(bytes).to_string().into(),
        false => u128::from_ne_bytes(bytes).to_string().into(),
    }
}

/// The rest of the text to parse.
struct Text<'a>(&'a str);

impl<'a> Text<'a> {
    /// Consumes the expected characters; `None` if others follow.
    fn take(&mut self, expected: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(expected)?;
        Some(())
    }

    /// Consumes the expected characters if they follow.
    fn has(&mut self, expected: &str) -> bool {
        self.take(expected).is_some()
    }

    fn word(&mut self) -> Option<&'a str> {
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '#';
        let end = self.0.find(|c| !is_part(c)).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }

    fn number(&mut self) -> Option<usize> {
        self.word()?.parse().ok()
    }

    fn layout(&mut self) -> Option<Layout> {
        if self.has("[") {
            let item = self.layout()?;
            self.take("; ")?;
            let count = self.number()?;
            self.take("]")?;
            return Some(Layout::Array(Box::new(item), count));
        }
        if self.has("()") {
            return Some(Layout::Struct(Vec::new()));
        }
        let word = self.word()?;
        if self.has(" {") {
            return self.fields().map(Layout::Struct);
        }
        if self.has("<") {
            let part = self.layout()?;
            self.take(">")?;
            return match word {
                "Complex" => Some(Layout::Array(Box::new(part), 2)),
                "Wrapping" => Some(part),
                _ => None,
            };
        }
        number_type(word)
    }

    fn fields(&mut self) -> Option<Vec<Field>> {
        let mut fields = Vec::new();
        while !self.has(" }") {
            if !fields.is_empty() {
                self.take(",")?;
            }
            self.take(" ")?;
            let name = self.word()?.to_owned();
            self.take(": ")?;
            let layout = self.layout()?;
            self.take(" at ")?;
            fields.push(Field { name, layout, offset: self.number()? });
        }
        Some(fields)
    }
}

fn number_type(name: &str) -> Option<Layout> {
    let name = match (name, size_of::<usize>()) {
        ("u128", _) => return Some(Layout::Wide { signed: false }),
        ("i128", _) => return Some(Layout::Wide { signed: true }),
        ("usize", 8) => "u64",
        ("isize", 8) => "i64",
        ("usize", _) => "u32",
        ("isize", _) => "i32",
        _ => name,
    };
    name.parse().ok().map(Layout::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote::{Plain, bytemuck};

    #[repr(C)]
    #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
    struct Part {
        last: u16,
        all: [i8; 2],
    }
    cenote::plain!(Part { last, all });

    #[repr(C)]
    #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
    struct Whole {
        wide: u128,
        parts: [Part; 2],
        complex: cenote::Complex<f32>,
    }
    cenote::plain!(Whole { wide, parts, complex });

    fn whole() -> Whole {
        let part = |last| Part { last, all: [-1, 1] };
        let complex = cenote::Complex { re: 0.5, im: f32::NAN };
        Whole { wide: u128::MAX, parts: [part(7), part(8)], complex }
    }

    fn shown(count: usize) -> String {
        let layout = Layout::parse(&Whole::layout()).unwrap();
        assert_eq!(layout.size(), Some(size_of::<Whole>()));
        let mut left = count;
        serde_json::to_string(&layout.show(bytemuck::bytes_of(&whole()), &mut left)).unwrap()
    }

    #[test]
    fn fields_have_names_and_keep_their_order() {
        let all = format!(
            r#"{{"wide":"{}","parts":[{{"last":7,"all":[-1,1]}},{{"last":8,"all":[-1,1]}}],"complex":[0.5,"NaN"]}}"#,
            u128::MAX
        );
        assert_eq!(shown(100), all);
        assert_eq!(shown(9), all);
        let some = format!(r#"{{"wide":"{}","parts":[{{"last":7,"all":[-1]}}]}}"#, u128::MAX);
        assert_eq!(shown(3), some);
    }

    #[test]
    fn an_invalid_text_is_no_layout() {
        let good = Whole::layout();
        for len in 0..good.len() {
            assert_eq!(Layout::parse(&good[..len]), None, "{}", &good[..len]);
        }
        for bad in ["Pose", "[f32]", "Box<u8>", "f32 ", "A { x: f32 at -1 }", "A { x: f32 }"] {
            assert_eq!(Layout::parse(bad), None, "{bad}");
        }
        // Sizes that overflow, and items without bytes.
        let huge = Layout::parse("[[u64; 18446744073709551615]; 2]").unwrap();
        assert_eq!(huge.size(), None);
        let empty = Layout::parse("[[u8; 0]; 18446744073709551615]").unwrap();
        assert_eq!((empty.size(), empty.show(&[], &mut 9)), (Some(0), ShownValue::List(vec![])));
        let far = Layout::parse("A { x: u8 at 18446744073709551615 }").unwrap();
        assert_eq!(far.size(), None);
    }
}

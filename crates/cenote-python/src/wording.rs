//! What the core says, in the words of Python.

/// Names of Rust, and what does the same here.
const WORDS: [(&str, &str); 10] = [
    ("`make_mut` copies it into memory of its own", "`copy()` makes one that can be"),
    ("configuration: pool_size:", "configuration: size_mb:"),
    ("configuration: growth:", "configuration: growth_mb:"),
    ("`pool_size`", "`size_mb`"),
    ("alloc_timeout is for", "alloc is for"),
    ("call `set_format` first", "give it one with `Image.from_tensor(tensor, format)`"),
    ("(`set_intrinsics`)", "(`depth.intrinsics = (fx, fy, cx, cy)`)"),
    ("`to_contiguous`", "`copy()`"),
    ("`to_vec`", "`copy()`"),
    ("i8..i64 u8..u64", "int8..int64 uint8..uint64"),
];

/// Names of dtypes in Rust and in Python.
const DTYPES: [(&str, &str); 12] = [
    ("f16", "float16"),
    ("f32", "float32"),
    ("f64", "float64"),
    ("bf16", "bfloat16"),
    ("i8", "int8"),
    ("i16", "int16"),
    ("i32", "int32"),
    ("i64", "int64"),
    ("u8", "uint8"),
    ("u16", "uint16"),
    ("u32", "uint32"),
    ("u64", "uint64"),
];

/// A message of the core.
pub(crate) fn reworded(message: &str) -> String {
    let replace = |text: String, &(rust, python): &(&str, &str)| text.replace(rust, python);
    WORDS.iter().fold(message.to_owned(), replace)
}

/// A message of the core that is about dtypes.
pub(crate) fn with_dtypes(message: &str) -> String {
    let is_apart = |c: char| !c.is_alphanumeric();
    let word = |part: &str| {
        let (word, rest) = part.split_at(part.find(is_apart).unwrap_or(part.len()));
        let known = DTYPES.iter().find(|(rust, _)| *rust == word);
        known.map_or(word, |(_, python)| *python).to_owned() + rest
    };
    message.split_inclusive(is_apart).map(word).collect()
}

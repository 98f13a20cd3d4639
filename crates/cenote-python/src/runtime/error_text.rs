//! Error messages of the core, with the names that things have in Python.

/// Phrases with names of Rust, and what replaces them.
const PHRASES: [(&str, &str); 10] = [
    ("`make_mut` copies it into new memory", "`copy()` makes one that can be"),
    ("configuration: pool_size:", "configuration: size_mb:"),
    ("configuration: growth:", "configuration: growth_mb:"),
    ("`pool_size`", "`size_mb`"),
    ("alloc_while is for", "alloc is for"),
    ("call `set_format` first", "give it one with `Image.from_tensor(tensor, format)`"),
    ("(`set_intrinsics`)", "(`depth.intrinsics = (fx, fy, cx, cy)`)"),
    ("`to_contiguous`", "`copy()`"),
    ("`to_vec`", "`copy()`"),
    ("i8..i64 u8..u64", "int8..int64 uint8..uint64"),
];

/// Names of dtypes in Rust, and in Python.
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

/// A message of the core with Python's names.
pub(crate) fn for_python(message: &str) -> String {
    let replace = |text: String, &(rust, python): &(&str, &str)| text.replace(rust, python);
    PHRASES.iter().fold(message.to_owned(), replace)
}

/// A message about dtypes with Python's names of dtypes.
pub(crate) fn with_dtypes(message: &str) -> String {
    let is_separator = |c: char| !c.is_alphanumeric();
    let word = |part: &str| {
        let (word, rest) = part.split_at(part.find(is_separator).unwrap_or(part.len()));
        let known = DTYPES.iter().find(|(rust, _)| *rust == word);
        known.map_or(word, |(_, python)| *python).to_owned() + rest
    };
    message.split_inclusive(is_separator).map(word).collect()
}

//! Mutates valid inputs: small changes find more than random bytes do.

use std::sync::Mutex;

use crate::support::{Random, hex};

/// Numbers at the limits of ranges.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    7,
    8,
    0x7f,
    0x80,
    0xff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    1 << 46,
    i64::MAX.cast_unsigned(),
    1 << 63,
    u64::MAX,
];

/// The last input, which the panic hook shows.
static LAST: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Shows the input that led to a panic.
pub(crate) fn show_last_input_on_panic() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if let Ok(last) = LAST.try_lock() {
            eprintln!("the last input: {}", hex(&last));
        }
        usual(info);
    }));
}

/// An input of the corpus, with one to four changes.
pub(crate) fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(4) {
        mutate(&mut bytes, corpus, random);
    }
    LAST.lock().unwrap().clone_from(&bytes);
    bytes
}

fn mutate(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    if bytes.is_empty() {
        return bytes.push(0);
    }
    let at = random.below(bytes.len());
    match random.below(16) {
        0..=4 => bytes[at] ^= 1 << random.below(8),
        5..=6 => bytes[at] = random.next().to_ne_bytes()[0],
        7..=11 => {
            let size = [2, 4, 8][random.below(3)];
            let word = EDGES[random.below(EDGES.len())].wrapping_add(random.next() % 3);
            overwrite(bytes, at / size * size, &word.to_ne_bytes()[..size]);
        }
        12 => bytes.truncate(at),
        13 => bytes.extend_from_within(at..),
        14 => {
            let other = &corpus[random.below(corpus.len())];
            overwrite(bytes, at, other.get(at..).unwrap_or_default());
        }
        _ => {
            let from = random.below(bytes.len());
            let copy = bytes[from..bytes.len().min(from + 8)].to_vec();
            overwrite(bytes, at, &copy);
        }
    }
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    for (to, from) in bytes[at..].iter_mut().zip(with) {
        *to = *from;
    }
}

//! NPY, the format of `numpy.save` (NEP 1).

use std::fs;
use std::path::Path;

use cenote::{DType, PointCloud, Tensor};

use crate::failure::{Failure, Outcome};
use crate::files;
use crate::files::atomic_write;

const MAGIC: &[u8] = b"\x93NUMPY";

/// The header is padded to a multiple of this.
const ALIGN: usize = 64;

/// An array that was read: its elements in C order and in the byte order of this machine.
#[derive(Debug)]
pub(crate) struct Array {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

/// Writes a tensor.
pub(crate) fn save(tensor: &Tensor, path: &Path) -> Outcome {
    let header = header(tensor.dtype(), tensor.shape());
    let mut file = header.map_err(|failure| failure.about(path))?;
    let map = tensor.map()?;
    map.runs().for_each(|run| file.extend_from_slice(run));
    atomic_write::write(path, &file)
}

/// Writes a point cloud, one row for each point. A cloud without points becomes an array of no rows, which a
/// tensor cannot be.
pub(crate) fn save_cloud(cloud: &PointCloud, path: &Path) -> Outcome {
    let tensor = cloud.tensor();
    if let Some(points) = files::points(cloud)? {
        return save(&points, path);
    }
    let values = tensor.shape().get(1).copied().unwrap_or(0);
    let header = header(tensor.dtype(), &[0, values]);
    atomic_write::write(path, &header.map_err(|failure| failure.about(path))?)
}

/// Writes bytes as an array of `uint8`.
pub(crate) fn save_bytes(bytes: &[u8], path: &Path) -> Outcome {
    atomic_write::write(path, &[&header(DType::U8, &[bytes.len()])?, bytes].concat())
}

/// Reads an array.
pub(crate) fn load(path: &Path) -> Outcome<Array> {
    let file = fs::read(path).map_err(|error| Failure::of_file("reading", path, &error))?;
    let failed = |why| Failure::Failed(format!("reading {} failed: {why}", path.display()));
    parse(&file).map_err(failed)
}

fn header(dtype: DType, shape: &[usize]) -> Outcome<Vec<u8>> {
    let kind = kind(dtype).ok_or_else(|| {
        Failure::Failed(format!("NPY has no {dtype} elements: convert them before sending"))
    })?;
    let order = if cfg!(target_endian = "little") { '<' } else { '>' };
    let shape: String = shape.iter().map(|length| format!("{length}, ")).collect();
    let text = format!(
        "{{'descr': '{order}{kind}{}', 'fortran_order': False, 'shape': ({shape}), }}",
        dtype.size()
    );
    let end = (MAGIC.len() + 4 + text.len() + 1).next_multiple_of(ALIGN);
    let len = end - MAGIC.len() - 4;
    let words = u16::try_from(len).map_err(Failure::from_text)?.to_le_bytes();
    let mut bytes = [MAGIC, &[1, 0], &words, text.as_bytes()].concat();
    bytes.resize(end - 1, b' ');
    bytes.push(b'\n');
    Ok(bytes)
}

/// The letter of an element type in `descr`; `None` if NumPy has no such type.
fn kind(dtype: DType) -> Option<char> {
    Some(match dtype.numpy_name() {
        "bfloat16" => return None,
        "bool" => 'b',
        name if name.starts_with("float") => 'f',
        name if name.starts_with("int") => 'i',
        name if name.starts_with("uint") => 'u',
        _ => 'c',
    })
}

fn parse(file: &[u8]) -> Result<Array, &'static str> {
    let rest = file.strip_prefix(MAGIC).ok_or("it is not an NPY file")?;
    let (version, rest) = rest.split_at_checked(2).ok_or("it is truncated")?;
    let width = if version[0] == 1 { 2 } else { 4 };
    let (len, rest) = rest.split_at_checked(width).ok_or("it is truncated")?;
    let len = len.iter().rev().fold(0_usize, |len, byte| len << 8 | usize::from(*byte));
    let (text, elements) = rest.split_at_checked(len).ok_or("it is truncated")?;
    let text = std::str::from_utf8(text).map_err(|_| "its header is not text")?;
    if !text.contains("'fortran_order': False") {
        return Err("its elements are in Fortran order: save it with numpy.ascontiguousarray");
    }
    let dtype = dtype(text)?;
    let shape = shape(text)?;
    let count = shape.iter().try_fold(dtype.size(), |bytes, length| bytes.checked_mul(*length));
    let count = count.ok_or("its shape is too large")?;
    let bytes = elements.get(..count).ok_or("it has fewer elements than its shape says")?;
    Ok(Array { dtype, shape, bytes: bytes.to_vec() })
}

fn dtype(text: &str) -> Result<DType, &'static str> {
    let unknown = "its element type has no tensor equivalent";
    let (_, descr) = text.split_once("'descr': ").ok_or("its header has no descr")?;
    if descr.trim_start().starts_with('[') {
        return Err(
            "it is a structured array, which a tensor cannot hold: save each field as its own file",
        );
    }
    let descr = descr.strip_prefix('\'').ok_or("its header has no descr")?;
    let (descr, _) = descr.split_once('\'').ok_or("its header has no descr")?;
    let foreign = if cfg!(target_endian = "little") { '>' } else { '<' };
    if descr.starts_with(foreign) && !descr.ends_with('1') {
        return Err("its elements are in the byte order of another machine");
    }
    let descr = descr.trim_start_matches(['<', '>', '|', '=']);
    let is =
        |dtype: &DType| kind(*dtype).is_some_and(|kind| format!("{kind}{}", dtype.size()) == descr);
    DType::all().find(is).ok_or(unknown)
}

fn shape(text: &str) -> Result<Vec<usize>, &'static str> {
    let bad = "its header has no shape";
    let (_, shape) = text.split_once("'shape': (").ok_or(bad)?;
    let (shape, _) = shape.split_once(')').ok_or(bad)?;
    let lengths = shape.split(',').map(str::trim).filter(|length| !length.is_empty());
    lengths.map(|length| length.parse().map_err(|_| bad)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_array_loads_with_its_dtype_shape_and_elements() {
        for dtype in DType::all().filter(|dtype| *dtype != DType::Bf16) {
            for shape in [&[][..], &[3], &[2, 3, 4]] {
                let header = header(dtype, shape).unwrap();
                assert_eq!(header.len() % ALIGN, 0);
                let elements = vec![1; shape.iter().product::<usize>() * dtype.size()];
                let array = parse(&[header, elements.clone()].concat()).unwrap();
                assert_eq!((array.dtype, &*array.shape, array.bytes), (dtype, shape, elements));
            }
        }
        assert!(header(DType::Bf16, &[1]).is_err());
    }

    #[test]
    fn a_file_written_by_numpy_loads() {
        // The output of numpy.save(file, numpy.array([1, 2], dtype="<u2")).
        let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        let text = "{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }";
        file.extend_from_slice(format!("{text:<117}\n\x01\x00\x02\x00").as_bytes());
        if cfg!(target_endian = "little") {
            let array = parse(&file).unwrap();
            assert_eq!((array.dtype, array.shape), (DType::U16, vec![2]));
            assert_eq!(array.bytes, [1, 0, 2, 0]);
        }
    }

    #[test]
    fn an_invalid_file_is_refused() {
        let good = [header(DType::U8, &[4]).unwrap(), vec![0; 4]].concat();
        assert!(parse(&good).is_ok());
        (0..good.len()).for_each(|len| assert!(parse(&good[..len]).is_err(), "truncated at {len}"));
        for (from, to) in [("(4, )", "(-4,)"), ("|u1", "<O8"), ("False", "True ")] {
            let text = String::from_utf8_lossy(&good[10..]).replace("<u1", "|u1");
            let changed = [&good[..10], text.replace(from, to).as_bytes()].concat();
            assert!(parse(&changed).is_err(), "{to}");
        }
        let huge = header(DType::F64, &[usize::MAX, 2]).unwrap();
        assert!(parse(&huge).is_err());
    }
}

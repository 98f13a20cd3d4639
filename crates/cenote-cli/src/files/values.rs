//! The elements of a tensor as values to look at.

use cenote::{DType, Tensor, bf16, f16};
use serde_json::{Value, json};

use crate::failure::Outcome;

/// The first elements, in the order of their indices.
pub(crate) fn first(tensor: &Tensor, count: usize) -> Outcome<Vec<Value>> {
    let map = tensor.map()?;
    let (dtype, size) = (tensor.dtype(), tensor.dtype().size());
    let elements = map.runs().flat_map(|run| run.chunks_exact(size));
    Ok(elements.take(count).map(|element| value(dtype, element)).collect())
}

/// The first values of plain data, if its type is a number or an array of them; else its first bytes.
pub(crate) fn plain(carries: &str, bytes: &[u8], count: usize) -> Vec<Value> {
    let name = carries.split(" (").next().unwrap_or(carries);
    let element = name.trim_start_matches('[').split(';').next().unwrap_or(name);
    let dtype = element.parse().ok().filter(|_| element == name || name.ends_with(']'));
    let dtype = dtype.unwrap_or(DType::U8);
    bytes.chunks_exact(dtype.size()).take(count).map(|element| value(dtype, element)).collect()
}

/// One element. What JSON has no number for, such as infinity, becomes null.
fn value(dtype: DType, bytes: &[u8]) -> Value {
    match dtype {
        DType::F32 => f32::from_ne_bytes(exact(bytes)).into(),
        DType::F64 => f64::from_ne_bytes(exact(bytes)).into(),
        DType::F16 => f16::from_ne_bytes(exact(bytes)).to_f32().into(),
        DType::Bf16 => bf16::from_ne_bytes(exact(bytes)).to_f32().into(),
        DType::I8 => i8::from_ne_bytes(exact(bytes)).into(),
        DType::I16 => i16::from_ne_bytes(exact(bytes)).into(),
        DType::I32 => i32::from_ne_bytes(exact(bytes)).into(),
        DType::I64 => i64::from_ne_bytes(exact(bytes)).into(),
        DType::U8 => u8::from_ne_bytes(exact(bytes)).into(),
        DType::U16 => u16::from_ne_bytes(exact(bytes)).into(),
        DType::U32 => u32::from_ne_bytes(exact(bytes)).into(),
        DType::U64 => u64::from_ne_bytes(exact(bytes)).into(),
        DType::Bool => (bytes != [0]).into(),
        DType::Complex64 => {
            let parts: [f32; 2] = bytemuck::cast(exact::<8>(bytes));
            json!(parts)
        }
        DType::Complex128 => {
            let parts: [f64; 2] = bytemuck::cast(exact::<16>(bytes));
            json!(parts)
        }
        _ => Value::Null,
    }
}

/// The bytes of an element, which are as many as its dtype says.
fn exact<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut exact = [0; N];
    exact.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    exact
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_numbers_are_shown_and_the_rest_is_bytes() {
        let bytes: Vec<u8> = [1.5_f32, -2.0].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let shown = |carries: &str| serde_json::to_string(&plain(carries, &bytes, 2)).unwrap();
        assert_eq!(shown("[f32; 2] (8 bytes, aligned to 4)"), "[1.5,-2.0]");
        assert_eq!(shown("f32 (8 bytes, aligned to 4)"), "[1.5,-2.0]");
        let first = format!("[{},{}]", bytes[0], bytes[1]);
        assert_eq!(shown("Pose (8 bytes, aligned to 4)"), first);
        assert_eq!(shown(""), first);
    }

    #[test]
    fn elements_of_every_type_and_of_views_are_shown() {
        let shown = |tensor: &Tensor| serde_json::to_string(&first(tensor, 2).unwrap()).unwrap();
        let tensor = Tensor::from_slice(&[1.5_f32, -2.0, f32::NAN], &[3]).unwrap();
        assert_eq!(shown(&tensor), "[1.5,-2.0]");
        let tensor = Tensor::from_slice(&[1_i64, 2, 3, 4], &[2, 2]).unwrap();
        assert_eq!(shown(&tensor.transpose()), "[1,3]");
        let tensor = Tensor::from_slice(&[f16::from_f32(0.5)], &[1]).unwrap();
        assert_eq!(shown(&tensor), "[0.5]");
        let tensor = Tensor::from_slice(&[true, false], &[2]).unwrap();
        assert_eq!(shown(&tensor), "[true,false]");
        let tensor = Tensor::from_slice(&[cenote::Complex { re: 1.0_f32, im: 2.0 }], &[1]).unwrap();
        assert_eq!(shown(&tensor), "[[1.0,2.0]]");
        for dtype in DType::all() {
            let zeros = Tensor::new(&[1], dtype).unwrap();
            assert_ne!(first(&zeros, 1).unwrap(), [Value::Null], "{dtype}");
        }
    }
}

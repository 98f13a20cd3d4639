//! The types of elements: their sizes, names and codes, and the Rust types that stand for them.

use std::fmt;
use std::str::FromStr;

use bytemuck::checked::{self, CheckedCastError};
use bytemuck::{CheckedBitPattern, NoUninit};
use half::{bf16, f16};
use num_complex::Complex;

use crate::error::{Error, Result};

/// The type of a tensor's elements.
///
/// ```
/// use cenote::DType;
///
/// assert_eq!("float32".parse::<DType>()?, DType::F32);
/// assert_eq!(DType::Bf16.size(), 2);
/// assert_eq!(DType::U8.to_string(), "u8");
/// # Ok::<(), cenote::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum DType {
    /// 32-bit IEEE float.
    F32 = 0,
    /// 64-bit IEEE float.
    F64 = 1,
    /// 16-bit IEEE float.
    F16 = 2,
    /// bfloat16: the upper half of an `f32`.
    Bf16 = 3,
    /// Signed 8-bit integer.
    I8 = 4,
    /// Signed 16-bit integer.
    I16 = 5,
    /// Signed 32-bit integer.
    I32 = 6,
    /// Signed 64-bit integer.
    I64 = 7,
    /// Unsigned 8-bit integer.
    U8 = 8,
    /// Unsigned 16-bit integer.
    U16 = 9,
    /// Unsigned 32-bit integer.
    U32 = 10,
    /// Unsigned 64-bit integer.
    U64 = 11,
    /// One byte, 0 or 1.
    Bool = 12,
    /// Two `f32`: real and imaginary part.
    Complex64 = 13,
    /// Two `f64`: real and imaginary part.
    Complex128 = 14,
}

/// One row of the table: a dtype, its size, its name, and numpy's name for it.
struct Row(DType, usize, &'static str, &'static str);

/// Everything known about each dtype, in the order of their codes.
const TABLE: [Row; 15] = [
    Row(DType::F32, 4, "f32", "float32"),
    Row(DType::F64, 8, "f64", "float64"),
    Row(DType::F16, 2, "f16", "float16"),
    Row(DType::Bf16, 2, "bf16", "bfloat16"),
    Row(DType::I8, 1, "i8", "int8"),
    Row(DType::I16, 2, "i16", "int16"),
    Row(DType::I32, 4, "i32", "int32"),
    Row(DType::I64, 8, "i64", "int64"),
    Row(DType::U8, 1, "u8", "uint8"),
    Row(DType::U16, 2, "u16", "uint16"),
    Row(DType::U32, 4, "u32", "uint32"),
    Row(DType::U64, 8, "u64", "uint64"),
    Row(DType::Bool, 1, "bool", "bool"),
    Row(DType::Complex64, 8, "complex64", "complex64"),
    Row(DType::Complex128, 16, "complex128", "complex128"),
];

impl DType {
    /// Every dtype, in the order of their codes.
    pub fn all() -> impl ExactSizeIterator<Item = DType> {
        TABLE.iter().map(|row| row.0)
    }

    const fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Bytes of one element.
    #[inline]
    pub const fn size(self) -> usize {
        self.row().1
    }

    /// The short name, as in Rust: `f32`, `u8`, `complex64`.
    pub const fn name(self) -> &'static str {
        self.row().2
    }

    /// The name that numpy uses: `float32`, `uint8`, `complex64`.
    pub const fn numpy_name(self) -> &'static str {
        self.row().3
    }

    /// The code that stands for it between processes. It never changes.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The dtype of a code, if there is one.
    ///
    /// ```
    /// use cenote::DType;
    /// assert_eq!(DType::from_code(8), Some(DType::U8));
    /// assert_eq!(DType::from_code(99), None);
    /// ```
    pub fn from_code(code: u8) -> Option<DType> {
        TABLE.get(usize::from(code)).map(|row| row.0)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    /// Accepts both the Rust and the numpy name, in any case.
    fn from_str(name: &str) -> Result<Self> {
        TABLE
            .iter()
            .find(|row| row.2.eq_ignore_ascii_case(name) || row.3.eq_ignore_ascii_case(name))
            .map(|row| row.0)
            .ok_or_else(|| Error::UnknownDType { given: name.into() })
    }
}

mod sealed {
    use bytemuck::checked::CheckedCastError;

    /// Looks at bytes as elements: alignment and length are checked, and the bytes where not all of
    /// them are elements.
    pub trait Sealed: Sized {
        fn cast(bytes: &[u8]) -> Result<&[Self], CheckedCastError>;
        fn cast_mut(bytes: &mut [u8]) -> Result<&mut [Self], CheckedCastError>;
    }
}

/// A Rust type that a tensor can hold.
///
/// Sealed: there is one type for each [`DType`]. `bool` is checked whenever bytes are looked at
/// as `bool`, because a byte that is neither 0 nor 1 must never become one.
pub trait Element:
    sealed::Sealed + CheckedBitPattern + NoUninit + Default + PartialEq + fmt::Debug + Send + Sync
{
    /// The dtype of this type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($cast:ident: $($ty:ty => $dtype:ident,)*) => {$(
        impl sealed::Sealed for $ty {
            #[inline]
            fn cast(bytes: &[u8]) -> Result<&[Self], CheckedCastError> {
                $cast::try_cast_slice(bytes).map_err(CheckedCastError::from)
            }

            #[inline]
            fn cast_mut(bytes: &mut [u8]) -> Result<&mut [Self], CheckedCastError> {
                $cast::try_cast_slice_mut(bytes).map_err(CheckedCastError::from)
            }
        }
        impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
        }
        const _: () = assert!(size_of::<$ty>() == DType::$dtype.size());
    )*};
}

elements! { bytemuck:
    f32 => F32,
    f64 => F64,
    f16 => F16,
    bf16 => Bf16,
    i8 => I8,
    i16 => I16,
    i32 => I32,
    i64 => I64,
    u8 => U8,
    u16 => U16,
    u32 => U32,
    u64 => U64,
    Complex<f32> => Complex64,
    Complex<f64> => Complex128,
}

elements! { checked:
    bool => Bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_round_trip() {
        for (code, dtype) in DType::all().enumerate() {
            assert_eq!(usize::from(dtype.code()), code);
            assert_eq!(DType::from_code(dtype.code()), Some(dtype));
            assert_eq!(dtype.name().parse::<DType>().unwrap(), dtype);
            assert_eq!(dtype.numpy_name().parse::<DType>().unwrap(), dtype);
        }
    }

    #[test]
    fn unknown_names_say_what_is_known() {
        let message = "f23".parse::<DType>().unwrap_err().to_string();
        assert!(message.contains("f23") && message.contains("bf16"), "{message}");
    }
}

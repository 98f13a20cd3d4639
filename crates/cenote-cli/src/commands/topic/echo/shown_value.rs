//! One value to print, as JSON or as text.

use std::fmt;

use cenote::{DType, bf16, f16};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// One or more elements to print.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ShownValue {
    Scalar(Value),
    List(Vec<ShownValue>),
    /// Named values, in the order of the fields.
    Fields(Vec<(String, ShownValue)>),
}

/// JSON has no numbers for these, so they are strings: the names that JavaScript and Python's `float` accept.
const NAN: &str = "NaN";
const INFINITY: &str = "Infinity";
const NEG_INFINITY: &str = "-Infinity";

impl Serialize for ShownValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            ShownValue::Scalar(value) => value.serialize(serializer),
            ShownValue::List(all) => all.serialize(serializer),
            ShownValue::Fields(all) => {
                serializer.collect_map(all.iter().map(|(name, it)| (name, it)))
            }
        }
    }
}

/// The text for people.
impl fmt::Display for ShownValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShownValue::Scalar(value) => f.write_str(&show(value)),
            ShownValue::List(all) => {
                let all: Vec<String> = all.iter().map(ShownValue::to_string).collect();
                write!(f, "[{}]", all.join(","))
            }
            ShownValue::Fields(all) => {
                let all: Vec<String> =
                    all.iter().map(|(name, it)| format!("{name}: {it}")).collect();
                write!(f, "{{{}}}", all.join(", "))
            }
        }
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::String(text) => match text.as_str() {
            INFINITY => "inf".to_owned(),
            NEG_INFINITY => "-inf".to_owned(),
            text => text.to_owned(),
        },
        Value::Array(parts) => {
            let parts: Vec<String> = parts.iter().map(show).collect();
            format!("[{}]", parts.join(","))
        }
        number => number.to_string(),
    }
}

fn float<F: Copy + Into<f64> + Into<Value>>(number: F) -> Value {
    match number.into() {
        f64::INFINITY => INFINITY.into(),
        f64::NEG_INFINITY => NEG_INFINITY.into(),
        nan if f64::is_nan(nan) => NAN.into(),
        _ => number.into(),
    }
}

/// Decodes one element from the start of the bytes.
pub(super) fn value(dtype: DType, bytes: &[u8]) -> Value {
    match dtype {
        DType::F32 => float(f32::from_ne_bytes(exact(bytes))),
        DType::F64 => float(f64::from_ne_bytes(exact(bytes))),
        DType::F16 => float(f16::from_ne_bytes(exact(bytes)).to_f32()),
        DType::Bf16 => float(bf16::from_ne_bytes(exact(bytes)).to_f32()),
        DType::I8 => i8::from_ne_bytes(exact(bytes)).into(),
        DType::I16 => i16::from_ne_bytes(exact(bytes)).into(),
        DType::I32 => i32::from_ne_bytes(exact(bytes)).into(),
        DType::I64 => i64::from_ne_bytes(exact(bytes)).into(),
        DType::U8 => u8::from_ne_bytes(exact(bytes)).into(),
        DType::U16 => u16::from_ne_bytes(exact(bytes)).into(),
        DType::U32 => u32::from_ne_bytes(exact(bytes)).into(),
        DType::U64 => u64::from_ne_bytes(exact(bytes)).into(),
        DType::Bool => (exact::<1>(bytes) != [0]).into(),
        DType::Complex64 => {
            let parts: [f32; 2] = bytemuck::cast(exact::<8>(bytes));
            parts.map(float).to_vec().into()
        }
        DType::Complex128 => {
            let parts: [f64; 2] = bytemuck::cast(exact::<16>(bytes));
            parts.map(float).to_vec().into()
        }
        _ => Value::Null,
    }
}

/// The first `N` bytes; zeros if there are fewer.
fn exact<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut exact = [0; N];
    exact.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    exact
}

//! The first elements of a message.

use cenote::{DType, Field, PointCloud, Tensor};

use super::layout::Layout;
use super::shown_value::{ShownValue, value};
use crate::failure::Outcome;
use crate::files;

/// The first elements of a tensor, in C order.
pub(crate) fn first(tensor: &Tensor, count: usize) -> Outcome<Vec<ShownValue>> {
    let map = tensor.map()?;
    let (dtype, size) = (tensor.dtype(), tensor.dtype().size());
    let elements = map.runs().flat_map(|run| run.chunks_exact(size));
    Ok(elements.take(count).map(|element| ShownValue::Scalar(value(dtype, element))).collect())
}

/// The first values of plain data. The values of a struct have field names. If the layout is unknown, these are
/// the first bytes.
pub(crate) fn plain(carries: &str, bytes: &[u8], count: usize) -> Vec<ShownValue> {
    // The size follows in parentheses.
    let text = carries.rsplit_once(" (").map_or(carries, |(text, _)| text);
    let layout = Layout::parse(text);
    let layout = layout.filter(|it| it.size().is_some_and(|size| size <= bytes.len()));
    let layout =
        layout.unwrap_or_else(|| Layout::Array(Layout::Number(DType::U8).into(), bytes.len()));
    match layout.show(bytes, &mut count.clone()) {
        ShownValue::List(all) => all,
        one => vec![one],
    }
}

/// The first values of the points of a cloud. If the fields have several types, the values have field names.
pub(crate) fn points(cloud: &PointCloud, count: usize) -> Outcome<Vec<ShownValue>> {
    let Some(points) = files::points(cloud)? else { return Ok(Vec::new()) };
    if cloud.fields().iter().all(|field| field.dtype() == points.dtype()) {
        return first(&points, count);
    }
    let row = points.shape().get(1).copied().unwrap_or(0) * points.dtype().size();
    let map = points.map()?;
    let (mut shown, mut left) = (Vec::new(), count);
    for point in map.runs().flat_map(|run| run.chunks_exact(row.max(1))) {
        if left == 0 {
            break;
        }
        shown.push(point_by_name(cloud.fields(), point, &mut left));
    }
    Ok(shown)
}

fn point_by_name(fields: &[Field], point: &[u8], left: &mut usize) -> ShownValue {
    let mut named = Vec::new();
    for field in fields {
        let Some(bytes) = point.get(field.offset()..).filter(|_| *left > 0) else { break };
        let number = Layout::Number(field.dtype());
        let layout = match field.count() {
            1 => number,
            count => Layout::Array(number.into(), count),
        };
        named.push((field.name().to_owned(), layout.show(bytes, left)));
    }
    ShownValue::Fields(named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote::{bf16, f16};
    use serde_json::Value;

    #[test]
    fn plain_data_is_shown_by_its_layout_or_else_as_bytes() {
        let bytes: Vec<u8> = [1.5_f32, -2.0].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let shown = |carries: &str| serde_json::to_string(&plain(carries, &bytes, 2)).unwrap();
        assert_eq!(shown("[f32; 2] (8 bytes, aligned to 4)"), "[1.5,-2.0]");
        assert_eq!(shown("f32 (4 bytes, aligned to 4)"), "[1.5]");
        let named = "Speed { x: f32 at 0, y: f32 at 4 } (8 bytes, aligned to 4)";
        assert_eq!(shown(named), r#"[{"x":1.5,"y":-2.0}]"#);
        assert_eq!(plain(named, &bytes, 9)[0].to_string(), "{x: 1.5, y: -2.0}");
        let first = format!("[{},{}]", bytes[0], bytes[1]);
        assert_eq!(shown("Pose (8 bytes, aligned to 4)"), first);
        assert_eq!(shown("Pose { x: f32 .. 0123456789abcdef (8 bytes, aligned to 4)"), first);
        assert_eq!(
            shown("[f32; 3] (8 bytes, aligned to 4)"),
            first,
            "the layout is larger than the data"
        );
        assert_eq!(shown(""), first);
    }

    #[test]
    fn nan_and_infinities_are_strings_in_json() {
        let all = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.5];
        let of = |tensor: &Tensor| {
            let values = first(tensor, 4).unwrap();
            let shown: Vec<String> = values.iter().map(ShownValue::to_string).collect();
            (serde_json::to_string(&values).unwrap(), shown.join(" "))
        };
        let expected =
            || (r#"["NaN","Infinity","-Infinity",-0.5]"#.into(), "NaN inf -inf -0.5".into());
        assert_eq!(of(&Tensor::from_slice(&all, &[4]).unwrap()), expected());
        #[allow(clippy::cast_possible_truncation, reason = "f32 represents all of them")]
        let narrow = all.map(|number| number as f32);
        assert_eq!(of(&Tensor::from_slice(&narrow, &[4]).unwrap()), expected());
        assert_eq!(of(&Tensor::from_slice(&all.map(f16::from_f64), &[4]).unwrap()), expected());
        assert_eq!(of(&Tensor::from_slice(&all.map(bf16::from_f64), &[4]).unwrap()), expected());
        let complex = [cenote::Complex { re: f64::NAN, im: f64::NEG_INFINITY }];
        let complex = of(&Tensor::from_slice(&complex, &[1]).unwrap());
        assert_eq!(complex, (r#"[["NaN","-Infinity"]]"#.into(), "[NaN,-inf]".into()));
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
            assert_ne!(first(&zeros, 1).unwrap(), [ShownValue::Scalar(Value::Null)], "{dtype}");
        }
    }
}

//! Plain data: values that consist of their bytes only, with a description of the type that two processes can compare.

use std::fmt::Write;
use std::num::Wrapping;

use half::{bf16, f16};
use num_complex::Complex;

/// Plain data that a [`Topic`](crate::Topic) carries: numbers, arrays of such data, and structs that list
/// their fields with [`plain!`](crate::plain).
///
/// The bytes come from another process. So a type must have no padding and be valid for any bits, which
/// [`bytemuck::Pod`] promises and the compiler checks. [`layout`](Plain::layout) describes the fields: if those of two processes
/// differ in order, name or type, the subscriber reports an error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no plain data",
    note = "a struct of plain data derives `bytemuck::Pod` and `bytemuck::Zeroable`, is `#[repr(C)]`, and \
            lists its fields: `cenote::plain!(Pose {{ position, rotation }});`"
)]
pub trait Plain: bytemuck::Pod + Send {
    /// The type as text: its name, and for a struct each field with its layout and offset. It has no module path,
    /// because programs that share a type may have it in different modules.
    fn layout() -> String;
}

macro_rules! numbers {
    ($($type:ident)*) => {$(
        impl Plain for $type {
            fn layout() -> String {
                stringify!($type).to_owned()
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 f16 bf16);

impl Plain for () {
    fn layout() -> String {
        "()".to_owned()
    }
}

impl<T: Plain, const N: usize> Plain for [T; N] {
    fn layout() -> String {
        format!("[{}; {N}]", T::layout())
    }
}

impl<T: Plain> Plain for Wrapping<T> {
    fn layout() -> String {
        format!("Wrapping<{}>", T::layout())
    }
}

impl<T: Plain> Plain for Complex<T> {
    fn layout() -> String {
        format!("Complex<{}>", T::layout())
    }
}

/// Lists the fields of a struct of plain data, so that a [`Topic`](crate::Topic) carries it.
///
/// ```
/// use cenote::{Plain, bytemuck};
///
/// #[repr(C)]
/// #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
/// struct Point {
///     x: f32,
///     y: f32,
/// }
/// cenote::plain!(Point { x, y });
///
/// #[repr(C)]
/// #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
/// struct Segment(Point, Point);
/// cenote::plain!(Segment { 0, 1 });
///
/// assert_eq!(Point::layout(), "Point { x: f32 at 0, y: f32 at 4 }");
/// assert!(Segment::layout().ends_with("1: Point { x: f32 at 0, y: f32 at 4 } at 8 }"));
/// ```
///
/// It does not compile unless it lists all fields:
///
/// ```compile_fail
/// # use cenote::bytemuck;
/// # #[repr(C)]
/// # #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
/// # struct Point {
/// #     x: f32,
/// #     y: f32,
/// # }
/// cenote::plain!(Point { x });
/// ```
#[macro_export]
macro_rules! plain {
    ($type:ident { $($field:tt),* $(,)? }) => {
        impl $crate::Plain for $type {
            fn layout() -> ::std::string::String {
                // Without `..`, so that a field which is missing in the list is a compile error.
                let _all = |value: &$type| {
                    let $type { $($field: _),* } = value;
                };
                $crate::StructLayout::new(::std::stringify!($type))
                    $(.field(
                        ::std::stringify!($field),
                        ::std::mem::offset_of!($type, $field),
                        |value: &$type| value.$field,
                    ))*
                    .end()
            }
        }
    };
}

/// Builds the text of a layout for [`plain!`](crate::plain).
#[doc(hidden)]
#[derive(Debug)]
pub struct StructLayout {
    text: String,
    fields: usize,
}

impl StructLayout {
    pub fn new(name: &str) -> StructLayout {
        StructLayout { text: format!("{name} {{"), fields: 0 }
    }

    /// Adds a field of the type that `_get` returns.
    #[must_use]
    pub fn field<S, F: Plain>(mut self, name: &str, offset: usize, _get: fn(&S) -> F) -> Self {
        let comma = if self.fields == 0 { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{comma} {name}: {} at {offset}", F::layout());
        self.fields += 1;
        self
    }

    pub fn end(mut self) -> String {
        self.text.push_str(" }");
        self.text
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_arrays_have_their_rust_names() {
        assert_eq!(<[[f64; 2]; 3]>::layout(), "[[f64; 2]; 3]");
        assert_eq!(Wrapping::<u8>::layout(), "Wrapping<u8>");
        assert_eq!(Complex::<f32>::layout(), "Complex<f32>");
        assert_eq!((f16::layout().as_str(), <()>::layout().as_str()), ("f16", "()"));
    }
}

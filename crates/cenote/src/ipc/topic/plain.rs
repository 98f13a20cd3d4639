//! Plain data: values that are nothing but their bytes, and what these stand for, in words that two
//! processes can compare.

use std::fmt::Write;
use std::num::Wrapping;

use half::{bf16, f16};
use num_complex::Complex;

/// Plain data that a [`Topic`](crate::Topic) carries: numbers, arrays of such data, and structs that list
/// their fields with [`plain!`](crate::plain).
///
/// Without padding, and valid whatever its bits are, for they come from another process:
/// [`bytemuck::Pod`] says so, and the compiler checks it. It does not tell what the bytes stand for.
/// [`layout`](Plain::layout) does, so that two processes whose fields differ, in order or name or type,
/// are told instead of taking one for another.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no plain data",
    note = "a struct of plain data derives `bytemuck::Pod` and `bytemuck::Zeroable`, is `#[repr(C)]`, and \
            lists its fields: `cenote::plain!(Pose {{ position, rotation }});`"
)]
pub trait Plain: bytemuck::Pod + Send {
    /// The type, as others are told of it: its name, and of a struct its fields, each with its own layout
    /// and where it begins. Modules are no part of it: programs that share a type may well have it in
    /// different places.
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
/// All of them, or it does not compile:
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
                // Without `..`: whoever adds a field hears of it here.
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

/// What [`plain!`](crate::plain) writes a layout with.
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

    /// Adds a field, of the type that `get` gives.
    #[must_use]
    pub fn field<S, F: Plain>(mut self, name: &str, offset: usize, _get: fn(&S) -> F) -> Self {
        let comma = if self.fields == 0 { "" } else { "," };
        // A string takes everything.
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
    fn numbers_and_arrays_are_called_what_they_are() {
        assert_eq!(<[[f64; 2]; 3]>::layout(), "[[f64; 2]; 3]");
        assert_eq!(Wrapping::<u8>::layout(), "Wrapping<u8>");
        assert_eq!(Complex::<f32>::layout(), "Complex<f32>");
        assert_eq!((f16::layout().as_str(), <()>::layout().as_str()), ("f16", "()"));
    }
}

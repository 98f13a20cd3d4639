//! Messages that carry a number in every word, so that a torn message is detected.

use cenote::{
    DType, DepthImage, Field, Image, Message, PixelFormat, PointCloud, Tensor, TensorPool, Topic,
};

/// A message that carries a number.
pub(crate) trait Sample: Message {
    fn of(topic: &Topic<Self>, number: u64) -> cenote::Result<Self>;

    /// The number. Panics if the words differ.
    fn number(&self) -> u64;
}

impl Sample for u64 {
    fn of(_: &Topic<u64>, number: u64) -> cenote::Result<u64> {
        Ok(number)
    }

    fn number(&self) -> u64 {
        *self
    }
}

impl<const N: usize> Sample for [u32; N]
where
    [u32; N]: Message,
{
    fn of(_: &Topic<Self>, number: u64) -> cenote::Result<Self> {
        Ok([u32::try_from(number).unwrap(); N])
    }

    fn number(&self) -> u64 {
        assert!(self.iter().all(|word| *word == self[0]), "torn");
        self[0].into()
    }
}

impl<const N: usize> Sample for [u8; N]
where
    [u8; N]: Message,
{
    fn of(_: &Topic<Self>, number: u64) -> cenote::Result<Self> {
        Ok([u8::try_from(number).unwrap(); N])
    }

    fn number(&self) -> u64 {
        assert!(self.iter().all(|word| *word == self[0]), "torn");
        self.first().copied().unwrap_or(0).into()
    }
}

/// Three versions of one type, with the same name, size and alignment. This one is the reference.
pub(crate) mod before {
    #[repr(C)]
    #[derive(Clone, Copy, cenote::bytemuck::Pod, cenote::bytemuck::Zeroable)]
    pub(crate) struct Pose {
        pub(crate) x: u32,
        pub(crate) y: u32,
    }
    cenote::plain!(Pose { x, y });
}

/// The fields in the other order.
pub(crate) mod swapped {
    #[repr(C)]
    #[derive(Clone, Copy, cenote::bytemuck::Pod, cenote::bytemuck::Zeroable)]
    pub(crate) struct Pose {
        pub(crate) y: u32,
        pub(crate) x: u32,
    }
    cenote::plain!(Pose { y, x });
}

/// One field has another type.
pub(crate) mod retyped {
    #[repr(C)]
    #[derive(Clone, Copy, cenote::bytemuck::Pod, cenote::bytemuck::Zeroable)]
    pub(crate) struct Pose {
        pub(crate) x: u32,
        pub(crate) y: i32,
    }
    cenote::plain!(Pose { x, y });
}

macro_rules! poses {
    ($($pose:ty),*) => {$(
        impl Sample for $pose {
            fn of(_: &Topic<Self>, number: u64) -> cenote::Result<Self> {
                let number = u8::try_from(number).unwrap();
                Ok(Self { x: number.into(), y: (number + 1).into() })
            }

            fn number(&self) -> u64 {
                assert_eq!(i64::from(self.y), i64::from(self.x) + 1, "torn");
                self.x.into()
            }
        }
    )*};
}

poses!(before::Pose, swapped::Pose, retyped::Pose);

impl Sample for Tensor {
    fn of(topic: &Topic<Tensor>, number: u64) -> cenote::Result<Tensor> {
        fill(topic.alloc_tensor(&[WORDS], DType::U64)?, number)
    }

    fn number(&self) -> u64 {
        let map = self.map().unwrap();
        if self.dtype() == DType::U64 { same(map.as_slice().unwrap()) } else { narrow(&map) }
    }
}

const WORDS: usize = 1000;

/// A tensor that carries a number, in any pool.
pub(crate) fn filled(pool: &TensorPool, number: u64) -> cenote::Result<Tensor> {
    fill(pool.alloc(&[WORDS], DType::U64)?, number)
}

fn fill(mut tensor: Tensor, number: u64) -> cenote::Result<Tensor> {
    tensor.map_mut()?.as_mut_slice::<u64>()?.fill(number);
    Ok(tensor)
}

fn same(words: &[u64]) -> u64 {
    assert!(words.iter().all(|word| *word == words[0]), "torn");
    words[0]
}

/// The number of a tensor with elements smaller than `u64`.
fn narrow(map: &cenote::TensorMap<'_>) -> u64 {
    let bytes = map.as_slice::<u8>().unwrap();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "torn");
    bytes[0].into()
}

fn byte(number: u64) -> u8 {
    u8::try_from(number % 251).unwrap()
}

impl Sample for Image {
    fn of(topic: &Topic<Image>, number: u64) -> cenote::Result<Image> {
        let mut image = topic.image(40, 30, PixelFormat::Rgb8)?;
        image.map_mut()?.as_mut_slice::<u8>()?.fill(byte(number));
        image.set_seq(number);
        Ok(image)
    }

    fn number(&self) -> u64 {
        assert_eq!(narrow(&self.map().unwrap()), u64::from(byte(self.seq())), "torn");
        self.seq()
    }
}

impl Sample for PointCloud {
    fn of(topic: &Topic<PointCloud>, number: u64) -> cenote::Result<PointCloud> {
        let fields = [Field::new("when", DType::U64), Field::new("where", DType::U64)];
        let mut cloud = PointCloud::new_in(topic.pool()?, 100, &fields)?;
        cloud.map_mut()?.as_mut_slice::<u64>()?.fill(number);
        Ok(cloud)
    }

    fn number(&self) -> u64 {
        assert_eq!((self.len(), self.fields()[1].name()), (100, "where"));
        same(self.map().unwrap().as_slice().unwrap())
    }
}

impl Sample for DepthImage {
    fn of(topic: &Topic<DepthImage>, number: u64) -> cenote::Result<DepthImage> {
        let mut depth = DepthImage::new_in(topic.pool()?, 20, 30, DType::U16)?;
        depth.map_mut()?.as_mut_slice::<u16>()?.fill(u16::try_from(number).unwrap());
        Ok(depth)
    }

    fn number(&self) -> u64 {
        let map = self.map().unwrap();
        let values = map.as_slice::<u16>().unwrap();
        assert!(values.iter().all(|value| *value == values[0]), "torn");
        values[0].into()
    }
}

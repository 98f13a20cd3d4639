//! Point clouds: fields, points, coordinates, and what another process sees of them.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

use cenote::{
    Complex, DType, Error, Field, MAX_FIELDS, NotWritable, PointCloud, Tensor, TensorMemory,
};
use proptest::prelude::*;

use support::domain::{self, cases, seen_elsewhere};
use support::pool;
use support::program::{Test, tests};

fn main() -> ExitCode {
    domain::run("cloud", &[TESTS])
}

const TESTS: &[Test] = tests![
    the_first_example_works
    points_from_slices
    an_empty_cloud_is_a_cloud
    fields_are_packed_as_in_a_struct
    fields_that_cannot_be
    every_dtype_can_be_a_field
    values_read_as_they_were_written
    columns_are_views
    coordinates_are_one_array_where_they_can_be
    a_tensor_that_came_from_elsewhere
    tensors_that_are_no_clouds
    points_beyond_the_end_are_errors
    points_in_rows_and_columns
    rows_and_columns_travel_with_the_points
    fewer_points_than_there_is_room_for
    colours_of_other_programs
    a_tensor_is_never_written_after_its_descriptor_was_taken
    another_process_sees_the_points_without_a_copy
    a_cloud_in_a_pool_of_ones_own
];

fn heap(shape: &[usize], dtype: DType) -> Tensor {
    Tensor::options().memory(TensorMemory::Mem).create(shape, dtype).unwrap()
}

fn the_first_example_works() {
    let cloud = PointCloud::new(10_000, 3, DType::F32).unwrap();
    assert_eq!((cloud.len(), cloud.tensor().shape()), (10_000, &[10_000, 3][..]));
    assert!(cloud.points().all(|point| point.xyz().unwrap() == [0.0; 3]));
    let names: Vec<_> = cloud.fields().iter().map(Field::name).collect();
    assert_eq!(names, ["x", "y", "z"]);
    let wide = PointCloud::new(2, 6, DType::F64).unwrap();
    assert_eq!(
        wide.fields()[3..].iter().map(Field::name).collect::<Vec<_>>(),
        ["intensity", "f4", "f5"]
    );
}

fn points_from_slices() {
    let cloud = PointCloud::from_xyz(&[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).unwrap();
    assert_eq!(cloud.tensor().to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let cloud = PointCloud::from_xyzi(&[[1.0, 2.0, 3.0, 0.5]]).unwrap();
    assert_eq!(cloud.get::<f32>(0, "intensity").unwrap(), 0.5);
    let cloud = PointCloud::from_xyzrgb(&[([1.0, 2.0, 3.0], [255, 128, 0]), ([4.0; 3], [1, 2, 3])])
        .unwrap();
    assert_eq!(cloud.tensor().shape(), [2, 16]);
    assert_eq!(cloud.point_at(0).unwrap().rgb(), Some([255, 128, 0]));
    let second = cloud.point_at(1).unwrap();
    assert_eq!((second.xyz().unwrap(), second.rgb()), ([4.0; 3], Some([1, 2, 3])));
    assert_eq!(second.get_at::<u8>("rgb", 2).unwrap(), 3);
    assert!(second.get_at::<u8>("rgb", 3).is_err());
    assert_eq!(PointCloud::new_xyzi(5).unwrap().point_at(4).unwrap().rgb(), None);
}

fn an_empty_cloud_is_a_cloud() {
    for cloud in [
        PointCloud::from_xyz(&[]).unwrap(),
        PointCloud::from_xyzrgb(&[]).unwrap(),
        PointCloud::new(0, 4, DType::F64).unwrap(),
    ] {
        assert!(cloud.is_empty() && cloud.points().next().is_none());
        assert!(cloud.point_at(0).is_err() && cloud.column("x").is_err() && cloud.xyz().is_err());
        let received = PointCloud::from_descriptor(&cloud.descriptor().unwrap()).unwrap();
        assert!(received.is_empty());
    }
    let mut cloud = PointCloud::new_xyz(0).unwrap();
    assert_eq!(cloud.with_xyz::<f32, _>(|xyz| xyz.dim()).unwrap(), (0, 3));
    assert_eq!(cloud.with_xyz_mut::<f32, _>(|xyz| xyz.dim()).unwrap(), (0, 3));
    cloud.set_column::<f32>("x", &[]).unwrap();
    cloud.make_mut().unwrap();
}

fn fields_are_packed_as_in_a_struct() {
    let fields = [
        Field::new("ring", DType::U8),
        Field::new("x", DType::F32),
        Field::new("time", DType::F64),
        Field::new("tag", DType::U8).with_count(3),
    ];
    let cloud = PointCloud::with_fields(10, &fields).unwrap();
    let offsets: Vec<_> = cloud.fields().iter().map(Field::offset).collect();
    assert_eq!(offsets, [0, 4, 8, 16]);
    assert_eq!((cloud.tensor().shape(), cloud.tensor().dtype()), (&[10, 24][..], DType::U8));
}

fn fields_that_cannot_be() {
    let make = |fields: &[Field]| PointCloud::with_fields(4, fields);
    let x = Field::new("x", DType::F32);
    assert!(matches!(make(&[]), Err(Error::FieldCount { given: 0, .. })));
    assert!(matches!(make(&[x, x]), Err(Error::BadField { .. })));
    assert!(matches!(make(&[Field::new("", DType::F32)]), Err(Error::BadField { .. })));
    assert!(matches!(make(&[x.with_count(0)]), Err(Error::BadField { .. })));
    let long = Field::new("a_name_of_17_byte", DType::F32);
    assert!(matches!(make(&[long]), Err(Error::BadField { .. })));
    make(&[Field::new("a_name_of_16_byt", DType::F32)]).unwrap();
    let numbered = |count: usize| -> Vec<Field> {
        (0..count).map(|n| Field::new(&format!("field_number_{n}"), DType::U8)).collect()
    };
    let most = make(&numbered(MAX_FIELDS)).unwrap();
    let received = PointCloud::from_descriptor(&most.descriptor().unwrap()).unwrap();
    assert_eq!(received.fields(), most.fields());
    assert!(matches!(make(&numbered(17)), Err(Error::FieldCount { given: 17, .. })));
    assert!(
        PointCloud::new(5, 17, DType::F32).is_err() && PointCloud::new(5, 0, DType::F32).is_err()
    );
    assert!(PointCloud::new(usize::MAX, 3, DType::F32).is_err());
    let refused = PointCloud::new_xyz(1).unwrap().field("ring").unwrap_err().to_string();
    assert!(refused.contains("`ring`") && refused.contains("x, y, z"), "{refused}");
}

fn every_dtype_can_be_a_field() {
    for dtype in DType::all() {
        let fields = [Field::new("odd", DType::U8), Field::new("value", dtype).with_count(2)];
        let cloud = PointCloud::with_fields(3, &fields).unwrap();
        assert_eq!(cloud.field("value").unwrap().offset(), dtype.size());
        let column = cloud.column("value").unwrap();
        assert_eq!((column.shape(), column.dtype()), (&[3, 2][..], dtype));
        let number = cloud.point_at(2).unwrap().number("value");
        let complex = matches!(dtype, DType::Complex64 | DType::Complex128);
        assert_eq!(number.ok(), (!complex).then_some(0.0), "{dtype}");
    }
    let mut cloud = PointCloud::with_fields(1, &[Field::new("c", DType::Complex64)]).unwrap();
    cloud.set(0, "c", Complex::new(1.0_f32, 2.0)).unwrap();
    assert_eq!(cloud.get::<Complex<f32>>(0, "c").unwrap().im, 2.0);
    let mut cloud = PointCloud::with_fields(1, &[Field::new("b", DType::Bool)]).unwrap();
    cloud.map_mut().unwrap().as_mut_slice::<bool>().unwrap()[0] = true;
    assert!(cloud.get::<bool>(0, "b").unwrap());
    let fields = ["i", "u"].map(|name| Field::new(name, DType::I64));
    let mut cloud = PointCloud::with_fields(1, &fields).unwrap();
    cloud.set(0, "i", -5_i64).unwrap();
    assert_eq!(cloud.point_at(0).unwrap().number("i").unwrap(), -5.0);
}

fn values_read_as_they_were_written() {
    let point = (any::<f32>(), any::<u16>(), any::<[u8; 3]>(), any::<f64>());
    proptest!(cases(), |(points in prop::collection::vec(point, 1..20))| {
        let fields = [
            Field::new("x", DType::F32),
            Field::new("ring", DType::U16),
            Field::new("rgb", DType::U8).with_count(3),
            Field::new("time", DType::F64),
        ];
        let mut cloud = PointCloud::with_fields(points.len(), &fields).unwrap();
        let rings: Vec<u16> = points.iter().map(|point| point.1).collect();
        let colours: Vec<u8> = points.iter().flat_map(|point| point.2).collect();
        cloud.set_column("ring", &rings).unwrap();
        cloud.set_column("rgb", &colours).unwrap();
        for (index, point) in points.iter().enumerate() {
            cloud.set(index, "x", point.0).unwrap();
            cloud.set_all(index, "time", &[point.3]).unwrap();
        }
        let received = PointCloud::from_descriptor(&cloud.descriptor().unwrap()).unwrap();
        prop_assert_eq!(received.len(), points.len());
        for (there, here) in received.points().zip(&points) {
            prop_assert_eq!(there.get::<f32>("x").unwrap().to_bits(), here.0.to_bits());
            prop_assert_eq!(there.get::<u16>("ring").unwrap(), here.1);
            prop_assert_eq!(there.rgb(), Some(here.2));
            prop_assert_eq!(there.get::<f64>("time").unwrap().to_bits(), here.3.to_bits());
        }
        prop_assert_eq!(received.column("ring").unwrap().to_vec::<u16>().unwrap(), rings);
    });
}

fn columns_are_views() {
    let cloud = PointCloud::from_xyzrgb(&[([1.0, 2.0, 3.0], [7, 8, 9]); 4]).unwrap();
    let y = cloud.column("y").unwrap();
    assert_eq!(y.buffer_identity().id(), cloud.tensor().buffer_identity().id());
    assert_eq!((y.shape(), y.strides()), (&[4][..], &[16][..]));
    assert_eq!(cloud.column("rgb").unwrap().shape(), [4, 3]);
    assert_eq!(cloud.not_writable(), Some(NotWritable::Shared), "a view is a holder");
}

fn coordinates_are_one_array_where_they_can_be() {
    let mut cloud = PointCloud::from_xyzrgb(&[([1.0, 2.0, 3.0], [7, 8, 9]); 4]).unwrap();
    assert_eq!(cloud.xyz().unwrap().strides(), [16, 4]);
    cloud.with_xyz_mut::<f32, _>(|mut xyz| xyz.row_mut(2).fill(9.0)).unwrap();
    let sums = cloud.with_xyz::<f32, _>(|xyz| xyz.sum_axis(ndarray::Axis(1)).to_vec()).unwrap();
    assert_eq!(sums, [6.0, 6.0, 27.0, 6.0]);
    assert_eq!(cloud.point_at(2).unwrap().rgb(), Some([7, 8, 9]), "colours stay");
    assert!(matches!(cloud.with_xyz::<f64, _>(|_| ()), Err(Error::WrongDType { .. })));

    // In any order and type, as long as the distances are equal.
    let mixed = ["x", "y", "z"].map(|name| Field::new(name, DType::I32));
    let cloud = PointCloud::from_tensor_with_fields(
        heap(&[2, 6], DType::I32),
        &[mixed[0].at(0), mixed[1].at(8), mixed[2].at(16)],
    );
    assert_eq!(cloud.unwrap().xyz().unwrap().strides(), [24, 8]);
    for offsets in [[0, 4, 12], [8, 4, 0]] {
        let fields = [0, 1, 2].map(|n| mixed[n].at(offsets[n]));
        let cloud =
            PointCloud::from_tensor_with_fields(heap(&[2, 6], DType::I32), &fields).unwrap();
        assert!(matches!(cloud.xyz(), Err(Error::BadField { .. })));
        assert!(cloud.points().all(|point| point.xyz().is_ok()));
    }
    let flat = PointCloud::new(5, 2, DType::F32).unwrap();
    assert!(matches!(flat.xyz(), Err(Error::NoSuchField { .. })));
}

fn a_tensor_that_came_from_elsewhere() {
    let cloud = PointCloud::from_tensor(heap(&[50, 4], DType::F32)).unwrap();
    assert_eq!((cloud.len(), cloud.fields()[3].name()), (50, "intensity"));
    // Rows may be far apart.
    let part = heap(&[50, 8], DType::F32).narrow(1, 2, 3).unwrap();
    let cloud = PointCloud::from_tensor(part).unwrap();
    assert_eq!(cloud.xyz().unwrap().strides(), [32, 4]);
    let beyond = Field::new("x", DType::F64).at(8);
    let refused = PointCloud::from_tensor_with_fields(heap(&[5, 3], DType::F32), &[beyond]);
    assert!(matches!(refused, Err(Error::BadField { .. })));
    let far = Field::new("x", DType::F64).at(u32::MAX).with_count(u16::MAX);
    assert!(PointCloud::from_tensor_with_fields(heap(&[5, 3], DType::F32), &[far]).is_err());
    // Misaligned values can be read one by one.
    let odd = [Field::new("x", DType::F32).at(1)];
    let mut cloud = PointCloud::from_tensor_with_fields(heap(&[5, 7], DType::U8), &odd).unwrap();
    cloud.set(3, "x", 2.5_f32).unwrap();
    assert_eq!(cloud.get::<f32>(3, "x").unwrap(), 2.5);
    assert_eq!(cloud.column("x").unwrap().to_vec::<f32>().unwrap()[3], 2.5);
}

fn tensors_that_are_no_clouds() {
    let no_cloud = |tensor: Tensor| {
        let fields = [Field::new("x", DType::F32)];
        PointCloud::from_tensor_with_fields(tensor, &fields).unwrap_err()
    };
    for tensor in [
        heap(&[12], DType::F32),
        heap(&[], DType::F32),
        heap(&[2, 3, 4], DType::F32),
        heap(&[4, 3], DType::F32).transpose(),
        heap(&[4, 3], DType::F32).flip(1).unwrap(),
    ] {
        assert!(matches!(no_cloud(tensor), Error::CloudLayout { .. }));
    }
    assert!(PointCloud::from_tensor(heap(&[12], DType::F32)).is_err());
    assert!(PointCloud::from_tensor(heap(&[12, 40], DType::F32)).is_err());
}

fn points_beyond_the_end_are_errors() {
    let mut cloud = PointCloud::new_xyz(3).unwrap();
    let error = cloud.point_at(3).unwrap_err().to_string();
    assert_eq!(error, "there is no point 3 in a cloud of 3 points; the first is point 0");
    for index in [3, 4, usize::MAX] {
        assert!(matches!(cloud.point_at(index), Err(Error::NoSuchPoint { .. })));
        assert!(cloud.get::<f32>(index, "x").is_err());
        assert!(cloud.set(index, "x", 1.0_f32).is_err());
    }
    assert!(matches!(cloud.set(0, "x", 1.0_f64), Err(Error::WrongDType { .. })));
    assert!(matches!(cloud.set_all(0, "x", &[1.0_f32, 2.0]), Err(Error::WrongLen { .. })));
    assert!(matches!(cloud.set_column("x", &[1.0_f32; 2]), Err(Error::WrongLen { .. })));
    assert!(matches!(cloud.set_column("w", &[1.0_f32; 3]), Err(Error::NoSuchField { .. })));
}

fn points_in_rows_and_columns() {
    let mut cloud = PointCloud::organized(4, 3, &PointCloud::xyzi_fields()).unwrap();
    assert_eq!((cloud.width(), cloud.height(), cloud.len()), (4, 3, 12));
    assert!(cloud.is_organized());
    for (x, y) in [(0, 0), (3, 0), (0, 2), (3, 2)] {
        let index = cloud.index_of(x, y).unwrap();
        assert_eq!((index, cloud.at(x, y).unwrap().index()), (y * 4 + x, y * 4 + x));
    }
    for (x, y) in [(4, 0), (0, 3), (usize::MAX, 0), (0, usize::MAX), (4, 2)] {
        let error = cloud.at(x, y).unwrap_err();
        assert!(matches!(error, Error::NoSuchPixel { width: 4, height: 3, .. }), "{error}");
    }
    for (width, height) in [(0, 0), (0, 12), (12, 0), (5, 2), (usize::MAX, 2), (13, 1)] {
        let error = cloud.clone().with_columns(width, height).unwrap_err();
        assert!(matches!(error, Error::NotOrganized { len: 12, .. }), "{error}");
    }
    let error = PointCloud::organized(0, 5, &PointCloud::xyz_fields()).unwrap_err();
    assert_eq!(error.to_string(), "0 points cannot be in 5 rows of 0 columns");
    assert!(PointCloud::organized(usize::MAX, 2, &PointCloud::xyz_fields()).is_err());
    // As many as there were leaves them where they are; fewer do not.
    cloud.set_len(12).unwrap();
    assert!(cloud.is_organized());
    cloud.set_len(6).unwrap();
    assert_eq!((cloud.is_organized(), cloud.width(), cloud.height()), (false, 6, 1));
    let again = cloud.with_columns(2, 3).unwrap();
    assert_eq!(again.at(1, 2).unwrap().index(), 5);
}

fn rows_and_columns_travel_with_the_points() {
    let cloud = PointCloud::organized(8, 5, &PointCloud::xyz_fields()).unwrap();
    let same = PointCloud::from_descriptor(&cloud.descriptor().unwrap()).unwrap();
    assert_eq!((same.width(), same.height(), same.is_organized()), (8, 5, true));
    let plain = PointCloud::new_xyz(40).unwrap();
    let same = PointCloud::from_descriptor(&plain.descriptor().unwrap()).unwrap();
    assert_eq!((same.width(), same.height(), same.is_organized()), (40, 1, false));
}

fn fewer_points_than_there_is_room_for() {
    let mut scan = PointCloud::new_xyz(1000).unwrap();
    scan.set_column("x", &[1.0_f32; 1000]).unwrap();
    scan.set_len(10).unwrap();
    assert_eq!((scan.len(), scan.capacity(), scan.points().len()), (10, 1000, 10));
    assert!(scan.point_at(10).is_err());
    assert_eq!(scan.column("x").unwrap().shape(), [10]);
    let received = PointCloud::from_descriptor(&scan.descriptor().unwrap()).unwrap();
    assert_eq!((received.len(), received.capacity()), (10, 1000));
    assert!(matches!(scan.set_len(1001), Err(Error::CloudFull { .. })));
}

fn colours_of_other_programs() {
    for dtype in [DType::U32, DType::F32, DType::I32] {
        let tensor = Tensor::from_vec(0x00ff_8001_u32.to_ne_bytes().to_vec(), &[1, 4]).unwrap();
        let rgb = Field::new("rgb", dtype);
        let cloud = PointCloud::from_tensor_with_fields(tensor, &[rgb]).unwrap();
        assert_eq!(cloud.point_at(0).unwrap().rgb(), Some([255, 128, 1]), "{dtype}");
    }
}

fn a_tensor_is_never_written_after_its_descriptor_was_taken() {
    let mut cloud = PointCloud::from_xyz(&[[1.0, 2.0, 3.0]]).unwrap();
    let descriptor = cloud.descriptor().unwrap();
    let received = PointCloud::from_descriptor(&descriptor).unwrap();
    let published = |error| matches!(error, Error::NotWritable { why: NotWritable::Published });
    assert!(published(cloud.set(0, "x", 5.0_f32).unwrap_err()));
    assert!(published(cloud.set_column("x", &[5.0_f32]).unwrap_err()));
    assert!(published(cloud.with_xyz_mut::<f32, _>(|_| ()).unwrap_err()));
    cloud.make_mut().unwrap();
    cloud.set(0, "x", 5.0_f32).unwrap();
    assert_eq!(cloud.point_at(0).unwrap().xyz().unwrap(), [5.0, 2.0, 3.0]);
    assert_eq!(received.point_at(0).unwrap().xyz().unwrap(), [1.0, 2.0, 3.0]);
}

fn another_process_sees_the_points_without_a_copy() {
    let mut cloud = PointCloud::from_xyzrgb(&[([1.0, 2.0, 3.0], [7, 8, 9])]).unwrap();
    cloud.set_frame_id("lidar_top").unwrap();
    cloud.set_stamp_ns(5);
    cloud.set_seq(6);
    let answer = seen_elsewhere("cloud", &cloud.descriptor().unwrap());
    let points = "[(Some([1.0, 2.0, 3.0]), Some([7, 8, 9]))]";
    assert_eq!(answer, format!("x,y,z,rgb lidar_top 5 6 {points} copies 0"));
    let empty = PointCloud::new_xyzi(0).unwrap();
    let answer = seen_elsewhere("cloud", &empty.descriptor().unwrap());
    assert_eq!(answer, "x,y,z,intensity  0 0 [] copies 0");
}

fn a_cloud_in_a_pool_of_ones_own() {
    let pool = pool(2);
    let mut cloud = PointCloud::new_in(&pool, 100, &PointCloud::xyzi_fields()).unwrap();
    cloud.set_column("intensity", &[0.5_f32; 100]).unwrap();
    assert_eq!(pool.stats().unwrap().slots_in_use, 1);
    let received = PointCloud::from_descriptor(&cloud.descriptor().unwrap()).unwrap();
    assert_eq!(received.get::<f32>(99, "intensity").unwrap(), 0.5);
}

//! Files that are sent, and messages that are saved.

use std::fs;

use cenote::{Image, PixelFormat};

use super::Test;
use crate::scene::Scene;

pub(crate) const TESTS: &[Test] = &[
    ("a_picture_is_sent_and_saved_as_it_was", picture),
    ("an_array_is_sent_and_saved_as_it_was", array),
    ("depth_is_saved_as_a_picture_and_clouds_as_points", depth_and_cloud),
    ("an_array_that_cannot_be_what_it_is_to_be_is_named", arrays_that_do_not_fit),
    ("pub_ends_when_it_has_sent_enough", count),
];

fn picture() {
    let scene = Scene::new();
    let (before, after) = (scene.path("before.png"), scene.path("after.png"));
    let mut image = Image::new(17, 9, PixelFormat::Rgb8).unwrap();
    let values: Vec<u8> = (0..17 * 9 * 3).map(|n| u8::try_from(n % 251).unwrap()).collect();
    image.copy_from_slice(&values).unwrap();
    image.save_png(&before).unwrap();
    let _publisher = scene.publisher(&["picture", &before]);
    let snap = scene.json(&["topic", "snap", "picture", &after]);
    assert_eq!((&snap["format"], &snap["topic"]), (&"png".into(), &"picture".into()));
    let saved = Image::load_png(&after).unwrap();
    assert_eq!((saved.width(), saved.height(), saved.format()), (17, 9, PixelFormat::Rgb8));
    assert_eq!(saved.map().unwrap().as_slice::<u8>().unwrap(), values);
    // As an array it is the same.
    assert_eq!(scene.cenote(&["topic", "snap", "picture", &scene.path("after.npy")]).code, 0);
    assert!(fs::read(scene.path("after.npy")).unwrap().ends_with(&values));
}

/// An NPY file, as numpy writes it.
fn npy(descr: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    file.extend_from_slice(format!("{text:<117}\n").as_bytes());
    file.extend_from_slice(elements);
    file
}

fn array() {
    let scene = Scene::new();
    let (before, after) = (scene.path("before.npy"), scene.path("after.npy"));
    let elements: Vec<u8> = (0..6_i32).flat_map(|n| (n - 3).to_ne_bytes()).collect();
    let file = npy("<i4", "(2, 3)", &elements);
    fs::write(&before, &file).unwrap();
    let _publisher = scene.publisher(&["array", &before]);
    assert_eq!(scene.cenote(&["topic", "snap", "array", &after]).code, 0);
    let saved = fs::read(&after).unwrap();
    assert!(saved.ends_with(&elements) && saved.len() == file.len());
    let echoed = scene.json_lines(&["topic", "echo", "array", "-c", "1", "--values"]);
    assert_eq!(echoed[0]["values"], serde_json::json!([-3, -2, -1, 0, 1, 2]));
    assert_eq!((&echoed[0]["type"], &echoed[0]["dtype"]), (&"Tensor".into(), &"i32".into()));
}

fn depth_and_cloud() {
    let scene = Scene::new();
    let file = scene.path("before.npy");
    let metres: Vec<u8> = [1.5_f32, 0.25].iter().flat_map(|m| m.to_ne_bytes()).collect();
    fs::write(&file, npy("<f4", "(1, 2)", &metres)).unwrap();
    let depth = scene.publisher(&["depth", &file, "--as", "depth"]);
    assert_eq!(scene.cenote(&["topic", "snap", "depth", &scene.path("depth.png")]).code, 0);
    let image = Image::load_png(scene.path("depth.png")).unwrap();
    assert_eq!(image.map().unwrap().as_slice::<u16>().unwrap(), [1500, 250]);
    // It does not know its camera.
    let done = scene.cenote(&["topic", "snap", "depth", &scene.path("depth.ply")]);
    assert_eq!((done.code, done.stderr.lines().count()), (1, 1));
    let words = ["depth.ply", "save it as .png or .npy"];
    assert!(words.iter().all(|word| done.stderr.contains(word)), "{done:?}");
    assert!(!done.stderr.contains("set_intrinsics"), "{done:?}");
    drop(depth);

    let points: Vec<u8> = [1.0_f32, 2.0, 3.0].iter().flat_map(|m| m.to_ne_bytes()).collect();
    fs::write(&file, npy("<f4", "(1, 3)", &points)).unwrap();
    let _cloud = scene.publisher(&["cloud", &file, "--as", "cloud"]);
    assert_eq!(scene.cenote(&["topic", "snap", "cloud", &scene.path("cloud.ply")]).code, 0);
    let saved = fs::read(scene.path("cloud.ply")).unwrap();
    assert!(saved.starts_with(b"ply\n") && saved.ends_with(&points));
    let done = scene.cenote(&["topic", "snap", "cloud", &scene.path("cloud.png")]);
    assert!(done.code == 1 && done.stderr.contains(".npy always works"), "{done:?}");
}

fn arrays_that_do_not_fit() {
    let scene = Scene::new();
    let file = scene.path("wrong.npy");
    for (descr, shape, elements, kind) in [
        ("<i4", "(1, 2)", &[0; 8][..], "depth"),
        ("<f4", "(2,)", &[0; 8], "depth"),
        ("<f4", "(0, 3)", &[], "cloud"),
        ("<f4", "(0, 3)", &[], "tensor"),
    ] {
        fs::write(&file, npy(descr, shape, elements)).unwrap();
        let done = scene.cenote(&["topic", "pub", "x", &file, "--as", kind, "-c", "1"]);
        assert_eq!((done.code, done.stderr.lines().count()), (1, 1), "{kind}: {done:?}");
        assert!(done.stderr.starts_with(&format!("cenote: {file}: ")), "{kind}: {done:?}");
    }
    // What NPY has no type for.
    let _publisher = scene.role("bf16 publisher");
    let done = scene.cenote(&["topic", "snap", "bf16", &file]);
    assert!(
        done.code == 1 && done.stderr.contains(&format!("{file}: NPY has no bf16")),
        "{done:?}"
    );
}

fn count() {
    let scene = Scene::new();
    let sent =
        scene.json(&["topic", "pub", "camera", "-c", "3", "--rate", "1000", "--size", "16x16"]);
    assert_eq!((&sent["sent"], &sent["bytes_copied"]), (&3.into(), &0.into()));
}

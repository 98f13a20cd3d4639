//! Files that are sent, and messages that are saved.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::fs::PermissionsExt;
use std::process::{ChildStdout, Stdio};

use cenote::{Image, PixelFormat};
use serde_json::{Value, json};

use super::Test;
use crate::scene::{Background, CENOTE, Done, Scene, eventually};

pub(crate) const TESTS: &[Test] = &[
    ("a_picture_is_sent_and_saved_as_it_was", picture),
    ("an_array_is_sent_and_saved_as_it_was", array),
    ("depth_is_saved_as_a_picture_and_clouds_as_points", depth_and_cloud),
    ("an_array_that_cannot_be_what_it_is_to_be_is_named", arrays_that_do_not_fit),
    ("of_a_cloud_only_the_points_that_it_has_are_shown_and_saved", points),
    ("values_are_shown_by_name_where_their_types_differ", names),
    ("what_cannot_be_written_leaves_the_file_that_was_there", full),
    ("what_is_written_keeps_what_the_file_was", kept),
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

/// `echo --json` of a topic, which looks at it already: whoever publishes is told to until it has said
/// something. Without an end: a line more is one more message.
struct Echo {
    _echo: Background,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Echo {
    fn new(scene: &Scene, topic: &str, values: &str) -> Echo {
        let mut command = scene.command(CENOTE);
        command.args(["topic", "echo", topic, "--json", values]).stdout(Stdio::piped());
        let mut echo = Background(command.spawn().unwrap());
        Echo { lines: BufReader::new(echo.0.stdout.take().unwrap()).lines(), _echo: echo }
    }

    /// The first that comes.
    fn next(mut self, publisher: &mut Background) -> Value {
        let line = std::thread::spawn(move || self.lines.next().unwrap().unwrap());
        eventually("a message is shown", || {
            publisher.tell();
            line.is_finished()
        });
        serde_json::from_str(&line.join().unwrap()).unwrap()
    }
}

fn points() {
    let scene = Scene::new();
    let mut publisher = scene.told("cloud publisher");
    publisher.tell();
    let first: Vec<u8> = (1_u16..7).flat_map(|n| f32::from(n).to_ne_bytes()).collect();
    for (topic, shape, elements) in
        [("cloud.two", "(2, 3, )", &first[..]), ("cloud.none", "(0, 3, )", &[])]
    {
        let file = scene.path("cloud.npy");
        assert_eq!(scene.cenote(&["topic", "snap", topic, &file]).code, 0);
        let saved = fs::read(&file).unwrap();
        let (header, saved) = saved.split_at(128);
        let header = String::from_utf8_lossy(header);
        assert!(header.contains(shape), "{topic}: {header}");
        assert_eq!(saved, elements, "{topic}");
    }
    let echo = Echo::new(&scene, "cloud.two", "--values").next(&mut publisher);
    assert_eq!((&echo["shape"], &echo["bytes"]), (&json!([2, 3]), &json!(24)));
    assert_eq!(echo["values"], json!([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    let echo = Echo::new(&scene, "cloud.none", "--values").next(&mut publisher);
    assert_eq!((&echo["shape"], &echo["bytes"]), (&json!([0, 3]), &json!(0)));
    assert_eq!(echo["values"], json!([]));
}

fn names() {
    let scene = Scene::new();
    let mut publisher = scene.told("cloud publisher");
    let echo = Echo::new(&scene, "cloud.mixed", "--values").next(&mut publisher);
    let point = |x: f64, ring: u64| json!({"x": x, "ring": ring, "rgb": [7, 8, 9]});
    assert_eq!(echo["values"], json!([point(0.5, 300), point(1.5, 301)]));
    let echo = Echo::new(&scene, "cloud.mixed", "--values=3").next(&mut publisher);
    assert_eq!(echo["values"], json!([{"x": 0.5, "ring": 300, "rgb": [7]}]));
    let mut publisher = scene.told("pose publisher");
    let echo = Echo::new(&scene, "robot.pose", "--values").next(&mut publisher);
    let pose = json!({"position": [1.0, -2.5, "NaN"], "rotation": [0.0, 0.0, 0.0, 1.0]});
    assert_eq!(echo["values"], json!([pose]));
    assert!(echo["type"].as_str().unwrap().contains("position: [f64; 3] at 0"), "{echo}");
}

/// Files of this program can be 1 kB long, which is the end of the disk to it.
fn full() {
    let scene = Scene::new();
    let _camera = scene.publisher(&["camera", "--size", "64x48"]);
    let file = scene.path("frame.npy");
    for before in [None, Some("what was there")] {
        if let Some(before) = before {
            fs::write(&file, before).unwrap();
        }
        let names = scene.names();
        let script = "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\"";
        let mut command = scene.command("bash");
        command.args(["-c", script, CENOTE, "topic", "snap", "camera", &file]);
        let done = Done::of(&mut command);
        assert_eq!((done.code, done.stderr.lines().count()), (1, 1), "{done:?}");
        assert!(done.stderr.contains(&format!("writing {file} failed")), "{done:?}");
        assert_eq!(scene.names().len(), names.len(), "{:?}", scene.names());
        assert_eq!(fs::read_to_string(&file).ok().as_deref(), before);
    }
}

fn kept() {
    let scene = Scene::new();
    let _camera = scene.publisher(&["camera", "--size", "64x48"]);
    let (file, link) = (scene.path("frame.npy"), scene.path("link.npy"));
    fs::write(&file, "what was there").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    assert_eq!(scene.cenote(&["topic", "snap", "camera", &link]).code, 0);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let saved = fs::metadata(&file).unwrap();
    assert_eq!((saved.len(), saved.permissions().mode() & 0o777), (128 + 64 * 48 * 3, 0o640));
    // Where there is nothing yet, a link makes the file that it leads to.
    fs::remove_file(&file).unwrap();
    assert_eq!(scene.cenote(&["topic", "snap", "camera", &link]).code, 0);
    assert_eq!(fs::metadata(&file).unwrap().len(), saved.len());
}

fn count() {
    let scene = Scene::new();
    let sent =
        scene.json(&["topic", "pub", "camera", "-c", "3", "--rate", "1000", "--size", "16x16"]);
    assert_eq!((&sent["sent"], &sent["bytes_copied"]), (&3.into(), &0.into()));
}

//! `pub`, `echo` and `snap`: files that are sent, messages that are printed and saved.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{ChildStdout, Command, Stdio};

use cenote::{Image, PixelFormat};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::Test;
use crate::sandbox::{CAMERA, CENOTE, Finished, Process, Sandbox, eventually};

pub(crate) const TESTS: &[Test] = tests![
    an_image_is_sent_and_saved_unchanged,
    an_array_is_sent_and_saved_unchanged,
    depth_is_saved_as_png_and_a_cloud_as_ply,
    an_array_of_the_wrong_type_or_shape_is_refused_with_its_file_name,
    only_the_points_of_a_cloud_are_printed_and_saved,
    values_of_mixed_types_are_printed_with_field_names,
    a_failed_write_keeps_the_old_file,
    a_saved_file_keeps_its_mode_and_its_symbolic_link,
    pub_ends_after_the_given_number_of_messages,
    echo_prints_messages_and_their_values,
    snap_leases_nothing_while_it_writes_the_file,
    pub_exits_with_0_when_a_signal_ends_it,
];

fn an_image_is_sent_and_saved_unchanged() {
    let sandbox = Sandbox::new();
    let (before, after) = (sandbox.path("before.png"), sandbox.path("after.png"));
    let mut image = Image::new(17, 9, PixelFormat::Rgb8).unwrap();
    let values: Vec<u8> = (0..17 * 9 * 3).map(|n| u8::try_from(n % 251).unwrap()).collect();
    image.copy_from_slice(&values).unwrap();
    image.save_png(&before).unwrap();
    let _publisher = sandbox.publisher(&["picture", &before]);
    let snap = sandbox.json(&["topic", "snap", "picture", &after]);
    assert_eq!((&snap["format"], &snap["topic"]), (&"png".into(), &"picture".into()));
    let saved = Image::load_png(&after).unwrap();
    assert_eq!((saved.width(), saved.height(), saved.format()), (17, 9, PixelFormat::Rgb8));
    assert_eq!(saved.map().unwrap().as_slice::<u8>().unwrap(), values);
    // NPY has the same bytes.
    assert_eq!(sandbox.cenote(&["topic", "snap", "picture", &sandbox.path("after.npy")]).code, 0);
    assert!(fs::read(sandbox.path("after.npy")).unwrap().ends_with(&values));
}

/// An NPY file like those of numpy.save.
fn npy(descr: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    file.extend_from_slice(format!("{text:<117}\n").as_bytes());
    file.extend_from_slice(elements);
    file
}

fn an_array_is_sent_and_saved_unchanged() {
    let sandbox = Sandbox::new();
    let (before, after) = (sandbox.path("before.npy"), sandbox.path("after.npy"));
    let elements: Vec<u8> = (0..6_i32).flat_map(|n| (n - 3).to_ne_bytes()).collect();
    let file = npy("<i4", "(2, 3)", &elements);
    fs::write(&before, &file).unwrap();
    let _publisher = sandbox.publisher(&["array", &before]);
    assert_eq!(sandbox.cenote(&["topic", "snap", "array", &after]).code, 0);
    let saved = fs::read(&after).unwrap();
    assert!(saved.ends_with(&elements) && saved.len() == file.len());
    let echoed = sandbox.json_lines(&["topic", "echo", "array", "-c", "1", "--values"]);
    assert_eq!(echoed[0]["values"], serde_json::json!([-3, -2, -1, 0, 1, 2]));
    assert_eq!((&echoed[0]["type"], &echoed[0]["dtype"]), (&"Tensor".into(), &"i32".into()));
}

fn depth_is_saved_as_png_and_a_cloud_as_ply() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("before.npy");
    let metres: Vec<u8> = [1.5_f32, 0.25].iter().flat_map(|m| m.to_ne_bytes()).collect();
    fs::write(&file, npy("<f4", "(1, 2)", &metres)).unwrap();
    let depth = sandbox.publisher(&["depth", &file, "--as", "depth"]);
    assert_eq!(sandbox.cenote(&["topic", "snap", "depth", &sandbox.path("depth.png")]).code, 0);
    let image = Image::load_png(sandbox.path("depth.png")).unwrap();
    assert_eq!(image.map().unwrap().as_slice::<u16>().unwrap(), [1500, 250]);
    // The depth image has no camera intrinsics.
    let done = sandbox.cenote(&["topic", "snap", "depth", &sandbox.path("depth.ply")]);
    assert_eq!((done.code, done.stderr.lines().count()), (1, 1));
    let words = ["depth.ply", "save it as .png or .npy"];
    assert!(words.iter().all(|word| done.stderr.contains(word)), "{done:?}");
    assert!(!done.stderr.contains("set_intrinsics"), "{done:?}");
    drop(depth);

    let points: Vec<u8> = [1.0_f32, 2.0, 3.0].iter().flat_map(|m| m.to_ne_bytes()).collect();
    fs::write(&file, npy("<f4", "(1, 3)", &points)).unwrap();
    let _cloud = sandbox.publisher(&["cloud", &file, "--as", "cloud"]);
    assert_eq!(sandbox.cenote(&["topic", "snap", "cloud", &sandbox.path("cloud.ply")]).code, 0);
    let saved = fs::read(sandbox.path("cloud.ply")).unwrap();
    assert!(saved.starts_with(b"ply\n") && saved.ends_with(&points));
    let done = sandbox.cenote(&["topic", "snap", "cloud", &sandbox.path("cloud.png")]);
    assert!(done.code == 1 && done.stderr.contains(".npy always works"), "{done:?}");
}

fn an_array_of_the_wrong_type_or_shape_is_refused_with_its_file_name() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("wrong.npy");
    for (descr, shape, elements, kind) in [
        ("<i4", "(1, 2)", &[0; 8][..], "depth"),
        ("<f4", "(2,)", &[0; 8], "depth"),
        ("<f4", "(0, 3)", &[], "cloud"),
        ("<f4", "(0, 3)", &[], "tensor"),
    ] {
        fs::write(&file, npy(descr, shape, elements)).unwrap();
        let done = sandbox.cenote(&["topic", "pub", "x", &file, "--as", kind, "-c", "1"]);
        assert_eq!((done.code, done.stderr.lines().count()), (1, 1), "{kind}: {done:?}");
        assert!(done.stderr.starts_with(&format!("cenote: {file}: ")), "{kind}: {done:?}");
    }
    // NPY has no bf16.
    let _publisher = sandbox.child("bf16 publisher");
    let done = sandbox.cenote(&["topic", "snap", "bf16", &file]);
    assert!(
        done.code == 1 && done.stderr.contains(&format!("{file}: NPY has no bf16")),
        "{done:?}"
    );
}

/// `topic echo --json` while it runs. It prints one line for each message.
struct Echo {
    _echo: Process,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Echo {
    fn new(sandbox: &Sandbox, topic: &str, values: &str) -> Echo {
        let mut command = sandbox.command(CENOTE);
        command.args(["topic", "echo", topic, "--json", values]).stdout(Stdio::piped());
        let mut echo = Process(command.spawn().unwrap());
        Echo { lines: BufReader::new(echo.0.stdout.take().unwrap()).lines(), _echo: echo }
    }

    /// Makes the publisher send until a message is printed, and returns the first.
    fn first(mut self, publisher: &mut Process) -> Value {
        let line = std::thread::spawn(move || self.lines.next().unwrap().unwrap());
        eventually("a message is printed", || {
            publisher.step();
            line.is_finished()
        });
        serde_json::from_str(&line.join().unwrap()).unwrap()
    }
}

fn only_the_points_of_a_cloud_are_printed_and_saved() {
    let sandbox = Sandbox::new();
    let mut publisher = sandbox.stepped_child("cloud publisher");
    publisher.step();
    let first: Vec<u8> = (1_u16..7).flat_map(|n| f32::from(n).to_ne_bytes()).collect();
    for (topic, shape, elements) in
        [("cloud.two", "(2, 3, )", &first[..]), ("cloud.none", "(0, 3, )", &[])]
    {
        let file = sandbox.path("cloud.npy");
        assert_eq!(sandbox.cenote(&["topic", "snap", topic, &file]).code, 0);
        let saved = fs::read(&file).unwrap();
        let (header, saved) = saved.split_at(128);
        let header = String::from_utf8_lossy(header);
        assert!(header.contains(shape), "{topic}: {header}");
        assert_eq!(saved, elements, "{topic}");
    }
    let echo = Echo::new(&sandbox, "cloud.two", "--values").first(&mut publisher);
    assert_eq!((&echo["shape"], &echo["bytes"]), (&json!([2, 3]), &json!(24)));
    assert_eq!(echo["values"], json!([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    let echo = Echo::new(&sandbox, "cloud.none", "--values").first(&mut publisher);
    assert_eq!((&echo["shape"], &echo["bytes"]), (&json!([0, 3]), &json!(0)));
    assert_eq!(echo["values"], json!([]));
}

fn values_of_mixed_types_are_printed_with_field_names() {
    let sandbox = Sandbox::new();
    let mut publisher = sandbox.stepped_child("cloud publisher");
    let echo = Echo::new(&sandbox, "cloud.mixed", "--values").first(&mut publisher);
    let point = |x: f64, ring: u64| json!({"x": x, "ring": ring, "rgb": [7, 8, 9]});
    assert_eq!(echo["values"], json!([point(0.5, 300), point(1.5, 301)]));
    let echo = Echo::new(&sandbox, "cloud.mixed", "--values=3").first(&mut publisher);
    assert_eq!(echo["values"], json!([{"x": 0.5, "ring": 300, "rgb": [7]}]));
    let mut publisher = sandbox.stepped_child("pose publisher");
    let echo = Echo::new(&sandbox, "robot.pose", "--values").first(&mut publisher);
    let pose = json!({"position": [1.0, -2.5, "NaN"], "rotation": [0.0, 0.0, 0.0, 1.0]});
    assert_eq!(echo["values"], json!([pose]));
    assert!(echo["type"].as_str().unwrap().contains("position: [f64; 3] at 0"), "{echo}");
}

/// A limit of 1 kB for files acts like a full disk.
fn a_failed_write_keeps_the_old_file() {
    let sandbox = Sandbox::new();
    let _camera = sandbox.publisher(&["camera", "--size", "64x48"]);
    let file = sandbox.path("frame.npy");
    for before in [None, Some("old content")] {
        if let Some(before) = before {
            fs::write(&file, before).unwrap();
        }
        let names = sandbox.names();
        let script = "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\"";
        let mut command = sandbox.command("bash");
        command.args(["-c", script, CENOTE, "topic", "snap", "camera", &file]);
        let done = Finished::of(&mut command);
        assert_eq!((done.code, done.stderr.lines().count()), (1, 1), "{done:?}");
        assert!(done.stderr.contains(&format!("writing {file} failed")), "{done:?}");
        assert_eq!(sandbox.names().len(), names.len(), "{:?}", sandbox.names());
        assert_eq!(fs::read_to_string(&file).ok().as_deref(), before);
    }
}

fn a_saved_file_keeps_its_mode_and_its_symbolic_link() {
    let sandbox = Sandbox::new();
    let _camera = sandbox.publisher(&["camera", "--size", "64x48"]);
    let (file, link) = (sandbox.path("frame.npy"), sandbox.path("link.npy"));
    fs::write(&file, "old content").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    assert_eq!(sandbox.cenote(&["topic", "snap", "camera", &link]).code, 0);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let saved = fs::metadata(&file).unwrap();
    assert_eq!((saved.len(), saved.permissions().mode() & 0o777), (128 + 64 * 48 * 3, 0o640));
    // A dangling link creates the file that it points to.
    fs::remove_file(&file).unwrap();
    assert_eq!(sandbox.cenote(&["topic", "snap", "camera", &link]).code, 0);
    assert_eq!(fs::metadata(&file).unwrap().len(), saved.len());
}

fn pub_ends_after_the_given_number_of_messages() {
    let sandbox = Sandbox::new();
    let sent =
        sandbox.json(&["topic", "pub", "camera", "-c", "3", "--rate", "1000", "--size", "16x16"]);
    assert_eq!((&sent["sent"], &sent["bytes_copied"]), (&3.into(), &0.into()));
}

fn echo_prints_messages_and_their_values() {
    let sandbox = Sandbox::new();
    let _camera = sandbox.publisher(CAMERA);
    let echoed = sandbox.json_lines(&["topic", "echo", "camera.rgb", "-c", "3", "--values=4"]);
    let first = echoed[0]["sequence"].as_u64().unwrap();
    for (echo, number) in echoed.iter().zip(first..) {
        assert_eq!((&echo["sequence"], &echo["seq"]), (&number.into(), &number.into()));
        assert_eq!(echo["shape"], serde_json::json!([48, 64, 3]));
        assert_eq!(echo["values"].as_array().unwrap().len(), 4);
    }
    // --values without a number, before or after the topic.
    for args in [
        &["topic", "echo", "--values", "camera.rgb", "-c", "1"][..],
        &["topic", "echo", "-c", "1", "camera.rgb", "-v"],
    ] {
        let echoed = sandbox.json_lines(args);
        assert_eq!(echoed[0]["values"].as_array().unwrap().len(), 16, "{args:?}");
    }
    let text = sandbox.cenote(&["topic", "echo", "camera.rgb", "-c", "1"]).stdout;
    assert!(text.contains("Image u8 [48, 64, 3]") && text.lines().count() == 1, "{text}");
    let _heap = sandbox.child("heap publisher");
    let done = sandbox.cenote(&["topic", "echo", "heap", "--timeout", "0.1"]);
    assert_eq!(done.code, 4, "no new message: {done:?}");
}

/// A pipe without a reader holds less than an image, so `snap` blocks while it writes.
fn snap_leases_nothing_while_it_writes_the_file() {
    let sandbox = Sandbox::new();
    let _camera = sandbox.publisher(&["camera.rgb", "--size", "640x480", "--rate", "100"]);
    let pipe = sandbox.path("pipe.npy");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut snap = sandbox.start(&["topic", "snap", "camera.rgb", &pipe]);
    let mut reader = fs::File::open(&pipe).unwrap();
    reader.read_exact(&mut [0]).unwrap();
    // It blocks in the middle of the file.
    assert_eq!(sandbox.slots_held_by(snap.pid()), Some(0));
    assert!(snap.0.try_wait().unwrap().is_none());
    let rest = std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
    assert!(rest > 640 * 480 * 3);
    assert!(snap.wait().success());
}

fn pub_exits_with_0_when_a_signal_ends_it() {
    let sandbox = Sandbox::new();
    for signal in [Signal::INT, Signal::TERM] {
        let mut camera = sandbox.publisher(CAMERA);
        camera.signal(signal);
        assert_eq!(camera.wait().code(), Some(0));
        assert_eq!(sandbox.json(&["ls"])["topics"], Value::Array(vec![]));
        assert_eq!(sandbox.json(&["gc"])["removed"], Value::Array(vec![]), "it left no socket");
    }
}

//! Message types, names and configurations of topics, and errors when two processes disagree on them.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use cenote::{
    DType, Error, Image, NotWritable, PixelFormat, StagedBecause, Tensor, TensorMemory, TensorPool,
    TensorPoolConfig, Topic, TopicConfig,
};

use super::Test;
use super::child::numbered_message::Sample;
use super::child::{LONG, peer, publisher, send, subscriber, take, topic};
use crate::support::peer::{Peer, ROLE};
use crate::support::{eventually, unique};

pub(crate) const TESTS: &[Test] = &[
    ("plain_data_of_every_size_arrives", plain),
    ("every_kind_of_tensor_arrives", tensors),
    ("a_mismatch_error_names_both_types", mismatch),
    ("structs_with_different_fields_mismatch", fields),
    ("a_waiting_subscriber_gets_the_mismatch", mismatch_while_waiting),
    ("a_polling_subscriber_gets_the_mismatch", mismatch_while_polling),
    ("every_publisher_of_another_type_is_reported", mismatches),
    ("a_polling_subscriber_gets_the_error_that_keeps_the_topic_from_starting", start),
    ("a_mismatch_does_not_hide_other_publishers", mismatch_and_match),
    ("of_two_types_advertised_at_once_at_most_one_is_accepted", at_once),
    ("a_subscriber_of_tensors_receives_images", tensor_of_image),
    ("slashes_and_dots_give_the_same_name", names),
    ("invalid_configurations_are_refused", configs),
    ("namespaces_are_separate", namespaces),
    ("memory_that_other_processes_cannot_see_is_staged_and_counted", staged),
    ("a_loaned_tensor_is_staged_and_a_sent_tensor_cannot_be_loaned", loaned),
    ("a_sent_tensor_cannot_be_written", for_good),
];

fn plain() {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for kind in ["nothing", "byte", "u64", "dozen", "huge"] {
        let name = unique();
        let mut subscriber = subscriber(kind, &name, "");
        let mut publisher = publisher(kind, &name, "");
        assert_eq!(publisher.request("subscribers 1"), "1");
        assert_eq!(publisher.request("send 1 6"), "ok");
        let expected = if kind == "nothing" { "0 0 0 0 0" } else { "1 2 3 4 5" };
        assert_eq!(subscriber.request("take 5"), expected, "{kind}");
        assert_eq!(subscriber.request("recv"), "none");
        first.push(subscriber);
        second.push(publisher);
    }
}

fn tensors() {
    for kind in ["tensor", "image", "cloud", "depth"] {
        let name = unique();
        let mut subscriber = subscriber(kind, &name, "");
        let mut publisher = publisher(kind, &name, "");
        assert_eq!(publisher.request("subscribers 1"), "1");
        assert_eq!(publisher.request("send 1 6"), "ok");
        assert_eq!(subscriber.request("take 5"), "1 2 3 4 5", "{kind}");
        assert_eq!(publisher.request("copies"), "0");
    }
}

/// Asserts that an error names the topic, the process of the publisher, and both types.
fn assert_names_both(text: &str, name: &str, publisher: &Peer, sides: [&str; 2]) {
    for part in [name, &publisher.pid().to_string(), sides[0], sides[1]] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

/// How long `subscribe` and `advertise` wait for answers. On a busy machine an answer may take longer.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(200);

/// The error that a subscriber gets: from `subscribe`, or when it waits for a message.
fn refusal(mut subscriber: Peer) -> String {
    let start = Instant::now();
    match subscriber.request("subscribe") {
        said if said == "ok" && start.elapsed() >= ANSWER_TIMEOUT => {
            subscriber.request("timeout 60000")
        }
        said => said,
    }
}

/// The error that a publisher of another type gets. One that gets no answer in time does publish.
fn refusal_to_publish(kind: &str, name: &str) -> String {
    let mut said = String::new();
    eventually("it is refused", || {
        let (mut publisher, start) = (peer(kind, name, ""), Instant::now());
        said = publisher.request("advertise");
        assert!(
            said != "ok" || start.elapsed() >= ANSWER_TIMEOUT,
            "advertise did not wait for an answer"
        );
        said != "ok"
    });
    said
}

fn mismatch() {
    for (theirs, shown, ours) in [
        ("dozen", "[u32; 3] (12 bytes, aligned to 4)", "u64 (8 bytes, aligned to 8)"),
        ("byte", "[u8; 1] (1 bytes, aligned to 1)", "u64 (8 bytes, aligned to 8)"),
        ("image", "Image", "u64 (8 bytes, aligned to 8)"),
    ] {
        let name = unique();
        let publisher = publisher(theirs, &name, "");
        let topic = topic::<u64>(&name, "");
        let start = Instant::now();
        let error = match topic.subscribe() {
            Ok(()) if start.elapsed() >= ANSWER_TIMEOUT => topic.recv_timeout(LONG).unwrap_err(),
            refused => refused.unwrap_err(),
        };
        assert!(matches!(error, Error::TypeMismatch { .. }), "{error}");
        assert_names_both(&error.to_string(), &name, &publisher, [ours, shown]);
        topic.subscribe().expect("the mismatch was reported already");
        assert_eq!(topic.recv(), None);
    }
    for (theirs, ours) in [("tensor", "image"), ("cloud", "image"), ("image", "depth")] {
        let name = unique();
        let publisher = publisher(theirs, &name, "");
        let text = refusal(peer(ours, &name, ""));
        let shown = |kind| match kind {
            "tensor" => "Tensor",
            "cloud" => "PointCloud",
            "depth" => "DepthImage",
            _ => "Image",
        };
        assert_names_both(&text, &name, &publisher, [shown(theirs), shown(ours)]);
    }
}

/// The types have the same name, size and alignment.
fn fields() {
    let name = unique();
    let mut right = publisher("pose", &name, "");
    let mut same = subscriber("pose", &name, "");
    assert_eq!(right.request("subscribers 1"), "1");
    assert_eq!((right.request("send 3 5"), same.request("take 2")), ("ok".into(), "3 4".into()));
    let theirs = "Pose { x: u32 at 0, y: u32 at 4 } (8 bytes, aligned to 4)";
    for (wrong, ours) in [
        ("swapped", "Pose { y: u32 at 0, x: u32 at 4 } (8 bytes, aligned to 4)"),
        ("retyped", "Pose { x: u32 at 0, y: i32 at 4 } (8 bytes, aligned to 4)"),
    ] {
        assert_names_both(&refusal(peer(wrong, &name, "")), &name, &right, [ours, theirs]);
        assert_names_both(&refusal_to_publish(wrong, &name), &name, &right, [ours, theirs]);
        assert_names_both(&peer(wrong, &name, "").request("wait"), &name, &right, [ours, theirs]);
    }
}

/// A subscriber that already waits gets the error, instead of waiting for ever.
fn mismatch_while_waiting() {
    for how in ["wait", "timeout 1000000"] {
        let name = unique();
        let mut waiting = subscriber("u64", &name, "");
        waiting.write_line(how);
        let publisher = publisher("image", &name, "");
        assert_names_both(&waiting.read_line(), &name, &publisher, ["u64", "Image"]);
    }
    // A publisher that was there before is reported as soon as the subscriber waits.
    let name = unique();
    let publisher = publisher("image", &name, "");
    let error = topic::<u64>(&name, "").wait().unwrap_err();
    assert_names_both(&error.to_string(), &name, &publisher, ["u64", "Image"]);
    let topic = topic::<u64>(&name, "");
    assert!(topic.recv().is_none());
    let error = topic.recv_timeout(LONG).unwrap_err();
    assert!(matches!(error, Error::TypeMismatch { .. }), "{error}");
}

fn mismatch_while_polling() {
    let name = unique();
    let publisher = publisher("image", &name, "");
    for how in ["recv", "latest"] {
        let mut polling = peer("u64", &name, "");
        assert_eq!(
            (polling.request("error"), polling.request(how)),
            ("none".into(), "none".into())
        );
        let mut reported = String::new();
        eventually("it is reported", || {
            reported = polling.request("error");
            reported != "none"
        });
        assert_names_both(&reported, &name, &publisher, ["u64", "Image"]);
        assert_eq!(polling.request("error"), "none", "reported once");
    }
    let topic = topic::<u64>(&name, "");
    assert_eq!(topic.iter().next(), None);
    assert_names_both(
        &topic.last_error().unwrap().to_string(),
        &name,
        &publisher,
        ["u64", "Image"],
    );
}

fn mismatches() {
    let name = unique();
    let publishers = [publisher("image", &name, ""), publisher("image", &name, "")];
    let topic = topic::<u64>(&name, "");
    let mut reported = Vec::new();
    eventually("both are reported", || {
        reported.extend(
            topic.subscribe().err().or_else(|| topic.last_error()).map(|error| error.to_string()),
        );
        reported.len() == 2
    });
    reported.sort_by_key(|text| !text.contains(&publishers[0].pid().to_string()));
    assert_names_both(&reported[0], &name, &publishers[0], ["u64", "Image"]);
    assert_names_both(&reported[1], &name, &publishers[1], ["u64", "Image"]);
    assert!(topic.last_error().is_none());
}

fn start() {
    let file = std::env::temp_dir().join(unique());
    std::fs::write(&file, "no directory").unwrap();
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.env(ROLE, format!("topic_child u64 {}", unique())).env(cenote::DIR_ENV, &file);
    let mut peer = Peer::run(&mut command);
    for how in ["recv", "latest"] {
        assert_eq!((peer.request(how), peer.request("error") == "none"), ("none".into(), false));
        assert_eq!(peer.request("error"), "none", "reported once");
    }
    assert_eq!(peer.request("recv"), "none");
    let shown = file.to_string_lossy().into_owned();
    assert!(peer.request("error").contains(&shown));
    assert!(peer.request("wait").contains(&shown));
    std::fs::remove_file(&file).unwrap();
}

fn at_once() {
    let mut winners = 0;
    for _ in 0..20 {
        let name = unique();
        let ones = topic::<u64>(&name, "");
        let others = Topic::<[f32; 3]>::new(&name).unwrap();
        let together = Barrier::new(2);
        let begin = |advertise: &dyn Fn() -> cenote::Result<()>| {
            together.wait();
            advertise()
        };
        let done = std::thread::scope(|scope| {
            let one = scope.spawn(|| begin(&|| ones.advertise()));
            let other = scope.spawn(|| begin(&|| others.advertise()));
            [one.join().unwrap(), other.join().unwrap()]
        });
        let refused: Vec<_> = done.iter().filter_map(|one| one.as_ref().err()).collect();
        assert!(refused.iter().all(|error| matches!(error, Error::TypeMismatch { .. })));
        assert!(!refused.is_empty(), "both send");
        winners += 2 - refused.len();
    }
    assert!(winners > 0, "both were refused, always");
}

fn mismatch_and_match() {
    let name = unique();
    let mut right = publisher("u64", &name, "");
    let topic = topic::<u64>(&name, "");
    topic.subscribe().unwrap();
    assert_eq!(right.request("subscribers 1"), "1");
    // A process cannot publish a type that differs from that of other publishers.
    assert_names_both(&refusal_to_publish("image", &name), &name, &right, ["Image", "u64"]);
    assert_eq!(right.request("send 0 3"), "ok");
    assert_eq!(take(&topic, 3), [0, 1, 2]);
}

fn tensor_of_image() {
    for (kind, dtype, shape) in [
        ("image", DType::U8, &[30, 40, 3][..]),
        ("cloud", DType::U64, &[100, 2]),
        ("depth", DType::U16, &[20, 30]),
    ] {
        let name = unique();
        let topic = topic::<Tensor>(&name, "");
        topic.subscribe().unwrap();
        let mut publisher = publisher(kind, &name, "");
        assert_eq!(publisher.request("subscribers 1"), "1");
        assert_eq!(publisher.request("send 5 6"), "ok");
        let tensor = topic.recv_timeout(LONG).unwrap().unwrap();
        assert_eq!((tensor.dtype(), tensor.shape()), (dtype, shape), "{kind}");
        if kind == "image" {
            assert_eq!(Image::from_tensor(tensor).unwrap().format(), PixelFormat::Rgb8);
        }
    }
}

fn names() {
    let name = unique();
    let dotted = format!("camera.{name}.rgb");
    let topic = topic::<u64>(&dotted, "");
    assert_eq!(topic.name(), dotted);
    topic.subscribe().unwrap();
    let mut slashed = peer("u64", &format!("/camera/{name}/rgb"), "");
    assert_eq!(slashed.request("send 4 5"), "ok");
    assert_eq!(take(&topic, 1), [4]);
    let long = "x".repeat(129);
    for bad in
        ["", "/", ".", "..", "a..b", "a/../b", "a b", "é", "a@b", "a\0b", "a\nb", "-a", &long]
    {
        let error = Topic::<u64>::new(bad).unwrap_err();
        assert!(matches!(error, Error::BadName { .. }), "{bad:?}: {error}");
    }
    Topic::<u64>::new(&"x".repeat(128)).unwrap().advertise().unwrap();
}

fn configs() {
    let with = |config| Topic::<u64>::with_config(&unique(), config).map(drop);
    for depth in [0, 65_537, usize::MAX] {
        let error = with(TopicConfig { depth, ..TopicConfig::default() }).unwrap_err();
        assert!(matches!(error, Error::BadConfig { field: "depth", .. }), "{error}");
    }
    let of_tensors = |depth, max_slots| {
        let pool = TensorPoolConfig { max_slots, ..TensorPoolConfig::small() };
        let config = TopicConfig { depth, pool, ..TopicConfig::default() };
        Topic::<Tensor>::with_config(&unique(), config).map(drop)
    };
    of_tensors(15, 16).unwrap();
    let error = of_tensors(16, 16).unwrap_err();
    assert!(error.to_string().contains("max_slots"), "{error}");
    let pool = TensorPoolConfig { slot_alignment: 3, ..TensorPoolConfig::small() };
    let error = with(TopicConfig { pool, ..TopicConfig::default() }).unwrap_err();
    assert!(matches!(error, Error::BadConfig { field: "slot_alignment", .. }), "{error}");
    with(TopicConfig { depth: 65_536, history: usize::MAX, ..TopicConfig::default() }).unwrap();
}

fn namespaces() {
    let name = unique();
    let started = |namespace: &str| {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.env(ROLE, format!("topic_child u64 {name}")).env(cenote::NAMESPACE_ENV, namespace);
        Peer::run(&mut command)
    };
    let topic = topic::<u64>(&name, "");
    topic.subscribe().unwrap();
    let mut same = started("robot1");
    assert_eq!(same.request("subscribe"), "ok");
    let (mut one, mut two) = (started("robot1"), started("robot2"));
    assert_eq!((one.request("send 1 2"), two.request("send 2 3")), ("ok".into(), "ok".into()));
    assert_eq!(same.request("take 1"), "1");
    let mut ours = publisher("u64", &name, "");
    assert_eq!(ours.request("send 3 4"), "ok");
    // The topic would have found an earlier publisher of another namespace before this one.
    assert_eq!((take(&topic, 1), topic.stats().publishers), (vec![3], 1));
    assert_eq!((same.request("recv"), same.request("publishers")), ("none".into(), "1".into()));
}

fn staged() {
    let name = unique();
    let mut subscriber = subscriber("tensor", &name, "");
    let topic = topic::<Tensor>(&name, "ignore_own");
    assert_eq!(topic.wait_for_subscribers(1, LONG).unwrap(), 1);
    let mut heap = Tensor::options().memory(TensorMemory::Mem).create(&[1000], DType::U64).unwrap();
    heap.map_mut().unwrap().as_mut_slice::<u64>().unwrap().fill(1);
    topic.send(&heap).unwrap();
    // The publisher sent a copy, so the original stays writable.
    heap.map_mut().unwrap().as_mut_slice::<u64>().unwrap().fill(2);
    topic.send(&heap).unwrap();
    let mut view = topic.alloc_tensor(&[2, 1000], DType::U64).unwrap();
    view.map_mut().unwrap().as_mut_slice::<u64>().unwrap().fill(3);
    topic.send(&view.narrow(0, 1, 1).unwrap()).unwrap();
    let pool = TensorPool::new(unique(), TensorPoolConfig::small()).unwrap();
    let mut other = pool.alloc(&[10], DType::U64).unwrap();
    other.map_mut().unwrap().as_mut_slice::<u64>().unwrap().fill(4);
    topic.send(&other).unwrap();
    assert_eq!(subscriber.request("take 4"), "1 2 3 4");
    let copies = topic.stats().copies;
    assert_eq!(copies.len(), 1, "{copies:?}");
    assert_eq!((copies[0].reason, copies[0].count), (StagedBecause::Heap, 2));
    assert_eq!(copies[0].bytes, 2 * 8000);
}

#[allow(unsafe_code, reason = "writes through a loan")]
fn loaned() {
    let topic = topic::<Tensor>(&unique(), "");
    topic.subscribe().unwrap();
    let pool = TensorPool::new(unique(), TensorPoolConfig::small()).unwrap();
    let shm = Tensor::options().memory(TensorMemory::Shm).create(&[10], DType::U64).unwrap();
    for tensor in [pool.alloc(&[10], DType::U64).unwrap(), shm] {
        let loan = tensor.lend().unwrap();
        // SAFETY: the loan covers ten elements of eight bytes, and no reference to them exists.
        unsafe { loan.as_ptr().write_bytes(0, 80) };
        assert!(pool.is_owner() && topic.send(&tensor).is_ok());
        // SAFETY: as above. The subscriber has a copy and does not see this write.
        unsafe { loan.as_ptr().write_bytes(1, 80) };
        assert_eq!(topic.recv().unwrap().to_vec::<u64>().unwrap(), [0; 10]);
        assert!(tensor.descriptor().is_err(), "not while it is loaned");
        drop(loan);
        topic.send(&tensor).unwrap();
        assert!(matches!(tensor.lend(), Err(Error::NotWritable { why: NotWritable::Published })));
        assert_eq!(topic.recv().unwrap().to_vec::<u64>().unwrap(), [0x0101_0101_0101_0101; 10]);
    }
    let copies = topic.stats().copies;
    assert_eq!(copies.len(), 1, "{copies:?}");
    assert_eq!((copies[0].reason, copies[0].count), (StagedBecause::Lent, 2));
    assert_eq!(copies[0].bytes, 160);
}

fn for_good() {
    let topic = topic::<Tensor>(&unique(), "");
    let mut tensor = Tensor::of(&topic, 7).unwrap();
    topic.send(&tensor).unwrap();
    let error = tensor.map_mut().map(drop).unwrap_err();
    assert!(matches!(error, Error::NotWritable { why: NotWritable::Published }), "{error}");
    assert!(error.to_string().contains("make_mut"), "it names the remedy: {error}");
    tensor.make_mut().unwrap().as_mut_slice::<u64>().unwrap().fill(8);
    let mut received = topic.recv().unwrap();
    assert_eq!((tensor.number(), received.number()), (8, 7));
    received.map_mut().map(drop).unwrap_err();
    received.make_mut().unwrap().as_mut_slice::<u64>().unwrap().fill(9);
    // A tensor that was received from another process cannot be written either.
    let mut publisher = publisher("tensor", topic.name(), "");
    assert_eq!(publisher.request("subscribers 1"), "1");
    assert_eq!(publisher.request("send 5 6"), "ok");
    let mut theirs = topic.recv_timeout(LONG).unwrap().unwrap();
    let error = theirs.map_mut().map(drop).unwrap_err();
    assert!(matches!(error, Error::NotWritable { .. }), "{error}");
    theirs.make_mut().unwrap().as_mut_slice::<u64>().unwrap().fill(9);
    send(&topic, 1).unwrap();
    eventually("our own message arrives", || topic.recv().is_some());
}

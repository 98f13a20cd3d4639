//! Topics between processes of different users.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cenote::{DType, PoolAccess, Tensor, TensorPool, TensorPoolConfig, Topic, TopicConfig};

use super::user::{GROUP, OTHER_USER, as_other_user};
use super::{Role, Test, command, directory};
use crate::support::peer::{Peer, ROLE, reply, serve};
use crate::support::{all_are, filled};

pub(crate) const TESTS: &[Test] = &[
    ("members_of_a_group_receive_tensors_of_the_topic_pool", group),
    ("another_user_receives_nothing", another),
    ("a_topic_outlives_the_directory_of_another_user", removed),
];

const TOPIC: &str = "topic";

pub(crate) const ROLES: &[Role] = &[(TOPIC, |_| child())];
const NAME: &str = "camera.rgb";
const LONG: Duration = Duration::from_secs(60);

/// A child process with a topic. Each line of its standard input is a command.
fn child() {
    let mut topic: Option<Topic<Tensor>> = None;
    serve(|words| {
        let mut start = |access| {
            let pool = TensorPoolConfig { access, ..TensorPoolConfig::small() };
            let config = TopicConfig { pool, ignore_own: true, ..TopicConfig::default() };
            topic = Some(Topic::with_config(NAME, config).unwrap());
            "ok".to_owned()
        };
        match *words {
            ["group", gid] => start(PoolAccess::Group(gid.parse().unwrap())),
            ["own"] => start(PoolAccess::SameUser),
            _ => answer(topic.as_ref().unwrap(), words),
        }
    });
}

fn answer(topic: &Topic<Tensor>, words: &[&str]) -> String {
    match *words {
        ["advertise"] => reply(topic.advertise()),
        ["subscribe"] => reply(topic.subscribe()),
        ["subscribers"] => topic.wait_for_subscribers(1, LONG).unwrap().to_string(),
        ["send", value] => {
            let tensor = filled(topic.pool().unwrap(), 1000, value.parse().unwrap());
            reply(topic.send(&tensor))
        }
        ["send-from-process", value] => {
            let mut tensor = TensorPool::of_process().unwrap().alloc(&[1000], DType::U8).unwrap();
            let value: u8 = value.parse().unwrap();
            tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(value);
            reply(topic.send(&tensor))
        }
        ["take", value] => {
            let value = value.parse().unwrap();
            match topic.recv_timeout(LONG) {
                Ok(found) => found.is_some_and(|tensor| all_are(&tensor, value)).to_string(),
                Err(error) => error.to_string(),
            }
        }
        ["publishers"] => topic.stats().publishers.to_string(),
        ["loss"] => loop {
            assert!(topic.recv().is_none());
            if let Some(loss) = topic.last_loss() {
                return format!("{} {loss}", topic.missed());
            }
        },
        _ => panic!("{words:?}"),
    }
}

fn in_role(dir: &Path) -> Command {
    let mut command = command(dir);
    command.env(ROLE, TOPIC);
    command
}

/// A publisher that runs as root and gives access to a group.
fn publisher(dir: &Path) -> Peer {
    let mut publisher = Peer::run(&mut in_role(dir));
    assert_eq!(publisher.request(&format!("group {GROUP}")), "ok");
    assert_eq!(publisher.request("advertise"), "ok");
    publisher
}

fn member(dir: &Path) -> Peer {
    let mut member = Peer::run(as_other_user(&mut in_role(dir), OTHER_USER, &[GROUP]));
    assert_eq!(member.request("own"), "ok");
    member
}

fn group() {
    let dir = directory("topic-group", 0o755);
    let (mut publisher, mut member) = (publisher(&dir), member(&dir));
    assert_eq!(member.request("subscribe"), "ok");
    assert_eq!(publisher.request("subscribers"), "1");
    for value in ["1", "2", "3"] {
        assert_eq!(publisher.request(&format!("send {value}")), "ok");
        assert_eq!(member.request(&format!("take {value}")), "true");
    }
    // The pool of the process is for the same user: it is not introduced, and its tensors are missed, with a reason.
    assert_eq!(publisher.request("send-from-process 4"), "ok");
    let loss = member.request("loss");
    assert!(loss.starts_with("1 "), "{loss}");
    assert_eq!(publisher.request("send 5"), "ok");
    assert_eq!(member.request("take 5"), "true");
    // Only the owner of the directory can advertise there.
    assert_ne!(member.request("advertise"), "ok");
    member.finish();
    assert_eq!(publisher.request("send 6"), "ok");
}

fn another() {
    let dir = directory("topic-another", 0o755);
    let mut publisher = Peer::run(&mut in_role(&dir));
    assert_eq!(
        (publisher.request("own"), publisher.request("advertise")),
        ("ok".into(), "ok".into())
    );
    let mut other = member(&dir);
    assert_ne!(other.request("subscribe"), "ok", "the directory is closed");
    // With every permission given, the kernel still reports the user of the peer.
    for path in ["", "default", "default/topics", "default/topics/camera.rgb"] {
        std::fs::set_permissions(dir.join(path), PermissionsExt::from_mode(0o777)).unwrap();
    }
    for socket in std::fs::read_dir(dir.join("default/topics/camera.rgb")).unwrap() {
        let path = socket.unwrap().path();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
    }
    assert_eq!(other.request("subscribe"), "ok");
    assert_eq!(
        (publisher.request("send 1"), other.request("publishers")),
        ("ok".into(), "0".into())
    );
    let mut same = Peer::run(&mut in_role(&dir));
    assert_eq!((same.request("own"), same.request("subscribe")), ("ok".into(), "ok".into()));
    assert_eq!(publisher.request("subscribers"), "1");
    assert_eq!((publisher.request("send 2"), same.request("take 2")), ("ok".into(), "true".into()));
    other.finish();
}

/// The last publisher removes the directory, which other users may not create. The next publisher creates it.
fn removed() {
    let dir = directory("topic-removed", 0o755);
    let first = publisher(&dir);
    let mut member = member(&dir);
    assert_eq!(member.request("subscribe"), "ok");
    assert!(first.finish().success());
    let mut second = publisher(&dir);
    assert_eq!(second.request("subscribers"), "1");
    assert_eq!((second.request("send 7"), member.request("take 7")), ("ok".into(), "true".into()));
    member.finish();
}

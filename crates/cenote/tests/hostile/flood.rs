//! Too many connections, and too many leases, from another process.

use cenote::{DType, Error, Tensor, TensorDescriptor, TensorPool, TensorPoolConfig};

use super::reader::works;
use super::{Role, Test};
use crate::support::peer::{Peer, serve};
use crate::support::raw::pool::{
    FakeEndpoint, REFUSED, Raw, RawReader, attach_request, index, kind, path_of,
};
use crate::support::{OpenResources, all_are, eventually, filled, pool, pools_dir, unhex, unique};

pub(crate) const TESTS: &[Test] = &[
    ("a_pool_uses_few_descriptors", few),
    ("thousands_of_connections_without_an_attach_request", silent),
    ("thousands_of_connections_with_an_attach_request", attaching),
    ("many_short_connections_while_others_attach", storm),
    ("an_owner_without_descriptors_refuses_readers", poor),
    ("sockets_of_owners_that_died_while_starting_are_removed", died_while_starting),
    ("a_peer_over_its_limit_is_disconnected", over_the_limit),
    ("a_peer_that_holds_everything_is_named_and_its_death_frees_all", holder),
];

pub(crate) const ROLES: &[Role] =
    &[("flood", |_| flood()), ("few_descriptors", |_| use_pools_with_few_descriptors())];

fn use_pools_with_few_descriptors() {
    let few = rustix::process::Rlimit { current: Some(40), maximum: Some(40) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
    crate::support::pool_user::run();
}

/// The hostile process.
fn flood() {
    let mut kept: Vec<Raw> = Vec::new();
    let mut rows: Vec<RawReader> = Vec::new();
    serve(|words| match *words {
        ["silent", name, count] => {
            kept.extend(connect(name, count.parse().unwrap()));
            kept.len().to_string()
        }
        ["attach", name, count] => {
            let connected = connect(name, count.parse().unwrap());
            connected.iter().for_each(|raw| drop(raw.send(&attach_request(), &[])));
            kept.extend(connected);
            kept.len().to_string()
        }
        ["storm", name, seconds] => {
            let until = std::time::Duration::from_secs(seconds.parse().unwrap());
            storm_for(name, until).to_string()
        }
        ["hold", name] => {
            std::fs::write("/proc/self/comm", "\x1b[31m\nroot").unwrap();
            let attached = RawReader::to(name);
            attached.write_row(|_| 1);
            rows.push(attached);
            "ok".to_owned()
        }
        _ => panic!("{words:?}"),
    });
}

fn connect(name: &str, count: usize) -> Vec<Raw> {
    let path = path_of(name).unwrap();
    (0..count).filter_map(|_| Raw::try_connect(&path).ok()).collect()
}

fn storm_for(name: &str, time: std::time::Duration) -> usize {
    let path = path_of(name).unwrap();
    let (start, mut count) = (std::time::Instant::now(), 0);
    while start.elapsed() < time {
        let Ok(raw) = Raw::try_connect(&path) else { continue };
        count += 1;
        if count % 2 == 0 {
            let _ = raw.send(&attach_request(), &[]);
        }
    }
    count
}

fn silent() {
    let pool = pool(8);
    let mut flood = Peer::start("flood");
    assert_eq!(flood.request(&format!("silent {} 3000", pool.name())), "3000");
    assert_eq!(pool.stats().unwrap().attachers, 0, "no reader was accepted");
    works(&pool);
    flood.kill();
    works(&pool);
}

fn attaching() {
    let pool = pool(8);
    let mut flood = Peer::start("flood");
    assert_eq!(flood.request(&format!("attach {} 3000", pool.name())), "3000");
    works(&pool);
    let attachers = pool.stats().unwrap().attachers;
    assert!(attachers < 100, "one process took {attachers} rows");
    let tensor = filled(&pool, 100, 1);
    tensor.descriptor().unwrap();
    drop(tensor);
    flood.kill();
    // This process stays attached.
    eventually("they are disconnected", || pool.stats().unwrap().attachers == 1);
    works(&pool);
}

fn storm() {
    let pool = pool(8);
    let mut floods: Vec<Peer> = (0..2).map(|_| Peer::start("flood")).collect();
    floods.iter_mut().for_each(|flood| flood.write_line(&format!("storm {} 2", pool.name())));
    let until = std::time::Instant::now() + std::time::Duration::from_secs(2);
    let mut attached = 0;
    while std::time::Instant::now() < until {
        let tensor = filled(&pool, 10, 3);
        let mut own = TensorPool::open(pool.name());
        // While the owner has too many connections it refuses; that passes.
        while matches!(own, Err(Error::AttachRefused { .. })) {
            own = TensorPool::open(pool.name());
        }
        let own = own.unwrap();
        assert!(all_are(&own.import(&tensor.descriptor().unwrap()).unwrap(), 3));
        attached += 1;
    }
    assert!(attached > 0);
    for mut flood in floods {
        assert!(flood.read_line().parse::<usize>().unwrap() > 0);
    }
    works(&pool);
}

/// The reason of a refusal for want of memory.
const NO_MEMORY: u32 = 3;

fn poor() {
    let mut owner = Peer::start("few_descriptors");
    let name = unique();
    assert_eq!(owner.request(&format!("new {name}")), "ok");
    let first = TensorPool::open(name.as_str()).unwrap();
    // Each costs the owner two descriptors. It refuses those beyond the limit, and does not leave them waiting.
    let connections: Vec<Raw> = (0..100).map(|_| Raw::connect(&name)).collect();
    connections.iter().for_each(|raw| drop(raw.send(&attach_request(), &[])));
    for raw in &connections {
        // If the owner closes without reading the request, the kernel reports a reset.
        let answer = raw.recv().inspect(|(bytes, _)| {
            let refused = !bytes.is_empty() && kind(bytes) == REFUSED;
            assert!(!refused || index(bytes) != NO_MEMORY, "it has enough memory");
        });
        let answered = answer.map(drop).or_else(|error| match error.kind() {
            std::io::ErrorKind::ConnectionReset => Ok(()),
            _ => Err(error),
        });
        answered.expect("every reader gets an answer");
    }
    let before = cpu_ticks(owner.pid());
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(cpu_ticks(owner.pid()) - before < 25, "the owner does not sleep");
    drop(connections);
    eventually("they are disconnected", || owner.request("attachers") == "1");
    let tensor = owner.request("alloc 1000 3");
    let descriptor = TensorDescriptor::from_bytes(&unhex(&tensor)).unwrap();
    assert!(all_are(&first.import(&descriptor).unwrap(), 3));
    RawReader::to(&name);
    owner.finish();
}

/// Hundredths of a second that a process has run.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

fn died_while_starting() {
    let kept = pool(4);
    let dead = pools_dir().join(".00000000000000aa");
    let living = pools_dir().join(".00000000000000bb");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    let listener = FakeEndpoint::at(living.clone());
    let unrelated = pools_dir().join(".profile");
    std::fs::write(&unrelated, "").unwrap();
    drop(pool(4));
    assert!(!dead.exists() && living.exists() && unrelated.exists());
    std::fs::remove_file(unrelated).unwrap();
    drop(listener);
    works(&kept);
}

fn over_the_limit() {
    let pool = pool(16);
    let honest = TensorPool::open(pool.name()).unwrap();
    let kept = filled(&pool, 100, 6);
    let kept = honest.import(&kept.descriptor().unwrap()).unwrap();
    let mut flood = Peer::start("flood");
    assert_eq!(flood.request(&format!("hold {}", pool.name())), "ok");
    let all: Vec<Tensor> = (0..15).map(|_| filled(&pool, 100, 1)).collect();
    for tensor in &all {
        tensor.descriptor().unwrap();
    }
    drop(all);
    // It leases more than half of the slots, which is the limit of one reader.
    let _all: Vec<Tensor> = (0..15).map(|_| filled(&pool, 100, 2)).collect();
    assert!(all_are(&kept, 6), "a reader within its limit stays attached");
    assert_eq!(pool.stats().unwrap().attachers, 1);
}

fn holder() {
    let config = TensorPoolConfig { max_slots: 16, max_leases: 16, ..TensorPoolConfig::small() };
    let pool = TensorPool::new(unique(), config).unwrap();
    let mut flood = Peer::start("flood");
    assert_eq!(flood.request(&format!("hold {}", pool.name())), "ok");
    let all: Vec<Tensor> = (0..16).map(|_| filled(&pool, 100, 1)).collect();
    for tensor in &all {
        tensor.descriptor().unwrap();
    }
    drop(all);
    let error = pool.alloc(&[1], DType::U8).unwrap_err();
    let Error::PoolFull { holders, .. } = &error else { panic!("{error}") };
    assert_eq!((holders[0].pid, holders[0].retired_slots), (flood.pid().cast_signed(), 16));
    assert!(error.to_string().contains(&format!("pid {}", flood.pid())), "{error}");
    assert!(!error.to_string().contains(char::is_control), "{error:?}");
    flood.kill();
    // At once: a full pool checks for dead readers itself.
    let all: Vec<Tensor> = (0..16).map(|_| filled(&pool, 100, 2)).collect();
    assert!(all.iter().all(|tensor| all_are(tensor, 2)));
}

/// A pool has its header, directory and socket open, and each segment. These pools have no segment.
fn few() {
    let before = OpenResources::now();
    let pools: Vec<TensorPool> = (0..20).map(|_| pool(4)).collect();
    let now = OpenResources::now();
    assert!(now.fds <= before.fds + 3 * pools.len(), "{before:?} before, {now:?} after");
}

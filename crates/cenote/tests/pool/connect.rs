//! How processes find a pool and connect to it, and what a fork changes.
#![allow(unsafe_code, reason = "fork")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use cenote::{DType, Error, PoolAccess, Tensor, TensorPool, TensorPoolConfig};

use super::{
    POOL_USER, Peer, Test, all_are, command, eventually, filled, hex, pool, pool_user, unhex,
    unique, wait_for,
};
use crate::support::{SetOnDrop, peer::ROLE, socket_dir};

pub(crate) const TESTS: &[Test] = &[
    ("opening_a_missing_pool_creates_nothing", looking),
    ("files_among_the_topics_hide_no_pool", among_topics),
    ("a_bad_namespace_is_named", bad_namespace),
    ("a_pool_that_cannot_be_made_leaves_nothing", failed),
    ("a_closed_pool_stays_closed", closed),
    ("a_process_attached_to_a_closed_pool_gets_an_error_that_says_so", told),
    ("a_vanished_directory_is_made_again_where_it_was", moved),
    ("a_socket_is_shown_only_with_its_mode", modes),
    ("the_limit_of_leases_of_one_process_counts_slots", limit),
    ("first_imports_at_the_same_time_attach_once", together),
    ("a_dead_owner_with_a_living_forked_child_is_dead", dead_parent),
    ("a_dead_reader_with_a_living_forked_child_is_dead", dead_reader),
    ("no_connection_reaches_a_forked_child", leaks),
    ("a_forked_child_serves_its_pools_whatever_thread_was_starting", served),
    ("a_forked_child_reads_what_it_inherited_and_owns_nothing", inherited),
];

/// A place of a test's own.
fn place() -> PathBuf {
    socket_dir().join(unique())
}

fn somewhere(dir: &Path) -> Command {
    let mut command = command(POOL_USER);
    command.env(cenote::DIR_ENV, dir);
    command
}

fn looking() {
    let tensor = hex(&filled(&pool(TensorPoolConfig::small()), 10, 1).descriptor().unwrap());
    let dir = place();
    let mut peer = Peer::run(&mut somewhere(&dir));
    for _ in 0..3 {
        assert_eq!(peer.request("open nothing"), "there is no pool `nothing`");
        assert!(peer.request(&format!("import {tensor}")).starts_with("there is no pool"));
        let made = dir.exists() && std::fs::read_dir(&dir).unwrap().next().is_some();
        assert!(!made, "looking made a directory");
        let _ = std::fs::create_dir(&dir);
    }
    std::fs::create_dir(dir.join("default")).unwrap();
    assert_eq!(peer.request("open nothing"), "there is no pool `nothing`");
    assert_eq!(std::fs::read_dir(dir.join("default")).unwrap().count(), 0);
    peer.kill();
}

fn among_topics() {
    let dir = place();
    let topic = dir.join("default/topics/camera");
    std::fs::create_dir_all(&topic).unwrap();
    std::fs::write(dir.join("default/topics/notes"), "a file that somebody left").unwrap();
    let mut owner = Peer::run(&mut somewhere(&dir));
    assert_eq!(owner.request("new frames"), "ok");
    let tensor = owner.request("alloc 1000 6");
    let mut reader = Peer::run(&mut somewhere(&dir));
    assert_eq!(reader.request(&format!("import {tensor}")), "ok");
    assert_eq!(reader.request("check 6"), "true");
    // A publisher's memory is found by descriptors, and is no pool to be opened by name.
    let socket = std::fs::read_dir(dir.join("default/pools")).unwrap().next().unwrap().unwrap();
    let name = socket.file_name().into_string().unwrap().replace("frames", "camera");
    std::fs::hard_link(socket.path(), topic.join(name)).unwrap();
    let mut late = Peer::run(&mut somewhere(&dir));
    assert_eq!(late.request("open camera"), "there is no pool `camera`");
    assert_eq!(late.request(&format!("import {tensor}")), "ok");
    assert_eq!(late.request("check 6"), "true");
    for peer in [owner, reader, late] {
        peer.kill();
    }
}

fn bad_namespace() {
    for bad in ["", ".", "..", "a/b", "-x", "a b"] {
        let mut peer = Peer::run(somewhere(&place()).env("CENOTE_NAMESPACE", bad));
        for question in ["open it", "new it"] {
            let answer = peer.request(question);
            assert!(answer.contains("CENOTE_NAMESPACE="), "{bad:?}: {answer}");
        }
        peer.kill();
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let pools = std::fs::read_dir(dir.join("default/pools"));
    pools.map_or(Vec::new(), |pools| pools.map(|entry| entry.unwrap().path()).collect())
}

/// Whatever number of descriptors a process may have, it gets a pool or leaves nothing behind.
fn failed() {
    let dir = place();
    let (mut made, mut refused) = (0, 0);
    for limit in 6..24 {
        let script = format!("ulimit -n {limit}; exec \"$1\"");
        let mut command = Command::new("/bin/sh");
        command.args(["-euc", &script, "sh"]).arg(std::env::current_exe().unwrap());
        let mut peer = Peer::run(command.env(ROLE, POOL_USER).env("CENOTE_DIR", &dir));
        if peer.request("new it") == "ok" {
            made += 1;
            assert_eq!(entries(&dir).len(), 1);
        } else {
            refused += 1;
            assert!(entries(&dir).is_empty(), "with {limit} descriptors");
        }
        peer.kill();
        entries(&dir).into_iter().for_each(|entry| std::fs::remove_file(entry).unwrap());
    }
    assert!(made > 0 && refused > 0, "{made} made, {refused} refused");
}

/// Closing races with making the socket anew, and wins.
fn closed() {
    let dir = socket_dir().join("default/pools");
    for _ in 0..200 {
        let pool = pool(TensorPoolConfig::small());
        let path = dir.join(format!("{}@{:016x}", pool.name(), pool.uid()));
        std::fs::remove_file(&path).unwrap();
        drop(pool);
        // Another, so that the service thread has seen what there was to see.
        let next = super::pool(TensorPoolConfig::small());
        let file = dir.join(format!("{}@{:016x}", next.name(), next.uid()));
        std::fs::remove_file(&file).unwrap();
        eventually("the socket of the other pool is back", || file.exists());
        assert!(!path.exists(), "a closed pool came back");
    }
}

fn told() {
    let pool = pool(TensorPoolConfig::small());
    let attached = TensorPool::open(pool.name()).unwrap();
    let tensor = filled(&pool, 1000, 4);
    let descriptor = tensor.descriptor().unwrap();
    assert!(all_are(&attached.import(&descriptor).unwrap(), 4));
    drop((tensor, pool));
    eventually("the reader sees that the pool is closed", || !attached.is_alive());
    let error = attached.import(&descriptor).unwrap_err();
    assert!(matches!(error, Error::PoolClosed { .. }), "{error}");
    assert!(error.to_string().contains(attached.name()), "{error}");
}

/// A whole tree is removed, and the pools in it are found again in the same place.
fn moved() {
    let dir = place();
    let mut owner = Peer::run(&mut somewhere(&dir));
    for name in ["one", "two"] {
        assert_eq!(owner.request(&format!("new {name}")), "ok");
    }
    // Out of the way first: what is removed under their eyes they make again.
    let away = dir.with_extension("away");
    std::fs::rename(&dir, &away).unwrap();
    std::fs::remove_dir_all(&away).unwrap();
    eventually("the pool is found in the directory again", || {
        entries(&dir).iter().filter(|path| path.to_string_lossy().contains('@')).count() == 2
    });
    let mut other = Peer::run(&mut somewhere(&dir));
    for name in ["one", "two"] {
        assert_eq!(other.request(&format!("open {name}")), "ok");
    }
    other.kill();
    owner.kill();
}

fn modes() {
    use std::os::unix::fs::PermissionsExt;
    let dir = socket_dir().join("default/pools");
    for (access, mode) in [
        (PoolAccess::SameUser, 0o600),
        (PoolAccess::Mode(0o644), 0o644),
        (PoolAccess::Mode(0o170_600), 0o600),
    ] {
        let pool = pool(TensorPoolConfig { access, ..TensorPoolConfig::small() });
        let path = dir.join(format!("{}@{:016x}", pool.name(), pool.uid()));
        let found = std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(found, mode, "{access:?}");
    }
}

fn limit() {
    let pool = pool(TensorPoolConfig { max_leases: 2, ..TensorPoolConfig::small() });
    let attached = TensorPool::open(pool.name()).unwrap();
    let tensors: Vec<Tensor> = (0..3).map(|value| filled(&pool, 100, value)).collect();
    let words: Vec<_> = tensors.iter().map(|tensor| tensor.descriptor().unwrap()).collect();
    let mut held: Vec<Tensor> = (0..5).map(|_| attached.import(&words[0]).unwrap()).collect();
    held.push(attached.import(&words[1]).unwrap());
    let error = attached.import(&words[2]).unwrap_err();
    assert!(matches!(error, Error::TooManyLeases { max: 2, .. }), "{error}");
    assert!(error.to_string().contains("max_leases"), "{error}");
    held.push(attached.import(&words[0]).unwrap());
    held.remove(5);
    held.push(attached.import(&words[2]).unwrap());
}

/// Threads that import from a pool that the process does not know yet each attach to it. One of
/// those attachments stays, and the others go with what was imported through them.
fn together() {
    let mut owner = pool_user();
    assert_eq!(owner.request(&format!("new {}", unique())), "ok");
    let text = owner.request("alloc 1000 6");
    let barrier = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                barrier.wait();
                let tensor = Tensor::from_descriptor(&unhex(&text)).unwrap();
                // All of them hold one before any lets go.
                barrier.wait();
                assert!(all_are(&tensor, 6));
            });
        }
    });
    let start = std::time::Instant::now();
    while owner.request("attachers") != "1" {
        assert!(start.elapsed().as_secs() < 60, "{} stay", owner.request("attachers"));
    }
    owner.kill();
}

/// In a child: forks one off that lives until it is killed, and gives its pid. By a raw clone(2) it
/// has all sockets, as any child has until the handlers of fork have run.
pub(crate) fn fork_and_wait(how: &str) -> String {
    let flags = libc::c_long::from(libc::SIGCHLD);
    let pid = match how {
        // SAFETY: the child only sleeps.
        "clone" => unsafe {
            libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize)
        },
        // SAFETY: as above.
        _ => libc::c_long::from(unsafe { libc::fork() }),
    };
    if pid == 0 {
        // SAFETY: it takes a number. Should nobody kill it, this does.
        unsafe { libc::alarm(60) };
        loop {
            // SAFETY: it takes nothing.
            unsafe { libc::pause() };
        }
    }
    pid.to_string()
}

fn dead_parent() {
    for how in ["fork", "clone"] {
        let name = unique();
        let mut owner = pool_user();
        assert_eq!(owner.request(&format!("new {name}")), "ok");
        let tensor = owner.request("alloc 1000 3");
        let mut reader = pool_user();
        assert_eq!(reader.request(&format!("open {name}")), "ok");
        assert_eq!(reader.request(&format!("import {tensor}")), "ok");
        let orphan: libc::pid_t = owner.request(how).parse().unwrap();
        owner.kill();
        while reader.request("alive") == "true" {
            std::thread::yield_now();
        }
        assert_eq!(reader.request("check 3"), "true");
        // Whether somebody looked for it before or not, its name is free.
        if how == "fork" {
            assert!(matches!(TensorPool::open(name.as_str()), Err(Error::NoSuchPool { .. })));
        }
        drop(TensorPool::new(name.as_str(), TensorPoolConfig::small()).unwrap());
        assert!(matches!(TensorPool::open(name.as_str()), Err(Error::NoSuchPool { .. })));
        reader.kill();
        // SAFETY: a process that this test had forked, and that only it ends.
        assert_eq!(unsafe { libc::kill(orphan, libc::SIGKILL) }, 0);
    }
}

/// A reader that is dead holds nothing, whoever was forked off it.
fn dead_reader() {
    let pool = pool(TensorPoolConfig { max_slots: 1, ..TensorPoolConfig::small() });
    let tensor = filled(&pool, 1000, 3);
    let mut reader = pool_user();
    assert_eq!(reader.request(&format!("import {}", hex(&tensor.descriptor().unwrap()))), "ok");
    let orphan: libc::pid_t = reader.request("clone").parse().unwrap();
    drop(tensor);
    assert!(matches!(pool.alloc(&[1], DType::U8), Err(Error::PoolFull { .. })));
    reader.kill();
    pool.alloc(&[1], DType::U8).unwrap();
    // SAFETY: a process that this test had forked, and that only it ends.
    assert_eq!(unsafe { libc::kill(orphan, libc::SIGKILL) }, 0);
}

/// Runs in a process without other tests, whose sockets the children would count.
fn leaks() {
    assert!(command(FORK_WHILE_CONNECTING).status().unwrap().success());
}

/// The role of the process that [`leaks`] starts.
pub(crate) const FORK_WHILE_CONNECTING: &str = "fork_while_connecting";

/// One thread forks while another opens and closes sockets of every kind. No child has any of them.
pub(crate) fn fork_while_connecting(_: &[&str]) {
    // The library installs its fork hooks with the first pool. A fork that began before is not covered.
    drop(pool(TensorPoolConfig::small()));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let pool = pool(TensorPoolConfig::small());
                drop(TensorPool::open(pool.name()).unwrap());
            }
        });
        let stop = SetOnDrop(&stop);
        let counts: Vec<i32> = (0..300).map(|_| count_sockets_in_a_child()).collect();
        drop(stop);
        assert_eq!(counts, [0; 300], "sockets in each child");
    });
}

fn count_sockets_in_a_child() -> i32 {
    // SAFETY: the child makes system calls and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(unix_sockets()) };
    }
    wait_for(child)
}

/// Somebody starts and ends threads whenever the process forks. The child has a service thread all the same.
fn served() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::spawn(|| {}).join().unwrap();
                }
            });
        }
        let _stop = SetOnDrop(&stop);
        for _ in 0..100 {
            // SAFETY: the child calls only this crate and `_exit`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let name = format!("child-{}", std::process::id());
                let own = TensorPool::new(name, TensorPoolConfig::small());
                let served = own.is_ok_and(|own| TensorPool::open(own.name()).is_ok());
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(i32::from(!served)) };
            }
            assert_eq!(wait_for(child), 0, "it does not answer itself");
        }
    });
}

/// How many descriptors are Unix sockets of packets, as this crate makes them.
fn unix_sockets() -> i32 {
    let mut count = 0;
    for fd in 0..1024 {
        let (mut kind, mut len): (libc::c_int, libc::socklen_t) = (0, 4);
        // SAFETY: both pointers are to live variables, and the kernel writes at most `len` bytes.
        let result = unsafe {
            libc::getsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_TYPE,
                (&raw mut kind).cast(),
                &raw mut len,
            )
        };
        count += i32::from(result == 0 && kind == libc::SOCK_SEQPACKET);
    }
    count
}

fn inherited() {
    let owned = pool(TensorPoolConfig::small());
    let mut owner = pool_user();
    let name = unique();
    assert_eq!(owner.request(&format!("new {name}")), "ok");
    let text = owner.request("alloc 1000 5");
    let attached = TensorPool::open(name.as_str()).unwrap();
    let leased = attached.import(&unhex(&text)).unwrap();
    let allocated = filled(&owned, 1000, 4);
    let flags = owned.alloc(&[8], DType::Bool).unwrap();
    assert!(owned.is_alive() && attached.is_alive());
    // SAFETY: the child calls only this crate and `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let reads = all_are(&leased, 5) && all_are(&allocated, 4);
        let dead = !owned.is_alive() && !attached.is_alive();
        // Its parent may write there, so that no `bool` can be trusted.
        let unstable = flags.map().unwrap().as_slice::<bool>().is_err();
        let forked = |result| matches!(result, Err(Error::Forked { .. }));
        let refused = forked(attached.import(&unhex(&text)).map(drop))
            && forked(owned.trim().map(drop))
            && forked(leased.descriptor().map(drop));
        let again = TensorPool::open(name.as_str()).is_ok_and(|pool| pool.is_alive())
            && Tensor::from_descriptor(&unhex(&text)).is_ok_and(|tensor| all_are(&tensor, 5));
        let code = [reads, dead, unstable, refused, again].iter().position(|ok| !ok);
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(code.map_or(0, |at| i32::try_from(at).unwrap() + 1)) };
    }
    assert_eq!(wait_for(child), 0, "what the child found wrong");
    assert!(flags.map().unwrap().as_slice::<bool>().is_ok());
    owner.kill();
}

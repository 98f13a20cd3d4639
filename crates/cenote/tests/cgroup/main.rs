//! In a memory-limited cgroup, running out of memory returns an error, and the kernel kills no process.
//!
//! Each test makes a cgroup of 64 MiB and starts this program again as a child that moves itself
//! into it and allocates until an allocation fails. Making cgroups takes root.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use cenote::{DType, Error, Limit, Tensor, TensorMemory, TensorOptions, Topic};
use libtest_mimic::Failed;
use support::peer::command;
use support::program::{NamedTest, TestProgram};

const MIB: usize = 1 << 20;
const LIMIT: usize = 64 * MIB;

/// With fewer than this many blocks of 1 MiB, tensors that fit would be refused.
const AT_LEAST: usize = 52;

/// The environment variable with the cgroup of a child.
const CGROUP: &str = "CENOTE_CGROUP_DIR";

fn allocate(memory: TensorMemory, len: usize) -> cenote::Result<Tensor> {
    TensorOptions::new().memory(memory).create(&[len], DType::U8)
}

fn touch(tensor: &mut Tensor) {
    tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(1);
}

// ---- The child --------------------------------------------------------------------------------

type Scene = (&'static str, fn());

const SCENES: [Scene; 8] = [
    ("heap_tensors_end_with_an_error", || drop(touch_as_we_go(TensorMemory::Mem))),
    ("shm_tensors_end_with_an_error", || drop(touch_as_we_go(TensorMemory::Shm))),
    ("heap_tensors_that_were_granted_can_be_touched_later", touch_later),
    ("heap_and_shm_tensors_share_one_budget", mixed),
    ("threads_share_one_budget", threads),
    ("freed_memory_can_be_allocated_again", again),
    ("page_cache_is_not_in_the_way", page_cache),
    ("a_publisher_continues_with_fewer_messages_in_its_queue", publisher),
];

/// The limit of the parent group applies to its children.
const NESTED: &str = "heap_tensors_in_a_nested_cgroup_end_with_an_error";

fn fill(memory: TensorMemory, each: impl Fn(&mut Tensor)) -> Vec<Tensor> {
    let mut blocks = Vec::new();
    loop {
        match allocate(memory, MIB) {
            Ok(mut block) => {
                each(&mut block);
                blocks.push(block);
            }
            Err(Error::OutOfMemory { asked: MIB, limit: Limit::Cgroup, available }) => {
                assert!(available < MIB);
                return blocks;
            }
            Err(other) => panic!("refused for another reason: {other}"),
        }
        assert!(blocks.len() * MIB < LIMIT, "more was granted than there is");
    }
}

fn touch_as_we_go(memory: TensorMemory) -> Vec<Tensor> {
    let blocks = fill(memory, touch);
    assert!(blocks.len() >= AT_LEAST, "only {} MiB were granted", blocks.len());
    println!("{} of 64 MiB", blocks.len());
    blocks
}

fn touch_later() {
    let mut blocks = fill(TensorMemory::Mem, |_| ());
    assert!(blocks.len() >= AT_LEAST, "only {} MiB were granted", blocks.len());
    blocks.iter_mut().for_each(touch);
}

fn mixed() {
    let mut untouched =
        (0..20).map(|_| allocate(TensorMemory::Mem, MIB).unwrap()).collect::<Vec<_>>();
    let shm = fill(TensorMemory::Shm, touch);
    assert!(untouched.len() + shm.len() >= AT_LEAST, "only {} MiB were granted", shm.len());
    untouched.iter_mut().for_each(touch);
}

fn threads() {
    let count: usize = std::thread::scope(|scope| {
        let threads: Vec<_> =
            [TensorMemory::Mem, TensorMemory::Shm, TensorMemory::Mem, TensorMemory::Shm]
                .map(|memory| scope.spawn(move || fill(memory, touch)))
                .into();
        // All blocks are kept until an allocation has failed in every thread.
        let blocks: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        blocks.iter().map(Vec::len).sum()
    });
    assert!(count >= AT_LEAST - 4, "only {count} MiB were granted");
}

fn again() {
    for memory in [TensorMemory::Mem, TensorMemory::Shm, TensorMemory::Mem, TensorMemory::Mem] {
        touch_as_we_go(memory);
    }
}

fn page_cache() {
    let path = std::env::temp_dir().join(format!("cenote-page-cache-{}", std::process::id()));
    let mut file = fs::File::create(&path).unwrap();
    // Its pages stay in the page cache while it is open.
    fs::remove_file(&path).unwrap();
    (0..60).for_each(|_| file.write_all(&vec![1; MIB]).unwrap());
    file.sync_all().unwrap();
    let blocks = fill(TensorMemory::Mem, touch);
    assert!(blocks.len() >= AT_LEAST, "only {} MiB were granted", blocks.len());
}

/// The queue is configured to keep more messages than fit in memory.
fn publisher() {
    let dir = std::env::temp_dir().join(format!("cenote-cgroup-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    #[allow(unsafe_code, reason = "changes the environment before other threads start")]
    // SAFETY: this process has one thread.
    unsafe {
        std::env::set_var(cenote::DIR_ENV, &dir);
    }
    let topic: Topic<Tensor> = Topic::new("frames").unwrap();
    topic.subscribe().unwrap();
    for number in 0..100_u8 {
        let mut frame = topic.alloc_tensor(&[6 * MIB], DType::U8).unwrap();
        frame.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(number);
        topic.send(&frame).unwrap();
        drop(frame);
        let received = topic.recv().unwrap();
        let map = received.map().unwrap();
        assert!(map.as_slice::<u8>().unwrap().iter().all(|&byte| byte == number));
    }
    assert_eq!((topic.missed(), topic.pool().unwrap().stats().unwrap().failures), (0, 0));
    // An allocation that cannot fit, even without all queued messages, drops none.
    topic.send(&topic.alloc_tensor(&[MIB], DType::U8).unwrap()).unwrap();
    assert!(topic.alloc_tensor(&[2 * LIMIT], DType::U8).is_err());
    assert!(topic.recv().is_some());
    drop(topic);
    fs::remove_dir_all(&dir).unwrap();
}

fn play(words: &[&str]) {
    let name = words[0];
    let cgroup = PathBuf::from(std::env::var_os(CGROUP).unwrap());
    fs::write(cgroup.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    match SCENES.iter().find(|scene| scene.0 == name) {
        Some((_, scene)) => scene(),
        None if name == NESTED => drop(touch_as_we_go(TensorMemory::Mem)),
        None => panic!("no scene {name}"),
    }
}

// ---- The parent -------------------------------------------------------------------------------

fn main() -> ExitCode {
    let names = SCENES.iter().map(|scene| scene.0).chain([NESTED]);
    TestProgram::new("cgroup")
        .roles(&[("allocate", play)])
        .unavailable(|_| support::skipped("cgroup").then_some("CENOTE_TEST_SKIP names it"))
        .run_named(names.map(|name| NamedTest::fallible(name, move || run(name))).collect())
}

fn run(name: &str) -> Result<(), Failed> {
    let outer = Cgroup::limited(name)?;
    let inner = if name == NESTED { Some(outer.within()?) } else { None };
    let home = inner.as_ref().unwrap_or(&outer);
    let child = command(&format!("allocate {name}")).env(CGROUP, &home.dir).spawn()?;
    let status = wait(child)?;
    // A kill shows as `signal: 9`.
    if status.success() { Ok(()) } else { Err(format!("the child ended with {status}").into()) }
}

fn wait(mut child: Child) -> Result<ExitStatus, Failed> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill()?;
    child.wait()?;
    Err("the child did not end within a minute".into())
}

/// A cgroup that is removed when dropped.
struct Cgroup {
    dir: PathBuf,
}

impl Cgroup {
    fn limited(name: &str) -> Result<Self, Failed> {
        Self::try_limited(name).map_err(|error| {
            let hint = "cannot make a memory cgroup (it takes root and a writable /sys/fs/cgroup); \
                        CENOTE_TEST_SKIP=cgroup skips these tests";
            format!("{hint}: {error}").into()
        })
    }

    fn try_limited(name: &str) -> std::io::Result<Self> {
        let name = format!("cenote-test-{}-{name}", std::process::id());
        let v1 = Path::new("/sys/fs/cgroup/memory");
        if v1.join("memory.limit_in_bytes").exists() {
            let group = Self::make(v1.join(name))?;
            group.set("memory.limit_in_bytes", LIMIT)?;
            group.set_if_there("memory.memsw.limit_in_bytes", LIMIT)?;
            return Ok(group);
        }
        let v2 = Path::new("/sys/fs/cgroup");
        fs::write(v2.join("cgroup.subtree_control"), "+memory")?;
        let group = Self::make(v2.join(name))?;
        group.set("memory.max", LIMIT)?;
        group.set_if_there("memory.swap.max", 0)?;
        Ok(group)
    }

    fn within(&self) -> std::io::Result<Self> {
        Self::make(self.dir.join("inner"))
    }

    fn make(dir: PathBuf) -> std::io::Result<Self> {
        fs::create_dir(&dir)?;
        Ok(Cgroup { dir })
    }

    fn set(&self, file: &str, value: usize) -> std::io::Result<()> {
        fs::write(self.dir.join(file), value.to_string())
    }

    fn set_if_there(&self, file: &str, value: usize) -> std::io::Result<()> {
        if self.dir.join(file).exists() { self.set(file, value) } else { Ok(()) }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that was just reaped may keep the group busy for a short time.
        for _ in 0..100 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        eprintln!("could not remove {}", self.dir.display());
    }
}

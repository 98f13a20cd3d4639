//! Nothing is left behind: descriptors, mappings, threads, OpenGL objects. They are counted in a separate process,
//! because other tests have theirs.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cenote::{DType, Error, GlContext, GlError, GlStats, PixelFormat, UnifiedBuffer};

use super::errors::child;

/// Memory that allocators may keep: two rounds of what is used here. A leak of one frame a round exceeds
/// it.
const SLACK: usize = 96 << 20;

/// The kernel's flag PF_EXITING: a joined thread is listed for a short time.
const EXITING: u32 = 4;

/// How long to wait for the driver: its new threads have our name until they run and rename themselves, and it
/// writes compiled shaders in the background.
const SETTLED: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy)]
pub(super) struct Residue {
    fds: usize,
    threads: usize,
    /// Private memory of this process, in bytes.
    memory: usize,
}

#[allow(unsafe_code, reason = "glibc keeps freed memory unless it is trimmed")]
fn now() -> Residue {
    // SAFETY: it takes a number, and returns free memory to the system.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0)
    };
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
    let fds = fs::read_dir("/proc/self/fd").unwrap().count();
    Residue { fds, threads: threads(), memory: kilobytes << 10 }
}

/// Asserts that nothing is left since `before`.
#[track_caller]
pub(super) fn assert_as(before: Residue, when: &str) {
    let now = settled(when, |now| (now.fds, now.threads) == (before.fds, before.threads));
    assert!(now.memory < before.memory + SLACK, "{when}: {before:?}, now {now:?}");
}

/// Waits until the condition holds, and returns the resources.
#[track_caller]
fn settled(when: &str, mut as_it_must_be: impl FnMut(&Residue) -> bool) -> Residue {
    let start = Instant::now();
    loop {
        let now = now();
        if as_it_must_be(&now) {
            return now;
        }
        assert!(start.elapsed() < SETTLED, "{when}: {now:?}");
        sleep(Duration::from_millis(1));
    }
}

fn threads() -> usize {
    let named = |task: std::io::Result<fs::DirEntry>| {
        let stat = fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let flags: u32 = rest.split_whitespace().nth(6)?.parse().ok()?;
        (name == "cenote-gl" && flags & EXITING == 0).then_some(())
    };
    fs::read_dir("/proc/self/task").unwrap().filter_map(named).count()
}

/// Uses everything once, so that what stays for good (the library, its display) exists before the first count.
fn warm_up() -> Residue {
    let gl = GlContext::headless().unwrap();
    use_all(&gl);
    gl.close().unwrap();
    drop(gl);
    quiet()
}

/// The resources, after nothing has changed for 50 ms.
pub(super) fn quiet() -> Residue {
    let mut since = (Instant::now(), (0, 0));
    settled("nothing changes any more", |now| {
        if since.1 != (now.fds, now.threads) {
            since = (Instant::now(), (now.fds, now.threads));
        }
        since.0.elapsed() > Duration::from_millis(50)
    })
}

/// The resources while one more context runs than `before`, with whatever its driver needs.
fn running(before: Residue) -> Residue {
    settled("running", |now| now.threads == before.threads + 1);
    quiet()
}

/// Uses every operation with 9 MB each, so that a leak is noticed.
fn use_all(gl: &GlContext) {
    let mut frame = gl.image(1920, 1200, PixelFormat::Rgba8).unwrap();
    frame.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(5);
    let texture = gl.upload(&frame).unwrap();
    texture.read(&mut frame).unwrap();
    frame.map().unwrap();
    gl.upload(&frame).unwrap();
    let mut unified = UnifiedBuffer::new(&[9 << 20], DType::U8).unwrap();
    unified.set_device(std::sync::Arc::new(gl.clone())).unwrap();
    unified.host_mut::<u8>().unwrap().fill(1);
    unified.sync().unwrap();
    let stats = gl.stats();
    assert!(stats.buffers == 2 && stats.textures >= 1 && stats.fences == 1, "{stats:?}");
}

fn objects(stats: GlStats) -> usize {
    stats.buffers + stats.textures + stats.fences + stats.images + stats.maps
}

pub(super) fn nothing_is_left_behind() {
    child("residue-objects", &[]);
}

pub(super) fn objects_and_closed_contexts() {
    let before = warm_up();
    let gl = GlContext::headless().unwrap();
    let running = running(before);
    for _ in 0..20 {
        use_all(&gl);
        gl.finish().unwrap();
        assert_eq!(objects(gl.stats()), 0, "{:?}", gl.stats());
    }
    assert_as(running, "twenty rounds later");
    gl.close().unwrap();
    assert_eq!(gl.stats().framebuffers, 0);
    drop(gl);
    assert_as(before, "closed");
    for _ in 0..20 {
        let gl = GlContext::headless().unwrap();
        let frame = gl.image(1920, 1200, PixelFormat::Rgba8).unwrap();
        let map = frame.map().unwrap();
        assert!(gl.close().is_err());
        drop(map);
        drop((frame, gl));
    }
    assert_as(before, "twenty contexts later");
}

pub(super) fn a_context_ends_with_its_last_holder() {
    child("residue-holders", &[]);
}

pub(super) fn holders() {
    let before = warm_up();
    let gl = GlContext::headless().unwrap();
    let tensor = gl.tensor(&[16, 16], DType::U8).unwrap();
    let texture = gl.upload(&tensor).unwrap();
    drop(gl);
    assert_eq!(tensor.to_vec::<u8>().unwrap(), [0; 256], "a tensor keeps its context");
    let map = tensor.map().unwrap();
    drop(texture);
    settled("a map keeps its context", |now| now.threads == before.threads + 1);
    assert_eq!(map.as_bytes().unwrap().len(), 256);
    drop(map);
    drop(tensor);
    assert_as(before, "the last holder waits for the end");
}

pub(super) fn errors_leave_nothing_behind() {
    child("residue-errors", &[]);
}

pub(super) fn errors() {
    let before = warm_up();
    let gl = GlContext::headless().unwrap();
    let running = running(before);
    for _ in 0..20 {
        let tensor = gl.tensor(&[4, 4, 4], DType::U8).unwrap();
        let refused = gl.texture((1 << 20, 1 << 20), DType::U8, 4);
        assert!(matches!(refused, Err(Error::Gl(GlError::Texture { .. }))));
        assert!(gl.upload(&tensor.transpose()).is_err());
        assert!(gl.tensor(&[1 << 50], DType::U8).is_err());
        assert!(gl.options().alignment(128).create(&[4], DType::U8).is_err());
        let mut other = gl.tensor(&[4, 4, 3], DType::F32).unwrap();
        let texture = gl.upload(&other).unwrap();
        // Some drivers read it, others refuse.
        let _ = texture.read(&mut other);
        let mut wrong = gl.tensor(&[2, 2], DType::U8).unwrap();
        assert!(texture.read(&mut wrong).is_err());
        assert!(gl.read_framebuffer(12345, (0, 0), &mut wrong).is_err());
    }
    gl.finish().unwrap();
    assert_eq!(objects(gl.stats()), 0, "{:?}", gl.stats());
    assert_as(running, "twenty errors of each later");
    drop(gl);
    assert_as(before, "ended");
}

//! Tensors between real processes. This program runs itself again as child processes in the roles
//! below; each test reaps the children that it started.
//!
//! With `CENOTE_TEST_EMULATED=1` (user-mode emulation) a limit on the address space includes that of the
//! emulator, so it is set higher.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Output, Stdio};
use std::thread;

use cenote::{DType, Error, FORCE_MEM_ENV, PixelFormat, Tensor, TensorMemory, Unavailable};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::emulated;
use support::peer::{command, without_signal_handlers};
use support::program::{Role, Test, TestProgram, tests};

const TESTS: &[Test] = tests![
    a_child_reads_the_sent_tensor_and_replies
    a_view_of_an_image_arrives_whole
    a_child_that_writes_dies_and_the_bytes_stay
    bytes_outlive_the_process_that_sent_them
    a_message_outlives_the_process_that_sent_it
    a_child_killed_while_it_holds_a_tensor_does_no_harm
    force_mem_is_obeyed_or_refused
    a_new_heap_tensor_touches_no_pages
    no_address_space_is_an_error_value
    no_descriptors_is_an_error_value
    a_limit_on_file_sizes_is_an_error_value
];

macro_rules! roles {
    ($($name:ident)*) => { &[$((stringify!($name), |_| $name())),*] };
}

/// The roles of children. A role panics, and so fails its test, if an expectation does not hold.
const ROLES: &[Role] = roles![
    check_and_reply
    check_image
    write_read_only_memory
    send_and_wait
    send_and_hang
    hold_until_the_sender_ended
    hold_and_hang
    show_selection
    touch_pages_late
    exhaust_address_space
    exhaust_descriptors
    exceed_file_size
];

fn main() -> ExitCode {
    TestProgram::new("process").roles(ROLES).run(&[TESTS])
}

// ---- starting and reaping children ----------------------------------------------------------------

/// A child in a role. It is reaped even if the test panics.
struct RoleChild {
    child: Child,
    name: &'static str,
}

impl Drop for RoleChild {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn role(name: &'static str) -> Command {
    assert!(ROLES.iter().any(|(known, _)| *known == name), "no role {name}");
    let mut command = command(name);
    without_signal_handlers(&mut command).env_remove(FORCE_MEM_ENV).stdin(Stdio::null());
    command
}

impl RoleChild {
    fn start(name: &'static str, command: &mut Command) -> RoleChild {
        RoleChild { child: command.spawn().unwrap(), name }
    }

    /// Starts a child whose standard input is a socket.
    fn with_socket(name: &'static str, socket: UnixStream) -> RoleChild {
        RoleChild::start(name, role(name).stdin(OwnedFd::from(socket)).stdout(Stdio::piped()))
    }

    /// Waits for a line that the child prints.
    fn line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    fn succeed(self) {
        let name = self.name;
        let status = self.wait();
        assert!(status.success(), "{name}: {status}");
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(9));
    }
}

fn output(command: &mut Command) -> Output {
    command.stderr(Stdio::piped()).output().unwrap()
}

fn assert_success(output: &Output) {
    let text = [&output.stdout[..], &output.stderr].concat();
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&text));
}

/// The socket that is the standard input of a child.
fn socket() -> UnixStream {
    use std::os::fd::AsFd;
    io::stdin().as_fd().try_clone_to_owned().unwrap().into()
}

fn say(line: &str) {
    println!("{line}");
    io::stdout().flush().unwrap();
}

/// Never returns: it ends with the process.
fn hang() -> ! {
    loop {
        thread::park();
    }
}

fn pattern(seed: u32) -> Vec<u32> {
    (0..100_000u32).map(|i| i.wrapping_mul(2_654_435_761) ^ seed).collect()
}

fn patterned(seed: u32) -> Tensor {
    let shm = Tensor::options().memory(TensorMemory::Shm).name("process-test");
    shm.create_from_slice(&pattern(seed), &[100, 1000]).unwrap()
}

// ---- sharing --------------------------------------------------------------------------------------

fn a_child_reads_the_sent_tensor_and_replies() {
    let (here, there) = UnixStream::pair().unwrap();
    let child = RoleChild::with_socket("check_and_reply", there);
    patterned(1).send(&here).unwrap();
    patterned(2).transpose().send(&here).unwrap();
    let reply = Tensor::recv(&here).unwrap();
    assert_eq!(reply.to_vec::<u32>().unwrap(), pattern(3));
    child.succeed();
    // The child that made it has ended.
    assert_eq!(reply.to_vec::<u32>().unwrap(), pattern(3));
}

fn check_and_reply() {
    let socket = socket();
    let first = Tensor::recv(&socket).unwrap();
    assert_eq!((first.shape(), first.dtype()), (&[100, 1000][..], DType::U32));
    assert_eq!(first.to_vec::<u32>().unwrap(), pattern(1));
    let second = Tensor::recv(&socket).unwrap();
    assert_eq!(second.shape(), [1000, 100]);
    assert_eq!(second.transpose().to_vec::<u32>().unwrap(), pattern(2));
    patterned(3).send(&socket).unwrap();
}

fn a_view_of_an_image_arrives_whole() {
    let (here, there) = UnixStream::pair().unwrap();
    let child = RoleChild::with_socket("check_image", there);
    let shm = Tensor::options().memory(TensorMemory::Shm);
    let mut frame = shm.image(64, 48, PixelFormat::Nv12).unwrap();
    for (i, byte) in (0..=250).cycle().zip(frame.map_mut().unwrap().as_mut_bytes().unwrap()) {
        *byte = i;
    }
    frame.roi(16, 8, 32, 24).unwrap().send(&here).unwrap();
    child.succeed();
}

fn check_image() {
    let face = Tensor::recv(socket()).unwrap();
    assert_eq!((face.format(), face.image_size()), (Some(PixelFormat::Nv12), Some((32, 24))));
    let at = |offset: usize| u8::try_from(offset % 251).unwrap();
    let luma = face.plane(0).unwrap();
    assert_eq!(luma.map().unwrap().get::<u8>(&[23, 31]).unwrap(), at(31 * 64 + 47));
    let chroma = face.plane(1).unwrap();
    assert_eq!(chroma.map().unwrap().get::<u8>(&[11, 15, 1]).unwrap(), at((48 + 15) * 64 + 47));
}

fn a_child_that_writes_dies_and_the_bytes_stay() {
    let (here, there) = UnixStream::pair().unwrap();
    let mut child = RoleChild::with_socket("write_read_only_memory", there);
    let tensor = patterned(4);
    tensor.send(&here).unwrap();
    assert_eq!(child.line(), "writing");
    assert_eq!(child.wait().signal(), Some(11), "a write to memory that was received is SIGSEGV");
    assert_eq!(tensor.to_vec::<u32>().unwrap(), pattern(4));
}

fn write_read_only_memory() {
    let none = Rlimit { current: Some(0), maximum: getrlimit(Resource::Core).maximum };
    setrlimit(Resource::Core, none).unwrap();
    let tensor = Tensor::recv(socket()).unwrap();
    let map = tensor.map().unwrap();
    let first = map.as_bytes().unwrap().as_ptr().cast_mut();
    say("writing");
    // SAFETY: none, on purpose. The page is not writable, so the kernel ends the process here.
    #[allow(unsafe_code, reason = "what a program with a bug does")]
    unsafe {
        first.write_volatile(0xff);
    };
}

// ---- dying ----------------------------------------------------------------------------------------

fn bytes_outlive_the_process_that_sent_them() {
    let (a, b) = UnixStream::pair().unwrap();
    let mut receiver = RoleChild::with_socket("hold_until_the_sender_ended", b);
    let sender = RoleChild::with_socket("send_and_hang", a);
    assert_eq!(receiver.line(), "holding");
    sender.kill();
    receiver.succeed();
}

fn send_and_hang() {
    let socket = socket();
    patterned(5).send(&socket).unwrap();
    hang();
}

fn hold_until_the_sender_ended() {
    let mut socket = socket();
    let tensor = Tensor::recv(&socket).unwrap();
    say("holding");
    assert_eq!(socket.read(&mut [0]).unwrap(), 0, "the end of the sender is the end of its socket");
    assert_eq!(tensor.to_vec::<u32>().unwrap(), pattern(5));
    assert!(matches!(Tensor::recv(&socket), Err(Error::Disconnected { mid_message: false })));
}

fn a_message_outlives_the_process_that_sent_it() {
    let (here, there) = UnixStream::pair().unwrap();
    let mut sender = RoleChild::with_socket("send_and_wait", there);
    assert_eq!(sender.line(), "sent");
    sender.kill();
    assert_eq!(Tensor::recv(&here).unwrap().to_vec::<u32>().unwrap(), pattern(6));
    assert!(matches!(Tensor::recv(&here), Err(Error::Disconnected { mid_message: false })));
}

fn send_and_wait() {
    patterned(6).send(socket()).unwrap();
    say("sent");
    hang();
}

fn a_child_killed_while_it_holds_a_tensor_does_no_harm() {
    let (here, there) = UnixStream::pair().unwrap();
    let mut child = RoleChild::with_socket("hold_and_hang", there);
    let tensor = patterned(7);
    let weak = tensor.buffer_identity().weak();
    tensor.send(&here).unwrap();
    assert_eq!(child.line(), "holding");
    child.kill();
    assert_eq!(tensor.to_vec::<u32>().unwrap(), pattern(7));
    let refused = tensor.send(&here);
    assert!(matches!(refused, Err(Error::Os { .. })), "{refused:?}");
    drop(tensor);
    assert!(weak.upgrade().is_none());
}

fn hold_and_hang() {
    let _tensor = Tensor::recv(socket()).unwrap();
    say("holding");
    hang();
}

// ---- the environment ------------------------------------------------------------------------------

fn force_mem_is_obeyed_or_refused() {
    let run = |value: Option<&str>| {
        let mut command = role("show_selection");
        value.map(|value| command.env(FORCE_MEM_ENV, value));
        let output = output(&mut command);
        assert_success(&output);
        String::from_utf8(output.stdout).unwrap()
    };
    let free = run(None);
    assert!(free.starts_with("shm (allocated); not dma: "), "{free}");
    for off in ["0", "false"] {
        assert_eq!(run(Some(off)), free);
    }
    let why = "CENOTE_FORCE_MEM asks for heap memory";
    let expected = format!("mem (allocated); not dma: {why}; not shm: {why}\n");
    for on in ["1", "true"] {
        let selection = run(Some(on));
        assert!(selection.starts_with(&expected), "{selection}");
        assert!(selection.contains(&format!("asked for shm: mem (allocated); not shm: {why}")));
        assert!(selection.contains("copied: mem"), "{selection}");
    }
    for bad in ["", "2", "yes", "TRUE", " 1"] {
        let refused = run(Some(bad));
        let expected = format!("environment variable CENOTE_FORCE_MEM={bad:?} is not understood");
        assert!(refused.starts_with(&expected), "{refused}");
        assert!(refused.contains("1, true, 0 or false"), "{refused}");
        assert_eq!(refused.lines().count(), 1, "nothing is allocated: {refused}");
    }
}

fn show_selection() {
    match Tensor::new(&[64], DType::U8) {
        Ok(tensor) => say(&tensor.selection().to_string()),
        Err(error) => return say(&error.to_string()),
    }
    let shm = Tensor::options().memory(TensorMemory::Shm).create(&[64], DType::U8).unwrap();
    say(&format!("asked for shm: {}", shm.selection()));
    say(&format!("copied: {}", shm.to_contiguous().unwrap().memory()));
    let image = Tensor::image(64, 48, PixelFormat::Nv12).unwrap();
    let slice = Tensor::from_slice(&[1u8], &[1]).unwrap();
    assert_eq!((image.memory(), slice.memory()), (shm.memory(), shm.memory()));
}

// ---- limits ---------------------------------------------------------------------------------------

fn a_new_heap_tensor_touches_no_pages() {
    assert_success(&output(&mut role("touch_pages_late")));
}

/// A number of /proc/self/statm in bytes: 0 is the address space, 1 what is resident.
fn statm(field: usize) -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(field).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}

fn touch_pages_late() {
    let heap = Tensor::options().memory(TensorMemory::Mem);
    let bytes = 1920 * 1080 * 4;
    // The first call loads code.
    drop(heap.image(1920, 1080, PixelFormat::Rgba8).unwrap());
    let before = statm(1);
    let mut image = heap.image(1920, 1080, PixelFormat::Rgba8).unwrap();
    let untouched = statm(1).saturating_sub(before);
    assert!(untouched < 1 << 20, "{untouched} of {bytes} bytes are resident");
    image.map_mut().unwrap().as_mut_bytes().unwrap().fill(1);
    let touched = statm(1).saturating_sub(before);
    assert!(
        touched > bytes / 2,
        "only {touched} of {bytes} bytes are resident: this measures nothing"
    );
}

fn no_address_space_is_an_error_value() {
    // In kilobytes. An emulator needs additional space.
    let limit = if emulated() { 16 << 20 } else { 2 << 20 };
    let mut command = if statm(0) > 1 << 40 {
        // A sanitizer has reserved terabytes and cannot start with less.
        eprintln!("note: no limit on the address space, which is {} bytes already", statm(0));
        role("exhaust_address_space")
    } else {
        let plain = role("exhaust_address_space");
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit -v {limit} && exec \"$0\"")]).arg(plain.get_program());
        plain.get_envs().for_each(|(name, value)| {
            value.map(|value| limited.env(name, value));
        });
        limited.env_remove(FORCE_MEM_ENV).stdin(Stdio::null());
        limited
    };
    assert_success(&output(&mut command));
}

fn exhaust_address_space() {
    let heap = Tensor::options().memory(TensorMemory::Mem);
    let limit = getrlimit(Resource::As).current;
    // In one allocation, with and without an alignment that needs more space.
    for align in [64, 2 << 20] {
        let beyond = usize::try_from(limit.unwrap_or(1 << 47)).unwrap();
        let refused = heap.clone().alignment(align).create(&[beyond], DType::U8);
        assert!(
            matches!(refused, Err(Error::Os { .. } | Error::OutOfMemory { .. })),
            "{refused:?}"
        );
        let refused = heap.clone().alignment(align).create(&[isize::MAX as usize], DType::U8);
        assert!(refused.is_err());
    }
    let Some(limit) = limit else { return };
    // In small allocations. No page is touched, so only the limit can stop them.
    let step = usize::try_from(limit).unwrap() / 16;
    let mut held = Vec::new();
    let error = loop {
        match heap.create(&[step], DType::U8) {
            Ok(tensor) => held.push(tensor),
            Err(error) => break error,
        }
        assert!(held.len() < 16, "the limit does not hold");
    };
    assert!(matches!(error, Error::Os { .. } | Error::OutOfMemory { .. }), "{error}");
    held.pop();
    heap.create(&[step], DType::U8).unwrap();
}

fn no_descriptors_is_an_error_value() {
    let (here, there) = UnixStream::pair().unwrap();
    let mut command = role("exhaust_descriptors");
    let child = RoleChild::start("exhaust_descriptors", command.stdin(OwnedFd::from(there)));
    drop(command);
    patterned(8).send(&here).unwrap();
    patterned(9).send(&here).unwrap();
    child.succeed();
}

fn exhaust_descriptors() {
    let socket = socket();
    let limit = Rlimit { current: Some(64), maximum: getrlimit(Resource::Nofile).maximum };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut held = Vec::new();
    // The first check whether shared memory is available fails, too.
    while let Ok(file) = File::open("/dev/null") {
        held.push(file);
        assert!(held.len() < 64, "the limit does not hold");
    }
    let full = io::Error::from_raw_os_error(24);
    let tensor = Tensor::new(&[1000], DType::U8).unwrap();
    let selection = tensor.selection();
    assert_eq!(selection.chosen(), TensorMemory::Mem);
    let shm = selection.passed_over().iter().find(|kind| kind.memory == TensorMemory::Shm).unwrap();
    let Unavailable::Refused { source, .. } = &shm.why else { panic!("{selection}") };
    assert_eq!(source.raw_os_error(), full.raw_os_error());
    assert!(selection.to_string().contains(&full.to_string()), "{selection}");
    let refused = Tensor::options().memory(TensorMemory::Shm).create(&[1000], DType::U8);
    assert!(matches!(refused, Err(Error::Unavailable { memory: "shm", .. })), "{refused:?}");
    let refused = Tensor::recv(&socket).unwrap_err();
    assert!(matches!(refused, Error::BadMessage { .. }), "{refused}");
    assert!(refused.to_string().contains("than this process can open"), "{refused}");

    // It is temporary: a lack of descriptors must not disable shared memory for good.
    drop(held.pop());
    let tensor = Tensor::new(&[1000], DType::U8).unwrap();
    assert_eq!(tensor.memory(), TensorMemory::Shm, "{}", tensor.selection());
    assert!(matches!(tensor.clone_fd(), Err(Error::Os { .. })), "no room for another");
    drop(tensor);
    assert_eq!(Tensor::recv(&socket).unwrap().to_vec::<u32>().unwrap(), pattern(9));
}

fn a_limit_on_file_sizes_is_an_error_value() {
    assert_success(&output(&mut role("exceed_file_size")));
}

fn exceed_file_size() {
    let limit = Rlimit { current: Some(1 << 20), maximum: getrlimit(Resource::Fsize).maximum };
    setrlimit(Resource::Fsize, limit).unwrap();
    let shm = Tensor::options().memory(TensorMemory::Shm);
    shm.create(&[1 << 20], DType::U8).unwrap();
    // The kernel would send SIGXFSZ.
    let refused = shm.create(&[(1 << 20) + 1], DType::U8);
    assert!(matches!(refused, Err(Error::Os { .. })), "{refused:?}");
    let tensor = Tensor::new(&[(1 << 20) + 1], DType::U8).unwrap();
    assert_eq!(tensor.memory(), TensorMemory::Mem);
    assert!(tensor.selection().to_string().contains("not shm: "), "{}", tensor.selection());
}

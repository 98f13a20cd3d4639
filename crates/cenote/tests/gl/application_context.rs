//! Contexts that belong to an application, on a thread of the application.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use cenote::glow::{self, HasContext};
use cenote::{DType, Error, GlContext, GlError, GlGone, GlThread, GlWork, PixelFormat};
use khronos_egl as egl;

use super::{gone, noise};

type Egl = egl::DynamicInstance<egl::EGL1_5>;

/// An application whose loop owns a context, and runs submitted work between frames.
pub(super) struct Application {
    thread: Option<JoinHandle<()>>,
    shared: Arc<Loop>,
}

struct Loop {
    id: ThreadId,
    work: Mutex<Option<Sender<Message>>>,
    stuck: AtomicBool,
    /// The number of submitted pieces of work so far.
    submitted: AtomicUsize,
    /// The loop refuses work.
    refuses: AtomicBool,
    /// Looks up the functions of OpenGL, if not by EGL alone.
    instead: fn(&CStr, *const c_void) -> *const c_void,
    library: Egl,
}

enum Message {
    Work(GlWork),
    Call(Box<dyn FnOnce(&glow::Context) + Send>),
}

impl Application {
    pub(super) fn start() -> Application {
        Application::with(|_, found| found)
    }

    /// An application that replaces functions of OpenGL: `look_up` gets what EGL has found, on the thread
    /// of the context.
    pub(super) fn with(instead: fn(&CStr, *const c_void) -> *const c_void) -> Application {
        let (sender, receiver) = channel();
        let thread = thread::spawn(move || {
            #[allow(unsafe_code, reason = "a C library")]
            // SAFETY: the library of this name is EGL.
            let library = unsafe { Egl::load_required() }.unwrap();
            let (display, context) = make_current(&library);
            #[allow(unsafe_code, reason = "a C library")]
            // SAFETY: the context is current, and EGL gives its functions.
            let gl =
                unsafe { glow::Context::from_loader_function_cstr(|name| address(&library, name)) };
            let (work, queue) = channel();
            let work = Mutex::new(Some(work));
            let (id, stuck) = (thread::current().id(), AtomicBool::new(false));
            let submitted = AtomicUsize::new(0);
            let refuses = AtomicBool::new(false);
            let shared = Loop { id, work, stuck, submitted, refuses, instead, library };
            let shared = Arc::new(shared);
            sender.send(Arc::clone(&shared)).unwrap();
            run(&queue, &gl);
            drop(queue);
            shared.library.make_current(display, None, None, None).unwrap();
            shared.library.destroy_context(display, context).unwrap();
        });
        Application { thread: Some(thread), shared: receiver.recv().unwrap() }
    }

    pub(super) fn context(&self) -> cenote::Result<GlContext> {
        GlContext::on(Arc::clone(&self.shared) as Arc<dyn GlThread>)
    }

    /// Runs something in the loop as the application itself, and does not wait.
    pub(super) fn call(&self, call: impl FnOnce(&glow::Context) + Send + 'static) {
        let work = self.shared.work.lock().unwrap();
        work.as_ref().unwrap().send(Message::Call(Box::new(call))).unwrap();
    }

    /// Makes the loop refuse work, or accept it again.
    pub(super) fn refuse(&self, refuses: bool) {
        self.shared.refuses.store(refuses, Ordering::Relaxed);
    }

    /// Blocks the loop until `unblock`.
    fn block(&self) {
        let (sender, receiver) = channel();
        let shared = Arc::clone(&self.shared);
        shared.stuck.store(true, Ordering::Relaxed);
        self.call(move |_| {
            sender.send(()).unwrap();
            while shared.stuck.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
        });
        receiver.recv().unwrap();
    }

    fn unblock(&self) {
        self.shared.stuck.store(false, Ordering::Relaxed);
    }

    fn end(&mut self) {
        self.unblock();
        self.shared.work.lock().unwrap().take();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.end();
    }
}

fn run(queue: &Receiver<Message>, gl: &glow::Context) {
    for message in queue {
        match message {
            Message::Work(work) => work.run(),
            Message::Call(call) => call(gl),
        }
    }
}

fn address(library: &Egl, name: &CStr) -> *const c_void {
    let found = library.get_proc_address(name.to_str().unwrap());
    found.map_or(std::ptr::null(), |function| function as *const c_void)
}

/// Desktop OpenGL instead of OpenGL ES, so that both are tested.
#[allow(unsafe_code, reason = "a C library")]
fn make_current(library: &Egl) -> (egl::Display, egl::Context) {
    const SURFACELESS: egl::Enum = 0x31dd;
    let nothing = std::ptr::null_mut();
    // SAFETY: this platform has no native display.
    let display =
        unsafe { library.get_platform_display(SURFACELESS, nothing, &[egl::ATTRIB_NONE]) };
    let display = display.unwrap();
    library.initialize(display).unwrap();
    library.bind_api(egl::OPENGL_API).unwrap();
    let wanted = [egl::SURFACE_TYPE, 0, egl::RENDERABLE_TYPE, egl::OPENGL_BIT, egl::NONE];
    let config = library.choose_first_config(display, &wanted).unwrap().unwrap();
    let version = [egl::CONTEXT_MAJOR_VERSION, 3, egl::CONTEXT_MINOR_VERSION, 3, egl::NONE];
    let context = library.create_context(display, config, None, &version).unwrap();
    library.make_current(display, None, None, Some(context)).unwrap();
    (display, context)
}

// SAFETY: the loop has one thread and one context, runs work in the order of its channel, and ends when
// the application says so, which the tests do only with no map alive.
#[allow(unsafe_code, reason = "what is tested")]
unsafe impl GlThread for Loop {
    fn is_current(&self) -> bool {
        thread::current().id() == self.id
    }

    fn submit(&self, work: GlWork) -> Result<(), GlWork> {
        self.submitted.fetch_add(1, Ordering::Relaxed);
        if self.refuses.load(Ordering::Relaxed) {
            return Err(work);
        }
        match &*self.work.lock().unwrap() {
            None => Err(work),
            Some(sender) => sender.send(Message::Work(work)).map_err(|error| match error.0 {
                Message::Work(work) => work,
                Message::Call(_) => unreachable!("work was sent"),
            }),
        }
    }

    fn proc_address(&self, name: &CStr) -> *const c_void {
        (self.instead)(name, address(&self.library, name))
    }

    fn timeout(&self) -> Option<Duration> {
        Some(Duration::from_millis(if self.stuck.load(Ordering::Relaxed) { 200 } else { 60_000 }))
    }
}

fn round_trip(gl: &GlContext) -> Vec<u8> {
    let mut image = gl.image(16, 8, PixelFormat::Rgba8).unwrap();
    image.map_mut().unwrap().as_mut_slice::<u8>().unwrap().copy_from_slice(&noise(512));
    let texture = gl.upload(&image).unwrap();
    let mut back = gl.image(16, 8, PixelFormat::Rgba8).unwrap();
    texture.read(&mut back).unwrap();
    back.to_vec::<u8>().unwrap()
}

pub(super) fn its_context_is_used_on_its_thread() {
    let application = Application::start();
    let gl = application.context().unwrap();
    assert!(!gl.info().version.contains("OpenGL ES"), "{:?}", gl.info());
    assert_eq!(gl.info().persistent_maps, !super::is_fallback());
    assert_eq!(round_trip(&gl), noise(512));
    assert_eq!(gl.with(|_| thread::current().id()).unwrap(), application.shared.id);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert_eq!(round_trip(&gl), noise(512)));
        }
    });
    gl.close().unwrap();
}

#[allow(unsafe_code, clippy::multiple_unsafe_ops_per_block, reason = "OpenGL is a C interface")]
pub(super) fn objects_that_the_application_bound_stay_bound() {
    // Desktop OpenGL has these.
    const PACK_SWAP_BYTES: u32 = 0x0d00;
    const UNPACK_SWAP_BYTES: u32 = 0x0cf0;
    const UNPACK_LSB_FIRST: u32 = 0x0cf1;
    const NAMES: [u32; 13] = [
        glow::PIXEL_PACK_BUFFER_BINDING,
        glow::PIXEL_UNPACK_BUFFER_BINDING,
        glow::TEXTURE_BINDING_2D,
        glow::READ_FRAMEBUFFER_BINDING,
        glow::DRAW_FRAMEBUFFER_BINDING,
        glow::UNPACK_ALIGNMENT,
        glow::UNPACK_ROW_LENGTH,
        glow::PACK_ALIGNMENT,
        glow::PACK_ROW_LENGTH,
        glow::PACK_SKIP_ROWS,
        PACK_SWAP_BYTES,
        UNPACK_SWAP_BYTES,
        UNPACK_LSB_FIRST,
    ];
    let application = Application::start();
    let gl = application.context().unwrap();
    // SAFETY: called where the context is current.
    let bound = gl.with(|gl| unsafe {
        gl.bind_buffer(glow::PIXEL_PACK_BUFFER, Some(gl.create_buffer().unwrap()));
        gl.bind_buffer(glow::PIXEL_UNPACK_BUFFER, Some(gl.create_buffer().unwrap()));
        gl.bind_texture(glow::TEXTURE_2D, Some(gl.create_texture().unwrap()));
        gl.bind_framebuffer(glow::FRAMEBUFFER, Some(gl.create_framebuffer().unwrap()));
        for (name, value) in [(glow::UNPACK_ALIGNMENT, 2), (glow::UNPACK_ROW_LENGTH, 5)] {
            gl.pixel_store_i32(name, value);
        }
        for (name, value) in
            [(glow::PACK_ALIGNMENT, 8), (glow::PACK_ROW_LENGTH, 6), (glow::PACK_SKIP_ROWS, 1)]
        {
            gl.pixel_store_i32(name, value);
        }
        for name in [PACK_SWAP_BYTES, UNPACK_SWAP_BYTES, UNPACK_LSB_FIRST] {
            gl.pixel_store_i32(name, 1);
        }
        NAMES.map(|name| gl.get_parameter_i32(name))
    });
    let bound = bound.unwrap();
    assert!(!bound.contains(&0), "{bound:?}");
    assert_eq!(round_trip(&gl), noise(512));
    // Byte order matters for elements of several bytes, where one side is on the heap.
    let tall = cenote::Tensor::from_vec((0..64u32).collect(), &[4, 4, 4]).unwrap();
    let mut back = gl.tensor(&[4, 4, 4], DType::U32).unwrap();
    gl.upload(&tall).unwrap().read(&mut back).unwrap();
    assert_eq!(back.to_vec::<u32>().unwrap(), tall.to_vec::<u32>().unwrap());
    // Swapping in both directions would look the same as not swapping.
    // SAFETY: as above.
    gl.with(|gl| unsafe { gl.pixel_store_i32(UNPACK_SWAP_BYTES, 0) }).unwrap();
    gl.upload(&tall).unwrap().read(&mut back).unwrap();
    assert_eq!(back.to_vec::<u32>().unwrap(), tall.to_vec::<u32>().unwrap());
    // SAFETY: as above.
    gl.with(|gl| unsafe { gl.pixel_store_i32(UNPACK_SWAP_BYTES, 1) }).unwrap();
    // SAFETY: as above.
    let now = gl.with(|gl| unsafe { NAMES.map(|name| gl.get_parameter_i32(name)) });
    assert_eq!(now.unwrap(), bound);
    gl.close().unwrap();
}

pub(super) fn calls_on_its_own_thread_do_not_wait() {
    let application = Application::start();
    let gl = application.context().unwrap();
    let (sender, receiver) = channel();
    let other = gl.clone();
    // The loop of the application uses tensors directly, without submitting work.
    application.call(move |_| sender.send(round_trip(&other)).unwrap());
    assert_eq!(receiver.recv().unwrap(), noise(512));
    gl.close().unwrap();
}

pub(super) fn an_order_is_kept_between_threads() {
    let application = Application::start();
    let gl = application.context().unwrap();
    let image = gl.options().create_from_slice(&[7u8; 64], &[4, 4, 4]).unwrap();
    let map = image.map().unwrap();
    let (go, wait) = channel();
    let (sender, receiver) = channel();
    let (other, same) = (gl.clone(), image.clone());
    application.call(move |_| {
        wait.recv().unwrap();
        sender.send(other.upload(&same)).unwrap();
    });
    // The end of the map is queued behind the call, and the call must not overtake it.
    drop(map);
    go.send(()).unwrap();
    let texture = receiver.recv().unwrap().unwrap();
    let mut back = gl.tensor(&[4, 4, 4], DType::U8).unwrap();
    texture.read(&mut back).unwrap();
    assert_eq!(back.to_vec::<u8>().unwrap(), [7; 64]);
    gl.close().unwrap();
}

pub(super) fn a_thread_that_ends_is_an_error() {
    let mut application = Application::start();
    let gl = application.context().unwrap();
    let tensor = gl.tensor(&[4, 4], DType::U8).unwrap();
    let texture = gl.upload(&tensor).unwrap();
    application.end();
    assert_eq!(gone(gl.tensor(&[4], DType::U8)), GlGone::Thread);
    assert_eq!(gone(gl.upload(&tensor)), GlGone::Thread);
    assert_eq!(gone(texture.write(&tensor)), GlGone::Thread);
    assert_eq!(gone(gl.with(|_| ())), GlGone::Thread);
    // The contract requires this of an application that ends its context first.
    gl.close().unwrap();
    assert_eq!(gone(tensor.map()), GlGone::Closed);
    assert!(gl.is_gone());
    drop((tensor, texture, gl));
    assert!(matches!(application.context(), Err(Error::Gl(GlError::Gone { why: GlGone::Thread }))));
}

pub(super) fn a_thread_that_is_blocked_is_an_error() {
    let application = Application::start();
    let gl = application.context().unwrap();
    application.block();
    let refused = gl.tensor(&[4], DType::U8);
    assert!(matches!(refused, Err(Error::Gl(GlError::NoAnswer { .. }))), "{refused:?}");
    application.unblock();
    gl.with(|_| ()).unwrap();
    assert_eq!(gl.stats().buffers, 0);
    assert_eq!(round_trip(&gl), noise(512));
    gl.close().unwrap();
}

/// Otherwise the driver would write memory that the caller uses again.
pub(super) fn work_that_was_given_up_is_never_done() {
    let application = Application::start();
    let gl = application.context().unwrap();
    let texture = gl.upload(&gl.tensor(&[4, 4, 4], DType::U8).unwrap()).unwrap();
    let mut tensor = gl.options().create_from_slice(&[9u8; 64], &[4, 4, 4]).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let late = Arc::clone(&done);
    application.block();
    let refused = texture.read(&mut tensor);
    assert!(matches!(refused, Err(Error::Gl(GlError::NoAnswer { .. }))), "{refused:?}");
    let refused = gl.with(move |_| late.store(true, Ordering::Relaxed));
    assert!(matches!(refused, Err(Error::Gl(GlError::NoAnswer { .. }))), "{refused:?}");
    assert_eq!(Arc::strong_count(&done), 1, "work that was given up holds nothing");
    application.unblock();
    gl.with(|_| ()).unwrap();
    assert!(!done.load(Ordering::Relaxed));
    assert_eq!(tensor.to_vec::<u8>().unwrap(), [9; 64]);
    gl.close().unwrap();
}

/// Running work borrows memory of the caller.
pub(super) fn work_that_was_begun_is_waited_for() {
    let application = Application::start();
    let gl = application.context().unwrap();
    // The loop is not blocked, but callers give up as early as if it were.
    application.shared.stuck.store(true, Ordering::Relaxed);
    let begun = Arc::new(AtomicBool::new(false));
    let slow = || {
        let begins = Arc::clone(&begun);
        gl.with(move |_| {
            begins.store(true, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(500));
            7
        })
    };
    let mut done = slow();
    // On a busy machine the work may not even have begun: then it is tried again.
    while done.is_err() && !begun.load(Ordering::Relaxed) {
        done = slow();
    }
    assert_eq!(done.unwrap(), 7);
    application.unblock();
    gl.close().unwrap();
}

/// Code that runs there may hold locks that the requests of other threads would wait for.
pub(super) fn requests_of_other_threads_wait_until_the_thread_is_done() {
    let application = Application::start();
    let gl = application.context().unwrap();
    let texture = gl.texture((4, 4), DType::U8, 4).unwrap();
    let tensor = gl.tensor(&[4, 4, 4], DType::U8).unwrap();
    let map = tensor.map().unwrap();
    let (shared, other, asked) =
        (Arc::clone(&application.shared), gl.clone(), Arc::new(AtomicBool::new(false)));
    let before = shared.submitted.load(Ordering::Relaxed);
    let seen = Arc::clone(&asked);
    let (sender, receiver) = channel();
    let (begin, begun) = channel();
    application.call(move |_| {
        begin.send(()).unwrap();
        while shared.submitted.load(Ordering::Relaxed) == before {
            thread::sleep(Duration::from_millis(1));
        }
        let same = tensor_and_texture(&other);
        drop((texture, same));
        sender.send(seen.load(Ordering::Relaxed)).unwrap();
    });
    begun.recv().unwrap();
    let late = Arc::clone(&asked);
    gl.with(move |_| late.store(true, Ordering::Relaxed)).unwrap();
    assert!(!receiver.recv().unwrap(), "it was done in the middle of something else");
    assert!(asked.load(Ordering::Relaxed));
    drop(map);
    drop(tensor);
    gl.with(|_| ()).unwrap();
    let stats = gl.stats();
    assert_eq!((stats.buffers, stats.textures, stats.fences), (0, 0, 0), "{stats:?}");
    gl.close().unwrap();
}

fn tensor_and_texture(gl: &GlContext) -> (cenote::Tensor, cenote::GlTexture) {
    let tensor = gl.tensor(&[4, 4, 4], DType::U8).unwrap();
    let texture = gl.upload(&tensor).unwrap();
    (tensor, texture)
}

pub(super) fn closing_deletes_what_was_made() {
    let application = Application::start();
    let gl = application.context().unwrap();
    let tensor = gl.tensor(&[4, 4], DType::U8).unwrap();
    let texture = gl.upload(&tensor).unwrap();
    let name = texture.name();
    let again = application.context().unwrap();
    #[allow(unsafe_code, clippy::multiple_unsafe_ops_per_block, reason = "OpenGL is a C interface")]
    // SAFETY: called where the context is current.
    let is_texture = move |gl: &glow::Context| unsafe { gl.is_texture(glow::NativeTexture(name)) };
    assert!(again.with(is_texture).unwrap());
    gl.close().unwrap();
    assert!(!again.with(is_texture).unwrap(), "the application's context has it still");
    assert_eq!(gone(tensor.map()), GlGone::Closed);
    assert_eq!(round_trip(&again), noise(512), "others of the same thread are not closed");
    again.close().unwrap();
}

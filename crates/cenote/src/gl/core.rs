//! A context as its holders share it: the thread, and what is known on both sides of it.

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use glow::HasContext;

use crate::error::{Error, GlCode, GlError, GlGone, Result};
use crate::gl::driver::Driver;
use crate::gl::gate::{Gate, Inside};
use crate::gl::headless::OwnThread;
use crate::gl::held::Held;
use crate::gl::imports::Imports;
use crate::gl::objects::{Object, Objects};
use crate::gl::thread::{GlThread, Kind, Queue};
use crate::intervals::GL_THREAD_STEP;
use crate::sync::{AtomicBool, AtomicU64, Ordering, StaticU64};
use crate::sys::fork;

/// What holders of a context share. The last one ends the thread if it is ours.
#[derive(Debug)]
pub(crate) struct Core {
    shared: Arc<Shared>,
    place: Place,
    queue: Arc<Queue>,
    gate: Gate,
    pub(crate) imports: Imports,
    /// Tells it from every other context of this process.
    pub(crate) id: u64,
    epoch: u64,
}

/// What work is given. It keeps nothing alive: work that waits must not be the last holder.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) driver: Driver,
    pub(crate) objects: Objects,
    pub(crate) held: Held,
    pub(crate) fences_waited: AtomicU64,
    /// DMA-BUFs that became textures.
    pub(crate) imported: AtomicU64,
    /// Every object was deleted.
    torn_down: AtomicBool,
    /// By which textures are read, once one was.
    framebuffer: OnceLock<NonZeroU32>,
    /// The driver has said so.
    lost: AtomicBool,
}

#[derive(Debug)]
enum Place {
    Own(Arc<OwnThread>),
    Application(Foreign),
}

/// A thread of the application's.
struct Foreign(Arc<dyn GlThread>);

impl std::fmt::Debug for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GlThread")
    }
}

impl Place {
    fn thread(&self) -> &dyn GlThread {
        match self {
            Place::Own(thread) => &**thread,
            Place::Application(thread) => &*thread.0,
        }
    }

    fn end(&self) {
        if let Place::Own(thread) = self {
            thread.end();
        }
    }
}

impl Core {
    pub(crate) fn headless() -> Result<Arc<Core>> {
        let thread = OwnThread::start()?;
        let for_loading: Arc<dyn GlThread> = Arc::clone(&thread) as _;
        Core::new(Place::Own(thread), for_loading)
    }

    pub(crate) fn on(thread: Arc<dyn GlThread>) -> Result<Arc<Core>> {
        Core::new(Place::Application(Foreign(Arc::clone(&thread))), thread)
    }

    fn new(place: Place, thread: Arc<dyn GlThread>) -> Result<Arc<Core>> {
        let epoch = fork::epoch_from_now_on();
        let queue = Arc::new(Queue::default());
        let load = move || Driver::load(|name| thread.proc_address(name)).map_err(Error::Gl);
        let driver = hand_over(place.thread(), &queue, "look its functions up", load)?;
        let shared = Arc::new(Shared {
            driver,
            objects: Objects::default(),
            held: Held::default(),
            fences_waited: AtomicU64::new(0),
            imported: AtomicU64::new(0),
            torn_down: AtomicBool::new(false),
            framebuffer: OnceLock::new(),
            lost: AtomicBool::new(false),
        });
        let (gate, imports) = (Gate::default(), Imports::default());
        static NEXT: StaticU64 = StaticU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Core { shared, place, queue, gate, imports, id, epoch }))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Whether there is anything left to ask of it.
    pub(crate) fn check(&self) -> Result<()> {
        let why = if self.epoch != fork::epoch() {
            GlGone::Forked
        } else if self.gate.is_closed() {
            GlGone::Closed
        } else if self.shared.lost.load(Ordering::Relaxed) {
            GlGone::Lost
        } else {
            return Ok(());
        };
        Err(GlError::Gone { why }.into())
    }

    /// Keeps the context alive until the guard is dropped.
    pub(crate) fn enter(&self) -> Result<Inside<'_>> {
        if !self.gate.enter() {
            self.check()?;
            return Err(GlError::Gone { why: GlGone::Closed }.into());
        }
        let inside = Inside(self);
        if self.epoch == fork::epoch() && !self.shared.lost.load(Ordering::Relaxed) {
            return Ok(inside);
        }
        // Not by `check`: the gate may be closed by now, and it was not when this was entered.
        let lost = self.epoch == fork::epoch();
        Err(GlError::Gone { why: if lost { GlGone::Lost } else { GlGone::Forked } }.into())
    }

    pub(crate) fn leave(&self) {
        if self.gate.leave() {
            self.finish();
        }
    }

    /// How many maps are alive.
    pub(crate) fn maps(&self) -> usize {
        self.gate.inside()
    }

    /// Has `work` done on the context's thread, and waits for it.
    pub(crate) fn run<R: Send + 'static>(
        self: &Arc<Self>,
        op: &'static str,
        work: impl FnOnce(&Arc<Core>) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        self.check()?;
        let core = Arc::clone(self);
        // The job lets go of the context before it answers: whoever waits is to be the last.
        hand_over(self.place.thread(), &self.queue, op, move || {
            core.check()?;
            let reset = || Ok(core.shared.driver.check_reset()?);
            core.shared.let_go();
            // What failed may have done so because of a reset.
            let result =
                reset().and_then(|()| work(&core)).or_else(|error| reset().and(Err(error)));
            core.shared.note_loss(&result);
            result
        })
    }

    /// Has `work` done on the context's thread, some time.
    pub(crate) fn post(&self, work: impl FnOnce(&Shared) + Send + 'static) {
        if self.epoch != fork::epoch() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let job = move || {
            // Nobody waits for it, so nobody could be told; the thread may be the application's.
            let _ = catch_unwind(AssertUnwindSafe(|| work(&shared)));
        };
        let work = self.queue.push(Kind::Posted, job);
        if self.place.thread().is_current() {
            self.queue.drain_posted();
        } else {
            // Given back, it is dropped: without a thread nothing is left to be done.
            drop(self.place.thread().submit(work));
        }
    }

    /// Lets nobody in any more; deletes all objects if nobody is inside.
    pub(crate) fn close(self: &Arc<Self>) -> Result<()> {
        if self.epoch != fork::epoch() {
            return Err(GlError::Gone { why: GlGone::Forked }.into());
        }
        match self.gate.close() {
            0 => {}
            maps => return Err(GlError::MapsAlive { maps }.into()),
        }
        self.imports.forget_all();
        let shared = Arc::clone(&self.shared);
        let done = hand_over(self.place.thread(), &self.queue, "delete its objects", move || {
            shared.tear_down();
            Ok(())
        });
        self.place.end();
        match done {
            // It has gone by itself, or was closed before.
            Err(Error::Gl(GlError::Gone { .. })) => Ok(()),
            done => done,
        }
    }

    fn finish(&self) {
        if self.epoch == fork::epoch() {
            self.imports.forget_all();
            self.post(Shared::tear_down);
            self.place.end();
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Shared {
    /// The framebuffer by which textures are read. Called on the context's thread.
    #[allow(unsafe_code, reason = "OpenGL is a C interface")]
    pub(crate) fn framebuffer(&self) -> Result<NonZeroU32, GlError> {
        if let Some(name) = self.framebuffer.get() {
            return Ok(*name);
        }
        // SAFETY: called on the context's thread.
        let made = unsafe { self.driver.gl.create_framebuffer() };
        let op = "glGenFramebuffers";
        let refused = |_| GlError::Refused { op, code: GlCode(glow::OUT_OF_MEMORY) };
        let name = made.map_err(refused)?.0;
        self.objects.add(Object::Framebuffer(name));
        Ok(*self.framebuffer.get_or_init(|| name))
    }

    /// Deletes an object, unless that was done. Called on the context's thread.
    pub(crate) fn delete(&self, object: Object) {
        if self.objects.remove(object) {
            self.driver.delete(object);
        }
    }

    pub(crate) fn is_torn_down(&self) -> bool {
        self.torn_down.load(Ordering::Acquire)
    }

    fn tear_down(&self) {
        if !self.torn_down.swap(true, Ordering::AcqRel) {
            self.let_all_go();
            self.objects.take().into_iter().for_each(|object| self.driver.delete(object));
        }
    }

    fn note_loss<R>(&self, result: &Result<R>) {
        if matches!(result, Err(Error::Gl(GlError::Gone { why: GlGone::Lost }))) {
            self.lost.store(true, Ordering::Relaxed);
        }
    }
}

/// Has `work` done on a thread, and waits for the answer: `work` has ended when this returns, or never
/// begins. On the thread itself it is done at once, after what others have posted.
fn hand_over<R: Send + 'static>(
    thread: &dyn GlThread,
    queue: &Arc<Queue>,
    op: &'static str,
    work: impl FnOnce() -> Result<R> + Send + 'static,
) -> Result<R> {
    if thread.is_current() {
        queue.drain_posted();
        return work();
    }
    let (tell, told) = sync_channel(1);
    let job = queue.push(Kind::Asked, move || {
        // `work` is gone when the answer comes, with all that it holds.
        let answer: thread::Result<Result<R>> = catch_unwind(AssertUnwindSafe(work));
        let _ = tell.send(answer);
    });
    let ticket = job.ticket();
    // Given back, it is dropped, and with it what would have told, unless it was done meanwhile.
    drop(thread.submit(job));
    let answer = match wait(&told, thread.patience()) {
        // It may be in the middle of it, and use what the caller is about to have back.
        Err(waited) if queue.withdraw(ticket) => {
            return Err(GlError::NoAnswer { op, waited }.into());
        }
        Err(_) => told.recv().ok(),
        Ok(answer) => answer,
    };
    match answer.ok_or(GlError::Gone { why: GlGone::Thread })? {
        Ok(result) => result,
        Err(panic) => resume_unwind(panic),
    }
}

/// `None` if there will be no answer; an error if there is none yet, after so long.
fn wait<T>(told: &Receiver<T>, patience: Option<Duration>) -> Result<Option<T>, Duration> {
    let Some(patience) = patience else { return Ok(told.recv().ok()) };
    let mut waited = Duration::ZERO;
    loop {
        match told.recv_timeout(GL_THREAD_STEP.min(patience)) {
            Ok(answer) => return Ok(Some(answer)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => waited += GL_THREAD_STEP.min(patience),
        }
        if waited >= patience {
            return Err(waited);
        }
    }
}

//! The director: starts the processes, kills two of them, and hears what they report.

use std::thread;
use std::time::{Duration, Instant};

use crate::children::{Child, PATIENCE};
use crate::demo::Args;
use crate::demo::report::{Corrupt, Report};
use crate::demo::role::Role;
use crate::demo::summary::{Comeback, Summary};
use crate::demo::view::View;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::namespace::Namespace;
use crate::output::Output;
use crate::pattern::Size;

/// How often the director looks.
const LOOK: Duration = Duration::from_millis(50);

/// How long the processes may take to find each other.
const MEETING: Duration = Duration::from_secs(15);

/// How long there is no camera.
const DARK: Duration = Duration::from_millis(300);

/// Plays the demo.
pub(crate) fn play(time: Duration, args: &Args, output: &Output) -> Outcome {
    let interrupt = Interrupt::listen()?;
    let namespace = Namespace::new("demo")?;
    let view = View::new(output, &namespace.name)?;
    let mut play = Play::new(namespace, args, view, interrupt.clone())?;
    let played = play.run(time);
    // Before anything is printed.
    play.view.close();
    // Whoever interrupts from the keyboard interrupts all, and their ends are no news.
    interrupt.check()?;
    played?;
    let summary = play.summary();
    output.report(&summary)?;
    if summary.corrupt > 0 { Err(Failure::Told) } else { Ok(()) }
}

/// One of the processes, through its lives.
pub(crate) struct Actor {
    pub(crate) role: Role,
    pub(crate) child: Option<Child<Report>>,
    /// Of this life, or of the last one if there is none.
    pub(crate) pid: u32,
    /// The last report of this life.
    pub(crate) now: Report,
    /// What was done in the lives before.
    pub(crate) before: Vec<Report>,
}

impl Actor {
    fn listen(&mut self) {
        if let Some(child) = &self.child {
            self.now = child.reports().last().unwrap_or_else(|| std::mem::take(&mut self.now));
        }
    }

    /// A sum over all lives.
    pub(crate) fn total(&self, number: impl Fn(&Report) -> u64) -> u64 {
        self.before.iter().chain([&self.now]).map(number).sum()
    }

    /// What was wrong in all lives.
    pub(crate) fn corrupt(&self) -> Corrupt {
        let all = self.before.iter().chain([&self.now]).map(|report| report.corrupt);
        all.fold(Corrupt::default(), |sum, corrupt| sum + corrupt)
    }
}

/// What is going on.
pub(crate) struct Play {
    size: Size,
    spoil: bool,
    start: Instant,
    pub(crate) actors: Vec<Actor>,
    pub(crate) events: Vec<String>,
    comeback: Comeback,
    view: View,
    interrupt: Interrupt,
    /// The user has seen enough.
    enough: bool,
    /// Removed last, when nobody is in it any more.
    namespace: Namespace,
}

impl Play {
    fn new(namespace: Namespace, args: &Args, view: View, interrupt: Interrupt) -> Outcome<Play> {
        let mut play = Play {
            namespace,
            size: args.size,
            spoil: args.spoil,
            start: Instant::now(),
            actors: Vec::new(),
            events: Vec::new(),
            comeback: Comeback::default(),
            view,
            interrupt,
            enough: false,
        };
        for role in Role::ALL {
            let child = play.start(role)?;
            let (pid, child) = (child.pid(), Some(child));
            play.actors.push(Actor {
                role,
                child,
                pid,
                now: Report::default(),
                before: Vec::new(),
            });
        }
        Ok(play)
    }

    fn start(&self, role: Role) -> Outcome<Child<Report>> {
        let size = self.size.to_string();
        let spoil = self.spoil.then_some("--spoil");
        let args = ["demo", "--role", role.name(), "--size", &size].into_iter().chain(spoil);
        Child::start(&self.namespace, &args.map(str::to_owned).collect::<Vec<_>>())
    }

    fn run(&mut self, time: Duration) -> Outcome {
        let until = |part: f64| move |play: &Play| play.start.elapsed() >= time.mul_f64(part);
        if self.meet()? && self.go_on_until(until(0.5))? && self.kill_a_subscriber()? {
            let _ = self.go_on_until(until(0.65))?
                && self.kill_the_camera()?
                && self.go_on_until(until(1.0))?;
        }
        self.finish()
    }

    /// Waits until all have received something; false if the user has had enough, as with all that follows.
    fn meet(&mut self) -> Outcome<bool> {
        let met = |play: &Play| {
            let receiving = play.actors.iter().filter(|actor| actor.now.received > 0);
            receiving.count() == Role::SUBSCRIBERS
        };
        if !self.go_on_until(|play| met(play) || play.start.elapsed() > MEETING)? {
            return Ok(false);
        }
        if !met(self) {
            return Err(Failure::Silence("the processes did not find each other".to_owned()));
        }
        self.start = Instant::now();
        self.note("everybody is there")?;
        Ok(true)
    }

    /// Listens and shows, until something is true.
    fn go_on_until(&mut self, done: impl Fn(&Play) -> bool) -> Outcome<bool> {
        while !self.enough && !done(self) {
            for actor in &mut self.actors {
                actor.child.as_mut().map_or(Ok(()), Child::check)?;
            }
            self.look()?;
        }
        Ok(!self.enough)
    }

    /// Hears what is new, and shows it.
    fn look(&mut self) -> Outcome {
        self.interrupt.check()?;
        self.actors.iter_mut().for_each(Actor::listen);
        self.enough |= self.view.show(&self.actors, &self.events, self.start.elapsed())?;
        thread::sleep(LOOK);
        Ok(())
    }

    fn note(&mut self, event: &str) -> Outcome {
        let at = self.start.elapsed().as_secs_f64();
        self.events.push(format!("{at:5.1} s  {event}"));
        self.view.event(&self.events)
    }

    fn actor(&mut self, role: Role) -> &mut Actor {
        let at = self.actors.iter().position(|actor| actor.role == role).unwrap_or(0);
        &mut self.actors[at]
    }

    /// Kills a process; tells which.
    fn kill(&mut self, role: Role) -> Outcome<i32> {
        let actor = self.actor(role);
        let Some(mut child) = actor.child.take() else { return Ok(0) };
        let pid = child.pid().cast_signed();
        child.kill()?;
        let last = child.last_reports().last().unwrap_or_else(|| std::mem::take(&mut actor.now));
        actor.before.push(last);
        actor.now = Report::default();
        Ok(pid)
    }

    /// How many pictures a process holds, as the camera sees it.
    fn held_by(&self, pid: i32) -> usize {
        let leases = self.actors.iter().flat_map(|actor| &actor.now.leases);
        leases.filter(|lease| lease.pid == pid).map(|lease| lease.slots).sum()
    }

    fn kill_a_subscriber(&mut self) -> Outcome<bool> {
        let pid = self.actor(Role::Slow).pid.cast_signed();
        let held = self.held_by(pid);
        self.kill(Role::Slow)?;
        let killed = Instant::now();
        self.note(&format!("killed the slow process, which held {held} frames"))?;
        let back = |play: &Play| play.held_by(pid) == 0;
        if !self.go_on_until(|play| back(play) || killed.elapsed() > MEETING)? {
            return Ok(false);
        }
        let back = killed.elapsed().as_secs_f64() * 1000.0;
        if self.held_by(pid) > 0 {
            return Err(Failure::Failed(format!("process {pid} is dead and holds frames")));
        }
        (self.comeback.frames_held, self.comeback.frames_back_ms) = (Some(held), Some(back));
        self.note(&format!("the {held} frames it held are back"))?;
        self.restart(Role::Slow)?;
        Ok(true)
    }

    fn restart(&mut self, role: Role) -> Outcome {
        let child = self.start(role)?;
        self.note(&format!("started the {role} again, as process {}", child.pid()))?;
        let actor = self.actor(role);
        (actor.pid, actor.child) = (child.pid(), Some(child));
        Ok(())
    }

    fn kill_the_camera(&mut self) -> Outcome<bool> {
        self.kill(Role::Camera)?;
        let killed = Instant::now();
        self.note("killed the camera; who holds its frames keeps them")?;
        if !self.go_on_until(|_| killed.elapsed() >= DARK)? {
            return Ok(false);
        }
        let before = self.actor(Role::Statistic).now.received;
        self.restart(Role::Camera)?;
        let restarted = Instant::now();
        let received = |play: &Play| {
            play.actors.iter().any(|a| a.role == Role::Statistic && a.now.received > before)
        };
        if !self.go_on_until(|play| received(play) || restarted.elapsed() > MEETING)? {
            return Ok(false);
        }
        if !received(self) {
            return Err(Failure::Silence("nobody found the new camera".to_owned()));
        }
        self.comeback.camera_found_ms = Some(restarted.elapsed().as_secs_f64() * 1000.0);
        self.note("its subscribers receive from it: nobody told them")?;
        Ok(true)
    }

    /// Ends all, and hears their last words: the camera first, so that what is missed is known.
    fn finish(&mut self) -> Outcome {
        for role in Role::ALL {
            self.dismiss(role)?;
        }
        Ok(())
    }

    /// Ends one, while all is shown, and keys are listened to.
    fn dismiss(&mut self, role: Role) -> Outcome {
        let start = Instant::now();
        while let Some(child) = self.actor(role).child.as_mut() {
            child.dismiss();
            if child.has_ended()? {
                let last = child.last_reports().last();
                let actor = self.actor(role);
                actor.now = last.unwrap_or_else(|| std::mem::take(&mut actor.now));
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err(child.stays());
            }
            self.look()?;
        }
        Ok(())
    }

    fn summary(&self) -> Summary {
        Summary::new(self.start.elapsed(), self.size, &self.actors, self.comeback)
    }
}

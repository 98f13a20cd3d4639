//! The director: starts the processes, kills two of them, and hears what they report.

use std::thread;
use std::time::{Duration, Instant};

use crate::children::{Child, Namespace};
use crate::demo::Args;
use crate::demo::report::Report;
use crate::demo::role::Role;
use crate::demo::summary::{Comeback, Summary};
use crate::demo::view::View;
use crate::failure::{Failure, Outcome};
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
    let namespace = Namespace::new("demo")?;
    let view = View::new(output, &namespace.name)?;
    let mut play = Play::new(namespace, args, view)?;
    let played = play.run(time);
    // Before anything is printed.
    play.view.close();
    played?;
    let summary = play.summary();
    output.report(&summary)?;
    if summary.corrupt > 0 { Err(Failure::Told) } else { Ok(()) }
}

/// One of the processes, through its lives.
pub(crate) struct Actor {
    pub(crate) role: Role,
    pub(crate) child: Option<Child<Report>>,
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

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::pid)
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
    /// Removed last, when nobody is in it any more.
    namespace: Namespace,
}

impl Play {
    fn new(namespace: Namespace, args: &Args, view: View) -> Outcome<Play> {
        let mut play = Play {
            namespace,
            size: args.size,
            spoil: args.spoil,
            start: Instant::now(),
            actors: Vec::new(),
            events: Vec::new(),
            comeback: Comeback::default(),
            view,
        };
        for role in Role::ALL {
            let child = Some(play.start(role)?);
            play.actors.push(Actor { role, child, now: Report::default(), before: Vec::new() });
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
        self.meet()?;
        self.note("everybody is there")?;
        self.go_on_until(|play| play.start.elapsed() >= time / 2)?;
        self.kill_a_subscriber()?;
        self.go_on_until(|play| play.start.elapsed() >= time.mul_f64(0.65))?;
        self.kill_the_camera()?;
        self.go_on_until(|play| play.start.elapsed() >= time)?;
        self.finish()
    }

    /// Waits until all have received something.
    fn meet(&mut self) -> Outcome {
        let met = |play: &Play| {
            let receiving = play.actors.iter().filter(|actor| actor.now.received > 0);
            receiving.count() == Role::SUBSCRIBERS
        };
        self.go_on_until(|play| met(play) || play.start.elapsed() > MEETING)?;
        if !met(self) {
            return Err(Failure::Silence("the processes did not find each other".to_owned()));
        }
        self.start = Instant::now();
        Ok(())
    }

    /// Listens and shows, until something is true.
    fn go_on_until(&mut self, done: impl Fn(&Play) -> bool) -> Outcome {
        while !done(self) {
            self.actors.iter_mut().for_each(Actor::listen);
            for actor in &mut self.actors {
                actor.child.as_mut().map_or(Ok(()), Child::check)?;
            }
            if self.view.show(&self.actors, &self.events, self.start.elapsed())? {
                return Err(Failure::Failed("interrupted".to_owned()));
            }
            thread::sleep(LOOK);
        }
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

    fn kill_a_subscriber(&mut self) -> Outcome {
        let pid = self.actor(Role::Slow).pid().unwrap_or(0).cast_signed();
        let held = self.held_by(pid);
        self.kill(Role::Slow)?;
        let killed = Instant::now();
        self.note(&format!("killed the slow process, which held {held} frames"))?;
        self.go_on_until(|play| play.held_by(pid) == 0 || killed.elapsed() > MEETING)?;
        let back = killed.elapsed().as_secs_f64() * 1000.0;
        if self.held_by(pid) > 0 {
            return Err(Failure::Failed(format!("process {pid} is dead and holds frames")));
        }
        (self.comeback.frames_held, self.comeback.frames_back_ms) = (held, back);
        self.note(&format!("the {held} frames it held are back"))?;
        self.restart(Role::Slow)
    }

    fn restart(&mut self, role: Role) -> Outcome {
        let child = self.start(role)?;
        self.note(&format!("started the {role} again, as process {}", child.pid()))?;
        self.actor(role).child = Some(child);
        Ok(())
    }

    fn kill_the_camera(&mut self) -> Outcome {
        self.kill(Role::Camera)?;
        let killed = Instant::now();
        self.note("killed the camera; who holds its frames keeps them")?;
        self.go_on_until(|_| killed.elapsed() >= DARK)?;
        let before = self.actor(Role::Statistic).now.received;
        self.restart(Role::Camera)?;
        let restarted = Instant::now();
        let received = |play: &Play| {
            play.actors.iter().any(|a| a.role == Role::Statistic && a.now.received > before)
        };
        self.go_on_until(|play| received(play) || restarted.elapsed() > MEETING)?;
        if !received(self) {
            return Err(Failure::Silence("nobody found the new camera".to_owned()));
        }
        self.comeback.camera_found_ms = restarted.elapsed().as_secs_f64() * 1000.0;
        self.note("its subscribers receive from it: nobody told them")?;
        Ok(())
    }

    /// Ends all, and hears their last words: the camera first, so that what is missed is known.
    fn finish(&mut self) -> Outcome {
        for actor in &mut self.actors {
            let Some(child) = &mut actor.child else { continue };
            child.finish()?;
            actor.now =
                child.last_reports().last().unwrap_or_else(|| std::mem::take(&mut actor.now));
        }
        Ok(())
    }

    fn summary(&self) -> Summary {
        Summary::new(self.start.elapsed(), self.size, &self.actors, self.comeback)
    }
}

//! Starts the processes of the demo, kills two of them, restarts them, and reads their reports.

use std::thread;
use std::time::{Duration, Instant};

use super::process::DemoProcess;
use super::report::Report;
use super::role::Role;
use super::summary::{Recovery, Summary};
use super::view::View;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::process::child::{Child, END_TIMEOUT};
use crate::process::interrupt::Interrupt;
use crate::process::temporary_namespace::TemporaryNamespace;
use crate::test_pattern::Size;

/// The time between two updates of the view.
const UPDATE_INTERVAL: Duration = Duration::from_millis(50);

/// How long the processes may take to connect, and the camera to reclaim frames.
const STEP_TIMEOUT: Duration = Duration::from_secs(15);

/// The time between the death of the camera and the start of the next.
const CAMERA_OUTAGE: Duration = Duration::from_millis(300);

/// Runs the demo. Returns [`Failure::Reported`] if a message was corrupt.
pub(crate) fn run(time: Duration, size: Size, spoil: bool, output: &Output) -> Outcome {
    let interrupt = Interrupt::register()?;
    let namespace = TemporaryNamespace::new("demo")?;
    let view = View::new(output, &namespace.name)?;
    let mut supervisor = Supervisor::new(namespace, size, spoil, view, interrupt.clone())?;
    let result = supervisor.run(time);
    // Restores the terminal before anything is printed.
    supervisor.view.close();
    // Ctrl-C interrupts the children, too, so their failure is not the cause.
    interrupt.check()?;
    result?;
    let summary = supervisor.summary();
    output.report(&summary)?;
    if summary.corrupt > 0 { Err(Failure::Reported) } else { Ok(()) }
}

struct Supervisor {
    size: Size,
    spoil: bool,
    start: Instant,
    processes: Vec<DemoProcess>,
    events: Vec<String>,
    recovery: Recovery,
    view: View,
    interrupt: Interrupt,
    /// The user pressed q.
    quit: bool,
    /// The last field: it is dropped, and so removed, when all processes have ended.
    namespace: TemporaryNamespace,
}

/// Methods that return `Outcome<bool>` return false if the user pressed q.
impl Supervisor {
    fn new(
        namespace: TemporaryNamespace,
        size: Size,
        spoil: bool,
        view: View,
        interrupt: Interrupt,
    ) -> Outcome<Supervisor> {
        let mut supervisor = Supervisor {
            namespace,
            size,
            spoil,
            start: Instant::now(),
            processes: Vec::new(),
            events: Vec::new(),
            recovery: Recovery::default(),
            view,
            interrupt,
            quit: false,
        };
        for role in Role::ALL {
            let child = supervisor.start(role)?;
            supervisor.processes.push(DemoProcess::new(role, child));
        }
        Ok(supervisor)
    }

    fn start(&self, role: Role) -> Outcome<Child<Report>> {
        let size = self.size.to_string();
        let spoil = self.spoil.then_some("--spoil");
        let args = ["demo", "--role", role.name(), "--size", &size].into_iter().chain(spoil);
        Child::start(&self.namespace, &args.map(str::to_owned).collect::<Vec<_>>())
    }

    fn run(&mut self, time: Duration) -> Outcome {
        let until = |part: f64| move |it: &Supervisor| it.start.elapsed() >= time.mul_f64(part);
        if self.await_connections()? && self.run_until(until(0.5))? && self.kill_subscriber()? {
            let _ = self.run_until(until(0.65))?
                && self.kill_camera()?
                && self.run_until(until(1.0))?;
        }
        self.end_all()
    }

    /// Waits until every subscriber has received a message. The time of the demo starts then.
    fn await_connections(&mut self) -> Outcome<bool> {
        let connected = |it: &Supervisor| {
            let receiving = it.processes.iter().filter(|process| process.report.received > 0);
            receiving.count() == Role::SUBSCRIBERS
        };
        if !self.run_until(|it| connected(it) || it.start.elapsed() > STEP_TIMEOUT)? {
            return Ok(false);
        }
        if !connected(self) {
            let text = "the subscribers did not receive anything from the camera";
            return Err(Failure::TimedOut(text.to_owned()));
        }
        self.start = Instant::now();
        self.record("all processes are connected")?;
        Ok(true)
    }

    /// Updates the view until the condition holds. Returns an error if a child ends.
    fn run_until(&mut self, done: impl Fn(&Supervisor) -> bool) -> Outcome<bool> {
        while !self.quit && !done(self) {
            for process in &mut self.processes {
                process.child.as_mut().map_or(Ok(()), Child::check)?;
            }
            self.update()?;
        }
        Ok(!self.quit)
    }

    /// Reads new reports, shows them, and sleeps.
    fn update(&mut self) -> Outcome {
        self.interrupt.check()?;
        self.processes.iter_mut().for_each(DemoProcess::read_reports);
        self.quit |= self.view.show(&self.processes, &self.events, self.start.elapsed())?;
        thread::sleep(UPDATE_INTERVAL);
        Ok(())
    }

    /// Adds an event to the view.
    fn record(&mut self, event: &str) -> Outcome {
        let at = self.start.elapsed().as_secs_f64();
        self.events.push(format!("{at:5.1} s  {event}"));
        self.view.event(&self.events)
    }

    fn process(&mut self, role: Role) -> &mut DemoProcess {
        let index = self.processes.iter().position(|process| process.role == role).unwrap_or(0);
        &mut self.processes[index]
    }

    fn kill(&mut self, role: Role) -> Outcome {
        let process = self.process(role);
        if let Some(mut child) = process.child.take() {
            child.kill()?;
            process.end_life(&child);
        }
        Ok(())
    }

    fn restart(&mut self, role: Role) -> Outcome {
        let child = self.start(role)?;
        self.record(&format!("restarted the {role} process, as pid {}", child.pid()))?;
        self.process(role).restart(child);
        Ok(())
    }

    /// The number of frames that a process holds, as the camera reports it.
    fn held_by(&self, pid: i32) -> usize {
        let leases = self.processes.iter().flat_map(|process| &process.report.leases);
        leases.filter(|lease| lease.pid == pid).map(|lease| lease.slots).sum()
    }

    /// Kills the slow subscriber, waits until the camera has reclaimed its frames, and restarts it.
    fn kill_subscriber(&mut self) -> Outcome<bool> {
        let pid = self.process(Role::Slow).pid.cast_signed();
        let held = self.held_by(pid);
        self.kill(Role::Slow)?;
        let killed = Instant::now();
        self.record(&format!("killed the slow process, which held {held} frames"))?;
        let reclaimed = |it: &Supervisor| it.held_by(pid) == 0;
        if !self.run_until(|it| reclaimed(it) || killed.elapsed() > STEP_TIMEOUT)? {
            return Ok(false);
        }
        let time = killed.elapsed().as_secs_f64() * 1000.0;
        if self.held_by(pid) > 0 {
            return Err(Failure::Failed(format!("process {pid} is dead and still holds frames")));
        }
        (self.recovery.frames_held, self.recovery.frames_back_ms) = (Some(held), Some(time));
        self.record(&format!("the camera has reclaimed the {held} frames"))?;
        self.restart(Role::Slow)?;
        Ok(true)
    }

    /// Kills the camera, restarts it after a while, and waits until a subscriber receives from the new one.
    fn kill_camera(&mut self) -> Outcome<bool> {
        self.kill(Role::Camera)?;
        let killed = Instant::now();
        self.record("killed the camera; subscribers keep the frames that they hold")?;
        if !self.run_until(|_| killed.elapsed() >= CAMERA_OUTAGE)? {
            return Ok(false);
        }
        let before = self.process(Role::Statistic).report.received;
        self.restart(Role::Camera)?;
        let restarted = Instant::now();
        let received = |it: &Supervisor| {
            let statistic = it.processes.iter().find(|process| process.role == Role::Statistic);
            statistic.is_some_and(|process| process.report.received > before)
        };
        if !self.run_until(|it| received(it) || restarted.elapsed() > STEP_TIMEOUT)? {
            return Ok(false);
        }
        if !received(self) {
            return Err(Failure::TimedOut("no subscriber found the new camera".to_owned()));
        }
        self.recovery.camera_found_ms = Some(restarted.elapsed().as_secs_f64() * 1000.0);
        self.record("the subscribers have found the new camera by themselves")?;
        Ok(true)
    }

    /// Ends all processes and reads their last reports. The camera ends first, so that the subscribers can receive
    /// everything that it sent, and their count of missed messages is final.
    fn end_all(&mut self) -> Outcome {
        for role in Role::ALL {
            self.end(role)?;
        }
        Ok(())
    }

    /// Ends one process, and updates the view meanwhile.
    fn end(&mut self, role: Role) -> Outcome {
        let start = Instant::now();
        while let Some(child) = self.process(role).child.as_mut() {
            child.close_input();
            if child.has_ended()? {
                let last = child.last_reports().last();
                self.process(role).update(last);
                return Ok(());
            }
            if start.elapsed() > END_TIMEOUT {
                return Err(child.did_not_end());
            }
            self.update()?;
        }
        Ok(())
    }

    fn summary(&self) -> Summary {
        Summary::new(self.start.elapsed(), self.size, &self.processes, self.recovery)
    }
}

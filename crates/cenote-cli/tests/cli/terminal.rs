//! The live views of `top` and `demo`, in tmux: a terminal whose screen a test can read.

use std::process::Command;

use rustix::process::{Pid, Signal};

use crate::Test;
use crate::sandbox::{CENOTE, Finished, Sandbox, becomes_true, eventually};

pub(crate) const TESTS: &[Test] = tests![
    top_shows_topics_on_a_terminal_and_quits_with_q,
    top_shows_rates_beside_a_struct_with_many_fields,
    top_refuses_a_dumb_terminal,
    a_signal_ends_top_and_the_terminal_is_restored,
    suspended_top_releases_the_terminal_and_takes_it_back,
    top_ends_when_its_terminal_closes,
    the_demo_ends_when_its_terminal_closes_and_leaves_nothing,
    top_shows_how_memory_grows,
    the_demo_is_live_on_a_terminal_and_restores_it,
    q_ends_the_demo_early_with_a_summary,
    ctrl_c_ends_the_demo_at_once,
];

/// A terminal in which one command runs.
struct Terminal<'a> {
    sandbox: &'a Sandbox,
}

impl<'a> Terminal<'a> {
    /// Runs a command, prints its exit code, and keeps the terminal open.
    fn run(sandbox: &'a Sandbox, args: &str) -> Terminal<'a> {
        let dir = sandbox.0.display();
        Terminal::start(
            sandbox,
            &format!("env CENOTE_DIR='{dir}' '{CENOTE}' {args}; echo \"exit code $?\"; sleep 600"),
        )
    }

    /// Runs a shell with job control. `$CENOTE` is the command.
    fn shell(sandbox: &'a Sandbox) -> Terminal<'a> {
        let dir = sandbox.0.display();
        let names = format!("CENOTE_DIR='{dir}' CENOTE='{CENOTE}' PS1='ready> '");
        Terminal::start(sandbox, &format!("exec env {names} HISTFILE= bash --norc --noprofile -i"))
    }

    fn start(sandbox: &'a Sandbox, script: &str) -> Terminal<'a> {
        Terminal::start_wide(sandbox, "140", script)
    }

    fn start_wide(sandbox: &'a Sandbox, columns: &str, script: &str) -> Terminal<'a> {
        let terminal = Terminal { sandbox };
        let done = terminal.tmux(&["new-session", "-d", "-x", columns, "-y", "40", script]);
        assert_eq!(done.code, 0, "tmux is needed: {done:?}");
        terminal
    }

    /// Types a line.
    fn line(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.tmux(&["send-keys", "Enter"]);
    }

    /// Waits until a live view has the terminal, or has restored it.
    fn await_live_view(&self, live: bool) {
        let state = if live { "1 0" } else { "0 1" };
        eventually("the live view starts or ends", || {
            let query = ["display-message", "-p", "#{alternate_on} #{cursor_flag}"];
            self.tmux(&query).stdout.trim() == state
        });
    }

    fn tmux(&self, args: &[&str]) -> Finished {
        let socket = self.sandbox.path("tmux");
        Finished::of(Command::new("tmux").args(["-f", "/dev/null", "-S", &socket]).args(args))
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"]).stdout
    }

    /// The command that runs in the terminal: the child of the shell.
    fn pid(&self) -> Pid {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]).stdout;
        let shell = shell.trim();
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
        Pid::from_raw(children.unwrap().trim().parse().unwrap()).unwrap()
    }

    /// Waits until the command has ended with this exit code. Asserts that it has restored the terminal: the normal
    /// screen, a visible cursor, and echo.
    fn assert_ended(&self, code: i32) {
        self.await_words(&[&format!("exit code {code}")]);
        let state = self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]).stdout;
        assert_eq!(state.trim(), "0 1");
        self.tmux(&["send-keys", "typed"]);
        self.await_words(&["typed"]);
    }

    /// Waits until the screen contains all words.
    fn await_words(&self, words: &[&str]) {
        let mut screen = String::new();
        let seen = becomes_true(|| {
            screen = self.screen();
            words.iter().all(|word| screen.contains(word))
        });
        assert!(seen, "not after a minute: {words:?} on this screen:\n{screen}");
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn top_shows_topics_on_a_terminal_and_quits_with_q() {
    let sandbox = Sandbox::new();
    // 23 MB/s; still megabytes if the machine is slow.
    let camera = sandbox.publisher(&["camera.rgb", "--size", "320x240", "--rate", "100"]);
    let holder = sandbox.child("image holder");
    let terminal = Terminal::run(&sandbox, "top --interval 0.2");
    let pid = camera.pid().to_string();
    terminal.await_words(&[
        "cenote top",
        "camera.rgb",
        "Image",
        " Hz",
        "MB/s",
        " / ",
        "memory:",
        &pid,
    ]);
    terminal.await_words(&["; 1 leases", "GROWN"]);
    drop((camera, holder));
    eventually("the topic disappears", || !terminal.screen().contains("camera.rgb"));
    terminal.tmux(&["send-keys", "q"]);
    terminal.assert_ended(0);
    assert!(!terminal.screen().contains("cenote top"));
}

fn top_shows_rates_beside_a_struct_with_many_fields() {
    let sandbox = Sandbox::new();
    let _pose = sandbox.stepped_child("pose publisher");
    let dir = sandbox.0.display();
    let script = format!("env CENOTE_DIR='{dir}' '{CENOTE}' top --interval 0.1");
    let terminal = Terminal::start_wide(&sandbox, "100", &script);
    terminal.await_words(&["robot.pose", "Pose ", "0 Hz", "0 B/s", "BEHIND"]);
    assert!(!terminal.screen().contains("position"), "{}", terminal.screen());
}

fn top_refuses_a_dumb_terminal() {
    let sandbox = Sandbox::new();
    let dir = sandbox.0.display();
    let run = format!("env TERM=dumb CENOTE_DIR='{dir}' '{CENOTE}'");
    // `script` records every byte of the output, so control characters would be found.
    let script =
        format!("script -qec \"{run} top\" '{dir}/typed'; echo \"exit code $?\"; sleep 600");
    let terminal = Terminal::start(&sandbox, &script);
    terminal.await_words(&["TERM=dumb", "--json", "cenote topic hz"]);
    terminal.assert_ended(2);
    let typed = std::fs::read_to_string(sandbox.path("typed")).unwrap();
    assert!(typed.contains("TERM=dumb") && !typed.contains('\x1b'), "{typed}");
}

fn a_signal_ends_top_and_the_terminal_is_restored() {
    let sandbox = Sandbox::new();
    let _camera = sandbox.publisher(&["camera.rgb", "--size", "64x48", "--rate", "100"]);
    let terminal = Terminal::run(&sandbox, "top --interval 0.2");
    terminal.await_words(&["cenote top", "camera.rgb"]);
    rustix::process::kill_process(terminal.pid(), Signal::TERM).unwrap();
    terminal.assert_ended(143);
    assert!(!terminal.screen().contains("cenote top"));
}

fn suspended_top_releases_the_terminal_and_takes_it_back() {
    let sandbox = Sandbox::new();
    let _camera = sandbox.publisher(&["camera.rgb", "--size", "64x48", "--rate", "100"]);
    let terminal = Terminal::shell(&sandbox);
    terminal.await_words(&["ready>"]);
    // The next reading is seconds away, so the view after `fg` is the old one, drawn again.
    terminal.line("$CENOTE top --interval 3");
    terminal.await_words(&["cenote top", "camera.rgb"]);
    let pid = terminal.pid();
    let by_key = || drop(terminal.tmux(&["send-keys", "C-z"]));
    let by_signal = || rustix::process::kill_process(pid, Signal::TSTP).unwrap();
    for (stop, word) in [(&by_key as &dyn Fn(), "one"), (&by_signal, "two")] {
        stop();
        terminal.await_words(&["Stopped"]);
        terminal.await_live_view(false);
        assert!(!terminal.screen().contains("q quits"), "{}", terminal.screen());
        // The terminal echoes input, and the view does not draw over it.
        terminal.line(&format!("echo said-$((1))-{word}"));
        terminal.await_words(&[&format!("said-1-{word}")]);
        terminal.line("clear; fg");
        terminal.await_live_view(true);
        terminal.await_words(&["cenote top   q quits", "camera.rgb", "memory:"]);
    }
    // SIGSTOP cannot be caught, so the view restores nothing before it stops.
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    terminal.await_words(&["Stopped"]);
    terminal.line("fg");
    terminal.await_live_view(true);
    terminal.await_words(&["cenote top   q quits", "camera.rgb"]);
    eventually("the view has erased the text of the shell", || {
        !terminal.screen().contains("Stopped")
    });
    terminal.tmux(&["send-keys", "q"]);
    terminal.await_live_view(false);
    terminal.line("echo code-$?-$((1))");
    terminal.await_words(&["code-0-1"]);
}

/// Closes the terminal, and waits until the command has ended.
fn close(terminal: &Terminal<'_>) {
    let pid = terminal.pid();
    terminal.tmux(&["kill-server"]);
    eventually("the command ends", || rustix::process::test_kill_process(pid).is_err());
}

fn top_ends_when_its_terminal_closes() {
    let sandbox = Sandbox::new();
    let terminal = Terminal::run(&sandbox, "top --interval 0.1");
    terminal.await_words(&["cenote top"]);
    close(&terminal);
}

fn the_demo_ends_when_its_terminal_closes_and_leaves_nothing() {
    let sandbox = Sandbox::new();
    let terminal = Terminal::run(&sandbox, "demo --seconds 3600 --size 64x48");
    terminal.await_words(&["all processes are connected"]);
    close(&terminal);
    eventually("it leaves no files", || !sandbox.names().iter().any(|name| name != "tmux"));
}

fn top_shows_how_memory_grows() {
    let sandbox = Sandbox::new();
    let mut owner = sandbox.stepped_child("growing pool owner");
    let terminal = Terminal::run(&sandbox, "top --interval 0.1");
    terminal.await_words(&["growing", "+0 B", "grown by +0 B"]);
    owner.step();
    eventually("the view shows growth", || {
        let screen = terminal.screen();
        screen.contains("MB") && !screen.contains("grown by +0 B") && screen.contains("grown by +")
    });
}

fn the_demo_is_live_on_a_terminal_and_restores_it() {
    let sandbox = Sandbox::new();
    let terminal = Terminal::run(&sandbox, "demo --seconds 4 --size 320x180");
    terminal.await_words(&[
        "cenote demo",
        "camera",
        "projection",
        "events",
        "all processes are connected",
    ]);
    terminal.await_words(&["killed the slow process"]);
    terminal.await_words(&["no frame was corrupt", "LIVES", "0 B copied"]);
    terminal.assert_ended(0);
    assert!(!terminal.screen().contains("events"));
}

fn q_ends_the_demo_early_with_a_summary() {
    let sandbox = Sandbox::new();
    let terminal = Terminal::run(&sandbox, "demo --seconds 3600 --size 64x48");
    terminal.await_words(&["all processes are connected"]);
    terminal.tmux(&["send-keys", "q"]);
    terminal.await_words(&["no frame was corrupt", "LIVES"]);
    assert!(!terminal.screen().contains("killed"), "no process was killed yet");
    terminal.assert_ended(0);
    assert_eq!(sandbox.names(), ["tmux"], "it leaves no files");
}

fn ctrl_c_ends_the_demo_at_once() {
    let sandbox = Sandbox::new();
    let terminal = Terminal::run(&sandbox, "demo --seconds 3600 --size 64x48");
    terminal.await_words(&["all processes are connected"]);
    terminal.tmux(&["send-keys", "C-c"]);
    terminal.await_words(&["cenote: interrupted"]);
    terminal.assert_ended(130);
    assert!(!terminal.screen().contains("events"));
    assert_eq!(sandbox.names(), ["tmux"], "it leaves no files");
}

//! What moves on a terminal, in a terminal: tmux is one that can be asked what it shows.

use std::process::Command;

use rustix::process::{Pid, Signal};

use super::Test;
use crate::scene::{CENOTE, Done, Scene, eventually, happens};

pub(crate) const TESTS: &[Test] = &[
    ("top_shows_topics_on_a_terminal_and_ends_with_q", top),
    ("top_has_room_for_rates_beside_a_struct_of_many_fields", narrow),
    ("top_is_refused_where_a_terminal_shows_lines_and_nothing_else", dumb),
    ("top_that_is_ended_by_a_signal_leaves_the_terminal_as_it_was", top_ended),
    ("top_that_is_stopped_hands_the_terminal_over_and_takes_it_back", top_stopped),
    ("top_ends_with_its_terminal", top_left_alone),
    ("the_demo_ends_with_its_terminal_and_leaves_nothing", demo_left_alone),
    ("top_shows_how_memory_grows", growth),
    ("the_demo_is_live_on_a_terminal_and_leaves_it_as_it_was", demo),
    ("the_demo_ends_early_with_q_and_tells_what_there_is", demo_quit),
    ("the_demo_ends_at_once_with_ctrl_c", demo_interrupted),
];

/// A terminal in which one command runs.
struct Terminal<'a> {
    scene: &'a Scene,
}

impl<'a> Terminal<'a> {
    /// Runs a command, and then waits, so that what is left on the screen can be looked at.
    fn run(scene: &'a Scene, args: &str) -> Terminal<'a> {
        let dir = scene.0.display();
        Terminal::start(
            scene,
            &format!("env CENOTE_DIR='{dir}' '{CENOTE}' {args}; echo \"exit code $?\"; sleep 600"),
        )
    }

    /// A shell that stops jobs and has them go on; `$CENOTE` is the command.
    fn shell(scene: &'a Scene) -> Terminal<'a> {
        let dir = scene.0.display();
        let names = format!("CENOTE_DIR='{dir}' CENOTE='{CENOTE}' PS1='ready> '");
        Terminal::start(scene, &format!("exec env {names} HISTFILE= bash --norc --noprofile -i"))
    }

    fn start(scene: &'a Scene, script: &str) -> Terminal<'a> {
        Terminal::start_wide(scene, "140", script)
    }

    fn start_wide(scene: &'a Scene, columns: &str, script: &str) -> Terminal<'a> {
        let terminal = Terminal { scene };
        let done = terminal.tmux(&["new-session", "-d", "-x", columns, "-y", "40", script]);
        assert_eq!(done.code, 0, "tmux is needed: {done:?}");
        terminal
    }

    /// Types a line.
    fn line(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.tmux(&["send-keys", "Enter"]);
    }

    /// Whether it shows the screen of a command that has all of it, or what was there before.
    fn is_taken(&self, taken: bool) {
        let state = if taken { "1 0" } else { "0 1" };
        eventually("the screen is taken, or left", || {
            let ask = ["display-message", "-p", "#{alternate_on} #{cursor_flag}"];
            self.tmux(&ask).stdout.trim() == state
        });
    }

    fn tmux(&self, args: &[&str]) -> Done {
        let socket = self.scene.path("tmux");
        Done::of(Command::new("tmux").args(["-f", "/dev/null", "-S", &socket]).args(args))
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"]).stdout
    }

    /// The process that runs in it: the child of the shell.
    fn pid(&self) -> Pid {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]).stdout;
        let shell = shell.trim();
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
        Pid::from_raw(children.unwrap().trim().parse().unwrap()).unwrap()
    }

    /// Whether a command has ended with this code, and left the terminal as it was: the usual screen, a
    /// cursor, and lines that are echoed.
    fn ended(&self, code: i32) {
        self.shows(&[&format!("exit code {code}")]);
        let state = self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]).stdout;
        assert_eq!(state.trim(), "0 1");
        self.tmux(&["send-keys", "typed"]);
        self.shows(&["typed"]);
    }

    fn shows(&self, words: &[&str]) {
        let mut screen = String::new();
        let seen = happens(|| {
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

fn top() {
    let scene = Scene::new();
    // 23 MB/s, and some even if it is slow.
    let camera = scene.publisher(&["camera.rgb", "--size", "320x240", "--rate", "100"]);
    let holder = scene.role("holder");
    let terminal = Terminal::run(&scene, "top --interval 0.2");
    let pid = camera.pid().to_string();
    terminal.shows(&["cenote top", "camera.rgb", "Image", " Hz", "MB/s", " / ", "memory:", &pid]);
    terminal.shows(&["; 1 leases", "GROWN"]);
    drop((camera, holder));
    eventually("it is gone", || !terminal.screen().contains("camera.rgb"));
    terminal.tmux(&["send-keys", "q"]);
    terminal.ended(0);
    assert!(!terminal.screen().contains("cenote top"));
}

fn narrow() {
    let scene = Scene::new();
    let _pose = scene.told("pose publisher");
    let dir = scene.0.display();
    let script = format!("env CENOTE_DIR='{dir}' '{CENOTE}' top --interval 0.1");
    let terminal = Terminal::start_wide(&scene, "100", &script);
    terminal.shows(&["robot.pose", "Pose ", "0 Hz", "0 B/s", "BEHIND"]);
    assert!(!terminal.screen().contains("position"), "{}", terminal.screen());
}

fn dumb() {
    let scene = Scene::new();
    let dir = scene.0.display();
    let run = format!("env TERM=dumb CENOTE_DIR='{dir}' '{CENOTE}'");
    // What it writes is a file as well, in which anything would be seen.
    let script =
        format!("script -qec \"{run} top\" '{dir}/typed'; echo \"exit code $?\"; sleep 600");
    let terminal = Terminal::start(&scene, &script);
    terminal.shows(&["TERM=dumb", "--json", "cenote topic hz"]);
    terminal.ended(2);
    let typed = std::fs::read_to_string(scene.path("typed")).unwrap();
    assert!(typed.contains("TERM=dumb") && !typed.contains('\x1b'), "{typed}");
}

fn top_ended() {
    let scene = Scene::new();
    let _camera = scene.publisher(&["camera.rgb", "--size", "64x48", "--rate", "100"]);
    let terminal = Terminal::run(&scene, "top --interval 0.2");
    terminal.shows(&["cenote top", "camera.rgb"]);
    rustix::process::kill_process(terminal.pid(), Signal::TERM).unwrap();
    terminal.ended(143);
    assert!(!terminal.screen().contains("cenote top"));
}

fn top_stopped() {
    let scene = Scene::new();
    let _camera = scene.publisher(&["camera.rgb", "--size", "64x48", "--rate", "100"]);
    let terminal = Terminal::shell(&scene);
    terminal.shows(&["ready>"]);
    // A reading is far off: what it shows when it goes on is what it has shown.
    terminal.line("$CENOTE top --interval 3");
    terminal.shows(&["cenote top", "camera.rgb"]);
    let pid = terminal.pid();
    let by_key = || drop(terminal.tmux(&["send-keys", "C-z"]));
    let by_signal = || rustix::process::kill_process(pid, Signal::TSTP).unwrap();
    for (stop, word) in [(&by_key as &dyn Fn(), "one"), (&by_signal, "two")] {
        stop();
        terminal.shows(&["Stopped"]);
        terminal.is_taken(false);
        assert!(!terminal.screen().contains("q quits"), "{}", terminal.screen());
        // What is typed is echoed, and nothing is painted over it.
        terminal.line(&format!("echo said-$((1))-{word}"));
        terminal.shows(&[&format!("said-1-{word}")]);
        terminal.line("clear; fg");
        terminal.is_taken(true);
        terminal.shows(&["cenote top   q quits", "camera.rgb", "memory:"]);
    }
    // It cannot know before that it is stopped this way; the shell has the terminal then.
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    terminal.shows(&["Stopped"]);
    terminal.line("fg");
    terminal.is_taken(true);
    terminal.shows(&["cenote top   q quits", "camera.rgb"]);
    eventually("nothing of the shell is left", || !terminal.screen().contains("Stopped"));
    terminal.tmux(&["send-keys", "q"]);
    terminal.is_taken(false);
    terminal.line("echo code-$?-$((1))");
    terminal.shows(&["code-0-1"]);
}

/// Closes the terminal of a command, which ends.
fn close(terminal: &Terminal<'_>) {
    let pid = terminal.pid();
    terminal.tmux(&["kill-server"]);
    eventually("it has ended", || rustix::process::test_kill_process(pid).is_err());
}

fn top_left_alone() {
    let scene = Scene::new();
    let terminal = Terminal::run(&scene, "top --interval 0.1");
    terminal.shows(&["cenote top"]);
    close(&terminal);
}

fn demo_left_alone() {
    let scene = Scene::new();
    let terminal = Terminal::run(&scene, "demo --seconds 3600 --size 64x48");
    terminal.shows(&["all processes are connected"]);
    close(&terminal);
    eventually("it leaves nothing", || !scene.names().iter().any(|name| name != "tmux"));
}

fn growth() {
    let scene = Scene::new();
    let mut grower = scene.told("grower");
    let terminal = Terminal::run(&scene, "top --interval 0.1");
    terminal.shows(&["grower", "+0 B", "grown by +0 B"]);
    grower.tell();
    eventually("it is seen to grow", || {
        let screen = terminal.screen();
        screen.contains("MB") && !screen.contains("grown by +0 B") && screen.contains("grown by +")
    });
}

fn demo() {
    let scene = Scene::new();
    let terminal = Terminal::run(&scene, "demo --seconds 4 --size 320x180");
    terminal.shows(&[
        "cenote demo",
        "camera",
        "projection",
        "events",
        "all processes are connected",
    ]);
    terminal.shows(&["killed the slow process"]);
    terminal.shows(&["no frame was corrupt", "LIVES", "0 B copied"]);
    terminal.ended(0);
    assert!(!terminal.screen().contains("events"));
}

fn demo_quit() {
    let scene = Scene::new();
    let terminal = Terminal::run(&scene, "demo --seconds 3600 --size 64x48");
    terminal.shows(&["all processes are connected"]);
    terminal.tmux(&["send-keys", "q"]);
    terminal.shows(&["no frame was corrupt", "LIVES"]);
    assert!(!terminal.screen().contains("killed"), "no process was killed yet");
    terminal.ended(0);
    assert_eq!(scene.names(), ["tmux"], "it leaves nothing");
}

fn demo_interrupted() {
    let scene = Scene::new();
    let terminal = Terminal::run(&scene, "demo --seconds 3600 --size 64x48");
    terminal.shows(&["all processes are connected"]);
    terminal.tmux(&["send-keys", "C-c"]);
    terminal.shows(&["cenote: interrupted"]);
    terminal.ended(130);
    assert!(!terminal.screen().contains("events"));
    assert_eq!(scene.names(), ["tmux"], "it leaves nothing");
}

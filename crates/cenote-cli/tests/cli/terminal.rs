//! What moves on a terminal, in a terminal: tmux is one that can be asked what it shows.

use std::process::Command;

use super::Test;
use crate::scene::{CENOTE, Done, Scene, eventually};

pub(crate) const TESTS: &[Test] = &[
    ("top_shows_topics_on_a_terminal_and_ends_with_q", top),
    ("the_demo_is_live_on_a_terminal_and_leaves_it_as_it_was", demo),
];

/// A terminal in which one command runs.
struct Terminal<'a> {
    scene: &'a Scene,
}

impl<'a> Terminal<'a> {
    /// Runs a command, and then waits, so that what is left on the screen can be looked at.
    fn run(scene: &'a Scene, args: &str) -> Terminal<'a> {
        let terminal = Terminal { scene };
        let dir = scene.0.display();
        let script =
            format!("env CENOTE_DIR='{dir}' '{CENOTE}' {args}; echo \"exit code $?\"; sleep 600");
        let done = terminal.tmux(&["new-session", "-d", "-x", "140", "-y", "40", &script]);
        assert_eq!(done.code, 0, "tmux is needed: {done:?}");
        terminal
    }

    fn tmux(&self, args: &[&str]) -> Done {
        let socket = self.scene.path("tmux");
        Done::of(Command::new("tmux").args(["-f", "/dev/null", "-S", &socket]).args(args))
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"]).stdout
    }

    fn shows(&self, words: &[&str]) {
        eventually(&format!("{words:?} on the screen"), || {
            let screen = self.screen();
            words.iter().all(|word| screen.contains(word))
        });
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn top() {
    let scene = Scene::new();
    let camera = scene.publisher(&["camera.rgb", "--size", "64x48", "--rate", "100"]);
    let terminal = Terminal::run(&scene, "top --interval 0.2");
    let pid = camera.pid().to_string();
    terminal.shows(&["cenote top", "camera.rgb", "Image", " Hz", "MB/s", "memory:", &pid]);
    drop(camera);
    eventually("it is gone", || !terminal.screen().contains("camera.rgb"));
    terminal.tmux(&["send-keys", "q"]);
    terminal.shows(&["exit code 0"]);
    assert!(!terminal.screen().contains("cenote top"), "the terminal is as it was");
}

fn demo() {
    let scene = Scene::new();
    let terminal = Terminal::run(&scene, "demo --seconds 4 --size 320x180");
    terminal.shows(&["cenote demo", "camera", "projection", "what happened", "everybody is there"]);
    terminal.shows(&["killed the slow process"]);
    terminal.shows(&["no frame was corrupt", "exit code 0", "LIVES", "0 B copied"]);
}

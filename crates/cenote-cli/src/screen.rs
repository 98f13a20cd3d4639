//! The whole terminal, for commands that show things as they go on.

use std::io;
use std::mem::ManuallyDrop;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Sparkline};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::failure::{Failure, Outcome};
use crate::interrupt;
use crate::output::{Table, clean};
use crate::pause::{self, Pause};

/// The terminal, until it is dropped. It is the shell's while this program is stopped.
#[derive(Debug)]
pub(crate) struct Screen {
    /// It would write to standard error, and end the program, where that is a terminal that was closed.
    terminal: ManuallyDrop<DefaultTerminal>,
    pause: Pause,
    /// What is shown, under its title.
    shown: (String, Vec<Section>),
}

/// A part of what is shown.
#[derive(Debug, Clone)]
pub(crate) enum Section {
    /// The first line stands out.
    Text { lines: Vec<String> },
    /// How a number changed over time.
    Curve { title: String, values: Vec<u64> },
}

impl Section {
    pub(crate) fn table(table: &Table) -> Section {
        Section::Text { lines: table.lines().collect() }
    }

    pub(crate) fn lines(title: &str, lines: &[String]) -> Section {
        let title = std::iter::once(title.to_owned());
        Section::Text { lines: title.chain(lines.iter().map(|line| clean(line))).collect() }
    }

    /// How many lines it takes, one of them empty.
    fn height(&self) -> u16 {
        match self {
            Section::Text { lines } => u16::try_from(lines.len() + 1).unwrap_or(u16::MAX),
            Section::Curve { .. } => 5,
        }
    }
}

impl Screen {
    pub(crate) fn open() -> Outcome<Screen> {
        let pause = Pause::listen()?;
        let terminal = ratatui::try_init()
            .map_err(|error| Failure::Failed(format!("no terminal: {error}")))?;
        Ok(Screen { terminal: ManuallyDrop::new(terminal), pause, shown: Default::default() })
    }

    /// Shows all sections, one below the other, as far as there is room.
    pub(crate) fn draw(&mut self, title: &str, sections: &[Section]) -> Outcome {
        self.shown = (title.to_owned(), sections.to_vec());
        self.redraw()
    }

    fn redraw(&mut self) -> Outcome {
        let (title, sections) = &self.shown;
        self.terminal.draw(|frame| {
            let heights = sections.iter().map(|section| Constraint::Length(section.height()));
            let rows = std::iter::once(Constraint::Length(2)).chain(heights);
            let areas = Layout::vertical(rows.chain([Constraint::Fill(1)])).split(frame.area());
            frame.render_widget(heading(title), areas[0]);
            for (section, area) in sections.iter().zip(areas.iter().skip(1)) {
                render(section, frame, *area);
            }
        })?;
        Ok(())
    }

    /// Whether the user has pressed q or Escape. Ctrl-C is a failure, as it is elsewhere, and so is a
    /// terminal that was closed.
    ///
    /// Here it stops if it is to, by Ctrl-Z or a signal.
    pub(crate) fn is_quit(&mut self) -> Outcome<bool> {
        loop {
            check_open()?;
            self.pause()?;
            if !event::poll(Duration::ZERO)? {
                return Ok(false);
            }
            match event::read()? {
                Event::Key(key) if is_control(key, 'c') => return Err(interrupt::by_key()),
                Event::Key(key) if is_control(key, 'z') => pause::by_key()?,
                Event::Key(key) if is_quit(key) => return Ok(true),
                _ => {}
            }
        }
    }

    /// Stops if it is to, and takes the terminal back if it was stopped, by whatever.
    fn pause(&mut self) -> Outcome {
        if self.pause.is_asked() {
            self.leave();
            self.pause.stop()?;
        }
        if self.pause.is_over() {
            self.retake()?;
        }
        Ok(())
    }

    /// Takes the terminal back, and draws all of it anew.
    fn retake(&mut self) -> Outcome {
        // The shell may have set it otherwise, which only somebody would notice who did not think it is set.
        disable_raw_mode()?;
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, Clear(ClearType::All))?;
        self.terminal.hide_cursor()?;
        // Both are empty then: so is the screen. (To have it cleared would ask it where its cursor is.)
        self.terminal.swap_buffers();
        self.redraw()
    }

    /// Leaves the terminal as it was.
    fn leave(&mut self) {
        // A terminal that is gone is not there to be told of.
        let _ = self.terminal.show_cursor();
        let _ = ratatui::try_restore();
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A failure if the terminal was closed: whoever asks it for keys then never has an answer.
fn check_open() -> Outcome {
    let stdout = io::stdout();
    let mut looked = [PollFd::new(&stdout, PollFlags::empty())];
    poll(&mut looked, Some(&Timespec::default())).map_err(io::Error::from)?;
    match looked[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
        true => Err(interrupt::by_hang_up()),
        false => Ok(()),
    }
}

fn is_control(key: KeyEvent, letter: char) -> bool {
    let pressed = key.kind == KeyEventKind::Press;
    pressed && key.code == KeyCode::Char(letter) && key.modifiers == KeyModifiers::CONTROL
}

fn is_quit(key: KeyEvent) -> bool {
    let quit = matches!(key.code, KeyCode::Char('q') | KeyCode::Esc);
    key.kind == KeyEventKind::Press && quit
}

fn heading(title: &str) -> Paragraph<'_> {
    Paragraph::new(Line::from(vec![title.bold(), "   q ends it".dim()]))
}

fn render(section: &Section, frame: &mut ratatui::Frame<'_>, area: Rect) {
    match section {
        Section::Text { lines } => {
            let mut lines: Vec<Line<'_>> = lines.iter().map(|line| line.as_str().into()).collect();
            if let Some(head) = lines.first_mut() {
                *head = std::mem::take(head).bold().cyan();
            }
            frame.render_widget(Paragraph::new(lines), area);
        }
        Section::Curve { title, values } => {
            let [head, curve, _] = Layout::vertical([1, 3, 1].map(Constraint::Length)).areas(area);
            frame.render_widget(Line::from(title.as_str()).bold().cyan(), head);
            let newest = values.len().saturating_sub(curve.width.into());
            let curve_of = Sparkline::default().data(&values[newest..]);
            frame.render_widget(curve_of.style(Style::new().green()), curve);
        }
    }
}

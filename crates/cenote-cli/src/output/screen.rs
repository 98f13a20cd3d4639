//! The whole terminal, for commands with a live view.

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
use crate::output::Table;
use crate::process::interrupt;
use crate::process::job_control::{self, JobControl};
use crate::sanitize::sanitize;

/// The terminal, which this program owns until it drops this. While the program is suspended, the shell owns it.
#[derive(Debug)]
pub(crate) struct Screen {
    /// Never dropped: on a closed terminal, its destructor would print to standard error, which ends the program.
    terminal: ManuallyDrop<DefaultTerminal>,
    job_control: JobControl,
    /// The title and the sections, kept to redraw them.
    shown: (String, Vec<Section>),
}

/// A part of the screen.
#[derive(Debug, Clone)]
pub(crate) enum Section {
    /// Lines, the first of which is a heading.
    Text { lines: Vec<String> },
    /// A number over time.
    Curve { title: String, values: Vec<u64> },
}

impl Section {
    pub(crate) fn table(table: &Table) -> Section {
        Section::Text { lines: table.lines().collect() }
    }

    pub(crate) fn lines(title: &str, lines: &[String]) -> Section {
        let title = std::iter::once(title.to_owned());
        Section::Text { lines: title.chain(lines.iter().map(|line| sanitize(line))).collect() }
    }

    /// The number of lines, including an empty one at the end.
    fn height(&self) -> u16 {
        match self {
            Section::Text { lines } => u16::try_from(lines.len() + 1).unwrap_or(u16::MAX),
            Section::Curve { .. } => 5,
        }
    }
}

impl Screen {
    pub(crate) fn open() -> Outcome<Screen> {
        let job_control = JobControl::register()?;
        let terminal = ratatui::try_init()
            .map_err(|error| Failure::Failed(format!("no terminal: {error}")))?;
        Ok(Screen { terminal: ManuallyDrop::new(terminal), job_control, shown: Default::default() })
    }

    /// Shows the sections from top to bottom, as far as there is room.
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

    /// Whether the user pressed q or Escape.
    ///
    /// Suspends the program after Ctrl-Z or SIGTSTP. Returns an error after Ctrl-C, or if the terminal was closed.
    pub(crate) fn is_quit(&mut self) -> Outcome<bool> {
        loop {
            check_open()?;
            self.suspend_if_requested()?;
            if !event::poll(Duration::ZERO)? {
                return Ok(false);
            }
            match event::read()? {
                Event::Key(key) if is_control(key, 'c') => return Err(interrupt::by_ctrl_c()),
                Event::Key(key) if is_control(key, 'z') => job_control::suspend_group()?,
                Event::Key(key) if is_quit(key) => return Ok(true),
                _ => {}
            }
        }
    }

    /// Restores the terminal and suspends the program if a signal requested that. Takes the terminal back once
    /// the program continues, even if SIGSTOP, which cannot be caught, suspended it.
    fn suspend_if_requested(&mut self) -> Outcome {
        if self.job_control.suspend_requested() {
            self.restore();
            self.job_control.suspend()?;
        }
        if self.job_control.has_continued() {
            self.take_back()?;
        }
        Ok(())
    }

    /// Takes the terminal back from the shell, and draws everything again.
    fn take_back(&mut self) -> Outcome {
        // The shell may have left raw mode. `enable_raw_mode` does nothing while crossterm believes that it is on,
        // as it does after SIGSTOP.
        disable_raw_mode()?;
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, Clear(ClearType::All))?;
        self.terminal.hide_cursor()?;
        // Empties the buffer of the last frame; the other one is empty already. So the next draw assumes an
        // empty screen. (`Terminal::clear` would query the position of the cursor.)
        self.terminal.swap_buffers();
        self.redraw()
    }

    /// Restores the terminal to its state before [`Screen::open`].
    fn restore(&mut self) {
        // Fails if the terminal was closed, and then there is nothing to restore.
        let _ = self.terminal.show_cursor();
        let _ = ratatui::try_restore();
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Returns an error if the terminal was closed: reading a key from it would never return.
fn check_open() -> Outcome {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec::default())).map_err(io::Error::from)?;
    match polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
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
    Paragraph::new(Line::from(vec![title.bold(), "   q quits".dim()]))
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
            let sparkline = Sparkline::default().data(&values[newest..]);
            frame.render_widget(sparkline.style(Style::new().green()), curve);
        }
    }
}

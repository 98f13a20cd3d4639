//! Shows the demo while it runs: a live view on a terminal, otherwise one line for each event.

use std::time::Duration;

use crate::commands::demo::process::DemoProcess;
use crate::commands::demo::report::Report;
use crate::failure::Outcome;
use crate::measure::percentiles::Percentiles;
use crate::output::screen::{Screen, Section};
use crate::output::unit;
use crate::output::{Output, Table};

/// The live view, the lines, or neither with `--json`.
pub(crate) struct View {
    screen: Option<Screen>,
    /// Prints events, if there is no screen.
    lines: Option<Output>,
    hint: String,
}

impl View {
    pub(crate) fn new(output: &Output, namespace: &str) -> Outcome<View> {
        let live = output.is_live() && !output.is_dumb();
        let screen = if live { Some(Screen::open()?) } else { None };
        let lines = (screen.is_none() && !output.is_json()).then_some(*output);
        let hint = format!(
            "CENOTE_NAMESPACE={namespace} cenote top   shows the topics and pools of this demo"
        );
        Ok(View { screen, lines, hint })
    }

    /// Updates the live view. Returns whether the user pressed q.
    pub(crate) fn show(
        &mut self,
        processes: &[DemoProcess],
        events: &[String],
        time: Duration,
    ) -> Outcome<bool> {
        let Some(screen) = &mut self.screen else { return Ok(false) };
        let sections = [
            Section::table(&table(processes)),
            Section::lines("events", events),
            Section::lines("", std::slice::from_ref(&self.hint)),
        ];
        let reserved = processes.iter().map(|process| process.report.bytes_reserved).sum();
        let (time, reserved) = (time.as_secs_f64(), unit::bytes(reserved));
        let title = format!("cenote demo, {time:.1} s, {reserved} of shared memory");
        screen.draw(&title, &sections)?;
        screen.is_quit()
    }

    /// Prints the last event, if there is no live view.
    pub(crate) fn event(&self, events: &[String]) -> Outcome {
        match (events.last(), self.lines) {
            (Some(event), Some(output)) => output.line(event),
            _ => Ok(()),
        }
    }

    /// Restores the terminal.
    pub(crate) fn close(&mut self) {
        self.screen = None;
    }
}

fn table(processes: &[DemoProcess]) -> Table {
    let heads = [
        "PROCESS",
        ">PID",
        ">RATE",
        ">LATENCY p50 / p99",
        ">MOVED",
        ">COPIED",
        ">MISSED",
        ">HOLDS",
    ];
    let mut table = Table::new(&heads);
    for process in processes {
        let report = &process.report;
        table.row([
            process.role.to_string(),
            if process.child.is_some() { process.pid.to_string() } else { "killed".to_owned() },
            unit::rate(report.hz),
            Percentiles::show(report.latency.as_ref()),
            unit::bytes(process.total(|report| report.bytes_moved)),
            unit::bytes(process.total(|report| report.bytes_copied)),
            process.total(|report| report.missed).to_string(),
            held(processes.iter().map(|process| &process.report), process.pid),
        ]);
    }
    table
}

/// The number of frames that a process holds, or held when it was killed, as the camera reports it; `-` while
/// there is no camera.
fn held<'a>(reports: impl Iterator<Item = &'a Report> + Clone, pid: u32) -> String {
    if reports.clone().all(|report| report.bytes_reserved == 0) {
        return "-".to_owned();
    }
    let leases = reports.flat_map(|report| &report.leases);
    let leases = leases.filter(|lease| lease.pid == pid.cast_signed());
    leases.map(|lease| lease.slots).sum::<usize>().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::demo::report::Lease;

    #[test]
    fn frames_of_a_killed_process_are_shown_until_they_are_reclaimed() {
        let mut camera = Report {
            bytes_reserved: 4096,
            leases: vec![Lease { pid: 7, slots: 4 }, Lease { pid: 8, slots: 1 }],
            ..Report::default()
        };
        let shown = |camera: &Report| held([camera, &Report::default()].into_iter(), 7);
        assert_eq!(shown(&camera), "4", "the camera has not reclaimed them yet");
        camera.leases.remove(0);
        assert_eq!(shown(&camera), "0");
        assert_eq!(shown(&Report::default()), "-", "there is no camera");
    }
}

//! The demo as it goes on: on a terminal a live view, else a line for each event.

use std::time::Duration;

use crate::demo::play::Actor;
use crate::demo::report::Report;
use crate::failure::Outcome;
use crate::output::{Output, Table};
use crate::percentile::Percentiles;
use crate::screen::{Screen, Section};
use crate::unit;

/// Where it is shown.
pub(crate) struct View {
    screen: Option<Screen>,
    /// Lines are printed instead.
    lines: Option<Output>,
    hint: String,
}

impl View {
    pub(crate) fn new(output: &Output, namespace: &str) -> Outcome<View> {
        let live = output.is_live() && !output.is_dumb();
        let screen = if live { Some(Screen::open()?) } else { None };
        let lines = (screen.is_none() && !output.is_json()).then_some(*output);
        let hint = format!("CENOTE_NAMESPACE={namespace} cenote top   shows the same from outside");
        Ok(View { screen, lines, hint })
    }

    /// Shows how it is going; whether the user wants it to end.
    pub(crate) fn show(
        &mut self,
        actors: &[Actor],
        events: &[String],
        time: Duration,
    ) -> Outcome<bool> {
        let Some(screen) = &mut self.screen else { return Ok(false) };
        let sections = [
            Section::table(&processes(actors)),
            Section::lines("what happened", events),
            Section::lines("", std::slice::from_ref(&self.hint)),
        ];
        let reserved = actors.iter().map(|actor| actor.now.bytes_reserved).sum();
        let (time, reserved) = (time.as_secs_f64(), unit::bytes(reserved));
        let title = format!("cenote demo, {time:.1} s, {reserved} of shared memory");
        screen.draw(&title, &sections)?;
        screen.is_quit()
    }

    /// Something happened: the last event.
    pub(crate) fn event(&self, events: &[String]) -> Outcome {
        match (events.last(), self.lines) {
            (Some(event), Some(output)) => output.line(event),
            _ => Ok(()),
        }
    }

    /// Leaves the terminal as it was.
    pub(crate) fn close(&mut self) {
        self.screen = None;
    }
}

fn processes(actors: &[Actor]) -> Table {
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
    for actor in actors {
        let now = &actor.now;
        table.row([
            actor.role.to_string(),
            if actor.child.is_some() { actor.pid.to_string() } else { "killed".to_owned() },
            unit::rate(now.hz),
            Percentiles::show(now.latency.as_ref()),
            unit::bytes(actor.total(|report| report.bytes_moved)),
            unit::bytes(actor.total(|report| report.bytes_copied)),
            actor.total(|report| report.missed).to_string(),
            held(actors.iter().map(|actor| &actor.now), actor.pid),
        ]);
    }
    table
}

/// How many frames a process holds, or held when it was killed, as the camera sees it; unknown while there is
/// no camera.
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
    use crate::demo::report::Lease;

    #[test]
    fn what_the_killed_hold_is_shown_until_it_is_back() {
        let mut camera = Report {
            bytes_reserved: 4096,
            leases: vec![Lease { pid: 7, slots: 4 }, Lease { pid: 8, slots: 1 }],
            ..Report::default()
        };
        let shown = |camera: &Report| held([camera, &Report::default()].into_iter(), 7);
        assert_eq!(shown(&camera), "4", "the camera has not noticed yet");
        camera.leases.remove(0);
        assert_eq!(shown(&camera), "0");
        assert_eq!(shown(&Report::default()), "-", "there is no camera to tell");
    }
}

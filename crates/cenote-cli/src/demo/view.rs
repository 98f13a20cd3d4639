//! The demo as it goes on: on a terminal a live view, else a line for each event.

use std::time::Duration;

use crate::demo::play::Actor;
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
        let screen = if output.is_live() { Some(Screen::open()?) } else { None };
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
            actor.pid().map_or("killed".to_owned(), |pid| pid.to_string()),
            unit::rate(now.hz),
            Percentiles::show(now.latency.as_ref()),
            unit::bytes(actor.total(|report| report.bytes_moved)),
            unit::bytes(actor.total(|report| report.bytes_copied)),
            actor.total(|report| report.missed).to_string(),
            held(actors, actor),
        ]);
    }
    table
}

/// How many frames a process holds, as the camera sees it.
fn held(actors: &[Actor], of: &Actor) -> String {
    let leases = actors.iter().flat_map(|actor| &actor.now.leases);
    let pid = of.pid().map(u32::cast_signed);
    let held: usize = leases.filter(|lease| Some(lease.pid) == pid).map(|lease| lease.slots).sum();
    held.to_string()
}

//! `cenote bench`

mod measure;
mod mirror;

use serde::{Deserialize, Serialize};

use crate::children::{Child, Parent};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::namespace::Namespace;
use crate::output::{Output, Page, Report, Table};
use crate::pattern::Size;
use crate::percentile::Percentiles;
use crate::unit;

use clap::ValueEnum;

/// What it costs on this machine to share a frame: a short benchmark
///
/// Two processes send a frame back and forth. It takes a few seconds, and what else runs on the machine
/// shows in the numbers. What takes nanoseconds is timed a hundred at once. `scripts/compare` measures more, and beside others.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long it takes, roughly
    #[arg(short, long, default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,

    /// The size of the frame, in RGB
    #[arg(long, default_value = "1080p")]
    size: Size,

    /// One of the processes; the command starts them itself
    #[arg(long, hide = true)]
    role: Option<Role>,
}

fn seconds(given: &str) -> Result<f64, String> {
    unit::within(0.5..=600.0, given)
}

/// What a process does.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Role {
    /// Takes the measurements.
    Measure,
    /// Sends back what it receives.
    Mirror,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Measure => "measure",
            Role::Mirror => "mirror",
        }
    }
}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        match self.role {
            Some(Role::Mirror) => mirror::run(&Parent::listen(), self.size),
            Some(Role::Measure) => {
                let parent = Parent::listen();
                parent.tell(&measure::run(self.seconds, self.size)?)
            }
            None => output.report(&self.measure()?),
        }
    }

    fn measure(&self) -> Outcome<Measured> {
        let interrupt = Interrupt::listen()?;
        let namespace = Namespace::new("bench")?;
        let mut mirror: Child<()> = Child::start(&namespace, &self.args(Role::Mirror))?;
        let mut measure: Child<Measured> = Child::start(&namespace, &self.args(Role::Measure))?;
        let ended = measure.wait(&interrupt);
        // Whoever interrupts from the keyboard interrupts them as well.
        interrupt.check()?;
        ended?;
        let measured = measure.last_reports().last();
        mirror.finish()?;
        measured.ok_or_else(|| Failure::Failed("nothing was measured".to_owned()))
    }

    fn args(&self, role: Role) -> [String; 7] {
        let (seconds, size) = (self.seconds.to_string(), self.size.to_string());
        ["bench", "--role", role.name(), "--seconds", &seconds, "--size", &size].map(str::to_owned)
    }
}

/// What was measured.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    size: String,
    frame_bytes: u64,
    results: Vec<Measurement>,
}

/// How long one thing takes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Measurement {
    what: String,
    times: u64,
    time: Percentiles,
}

impl Report for Measured {
    fn write(&self, page: &mut Page) {
        page.line(format!("a frame of {} RGB, {}", self.size, unit::bytes(self.frame_bytes)));
        let mut table = Table::new(&["WHAT", ">TIMES", ">p50 / p99"]);
        for Measurement { what, times, time } in &self.results {
            table.row([what.clone(), times.to_string(), Percentiles::show(Some(time))]);
        }
        page.table(&table, "nothing was measured");
    }
}

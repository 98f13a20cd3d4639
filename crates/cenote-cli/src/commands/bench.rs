//! `cenote bench`

mod measure;
mod measurement;
mod mirror;

use clap::ValueEnum;

use crate::argument;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::process::child::{Child, Parent};
use crate::process::interrupt::Interrupt;
use crate::process::temporary_namespace::TemporaryNamespace;
use crate::test_pattern::Size;

use measurement::Measured;

/// Measure what sharing a frame costs on this machine
///
/// Two processes send frames back and forth for a few seconds. Other load on the machine affects the numbers.
/// Operations of nanoseconds are timed in batches of 100. `scripts/compare` measures more, and compares with other
/// libraries.
///
/// Example: cenote bench --size 4k
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The approximate duration in seconds
    #[arg(short, long, default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,

    /// The size of the RGB frame: WIDTHxHEIGHT, 480p, 720p, 1080p or 4k
    #[arg(long, default_value = "1080p")]
    size: Size,

    /// The role of a child process; only this command sets it
    #[arg(long, hide = true)]
    role: Option<Role>,
}

fn seconds(given: &str) -> Result<f64, String> {
    argument::number_within(0.5..=600.0, given)
}

/// The role of a child process.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Role {
    /// Takes the measurements.
    Measure,
    /// Sends a frame back for each that it receives.
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
            Some(Role::Mirror) => mirror::run(&Parent::connect(), self.size),
            Some(Role::Measure) => {
                let parent = Parent::connect();
                parent.send(&measure::run(self.seconds, self.size)?)
            }
            None => output.report(&self.measure()?),
        }
    }

    fn measure(&self) -> Outcome<Measured> {
        let interrupt = Interrupt::register()?;
        let namespace = TemporaryNamespace::new("bench")?;
        let mut mirror: Child<()> = Child::start(&namespace, &self.args(Role::Mirror))?;
        let mut measure: Child<Measured> = Child::start(&namespace, &self.args(Role::Measure))?;
        let ended = measure.wait(&interrupt);
        // Ctrl-C interrupts the children, too, so their failure is not the cause.
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

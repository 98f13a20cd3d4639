//! The run: selected stages one after another, each in a process group with a time limit and a log.

mod arguments;
mod build_ahead;
mod log;
pub(crate) mod process;
mod run;
mod summary;

use std::env;
use std::process::ExitCode;

use crate::checkout::Checkout;
use crate::command::LEAN_BUILD;
use crate::failure::Failure;
use crate::stage::{StageContext, StageStep};
use crate::stages::STAGES;
use arguments::{Order, Selection};

/// The exit code by which a stage says that this machine lacks what it needs.
const UNAVAILABLE: u8 = 77;

pub(crate) fn main(arguments: &[String]) -> ExitCode {
    or_report(try_main(arguments))
}

/// Lowers the lists of exceptions of `tidy` to what there is.
pub(crate) fn shrink() -> ExitCode {
    let done = Checkout::here().and_then(|checkout| crate::tidy::shrink(&checkout));
    or_report(done.map(|()| ExitCode::SUCCESS))
}

fn or_report(result: Result<ExitCode, Failure>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn try_main(arguments: &[String]) -> Result<ExitCode, Failure> {
    let skip = env::var("CENOTE_TEST_SKIP").unwrap_or_default();
    let is_ci = env::var("CI").is_ok_and(|value| value == "true");
    match arguments::parse(arguments, &skip, is_ci).map_err(Failure::new)? {
        Order::List => {
            for stage in STAGES {
                println!("{:<10} {}", stage.name, stage.about);
            }
            Ok(ExitCode::SUCCESS)
        }
        Order::Run(selection) => run_all(&selection),
        Order::InStage(stage) => {
            let checkout = Checkout::here()?;
            let notes = Some(checkout.notes(stage.name));
            Ok(in_stage(&StageContext { checkout, notes }, stage.run))
        }
        Order::BuildOne(stage) => {
            let context = StageContext { checkout: Checkout::here()?, notes: None };
            Ok(stage.build_ahead.map_or(ExitCode::SUCCESS, |build| in_stage(&context, build)))
        }
        Order::BuildAhead(stages) => build_ahead::build(&Checkout::here()?, &stages),
    }
}

fn run_all(selection: &Selection) -> Result<ExitCode, Failure> {
    let mut variables = vec![
        ("CARGO_TERM_COLOR", "never"),
        // A failure says where it is; backtraces would bury what other tests print.
        ("RUST_BACKTRACE", "0"),
    ];
    if selection.is_ci {
        variables.extend(LEAN_BUILD);
    }
    run::Run::new(Checkout::here()?, variables).stages(selection)
}

/// Runs a stage in this process, and turns its result into an exit code.
fn in_stage(context: &StageContext, run: StageStep) -> ExitCode {
    match run(context) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure @ Failure::Unavailable(_)) => {
            context.note(&failure.to_string());
            ExitCode::from(UNAVAILABLE)
        }
        Err(failure @ Failure::Failed(_)) => {
            println!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

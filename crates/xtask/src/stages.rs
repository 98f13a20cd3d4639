//! All stages, in the order in which they run. To add one: a file here with a `STAGE`, a line in
//! `STAGES`, and a line in `.github/workflows/ci.yml`.

mod aarch64;
mod asan;
mod cli;
mod compare;
mod core;
mod cross;
mod examples;
mod kill;
mod lint;
mod loom;
mod miri;
mod python;
mod tidy;
mod vm;

use crate::stage::Stage;

pub(crate) use miri::MODULES as MIRI_MODULES;

pub(crate) use lint::core_features;

pub(crate) const STAGES: &[Stage] = &[
    tidy::STAGE,
    lint::FMT,
    lint::CLIPPY,
    lint::DOC,
    core::TEST,
    core::GL,
    kill::STAGE,
    examples::STAGE,
    cli::STAGE,
    compare::STAGE,
    python::STAGE,
    asan::STAGE,
    loom::STAGE,
    miri::STAGE,
    aarch64::STAGE,
    vm::STAGE,
    cross::STAGE,
];

pub(crate) fn find(name: &str) -> Option<&'static Stage> {
    STAGES.iter().find(|stage| stage.name == name)
}

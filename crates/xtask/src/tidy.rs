//! The rules of the repository. They are checked on its files, without building anything.
//!
//! A check is a function from texts to findings, so its unit tests show it failing on bad input.
//! Rules that the code does not keep everywhere yet have a list of exceptions, which may only shrink.

mod architecture;
mod ci_file;
mod dependencies;
mod docs;
mod exceptions;
mod files;
mod finding;
mod forbidden_text;
mod imports;
mod miri_modules;
mod plain_words;
mod shell;

use crate::checkout::Checkout;
use crate::failure::Failure;
use crate::stage::StageContext;
use exceptions::Measured;
use files::Files;
use finding::Finding;

/// Runs every check. Fails if one of them found something.
pub(crate) fn check(context: &StageContext) -> Result<(), Failure> {
    let checkout = &context.checkout;
    let files = Files::of(checkout)?;
    let checks = [
        ("forbidden text", forbidden_text::check(&files)),
        ("pages", docs::check_pages(&files, &checkout.root)),
        ("shell scripts", shell::check(&files)),
        ("dependencies", dependencies::check(checkout, &files)),
        ("links", docs::check_links(&files)),
        ("book", docs::check_book(&files)),
        ("named files", docs::check_named_files(&files)),
        ("unsafe files", architecture::check_unsafe_files(&files)),
        ("rooms", architecture::check_layers(&files)),
        ("CI file", ci_file::check(&files)),
        ("modules of the miri stage", miri_modules::check(&files)),
        ("plain words", plain_words::check(&files)),
    ];
    let lists = architecture::measured(&files);
    let lists = lists.iter().map(|measured| (measured.list, measured.compare(&files)));
    let checks: Vec<_> = checks.into_iter().chain(lists).collect();
    let broken = checks.iter().filter(|(name, findings)| !report(name, findings)).count();
    for finding in docs::long_files(&files) {
        context.note(&format!("warning: {finding}"));
    }
    match broken {
        0 => Ok(()),
        count => Err(Failure::new(format!("{count} rules of the repository are broken"))),
    }
}

/// Lowers every list of exceptions to what there is.
pub(crate) fn shrink(checkout: &Checkout) -> Result<(), Failure> {
    let files = Files::of(checkout)?;
    measured(&files).iter().try_for_each(|measured| measured.shrink(checkout))
}

/// What is counted for each list of exceptions.
fn measured(files: &Files) -> Vec<Measured> {
    let mut measured = architecture::measured(files);
    measured.push(plain_words::measure(files));
    measured
}

/// Prints the findings of a check. Returns whether there are none.
fn report(check: &str, findings: &[Finding]) -> bool {
    println!("== {check}: {} findings", findings.len());
    for finding in findings {
        println!("error: {finding}");
    }
    findings.is_empty()
}

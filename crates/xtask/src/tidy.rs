//! The rules of the repository. They are checked on its files, without building anything.
//!
//! A check is a function from texts to findings, so its unit tests show it failing on bad input.
//! Rules that the code does not keep everywhere yet have a list of exceptions, which may only shrink.

mod architecture;
mod book;
mod ci_file;
mod dependencies;
mod exceptions;
mod finding;
mod forbidden_text;
mod links;
mod markdown;
mod miri_modules;
mod pages;
mod plain_words;
mod shell;

use std::collections::BTreeMap;

use crate::checkout::Checkout;
use crate::failure::Failure;
use crate::stage::StageContext;
use exceptions::Measured;
use finding::Finding;

/// The text files of the checkout, by path.
pub(crate) struct Files {
    texts: BTreeMap<String, String>,
}

impl Files {
    /// All files that git has or would add, except binary ones.
    fn of(checkout: &Checkout) -> Result<Files, Failure> {
        let mut texts = BTreeMap::new();
        for file in checkout.files()? {
            let bytes = std::fs::read(checkout.root.join(&file))?;
            if !bytes.contains(&0) {
                texts.insert(file, String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        Ok(Files { texts })
    }

    /// For unit tests.
    #[cfg(test)]
    fn from(texts: &[(&str, &str)]) -> Files {
        let texts = texts.iter().map(|(path, text)| (path.to_string(), text.to_string()));
        Files { texts: texts.collect() }
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    fn get(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Files in a folder such as `guide/`, at any depth, whose names end like this.
    fn under(&self, folder: &str, ending: &str) -> impl Iterator<Item = (&str, &str)> {
        self.iter().filter(move |(path, _)| path.starts_with(folder) && path.ends_with(ending))
    }

    fn paths(&self) -> impl Iterator<Item = &str> {
        self.texts.keys().map(String::as_str)
    }
}

/// Runs every check. Fails if one of them found something.
pub(crate) fn check(context: &StageContext) -> Result<(), Failure> {
    let checkout = &context.checkout;
    let files = Files::of(checkout)?;
    let checks = [
        ("forbidden text", forbidden_text::check(&files)),
        ("pages", pages::check(&files, &checkout.root)),
        ("shell scripts", shell::check(&files)),
        ("dependencies", dependencies::check(checkout, &files)),
        ("links", links::check(&files)),
        ("book", book::check(&files)),
        ("CI file", ci_file::check(&files)),
        ("modules of the miri stage", miri_modules::check(&files)),
        ("plain words", plain_words::check(&files)),
    ];
    let lists = architecture::measured(&files);
    let lists = lists.iter().map(|measured| (measured.list, measured.compare(&files)));
    let checks: Vec<_> = checks.into_iter().chain(lists).collect();
    let broken = checks.iter().filter(|(name, findings)| !report(name, findings)).count();
    for finding in pages::long_files(&files) {
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

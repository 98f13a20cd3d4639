//! The files that the rules are about.

use std::collections::BTreeMap;

use crate::checkout::Checkout;
use crate::failure::Failure;

/// The text files of the checkout, by path.
pub(crate) struct Files {
    texts: BTreeMap<String, String>,
}

impl Files {
    /// All files that git has or would add, except binary ones.
    pub(crate) fn of(checkout: &Checkout) -> Result<Files, Failure> {
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
    pub(crate) fn from(texts: &[(&str, &str)]) -> Files {
        let texts = texts.iter().map(|(path, text)| (path.to_string(), text.to_string()));
        Files { texts: texts.collect() }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    pub(crate) fn get(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Files in a folder such as `guide/`, at any depth, whose names end like this.
    pub(crate) fn under(&self, folder: &str, ending: &str) -> impl Iterator<Item = (&str, &str)> {
        self.iter().filter(move |(path, _)| path.starts_with(folder) && path.ends_with(ending))
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.texts.keys().map(String::as_str)
    }
}

//! The name of a topic.

use std::fmt;

use crate::error::{Error, Result};

/// The longest name. It leaves room for a suffix in a file name.
const MAX: usize = 128;

/// The name of a topic: parts of letters, digits, dashes and underscores, with dots between them.
///
/// `/camera/rgb` and `camera.rgb` are the same name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TopicName(String);

impl TopicName {
    /// Checks a name, and brings it into the form with dots.
    pub(crate) fn new(given: &str) -> Result<TopicName> {
        let refuse = |rule| Err(Error::BadName { given: given.into(), rule });
        let name = given.strip_prefix('/').unwrap_or(given).replace('/', ".");
        if name.is_empty() || name.len() > MAX {
            return refuse("a topic's name has 1 to 128 characters");
        }
        if name.split('.').any(str::is_empty) {
            return refuse("the parts of a topic's name, between dots or slashes, are not empty");
        }
        if name.split('.').any(|part| part.starts_with('-')) {
            return refuse("no part of a topic's name starts with a dash");
        }
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
            return refuse(
                "a topic's name has letters, digits, dashes, underscores, dots or slashes",
            );
        }
        Ok(TopicName(name))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The directory of its publishers, below that of the namespace.
    pub(crate) fn directory(&self) -> String {
        format!("topics/{}", self.0)
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_and_dots_make_the_same_name() {
        for name in
            ["camera.front.rgb", "/camera/front/rgb", "camera/front/rgb", "camera/front.rgb"]
        {
            assert_eq!(TopicName::new(name).unwrap().as_str(), "camera.front.rgb");
        }
    }

    #[test]
    fn names_that_are_no_file_names_are_refused() {
        let long = "x".repeat(129);
        for name in [
            "", "/", ".", "..", "a..b", "a//b", "a.", "/a/", "a b", "a@b", "-a", "a.-b", "é", &long,
        ] {
            assert!(TopicName::new(name).is_err(), "{name:?}");
        }
    }
}

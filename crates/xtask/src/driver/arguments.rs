//! The command line, and the variable that leaves stages out.

use crate::stage::Stage;
use crate::stages::{STAGES, find};

/// What this process is started for.
pub(super) enum Order {
    List,
    Run(Selection),
    /// How the run starts a stage.
    InStage(&'static Stage),
    /// How the run builds for stages that come later.
    BuildAhead(Vec<&'static Stage>),
    /// How that builds for one stage.
    BuildOne(&'static Stage),
}

pub(super) struct Selection {
    /// In the order in which they run.
    pub(super) stages: Vec<&'static Stage>,
    pub(super) skipped: Vec<&'static str>,
    pub(super) is_ci: bool,
}

impl Selection {
    pub(super) fn is_skipped(&self, stage: &Stage) -> bool {
        self.skipped.contains(&stage.name)
    }

    /// Stages to build for while the first one runs.
    pub(super) fn to_build_ahead(&self) -> Vec<&'static str> {
        let later = self.stages.iter().skip(1);
        let later = later.filter(|stage| stage.build_ahead.is_some() && !self.is_skipped(stage));
        later.map(|stage| stage.name).collect()
    }
}

/// `skip` is the value of `CENOTE_TEST_SKIP`: names of stages, separated by spaces.
pub(super) fn parse(arguments: &[String], skip: &str, is_ci: bool) -> Result<Order, String> {
    let stage =
        |name: &str| find(name).ok_or(format!("no stage '{name}': see scripts/test --list"));
    let all =
        |names: &[String]| names.iter().map(|name| stage(name)).collect::<Result<Vec<_>, _>>();
    match arguments {
        [option] if option == "--list" => Ok(Order::List),
        [option, name] if option == "--in-stage" => Ok(Order::InStage(stage(name)?)),
        [option, name] if option == "--build" => Ok(Order::BuildOne(stage(name)?)),
        [option, names @ ..] if option == "--build-ahead" => Ok(Order::BuildAhead(all(names)?)),
        names => {
            let mut stages = all(names)?;
            if stages.is_empty() {
                stages = STAGES.iter().collect();
            }
            let skipped = skip.split_whitespace().map(|name| stage(name).map(|stage| stage.name));
            let skipped = skipped.collect::<Result<Vec<_>, _>>()?;
            if is_ci && !skipped.is_empty() {
                return Err("CENOTE_TEST_SKIP is set, but CI skips no stage".into());
            }
            Ok(Order::Run(Selection { stages, skipped, is_ci }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(arguments: &[&str], skip: &str, is_ci: bool) -> Result<Selection, String> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        match parse(&arguments, skip, is_ci)? {
            Order::Run(selection) => Ok(selection),
            _ => panic!("not a run"),
        }
    }

    fn names(selection: &Selection) -> Vec<&str> {
        selection.stages.iter().map(|stage| stage.name).collect()
    }

    #[test]
    fn no_argument_means_every_stage() {
        let selected = selection(&[], "", false).unwrap();
        assert_eq!(selected.stages.len(), STAGES.len());
        assert_eq!(names(&selected)[..2], ["tidy", "fmt"]);
    }

    #[test]
    fn stages_run_in_the_order_given() {
        assert_eq!(names(&selection(&["loom", "fmt"], "", true).unwrap()), ["loom", "fmt"]);
    }

    #[test]
    fn unknown_names_are_errors() {
        let error = selection(&["lom"], "", false).err();
        assert_eq!(error.as_deref(), Some("no stage 'lom': see scripts/test --list"));
        assert!(selection(&[], "lom", false).is_err());
        assert!(selection(&["--quick"], "", false).is_err());
    }

    #[test]
    fn a_laptop_may_skip_stages_and_ci_may_not() {
        let selected = selection(&["fmt", "vm", "asan"], "vm  asan", false).unwrap();
        assert_eq!(selected.skipped, ["vm", "asan"]);
        assert!(selection(&[], "vm", true).is_err());
        assert!(selection(&[], " ", true).is_ok());
    }

    #[test]
    fn later_stages_are_built_ahead_unless_they_are_skipped() {
        let selected = selection(&["loom", "fmt", "asan", "vm"], "vm", false).unwrap();
        assert_eq!(selected.to_build_ahead(), ["asan"]);
    }
}

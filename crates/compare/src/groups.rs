//! The groups of workloads, and the selection of groups for a run.

mod buffers;
mod fan_out;
mod growth;
mod hand_off;
mod memory;
mod pool;
mod python;
mod recovery;
mod set_up;

use crate::Result;
use crate::args::Args;
use crate::measure::shared_page::SharedPage;
use crate::results::Results;

/// A group of workloads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    /// The name for `--only`, and the first part of a key in `bars.toml`.
    pub(crate) name: &'static str,
    /// Whether the quick run includes it.
    quick: bool,
    /// Measures the group.
    pub(crate) run: fn(&Args) -> Result<Results>,
}

const GROUPS: &[Group] = &[
    Group {
        name: hand_off::GROUP,
        quick: true,
        run: |args| Ok(hand_off::run(args.schedule())?.into()),
    },
    Group {
        name: fan_out::GROUP,
        quick: true,
        run: |args| Ok(fan_out::run(args.schedule())?.into()),
    },
    Group {
        name: set_up::GROUP,
        quick: true,
        run: |args| Ok(set_up::run(args.schedule())?.into()),
    },
    Group { name: pool::GROUP, quick: true, run: |args| Ok(pool::run(args.schedule())?.into()) },
    Group {
        name: memory::GROUP,
        quick: true,
        run: |args| Ok(memory::run(args.schedule())?.into()),
    },
    Group {
        name: buffers::GROUP,
        quick: true,
        run: |args| Ok(buffers::run(args.schedule())?.into()),
    },
    Group { name: python::GROUP, quick: false, run: python::run },
    Group { name: growth::GROUP, quick: false, run: |args| growth::run(args.schedule()) },
    Group { name: recovery::GROUP, quick: false, run: |args| recovery::run(args.schedule()) },
];

/// The groups that the arguments select. Returns an error if `--only` names an unknown one.
pub(crate) fn selected(args: &Args) -> Result<Vec<Group>> {
    let known = |name: &String| GROUPS.iter().any(|group| group.name == name);
    if let Some(unknown) = args.only.iter().find(|name| !known(name)) {
        let names: Vec<&str> = GROUPS.iter().map(|group| group.name).collect();
        return Err(format!("no group {unknown}; there are {}", names.join(", ")).into());
    }
    let wanted = |group: &&Group| match args.only.is_empty() {
        true => args.full || group.quick,
        false => args.only.iter().any(|name| name == group.name),
    };
    Ok(GROUPS.iter().filter(wanted).copied().collect())
}

/// Runs the helper process of a group, until the page orders it to quit.
pub(crate) fn run_helper(role: &str, page: &SharedPage) -> Result<()> {
    match role {
        hand_off::GROUP | "floor" => hand_off::run_helper(page),
        fan_out::GROUP => fan_out::run_helper(page),
        recovery::GROUP => recovery::run_helper(page),
        _ => Err(format!("no role {role}").into()),
    }
}

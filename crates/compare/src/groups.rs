//! The groups of works, and which of them a run is about.

use crate::Result;
use crate::args::Args;
use crate::found::Found;
use crate::page::Page;
use crate::{buffers, fan_out, growth, hand_off, memory, pool, python, recovery, set_up};

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    /// For `--only`, and in keys.
    pub(crate) name: &'static str,
    /// Whether the quick run has it.
    quick: bool,
    /// Measures.
    pub(crate) run: fn(&Args) -> Result<Found>,
}

const GROUPS: &[Group] = &[
    Group {
        name: hand_off::GROUP,
        quick: true,
        run: |args| Ok(hand_off::run(args.pace())?.into()),
    },
    Group { name: fan_out::GROUP, quick: true, run: |args| Ok(fan_out::run(args.pace())?.into()) },
    Group { name: set_up::GROUP, quick: true, run: |args| Ok(set_up::run(args.pace())?.into()) },
    Group { name: pool::GROUP, quick: true, run: |args| Ok(pool::run(args.pace())?.into()) },
    Group { name: memory::GROUP, quick: true, run: |args| Ok(memory::run(args.pace())?.into()) },
    Group { name: buffers::GROUP, quick: true, run: |args| Ok(buffers::run(args.pace())?.into()) },
    Group { name: python::GROUP, quick: false, run: python::run },
    Group { name: growth::GROUP, quick: false, run: |args| growth::run(args.pace()) },
    Group { name: recovery::GROUP, quick: false, run: |args| recovery::run(args.pace()) },
];

/// Those that were asked for.
pub(crate) fn chosen(args: &Args) -> Result<Vec<Group>> {
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

/// What the other process of a group does.
pub(crate) fn other(role: &str, page: &Page) -> Result<()> {
    match role {
        hand_off::GROUP | "floor" => hand_off::other(page),
        fan_out::GROUP => fan_out::other(page),
        recovery::GROUP => recovery::other(page),
        _ => Err(format!("no role {role}").into()),
    }
}

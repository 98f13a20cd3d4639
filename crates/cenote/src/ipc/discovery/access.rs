//! Who may find a pool and attach to it, as modes and groups of files, and as a question.

use rustix::fs::{Gid, Mode, Stat};
use rustix::process::geteuid;

use crate::sys::socket::peer::Peer;

/// Who may find and attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PoolAccess {
    /// Processes of the same user.
    #[default]
    SameUser,
    /// Also members of the group with this id. Needs a `CENOTE_DIR` that the group shares.
    Group(u32),
    /// Whoever this mode of the socket lets connect, which takes the permission to write: `0o666`
    /// is for everybody. Needs a `CENOTE_DIR` that they can look into.
    Mode(u32),
}

/// To go through a directory.
pub(crate) const SEARCH: u32 = 0o1;

/// To go through it, and see what is there.
pub(crate) const LOOK: u32 = 0o5;

impl PoolAccess {
    /// Whether a process that connected is let in.
    pub(crate) fn admits(self, peer: &Peer) -> bool {
        peer.uid == geteuid().as_raw()
            || match self {
                PoolAccess::SameUser => false,
                PoolAccess::Group(gid) => peer.gid == gid || peer.groups.contains(&gid),
                // The kernel has looked at the mode already.
                PoolAccess::Mode(_) => true,
            }
    }

    /// The group that files must belong to, if it matters.
    pub(crate) fn group(self) -> Option<Gid> {
        match self {
            PoolAccess::Group(gid) => Some(Gid::from_raw(gid)),
            PoolAccess::SameUser | PoolAccess::Mode(_) => None,
        }
    }

    pub(crate) fn socket_mode(self) -> Mode {
        Mode::from_raw_mode(match self {
            PoolAccess::SameUser => 0o600,
            PoolAccess::Group(_) => 0o660,
            PoolAccess::Mode(mode) => mode & 0o777,
        })
    }

    /// The mode that a directory needs for the others to have `what` of it.
    pub(crate) fn dir_mode(self, what: u32) -> u32 {
        let (group, others) = self.lets_in();
        0o700 | if group { what << 3 } else { 0 } | if others { what } else { 0 }
    }

    /// Whether somebody of the group, and whether everybody.
    fn lets_in(self) -> (bool, bool) {
        match self {
            PoolAccess::SameUser => (false, false),
            PoolAccess::Group(_) => (true, false),
            PoolAccess::Mode(mode) => (mode & 0o020 != 0, mode & 0o002 != 0),
        }
    }

    /// Whether those who are let in have `what` of a directory.
    pub(crate) fn has(self, what: u32, dir: &Stat) -> bool {
        let to_others = dir.st_mode & what == what;
        match self {
            // The bits for others do not count for members of the directory's own group.
            PoolAccess::Group(gid) if dir.st_gid != gid => to_others,
            _ => {
                let needed = self.dir_mode(what) & 0o077;
                dir.st_mode & needed == needed
            }
        }
    }
}

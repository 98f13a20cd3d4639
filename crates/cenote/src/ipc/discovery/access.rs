//! Which processes may find a pool and attach to it: modes and groups of its files, and a check of each peer.

use rustix::fs::{Gid, Mode, Stat};
use rustix::process::geteuid;

use crate::sys::socket::peer::Peer;

/// Which processes may find a pool and attach to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PoolAccess {
    /// Processes of the same user.
    #[default]
    SameUser,
    /// Also members of the group with this id. Needs a `CENOTE_DIR` that the group shares.
    Group(u32),
    /// Processes that this mode of the socket lets connect. Connecting needs the permission to write: `0o666` admits
    /// every user. Needs a `CENOTE_DIR` that those users can read.
    Mode(u32),
}

/// The permission to pass through a directory.
pub(crate) const SEARCH: u32 = 0o1;

/// The permission to pass through a directory and list it.
pub(crate) const LIST: u32 = 0o5;

impl PoolAccess {
    /// Whether a connected process may attach.
    pub(crate) fn admits(self, peer: &Peer) -> bool {
        peer.uid == geteuid().as_raw()
            || match self {
                PoolAccess::SameUser => false,
                PoolAccess::Group(gid) => peer.gid == gid || peer.groups.contains(&gid),
                // The kernel has checked the mode already.
                PoolAccess::Mode(_) => true,
            }
    }

    /// The group that the files must belong to, if any.
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

    /// The mode that a directory needs for the admitted users to have the permission `what`.
    pub(crate) fn dir_mode(self, what: u32) -> u32 {
        let (group, others) = self.admitted();
        0o700 | if group { what << 3 } else { 0 } | if others { what } else { 0 }
    }

    /// Whether the group is admitted, and whether all others are.
    fn admitted(self) -> (bool, bool) {
        match self {
            PoolAccess::SameUser => (false, false),
            PoolAccess::Group(_) => (true, false),
            PoolAccess::Mode(mode) => (mode & 0o020 != 0, mode & 0o002 != 0),
        }
    }

    /// Whether the admitted users have the permission `what` on a directory.
    pub(crate) fn has(self, what: u32, dir: &Stat) -> bool {
        let to_others = dir.st_mode & what == what;
        match self {
            // The bits for others do not apply to members of the directory's group.
            PoolAccess::Group(gid) if dir.st_gid != gid => to_others,
            _ => {
                let needed = self.dir_mode(what) & 0o077;
                dir.st_mode & needed == needed
            }
        }
    }
}

//! The pools that the messages of a topic lie in, which need not be their publishers' own.

use std::collections::HashMap;
use std::sync::Arc;

use crate::ipc::pool::reader::background::{BackgroundAttach, Progress};
use crate::ipc::pool::registry;
use crate::ipc::pool::registry::RegisteredPool;
use crate::ipc::topic::message::Unread;
use crate::ipc::topic::subscriber::publisher_link::{From, Other, Source};
use crate::ipc::topic::subscriber::wakeup::News;

/// The pools that messages came from.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    /// By publisher and uid: what is lent by one is not to be taken for what another sends.
    found: HashMap<(u64, u64), RegisteredPool>,
    attaching: HashMap<u64, BackgroundAttach>,
}

impl Pools {
    /// The pool with this uid. One that this process has nothing to do with yet is attached to; the
    /// bell rings when that is done.
    #[inline]
    pub(crate) fn get(
        &mut self,
        uid: u64,
        from: &Other,
        news: &Arc<News>,
    ) -> Result<&RegisteredPool, Unread> {
        let key = (from.uid, uid);
        if !self.found.get(&key).is_some_and(RegisteredPool::may_lease) {
            let known = self.look_for(uid, from, news)?;
            self.found.retain(|_, known| known.may_lease());
            self.found.insert(key, known);
        }
        self.found.get(&key).ok_or(Unread::Later)
    }

    /// Forgets the pools of what a publisher sent that is gone.
    #[cold]
    pub(crate) fn forget(&mut self, publisher: &Source) {
        if let From::Other(other) = &publisher.from {
            self.found.retain(|(from, _), _| *from != other.uid);
        }
    }

    #[cold]
    fn look_for(
        &mut self,
        uid: u64,
        from: &Other,
        news: &Arc<News>,
    ) -> Result<RegisteredPool, Unread> {
        let lent = || from.pool.as_ref()?.introduced(uid);
        let begun = self.attaching.contains_key(&uid);
        let lent_now = || if begun { None } else { lent().filter(RegisteredPool::is_usable) };
        if let Some(known) = registry::find(uid).or_else(lent_now) {
            self.attaching.remove(&uid);
            return Ok(known);
        }
        let begin = || {
            let news = news.clone();
            BackgroundAttach::begin(uid, move || news.bell.ring_anyway())
        };
        let attaching = self.attaching.entry(uid).or_insert_with(begin);
        if attaching.is_idle() {
            attaching.restart(begin());
        }
        match attaching.progress() {
            Progress::Waiting => Err(Unread::Later),
            Progress::Attached(known) => {
                self.attaching.remove(&uid);
                Ok(known)
            }
            Progress::Failed(error) => {
                self.attaching.remove(&uid);
                // Its owner may be dying: then it cannot be attached to, and need not be.
                lent().or_else(|| registry::find_dying(uid)).ok_or_else(|| error.into())
            }
        }
    }
}

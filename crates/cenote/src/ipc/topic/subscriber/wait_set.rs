//! Waiting for several topics.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::error::{Error, Result};
use crate::ipc::topic::message::Message;
use crate::ipc::topic::topic::{Topic, TopicParts};
use crate::sys;

/// Waits for several [`Topic`]s at once. They may carry different types.
///
/// ```
/// use std::time::Duration;
/// use cenote::{Topic, WaitSet};
/// # let dir = std::env::temp_dir().join(format!("cenote-wait-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?; unsafe { std::env::set_var("CENOTE_DIR", &dir) };
///
/// let (speed, pose): (Topic<f32>, Topic<[f64; 3]>) = (Topic::new("speed")?, Topic::new("pose")?);
/// let mut set = WaitSet::new()?;
/// let (speeds, poses) = (set.add(&speed)?, set.add(&pose)?);
///
/// pose.send(&[1.0, 2.0, 3.0])?;
/// while !set.wait(Some(Duration::from_secs(1)))?.contains(&poses) {}
/// assert_eq!(pose.recv(), Some([1.0, 2.0, 3.0]));
/// # let _ = speeds; drop((set, speed, pose)); std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct WaitSet {
    epoll: OwnedFd,
    /// The index is the key. A topic that was removed leaves `None`.
    topics: Vec<Option<Member>>,
}

/// A topic in a set.
struct Member {
    parts: Weak<TopicParts>,
    /// The descriptor of the topic, by which it is removed from epoll. Closing the descriptor is not enough: a forked child
    /// may have it, too.
    fd: OwnedFd,
}

impl Member {
    fn is(&self, parts: &Arc<TopicParts>) -> bool {
        self.parts.as_ptr() == Arc::as_ptr(parts)
    }

    fn is_dropped(&self) -> bool {
        self.parts.strong_count() == 0
    }
}

impl fmt::Debug for WaitSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topics = self.members().filter_map(|member| member.parts.upgrade());
        f.debug_list().entries(topics.map(|parts| parts.name.to_string())).finish()
    }
}

impl WaitSet {
    /// An empty set.
    pub fn new() -> Result<WaitSet> {
        let error = |source| Error::os("making an epoll instance", source);
        Ok(WaitSet {
            epoll: epoll::create(CreateFlags::CLOEXEC).map_err(error)?,
            topics: Vec::new(),
        })
    }

    /// Adds a topic, which begins to subscribe. Returns its key; a topic that is added again has the same key.
    ///
    /// A topic that is dropped leaves the set.
    pub fn add<T: Message>(&mut self, topic: &Topic<T>) -> Result<usize> {
        if let Some(key) = self.key_of(topic) {
            return Ok(key);
        }
        self.forget_dropped();
        for dropped in self.topics.iter_mut() {
            dropped.take_if(|member| member.is_dropped());
        }
        let error = |source| Error::os("adding a topic to a wait set", source);
        let fd = topic.fd()?.try_clone_to_owned().map_err(error)?;
        let key = self.topics.len();
        let data = EventData::new_u64(key as u64);
        epoll::add(&self.epoll, &fd, data, EventFlags::IN).map_err(|errno| error(errno.into()))?;
        self.topics.push(Some(Member { parts: Arc::downgrade(&topic.parts), fd }));
        Ok(key)
    }

    /// Removes a topic. Returns false if it is not in the set. Its key is not used again.
    pub fn remove<T: Message>(&mut self, topic: &Topic<T>) -> bool {
        let Some(key) = self.key_of(topic) else { return false };
        if let Some(member) = self.topics[key].take() {
            let _ = epoll::delete(&self.epoll, &member.fd);
        }
        true
    }

    fn members(&self) -> impl Iterator<Item = &Member> {
        self.topics.iter().flatten()
    }

    /// Removes dropped topics from epoll.
    fn forget_dropped(&self) {
        for member in self.members().filter(|member| member.is_dropped()) {
            // It fails if the topic was removed before.
            let _ = epoll::delete(&self.epoll, &member.fd);
        }
    }

    fn key_of<T: Message>(&self, topic: &Topic<T>) -> Option<usize> {
        let is_it = |member: &Member| member.is(&topic.parts);
        self.topics.iter().position(|member| member.as_ref().is_some_and(is_it))
    }

    /// Waits until some topics may have a message, and returns their keys. Returns no keys if the time is over; without a timeout
    /// it waits without limit. Fails in a forked child.
    ///
    /// Call [`recv`](Topic::recv) on each of them until it returns `None`. A topic with messages left is returned
    /// again.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Vec<usize>> {
        for parts in self.members().filter_map(|member| member.parts.upgrade()) {
            parts.check_process()?;
        }
        self.forget_dropped();
        let mut events = Vec::with_capacity(self.topics.len().max(1));
        sys::epoll::wait(&self.epoll, &mut events, timeout)
            .map_err(|source| Error::os("waiting for topics", source))?;
        let key = |event: &epoll::Event| usize::try_from({ event.data }.u64()).ok();
        let is_here = |key: &usize| self.topics[*key].as_ref().is_some_and(|it| !it.is_dropped());
        Ok(events.iter().filter_map(key).filter(is_here).collect())
    }
}

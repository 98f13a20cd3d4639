//! zenoh: a session in each process, over a Unix socket, with frames in shared memory or copied.

use std::io::Read;

use zenoh::handlers::FifoChannelHandler;
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::CongestionControl;
use zenoh::sample::Sample;
use zenoh::shm::{
    BlockOn, GarbageCollect, PosixShmProviderBackend, ShmProvider, ShmProviderBuilder,
};
use zenoh::{Config, Session, Wait};

use super::endpoint::{Endpoint, Link, Peer, Side};
use crate::Result;
use crate::run_dir;

/// The frames in use at a time: one in transit, one in each process, one spare.
const FRAMES: usize = 4;

struct Frames {
    to: Publisher<'static>,
    from: Subscriber<FifoChannelHandler<Sample>>,
    bytes: usize,
    shared: Option<ShmProvider<PosixShmProviderBackend>>,
    _session: Session,
}

/// Opens an endpoint for round trips in shared memory.
pub(crate) fn open_shared(link: Link) -> Result<Box<dyn Peer>> {
    let provider = ShmProviderBuilder::default_backend(FRAMES * link.bytes.max(4096)).wait()?;
    Ok(Box::new(frames(link, "shared", Some(provider))?))
}

/// Opens an endpoint for round trips with copies.
pub(crate) fn open_copied(link: Link) -> Result<Box<dyn Peer>> {
    Ok(Box::new(frames(link, "copied", None)?))
}

fn frames(
    link: Link,
    kind: &str,
    shared: Option<ShmProvider<PosixShmProviderBackend>>,
) -> Result<Frames> {
    let session = session(link, kind)?;
    let (to, from) = link.names();
    let key = |name: &str| format!("compare/{kind}/{}", name.replace('.', "/"));
    let to =
        session.declare_publisher(key(&to)).congestion_control(CongestionControl::Block).wait()?;
    let from = session.declare_subscriber(key(&from)).wait()?;
    Ok(Frames { to, from, bytes: link.bytes, shared, _session: session })
}

/// A session that connects to the other process only, over a socket.
fn session(link: Link, kind: &str) -> Result<Session> {
    let path = run_dir::dir()?.join(format!("zenoh-{}-{kind}", link.name));
    let endpoint = format!("[\"unixsock-stream/{}\"]", path.display());
    let mut config = Config::default();
    config.insert_json5("scouting/multicast/enabled", "false")?;
    config.insert_json5("transport/shared_memory/enabled", &(kind == "shared").to_string())?;
    let (ours, theirs) = match link.side {
        Side::Parent => ("listen/endpoints", "connect/endpoints"),
        Side::Helper => ("connect/endpoints", "listen/endpoints"),
    };
    config.insert_json5(ours, &endpoint)?;
    config.insert_json5(theirs, "[]")?;
    zenoh::open(config).wait()
}

impl Endpoint for Frames {
    fn send(&mut self, value: u64) -> Result<()> {
        let Some(provider) = &self.shared else {
            let mut frame = vec![1; self.bytes];
            frame[..8].copy_from_slice(&value.to_le_bytes());
            return self.to.put(frame).wait();
        };
        let mut frame =
            provider.alloc(self.bytes).with_policy::<BlockOn<GarbageCollect>>().wait()?;
        frame[..8].copy_from_slice(&value.to_le_bytes());
        self.to.put(frame).wait()
    }

    fn recv(&mut self) -> Result<Option<u64>> {
        let Some(sample) = self.from.try_recv()? else { return Ok(None) };
        let mut word = [0; 8];
        sample.payload().reader().read_exact(&mut word)?;
        Ok(Some(u64::from_le_bytes(word)))
    }
}

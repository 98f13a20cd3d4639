//! The owner's end of the socket: making a pool known, and letting others attach.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::{Error, Result};
use crate::intervals::{ACCEPT_RETRY, SOCKET_ATTEMPTS};
use crate::ipc::discovery::socket_dir::{Entry, Place};
use crate::ipc::discovery::watch;
use crate::ipc::discovery::watch::DirectoryWatch;
use crate::ipc::pool::config::TensorPoolConfig;
use crate::ipc::pool::owner::Owner;
use crate::ipc::pool::owner::host::{Guest, Host};
use crate::ipc::pool::owner::readers::Attacher;
use crate::ipc::pool::owner::state::{Row, State};
use crate::ipc::pool::report;
use crate::ipc::service_thread;
use crate::ipc::service_thread::{Served, Waker, Watch};
use crate::ipc::shared::wire::{Kind, MAX_SHARED, Packet, Refusal, SegmentInfo, Welcome, row};
use crate::ipc::shared::words::Words;
use crate::memory::budget::Budget;
use crate::sys::fork::{GuardedSocket, PerProcess};
use crate::sys::socket::peer::Peer;
use crate::sys::socket::{packet, seqpacket};
use bytemuck::Zeroable;

/// The most attachers of one pool, if there are descriptors for them.
const MAX_ATTACHERS: usize = 1024;

/// How many connections are accepted, and packets read, before others have their turn.
const AT_ONCE: usize = 32;

/// How many are let in by somebody who is in a hurry himself, and keeps the service thread waiting.
const FEW: usize = 4;

/// Tokens of what is watched: the listener, the directory, and two for each connection.
const LISTENER: u64 = 0;
const DIRECTORY: u64 = 1;
const GROWTH: u64 = 2;
const FIRST_CONNECTION: u64 = 4;

/// The socket that others connect to, and its place in the directory.
#[derive(Debug)]
pub(crate) struct Server {
    place: Arc<Place>,
    /// What to remove in the end, unless somebody else took it over.
    entry: Option<Entry>,
    listener: Arc<GuardedSocket>,
    next_connection: u64,
    /// Has the service thread reserve another segment.
    pub(crate) waker: Waker,
    _watch: Watch,
    /// Without it the pool goes on, and is not found any more should its entry be removed.
    directory: io::Result<DirectoryWatch>,
}

impl Server {
    /// Makes the pool known. Look afterwards whether it still is: its directory is watched only when its
    /// entry is there, so that nobody is woken for that.
    fn start(place: Place, owner: &Arc<Owner>) -> Result<Server> {
        let error = |source| Error::os("watching a socket", source);
        let served = owner.served();
        let waker = Waker::new(served.clone(), GROWTH).map_err(error)?;
        let listener = Arc::new(place.publish(&owner.entry, owner.config.access)?);
        let directory = watch::watch(&place.held_path(), served.clone(), DIRECTORY);
        let watch = service_thread::watch(&listener, served, LISTENER)
            .inspect_err(|_| place.remove(&owner.entry))
            .map_err(error)?;
        let mut reserve = reserve();
        *reserve = reserve.take().or_else(|| place.open_again().ok());
        Ok(Server {
            place: Arc::new(place),
            entry: Some(owner.entry.clone()),
            listener,
            next_connection: 0,
            waker,
            _watch: watch,
            directory,
        })
    }

    /// The directory.
    pub(crate) fn place(&self) -> Arc<Place> {
        self.place.clone()
    }

    /// Whether it is made anew should its entry be removed.
    pub(crate) fn is_watched(&self) -> bool {
        self.directory.is_ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // First: that the entry goes is nobody's concern any more.
        self.directory = Err(io::ErrorKind::NotFound.into());
        if let Some(entry) = self.entry.as_ref().filter(|_| !self.listener.is_inherited()) {
            self.place.remove(entry);
        }
    }
}

/// Makes a pool that others can find under `name`.
pub(crate) fn create(name: &str, config: TensorPoolConfig) -> Result<Arc<Owner>> {
    let (config, max_slots) = config.checked()?;
    let place = Place::open("pools", config.access)?;
    let locked = place.lock()?;
    let names = place.file_names()?;
    take_over(&place, &names, name)?;
    place.remove_hidden(&names, &locked);
    let entry = Entry { name: name.to_owned(), uid: random_uid()? };
    let owner = Arc::new(Owner::new(entry, config, max_slots)?);
    owner.serve(place)?;
    Ok(owner)
}

/// Makes a pool that others find in `place`, beside others of the same name, and whose socket is
/// shared with whoever `host` makes. Of `names`, which were there, those of the dead go.
pub(crate) fn create_shared<H: Host + 'static>(
    (place, names): (Place, &[String]),
    entry: Entry,
    config: TensorPoolConfig,
    host: impl FnOnce(&Arc<Owner>) -> Result<Arc<H>>,
) -> Result<Arc<H>> {
    let (config, max_slots) = config.checked()?;
    let (place, locked) = place.locked(config.access)?;
    place.remove_left(names, &locked);
    let owner = Arc::new(Owner::new(entry, config, max_slots)?);
    let host = host(&owner)?;
    let weak: Weak<H> = Arc::downgrade(&host);
    let _ = owner.host.set(weak);
    owner.serve(place)?;
    Ok(host)
}

/// Removes what dead owners of this name left behind; an error if one is alive.
fn take_over(place: &Place, names: &[String], name: &str) -> Result<()> {
    for entry in place.entries_among(names).into_iter().filter(|entry| entry.name == name) {
        match place.connect(&entry) {
            Ok(connection) => match Peer::of(connection.as_fd()) {
                // Somebody forked off it has the socket, and owns nothing.
                Ok(owner) if owner.has_ended() => place.remove(&entry),
                owner => return Err(exists(name, owner.ok())),
            },
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                place.remove(&entry);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // So many wait there that no more can.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(exists(name, None));
            }
            Err(source) => return Err(Error::Connect { pool: name.to_owned(), source }),
        }
    }
    Ok(())
}

fn exists(name: &str, owner: Option<Peer>) -> Error {
    let (pid, program) = match owner {
        Some(owner) => (owner.pid, owner.program()),
        None => (0, "unknown".to_owned()),
    };
    Error::PoolExists { pool: name.to_owned(), pid, program }
}

pub(crate) fn random_uid() -> Result<u64> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|source| Error::os("getrandom", source))?;
    // 0 stands for "no pool".
    Ok(u64::from_ne_bytes(bytes).max(1))
}

impl Owner {
    fn served(self: &Arc<Self>) -> Weak<dyn Served> {
        Arc::downgrade(&(self.clone() as Arc<dyn Served>))
    }

    fn serve(self: &Arc<Self>, place: Place) -> Result<()> {
        // Should the socket be removed at once, whoever hears of that finds the server here.
        let serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        let server = Server::start(place, self)?;
        self.state().server = Some(server);
        drop(serving);
        self.check_socket();
        Ok(())
    }

    /// Takes the place of a server whose entry is gone, unless the pool was closed meanwhile: then
    /// its entry goes again.
    fn serve_anew(&self, mut server: Server) {
        let mut state = self.state();
        if let Some(old) = &mut state.server {
            server.next_connection = old.next_connection;
            server.waker = old.waker.clone(); // it may have been used
            old.entry = None; // the new one's by now
            std::mem::swap(old, &mut server);
        }
        drop(state);
        drop(server);
    }

    /// Lets in those who wait, on the thread of somebody who has just come to a pool of its own process,
    /// unless the service thread is about to.
    pub(crate) fn let_in_now(self: &Arc<Self>) {
        let Ok(_door) = self.door.try_lock() else { return };
        for _ in 0..FEW {
            let Some(listener) = self.listener() else { return };
            let Ok(Some(connection)) = seqpacket::accept(&listener) else { return };
            self.meet(connection);
        }
    }

    fn listener(&self) -> Option<Arc<GuardedSocket>> {
        self.state().server.as_ref().map(|server| server.listener.clone())
    }

    /// Lets in some of those who wait. Epoll calls again for the others.
    fn accept_some(self: &Arc<Self>) {
        for _ in 0..AT_ONCE {
            let Some(listener) = self.listener() else { return };
            match seqpacket::accept(&listener) {
                Ok(Some(connection)) => self.meet(connection),
                Ok(None) => return,
                Err(_) => return self.turn_one_away(&listener),
            }
        }
    }

    /// Out of descriptors. Whoever waits is told: else he waits in vain, and epoll never sleeps.
    fn turn_one_away(&self, listener: &GuardedSocket) {
        let Some(place) = self.state().server.as_ref().map(|server| server.place.clone()) else {
            return;
        };
        let mut reserve = reserve();
        *reserve = None;
        match seqpacket::accept(listener) {
            Ok(Some(connection)) => refuse(connection.as_fd(), Refusal::Descriptors),
            Ok(None) => {}
            // Not even that: it would be asked for again and again without a pause.
            Err(_) => std::thread::sleep(ACCEPT_RETRY),
        }
        *reserve = place.open_again().ok();
    }

    /// Looks at who connected, and waits for a hello without waiting.
    fn meet(self: &Arc<Self>, connection: GuardedSocket) {
        let Ok(peer) = Peer::of(connection.as_fd()) else { return };
        if peer.has_ended() {
            return; // whoever has its socket now is somebody else
        }
        if !self.config.access.admits(&peer) {
            return refuse(connection.as_fd(), Refusal::Access);
        }
        if let Some(number) = self.take_in(Arc::new(connection), peer, false) {
            // Most say hello at once, and should be let in before others push them out.
            self.listen_to(number);
        }
    }

    /// Watches a connection; gives its number. `None` if the pool is closed.
    pub(crate) fn take_in(
        self: &Arc<Self>,
        connection: Arc<GuardedSocket>,
        peer: Peer,
        borrows: bool,
    ) -> Option<u64> {
        let mut state = self.state();
        let server = state.server.as_mut()?;
        let number = server.next_connection;
        server.next_connection += 1;
        drop(state);
        let served = self.served();
        let token = FIRST_CONNECTION + 2 * number;
        let end = peer.pidfd.as_ref();
        let end =
            end.and_then(|pidfd| service_thread::watch(pidfd, served.clone(), token + 1).ok());
        // Inserted before it is watched, so that the first event finds it.
        let fd = connection.clone();
        self.state().attachers.insert(number, Attacher::new(connection, peer, end, borrows));
        let Ok(watch) = service_thread::watch(&fd, served, token) else {
            self.drop_attacher(number);
            return None;
        };
        if let Some(attacher) = self.state().attachers.get(number) {
            attacher.keep(watch);
        }
        Some(number)
    }

    /// Reads what one connection says, but not for ever.
    fn listen_to(&self, number: u64) {
        let mut state = self.state();
        let Some(attacher) = state.attachers.get(number) else { return };
        attacher.tell();
        let connection = attacher.connection.clone();
        drop(state);
        let mut bytes = [0; 512]; // more than anybody has to say
        for _ in 0..AT_ONCE {
            let heard = match packet::recv(connection.as_fd(), &mut bytes) {
                Ok((0, _)) => Err(()),
                Ok((len, _)) => Ok(&bytes[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => Err(()),
            };
            let answered = heard.and_then(|packet| self.answer(number, packet));
            if answered.is_err() {
                return self.drop_attacher(number);
            }
        }
    }

    /// Does what a packet asks for. An error ends the connection.
    fn answer(&self, number: u64, bytes: &[u8]) -> Result<(), ()> {
        let (kind, packet) = Packet::parse(bytes).map_err(drop)?;
        match kind {
            Kind::Hello => self.welcome(number).map(|()| self.lend_all_to(number)),
            Kind::More => {
                let state = &mut *self.state();
                state.attachers.catch_up(number, packet.index, &state.segments);
                Ok(())
            }
            Kind::Wake => {
                self.notify_returned();
                self.host().inspect(|host| host.woken());
                Ok(())
            }
            Kind::Subscribe => self.pass_on(number, bytes),
            Kind::Who => self.describe(number),
            Kind::Ask => self.give_account(number),
            _ => Err(()),
        }
    }

    /// Whoever shares the socket, if anybody does.
    fn host(&self) -> Option<Arc<dyn Host>> {
        self.host.get()?.upgrade()
    }

    /// Answers for the host, and hangs up.
    fn describe(&self, number: u64) -> Result<(), ()> {
        let told = self.host().ok_or(())?.describe();
        self.answer_once(number, &told.bytes, told.fd.as_deref())
    }

    /// Tells how the pool is doing, and hangs up.
    fn give_account(&self, number: u64) -> Result<(), ()> {
        self.answer_once(number, &report::answer(&self.stats(), &self.processes()), None)
    }

    /// Answers somebody who only asks: the connection is over.
    fn answer_once(&self, number: u64, bytes: &[u8], fd: Option<&OwnedFd>) -> Result<(), ()> {
        let asker = self.state().attachers.get(number).map(|asker| asker.connection.clone());
        let fds: Vec<BorrowedFd<'_>> = fd.iter().map(|fd| fd.as_fd()).collect();
        let _ = packet::send(asker.ok_or(())?.as_fd(), bytes, &fds);
        Err(())
    }

    /// Lets the host decide.
    fn pass_on(&self, number: u64, hello: &[u8]) -> Result<(), ()> {
        let host = self.host().ok_or(())?;
        let mut state = self.state();
        let attacher = state.attachers.get(number).filter(|a| a.is_stranger()).ok_or(())?;
        attacher.guest = true;
        let (pid, connection) = (attacher.peer.pid, attacher.connection.clone());
        drop(state);
        host.greet(&Guest { number, pid, connection }, hello)
    }

    /// Gives an attacher its row and shows it all segments: one step under the lock, so that
    /// every segment is either in the welcome or pushed after it.
    pub(crate) fn welcome(&self, number: u64) -> Result<(), ()> {
        let made = new_row("cenote-row", row::words(self.max_slots));
        let mut state = self.state();
        let crowded = state.rows.len() > max_attachers() || state.attachers.too_many_of_one(number);
        let attacher = state.attachers.get(number).filter(|a| a.is_stranger()).ok_or(())?;
        let connection = attacher.connection.clone();
        let (row, row_fd) = match made {
            Ok(made) if !crowded => made,
            made => {
                let refusal = made.err().filter(|_| !crowded).unwrap_or(Refusal::Crowded);
                refuse(connection.as_fd(), refusal);
                return Err(());
            }
        };
        let id = state.rows.insert(Row::Peer(row));
        let State { attachers, segments, .. } = &mut *state;
        attachers.get(number).iter_mut().for_each(|attacher| attacher.attach(id, segments));
        let sent = self.send_welcome(&state, connection.as_fd(), &row_fd);
        // Descriptors that lie unread in sockets are limited, for all processes of a user.
        sent.inspect_err(|()| refuse(connection.as_fd(), Refusal::Descriptors))
    }

    fn send_welcome(
        &self,
        state: &State,
        connection: BorrowedFd<'_>,
        row: &OwnedFd,
    ) -> Result<(), ()> {
        let mut welcome = Welcome {
            head: Packet::new(Kind::Welcome),
            uid: self.entry.uid,
            max_slots: self.max_slots,
            max_leases: u32::try_from(self.config.lease_limit()).unwrap_or(u32::MAX),
            ..Welcome::zeroed()
        };
        let mut fds = vec![self.header_fd.as_fd(), row.as_fd()];
        for (info, (id, segment)) in welcome.segment.iter_mut().zip(&state.segments) {
            *info = SegmentInfo { index: id.0, len: segment.len as u64, ..SegmentInfo::zeroed() };
            fds.push(segment.fd.as_fd());
            welcome.segments += 1;
        }
        debug_assert!(state.segments.len() <= MAX_SHARED);
        packet::send(connection, bytemuck::bytes_of(&welcome), &fds).map_err(drop)
    }

    /// Undoes all that an attacher did.
    pub(crate) fn drop_attacher(&self, number: u64) {
        let mut state = self.state();
        let attacher = state.attachers.remove(number);
        let row = attacher.as_ref().and_then(|attacher| attacher.row);
        let row = row.and_then(|row| state.rows.remove(row));
        if row.is_some() {
            state.sweep_all(self.serials());
        }
        let gone = state.take_gone();
        drop(state);
        if attacher.as_ref().is_some_and(|attacher| attacher.guest) {
            self.host().inspect(|host| host.left(number));
        }
        drop((attacher, row, gone));
        self.notify_returned();
        self.part();
    }

    /// Something changed in the directory: makes the socket anew if it is gone.
    fn check_socket(self: &Arc<Self>) {
        let _serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        // Without the directory's lock, which others may keep, somebody may take the socket for a dead
        // one's while it is made, and it may be removed before it is watched: hence more than once.
        // Should that fail, the pool goes on for those who are attached.
        for _ in 0..SOCKET_ATTEMPTS {
            let Some(place) = self.lost_place() else { return };
            match place.and_then(|place| Server::start(place, self)) {
                Ok(server) => self.serve_anew(server),
                // The directory was removed as soon as it was open: it is made anew, too.
                Err(Error::Directory { source, .. })
                    if source.kind() == io::ErrorKind::NotFound => {}
                Err(_) => return,
            }
        }
    }

    /// Where the socket is to be made anew, if it is gone.
    fn lost_place(&self) -> Option<Result<Place>> {
        let place = self.state().server.as_ref()?.place.clone();
        (!place.has(&self.entry)).then(|| place.reopen(self.config.access))
    }
}

impl Served for Owner {
    fn ready(self: Arc<Self>, token: u64) {
        match token {
            DIRECTORY => self.check_socket(),
            GROWTH => self.grow_ahead(),
            token => {
                // That somebody comes, says something and goes is heeded in this order.
                let _door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
                match token {
                    LISTENER => self.accept_some(),
                    even if even.is_multiple_of(2) => self.listen_to((even - FIRST_CONNECTION) / 2),
                    odd => self.drop_attacher((odd - FIRST_CONNECTION) / 2),
                }
            }
        }
    }
}

/// Memory for a row, unless there is too little: a crowd must not be the owner's death.
pub(crate) fn new_row(name: &str, words: usize) -> Result<(Words, OwnedFd), Refusal> {
    let reservation = Budget::reserve(words * size_of::<u64>()).map_err(|_| Refusal::Memory)?;
    let made = Words::create_for_peer(name, words);
    reservation.settle();
    made.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::MFILE | Errno::NFILE) => Refusal::Descriptors,
        _ => Refusal::Memory,
    })
}

/// A descriptor that is given up to let somebody in, and turn him away, when there are none left. One
/// is enough, for the service thread alone does that.
fn reserve() -> MutexGuard<'static, Option<OwnedFd>> {
    static RESERVE: PerProcess<Mutex<Option<OwnedFd>>> = PerProcess::new();
    let Ok(reserve) = RESERVE.get(|| Ok::<_, Infallible>(Mutex::default()));
    reserve.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every attacher costs two descriptors; the rest of the program needs some, too.
fn max_attachers() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit / 4).unwrap_or(usize::MAX).min(MAX_ATTACHERS)
}

/// Says why somebody is not let in.
pub(crate) fn refuse(connection: BorrowedFd<'_>, refusal: Refusal) {
    let _ = packet::send(connection, bytemuck::bytes_of(&refusal.packet()), &[]);
}

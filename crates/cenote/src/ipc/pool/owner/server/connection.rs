//! Handling the packets of one connection: attaching a reader, sending segments, answering requests.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use bytemuck::Zeroable;

use crate::ipc::pool::owner::owner::Owner;
use crate::ipc::pool::owner::server::connection_handler::{
    ConnectionHandler, SubscriberConnection,
};
use crate::ipc::pool::owner::server::refusal::{max_readers, new_row, refuse};
use crate::ipc::pool::owner::state::{LeaseRow, OwnerState};
use crate::ipc::pool::report;
use crate::ipc::shared::wire::{Attached, Kind, MAX_SHARED, Packet, Refusal, SegmentInfo, row};
use crate::sys::socket::packet;

/// How many packets of one connection the service thread reads before it serves other events.
const PACKETS_AT_ONCE: usize = 32;

/// The longest packet of a reader or subscriber is shorter than this.
const MAX_PACKET: usize = 512;

impl Owner {
    /// Reads and handles packets of a connection, up to a limit. Drops the connection if it has ended or breaks the
    /// protocol.
    pub(crate) fn receive_from(&self, number: u64) {
        let mut state = self.state();
        let Some(connection) = state.connections.get(number) else { return };
        connection.send_removals();
        let socket = connection.socket.clone();
        drop(state);
        let mut bytes = [0; MAX_PACKET];
        for _ in 0..PACKETS_AT_ONCE {
            let received = match packet::recv(socket.as_fd(), &mut bytes) {
                Ok((0, _)) => Err(()),
                Ok((len, _)) => Ok(&bytes[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => Err(()),
            };
            let handled = received.and_then(|packet| self.handle(number, packet));
            if handled.is_err() {
                return self.drop_connection(number);
            }
        }
    }

    /// Handles one packet. An error ends the connection.
    fn handle(&self, number: u64, bytes: &[u8]) -> Result<(), ()> {
        let (kind, packet) = Packet::parse(bytes).map_err(drop)?;
        match kind {
            Kind::Attach => self.attach_reader(number).map(|()| self.introduce_all_to(number)),
            Kind::SegmentRequest => {
                let state = &mut *self.state();
                state.connections.send_missing(number, packet.index, &state.segments);
                Ok(())
            }
            Kind::Wake => {
                self.notify_waiting();
                self.handler().inspect(|handler| handler.lease_released());
                Ok(())
            }
            Kind::Subscribe => self.pass_to_handler(number, bytes),
            Kind::DescribeRequest => self.describe(number),
            Kind::ReportRequest => self.report(number),
            _ => Err(()),
        }
    }

    fn handler(&self) -> Option<Arc<dyn ConnectionHandler>> {
        self.handler.get()?.upgrade()
    }

    /// Sends the handler's description and ends the connection.
    fn describe(&self, number: u64) -> Result<(), ()> {
        let description = self.handler().ok_or(())?.describe();
        self.reply_and_end(number, &description.bytes, description.fd.as_deref())
    }

    /// Sends the pool's report and ends the connection.
    fn report(&self, number: u64) -> Result<(), ()> {
        self.reply_and_end(number, &report::answer(&self.stats(), &self.processes()), None)
    }

    /// Always an error, which ends the connection.
    fn reply_and_end(&self, number: u64, bytes: &[u8], fd: Option<&OwnedFd>) -> Result<(), ()> {
        let connection = self.state().connections.get(number).map(|found| found.socket.clone());
        let fds: Vec<BorrowedFd<'_>> = fd.iter().map(|fd| fd.as_fd()).collect();
        let _ = packet::send(connection.ok_or(())?.as_fd(), bytes, &fds);
        Err(())
    }

    fn pass_to_handler(&self, number: u64, request: &[u8]) -> Result<(), ()> {
        let handler = self.handler().ok_or(())?;
        let mut state = self.state();
        let connection =
            state.connections.get(number).filter(|found| found.is_pending()).ok_or(())?;
        connection.is_subscriber = true;
        let (pid, socket) = (connection.peer.pid, connection.socket.clone());
        drop(state);
        handler.subscribe(&SubscriberConnection { number, pid, socket }, request)
    }

    /// Gives a reader its row and sends it all segments. One step under the lock, so that every segment is either in
    /// this packet or sent after it.
    pub(crate) fn attach_reader(&self, number: u64) -> Result<(), ()> {
        let made = new_row("cenote-row", row::words(self.max_slots));
        let mut state = self.state();
        let too_many =
            state.rows.len() > max_readers() || state.connections.has_too_many_of_process(number);
        let connection =
            state.connections.get(number).filter(|found| found.is_pending()).ok_or(())?;
        let socket = connection.socket.clone();
        let (row, row_fd) = match made {
            Ok(made) if !too_many => made,
            made => {
                let refusal = made.err().filter(|_| !too_many).unwrap_or(Refusal::TooMany);
                refuse(socket.as_fd(), refusal);
                return Err(());
            }
        };
        let id = state.rows.insert(LeaseRow::Reader(row));
        let OwnerState { connections, segments, .. } = &mut *state;
        connections.get(number).iter_mut().for_each(|found| found.attach(id, segments));
        let sent = self.send_attached(&state, socket.as_fd(), &row_fd);
        // The kernel limits the descriptors that lie unread in sockets, for all processes of a user together.
        sent.inspect_err(|()| refuse(socket.as_fd(), Refusal::Descriptors))
    }

    fn send_attached(
        &self,
        state: &OwnerState,
        socket: BorrowedFd<'_>,
        row: &OwnedFd,
    ) -> Result<(), ()> {
        let mut attached = Attached {
            head: Packet::new(Kind::Attached),
            uid: self.endpoint.uid,
            max_slots: self.max_slots,
            max_leases: u32::try_from(self.config.lease_limit()).unwrap_or(u32::MAX),
            ..Attached::zeroed()
        };
        let mut fds = vec![self.header_fd.as_fd(), row.as_fd()];
        for (info, (id, segment)) in attached.segment.iter_mut().zip(&state.segments) {
            *info = SegmentInfo { index: id.0, len: segment.len as u64, ..SegmentInfo::zeroed() };
            fds.push(segment.fd.as_fd());
            attached.segments += 1;
        }
        debug_assert!(state.segments.len() <= MAX_SHARED);
        packet::send(socket, bytemuck::bytes_of(&attached), &fds).map_err(drop)
    }

    /// Drops a connection, and with it the row and all leases of its process.
    pub(crate) fn drop_connection(&self, number: u64) {
        let mut state = self.state();
        let connection = state.connections.remove(number);
        let row = connection.as_ref().and_then(|connection| connection.row);
        let row = row.and_then(|row| state.rows.remove(row));
        if row.is_some() {
            state.sweep_all(self.serials());
        }
        let segments = state.take_unused_segments();
        drop(state);
        if connection.as_ref().is_some_and(|connection| connection.is_subscriber) {
            self.handler().inspect(|handler| handler.disconnected(number));
        }
        drop((connection, row, segments));
        self.notify_waiting();
        self.stop_lingering();
    }
}

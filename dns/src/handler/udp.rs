//! The UDP loop: one datagram in, at most one out. Each socket has its own thread, which receives what has arrived, answers it, and
//! sends the answers together.
//!
//! A thread sleeps in the kernel while nothing arrives. Under load it receives up to `BATCH` datagrams with one system call and sends their
//! answers with another; it never waits for a batch to fill (`MSG_WAITFORONE`). A socket that listens on all addresses of the machine
//! answers from the address that was asked ([`local`]).

pub mod local;

use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg};
use rustix::net::addr::SocketAddrArg;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg, sendto};
use tokio_util::sync::CancellationToken;

use self::local::LocalAddress;
use super::Responder;

/// The largest request that is read, in bytes; a longer one is cut off and then refused as malformed.
const REQUEST_MAX: usize = 4096;
/// The most requests that are received, and answers that are sent, together.
const BATCH: usize = 32;
/// The pause after a socket error, so that a lasting failure does not cause a busy loop.
const FAILED_PAUSE: Duration = Duration::from_millis(10);
/// How often a sleeping thread checks for shutdown.
const SHUTDOWN_POLL: Duration = Duration::from_millis(100);

/// An answer that waits to be sent. Its buffer is reused for the next one.
struct PendingAnswer {
    to: SocketAddr,
    /// The address that the question was sent to, if the socket listens on more than one.
    local: Option<LocalAddress>,
    bytes: Vec<u8>,
}

/// Answers until `shutdown`. Blocks the thread.
///
/// # Errors
/// When the socket's receive timeout cannot be set.
pub fn serve(
    socket: &UdpSocket,
    responder: &Arc<Responder>,
    shutdown: &CancellationToken,
) -> std::io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(SHUTDOWN_POLL))?;
    let mut pending: [PendingAnswer; BATCH] = std::array::from_fn(|_| PendingAnswer {
        to: SocketAddr::from(([0, 0, 0, 0], 0)),
        local: None,
        bytes: Vec::with_capacity(512),
    });
    let mut requests = vec![[0; REQUEST_MAX]; BATCH];
    let at = socket.local_addr()?;
    if !at.ip().is_unspecified() {
        let mut headers = MultiHeaders::preallocate(BATCH, None);
        while !shutdown.is_cancelled() {
            let count = receive(socket, responder, &mut requests, &mut headers, &mut pending);
            send(socket, &pending, count);
        }
        return Ok(());
    }
    let (mut headers, mut answers) = (local::headers(at.is_ipv4()), local::headers(at.is_ipv4()));
    while !shutdown.is_cancelled() {
        let count = receive(socket, responder, &mut requests, &mut headers, &mut pending);
        local::send(socket, &mut answers, &mut pending[..count]);
    }
    Ok(())
}

/// Receives and answers what has arrived, or waits for the first datagram; returns the number of answers.
fn receive(
    socket: &UdpSocket,
    responder: &Responder,
    requests: &mut [[u8; REQUEST_MAX]],
    headers: &mut MultiHeaders<SockaddrStorage>,
    pending: &mut [PendingAnswer; BATCH],
) -> usize {
    let mut requests = requests.iter_mut();
    let mut slices: [[IoSliceMut<'_>; 1]; BATCH] = std::array::from_fn(|_| {
        let request = requests.next();
        [IoSliceMut::new(request.expect("there are as many of them"))]
    });
    let (slices, flags) = (slices.iter_mut(), MsgFlags::MSG_WAITFORONE);
    let received = match recvmmsg(socket.as_raw_fd(), headers, slices, flags, None) {
        Ok(received) => received,
        Err(Errno::EAGAIN | Errno::EINTR) => return 0,
        // Errors here come from earlier answers (a client that is gone) or from temporary shortages of the system.
        Err(_) => {
            std::thread::sleep(FAILED_PAUSE);
            return 0;
        }
    };
    let mut count = 0;
    for message in received {
        let from = message.address.as_ref().and_then(source_address);
        // An empty datagram has no slice.
        let packet = message.iovs().next().unwrap_or_default();
        if let Some(from) = from
            && answer(responder, packet, from, &mut pending[count].bytes)
        {
            pending[count].to = from;
            pending[count].local = local::of(&message);
            count += 1;
        }
    }
    count
}

fn source_address(from: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = from.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(|| {
        from.as_sockaddr_in6()
            .map(|v6| SocketAddr::V6((*v6).into()))
    })
}

/// Writes the answer to a packet into `out`, and returns whether there is one.
fn answer(responder: &Responder, packet: &[u8], from: SocketAddr, out: &mut Vec<u8>) -> bool {
    // RFC 1035 does not provide for port 0; an answer to it could not be sent.
    if from.port() == 0 {
        responder.metrics().ignored();
        return false;
    }
    responder.datagram(packet, from, Instant::now(), out)
}

/// Sends the first `count` answers. One that cannot be sent is lost like any datagram: the client asks again.
fn send(socket: &UdpSocket, pending: &[PendingAnswer; BATCH], count: usize) {
    if count <= 1 {
        if let Some(one) = pending.first().filter(|_| count == 1) {
            let _lost = sendto(socket, &one.bytes, SendFlags::empty(), &one.to.as_any()).is_err();
        }
        return;
    }
    let slices = pending.each_ref().map(|one| [IoSlice::new(&one.bytes)]);
    let to = pending.each_ref().map(|one| one.to.as_any());
    let mut controls: [SendAncillaryBuffer<'_, '_, '_>; BATCH] =
        std::array::from_fn(|_| SendAncillaryBuffer::default());
    let mut controls = controls.iter_mut();
    let mut messages: [MMsgHdr<'_>; BATCH] = std::array::from_fn(|index| {
        let control = controls
            .next()
            .expect("there are as many of them as messages");
        MMsgHdr::new_with_addr(&to[index], &slices[index], control)
    });
    let mut first = 0;
    while first < count {
        match sendmmsg(socket, &mut messages[first..count], SendFlags::empty()) {
            Ok(sent) if sent > 0 => first += sent,
            Err(rustix::io::Errno::INTR) => {}
            // The first one cannot be sent; the others may.
            _ => first += 1,
        }
    }
}

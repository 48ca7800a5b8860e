//! State of a client's connection: who the client is, which calls run on it, and since when none does.
//!
//! actix closes an idle HTTP/1 connection by a timer that the first byte of the next request clears, and it times only the head of a connection's
//! first request. So a connection that sends part of a second head would stay open for ever. A task of our own closes connections on which no call
//! has run for longer than a client may be idle and then send a head. It sees a connection from its first byte on, for which a client has no
//! longer than for a head.

use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use actix_http::error::DispatchError;
use actix_http::{RequestHead, Response, Version};
use actix_web::rt::net::TcpStream;
use fdn_core::{ClientPrefix, ErrorCode};
use rustix::net::Shutdown;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;

use super::body::GatewayBody;
use super::head::{Ids, Peer};
use super::problem::ProblemResponse;
use super::service::Gateway;
use crate::metrics::Outcome;
use crate::rtt::{RttTable, tcp_info};

/// As many calls of one HTTP/2 connection run as may.
const TOO_MANY_STREAMS: ProblemResponse = ProblemResponse::new(
    ErrorCode::Overloaded,
    "as many calls run on this connection as may; try again later or over another connection",
);

/// The least time after which an idle connection is closed, should the settings say none at all.
const IDLE_MIN: Duration = Duration::from_millis(100);

/// What a client's connection may do.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// How long no call may run on an HTTP/1 connection before it is closed.
    pub idle: Duration,
    /// The most calls that run at once on one HTTP/2 connection.
    pub streams: u32,
}

/// Waits for the first byte of a connection without TLS, for `limit` at most. actix tells HTTP/2 from HTTP/1 by what arrives first, and would itself
/// wait for it without a limit.
///
/// # Errors
/// When nothing arrives in time, or the connection fails.
pub(super) async fn begun(stream: TcpStream, limit: Duration) -> Result<TcpStream, DispatchError> {
    let seen = timeout(limit.max(IDLE_MIN), stream.peek(&mut [0])).await;
    match seen {
        Ok(Ok(_)) => Ok(stream),
        Ok(Err(failure)) => Err(DispatchError::Io(failure)),
        Err(_) => Err(DispatchError::SlowRequestTimeout),
    }
}

/// A client's connection. Stored in the connection's extensions, on the connection's thread.
pub struct ClientConnection {
    peer: Peer,
    address: Option<SocketAddr>,
    /// The file descriptor of the socket. Only used while the connection hands over a request, when the socket is certainly open.
    socket: RawFd,
    sampled: Cell<Instant>,
    streams: u32,
    activity: Rc<Activity>,
    /// Closes the connection once it is idle. Ends with the connection's state, so it never sees a descriptor that is closed or reused.
    _watch: AbortOnDropHandle<()>,
}

impl ClientConnection {
    /// Records a newly accepted connection, over TLS if `secure`, and measures its round-trip time from the handshake.
    ///
    /// # Panics
    /// Outside of a thread of the gateway.
    #[must_use]
    pub fn accepted(
        stream: &TcpStream,
        secure: bool,
        trusted: &[ClientPrefix],
        rtt: &RttTable,
        limits: ConnectionLimits,
    ) -> Self {
        let address = stream.peer_addr().ok();
        let ip = address.map(|address| address.ip());
        let is_trusted = ip.is_some_and(|ip| trusted.iter().any(|prefix| prefix.contains(ip)));
        let activity = Rc::new(Activity::new());
        let watched = watch(
            Rc::clone(&activity),
            stream.as_raw_fd(),
            limits.idle.max(IDLE_MIN),
        );
        let connection = Self {
            peer: Peer::new(ip, is_trusted).over_tls(secure),
            address,
            socket: stream.as_raw_fd(),
            sampled: Cell::new(Instant::now()),
            streams: limits.streams,
            activity,
            _watch: AbortOnDropHandle::new(tokio::task::spawn_local(watched)),
        };
        connection.measure(rtt);
        connection
    }

    /// The client.
    #[must_use]
    pub const fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Measures the round-trip time again if the last measurement is at least `interval` old. Call it only while the connection hands over a
    /// request: later the socket may be closed and its descriptor reused.
    pub fn sample(&self, rtt: &RttTable, interval: Duration) {
        let now = Instant::now();
        // The call itself is counted only when its future first runs.
        self.activity.since.set(now);
        if now.duration_since(self.sampled.get()) >= interval {
            self.sampled.set(now);
            self.measure(rtt);
        }
    }

    fn measure(&self, rtt: &RttTable) {
        if let (Some(address), Some(trip)) = (self.address, tcp_info::smoothed_rtt(self.socket)) {
            rtt.note(address.ip(), trip);
        }
    }

    /// Counts a call that begins; `None` if as many run on this connection as may. HTTP/1 runs one call after the other by itself.
    pub(super) fn begin(&self, version: Version) -> Option<RunningCall> {
        let activity = &self.activity;
        if version == Version::HTTP_2 {
            activity.is_http2.set(true);
            if activity.running.get() >= self.streams {
                return None;
            }
        }
        activity.running.set(activity.running.get() + 1);
        Some(RunningCall(Rc::clone(activity)))
    }
}

/// What happens on a connection.
struct Activity {
    /// The calls that run, from their head to the last byte of their answer's body.
    running: Cell<u32>,
    /// When the last call began or ended, or the connection was accepted.
    since: Cell<Instant>,
    is_http2: Cell<bool>,
}

impl Activity {
    fn new() -> Self {
        Self {
            running: Cell::new(0),
            since: Cell::new(Instant::now()),
            is_http2: Cell::new(false),
        }
    }

    /// How long no call has run.
    fn idle(&self) -> Duration {
        if self.running.get() > 0 {
            Duration::ZERO
        } else {
            self.since.get().elapsed()
        }
    }
}

/// A call that runs on a connection, until this is dropped.
pub(super) struct RunningCall(Rc<Activity>);

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get().saturating_sub(1));
        self.0.since.set(Instant::now());
    }
}

/// Closes a connection on which no call has run for as long as `limit`, and whose client receives nothing any more. HTTP/2 connections that have
/// carried a call are left to actix, which sends them pings and closes those that do not answer.
async fn watch(activity: Rc<Activity>, socket: RawFd, limit: Duration) {
    let mut acknowledged = None;
    loop {
        let left = limit.saturating_sub(activity.idle());
        if !left.is_zero() {
            sleep(left).await;
            if activity.is_http2.get() {
                return;
            }
            continue;
        }
        // A call counts until its answer is in actix's buffer. Whoever receives that slowly is served as long as anything arrives.
        let sending = tcp_info::sending(socket).filter(|sending| sending.is_pending);
        match sending {
            Some(sending) if acknowledged != Some(sending.acknowledged) => {
                acknowledged = Some(sending.acknowledged);
                activity.since.set(Instant::now());
            }
            _ => return shut_down(socket),
        }
    }
}

#[allow(
    unsafe_code,
    reason = "the socket belongs to actix, which hands out only its descriptor"
)]
fn shut_down(socket: RawFd) {
    // SAFETY: the socket is open, because the task that calls this ends before actix drops the connection.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    if let Err(error) = rustix::net::shutdown(socket, Shutdown::Both) {
        // The client has closed the connection already.
        debug!(%error, "an idle connection could not be closed");
    }
}

impl Gateway {
    /// The answer to a call beyond those that may run on its connection.
    pub(super) fn refuse_stream(&self, head: &RequestHead) -> Response<GatewayBody> {
        let outcome = Outcome::of_code(TOO_MANY_STREAMS.code);
        self.metrics.other.ended(outcome, Duration::ZERO);
        let ids = Ids::of(head.headers());
        let mut response = TOO_MANY_STREAMS.respond(&ids.request);
        self.add_names(&mut response, ids.request);
        response
    }
}

//! State of a client's connection.

use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use actix_web::rt::net::TcpStream;
use fdn_core::ClientPrefix;

use super::head::Peer;
use crate::rtt::{RttTable, tcp_info};

/// A client's connection. Stored in the connection's extensions, on the connection's thread.
pub struct ClientConnection {
    peer: Peer,
    address: Option<SocketAddr>,
    /// The file descriptor of the socket. Only used while the connection hands over a request, when the socket is certainly open.
    socket: RawFd,
    sampled: Cell<Instant>,
}

impl ClientConnection {
    /// Records a newly accepted connection, over TLS if `secure`, and measures its round-trip time from the handshake.
    #[must_use]
    pub fn accepted(
        stream: &TcpStream,
        secure: bool,
        trusted: &[ClientPrefix],
        rtt: &RttTable,
    ) -> Self {
        let address = stream.peer_addr().ok();
        let ip = address.map(|address| address.ip());
        let is_trusted = ip.is_some_and(|ip| trusted.iter().any(|prefix| prefix.contains(ip)));
        let connection = Self {
            peer: Peer::new(ip, is_trusted).over_tls(secure),
            address,
            socket: stream.as_raw_fd(),
            sampled: Cell::new(Instant::now()),
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
        if self.sampled.get().elapsed() >= interval {
            self.sampled.set(Instant::now());
            self.measure(rtt);
        }
    }

    fn measure(&self, rtt: &RttTable) {
        if let (Some(address), Some(trip)) = (self.address, tcp_info::smoothed_rtt(self.socket)) {
            rtt.note(address.ip(), trip);
        }
    }
}

//! What is known of a client's connection while it lasts.

use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use actix_web::rt::net::TcpStream;
use fdn_core::ClientPrefix;

use super::head::Peer;
use crate::rtt::{RttTable, tcp_info};

/// A client's connection. Lives in the connection's extensions, on the connection's thread.
pub struct ClientConnection {
    peer: Peer,
    address: Option<SocketAddr>,
    /// Only used while a request is being handed over by the connection, when the socket is certainly open.
    socket: RawFd,
    sampled: Cell<Instant>,
}

impl ClientConnection {
    /// Notes a connection that was just accepted, over TLS if it is `secure`, and measures its round trip from the handshake.
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

    /// Measures the round trip again if the last time was `interval` ago. To be called only while the connection hands over a request:
    /// later the socket may be closed and its number in use elsewhere.
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

//! Accepts connections: with a limit on their number, one per client, and an idle time.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::{IntCounter, IntGauge};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The pause after a connection could not be accepted (for example because no file descriptor is left).
const FAILED_PAUSE: Duration = Duration::from_millis(50);
/// The factor by which a timeout is divided while most slots are in use.
const LOADED_DIVISOR: u32 = 10;

/// The limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most concurrent connections.
    pub connections: usize,
    /// The most concurrent connections of one address.
    pub per_client: usize,
    /// How long a whole message may take to arrive, or an answer to be accepted, while there is room for more connections.
    pub idle: Duration,
    /// The longest request, in bytes.
    pub request: usize,
}

impl Limits {
    /// The idle time while this many connections are open.
    #[must_use]
    pub fn idle_at(&self, open: usize) -> Duration {
        loaded_timeout(self.idle, open, self.connections)
    }
}

/// The time, or a tenth of it while three quarters of the slots are in use (RFC 7766, section 6.2.3).
pub(super) fn loaded_timeout(time: Duration, used: usize, slots: usize) -> Duration {
    // used / slots >= 3 / 4, written so that nothing can overflow.
    if used >= slots - slots / 4 {
        time / LOADED_DIVISOR
    } else {
        time
    }
}

/// The counters of one kind of connections.
#[derive(Clone, Debug)]
pub struct ConnectionMetrics {
    /// Open connections.
    pub open: IntGauge,
    /// Connections closed at once because a limit was reached.
    pub refused: IntCounter,
}

/// The bits of an IPv6 address that belong to one client: a site has a /56 to itself, and with it any number of addresses.
const IPV6_CLIENT: u32 = 56;

/// The client that an address belongs to: an IPv4 address, or the network of an IPv6 one.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let network = address.to_bits() & (u128::MAX << (128 - IPV6_CLIENT));
            Ipv6Addr::from_bits(network).into()
        }
    }
}

/// The number of open connections, in total and by client.
#[derive(Default)]
struct OpenConnections {
    clients: Mutex<(usize, BTreeMap<IpAddr, usize>)>,
}

impl OpenConnections {
    fn lock(&self) -> MutexGuard<'_, (usize, BTreeMap<IpAddr, usize>)> {
        // Each count is changed in one step; a panic elsewhere cannot leave them half changed.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn acquire(&self, client: IpAddr, limits: Limits) -> bool {
        let mut clients = self.lock();
        let own = clients.1.get(&client).copied().unwrap_or(0);
        if clients.0 >= limits.connections || own >= limits.per_client {
            return false;
        }
        clients.0 += 1;
        clients.1.insert(client, own + 1);
        true
    }

    fn open(&self) -> usize {
        self.lock().0
    }

    fn release(&self, client: IpAddr) {
        let mut clients = self.lock();
        clients.0 -= 1;
        if let Some(own) = clients.1.get_mut(&client) {
            *own -= 1;
            if *own == 0 {
                clients.1.remove(&client);
            }
        }
    }
}

/// A slot for a connection. It is released on drop, however the connection ends.
pub(super) struct ConnectionSlot {
    connected: Arc<OpenConnections>,
    client: IpAddr,
    limits: Limits,
    open: IntGauge,
}

impl ConnectionSlot {
    /// The current idle time.
    pub(super) fn idle(&self) -> Duration {
        self.limits.idle_at(self.connected.open())
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connected.release(self.client);
        self.open.dec();
    }
}

/// Accepts connections until `shutdown`, and runs the future that `serve` returns for each; `shutdown` ends these too.
pub(super) async fn accept<F>(
    listener: TcpListener,
    limits: Limits,
    metrics: ConnectionMetrics,
    shutdown: CancellationToken,
    serve: impl Fn(TcpStream, SocketAddr, ConnectionSlot) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let connected = Arc::new(OpenConnections::default());
    let conversations = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => break,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(FAILED_PAUSE).await;
            continue;
        };
        let client = network_of(peer.ip());
        if !connected.acquire(client, limits) {
            metrics.refused.inc();
            continue;
        }
        metrics.open.inc();
        let slot = ConnectionSlot {
            connected: Arc::clone(&connected),
            client,
            limits,
            open: metrics.open.clone(),
        };
        // Answers are small and complete: waiting for more data to send only delays them.
        drop(stream.set_nodelay(true));
        let (conversation, shutdown) = (serve(stream, peer, slot), shutdown.clone());
        conversations.spawn(async move {
            tokio::select! {
                () = conversation => {}
                () = shutdown.cancelled() => {}
            }
        });
    }
    conversations.close();
    conversations.wait().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_by_the_network_of_a_site() {
        let network = |text: &str| network_of(text.parse().expect("an address")).to_string();
        assert_eq!(network("192.0.2.7"), "192.0.2.7");
        assert_eq!(network("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(network("2001:db8:0:12ff::7"), "2001:db8:0:1200::");
        assert_ne!(network("2001:db8:0:1200::7"), network("2001:db8:0:1300::7"));
    }

    #[test]
    fn a_crowd_has_less_time() {
        let limits = Limits {
            connections: 1000,
            per_client: 1,
            idle: Duration::from_secs(10),
            request: 4096,
        };
        let times = [0, 749, 750, 1000].map(|open| limits.idle_at(open).as_secs());
        assert_eq!(times, [10, 10, 1, 1]);
        // A single connection is always crowded: there is no room for another.
        let one = Limits {
            connections: 1,
            ..limits
        };
        assert_eq!(one.idle_at(1).as_secs(), 1);
    }
}

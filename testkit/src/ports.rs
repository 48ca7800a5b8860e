//! Free ports for servers that cannot be asked to choose one themselves.
//!
//! They lie below the range that the system takes the ports of clients from. One inside it could be given to some client's socket
//! before the server binds it, or while the server is restarted; and a UDP client that shares ports, as `dig` does, could get
//! the very port of the server it asks, and then reads its own question as the answer.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rand::RngExt;

/// Where the system says which ports it gives to clients (Linux).
const CLIENTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// The first port handed out: well-known services lie below.
const FIRST: u16 = 10_000;
/// Where the clients' range begins if the system does not say.
const CLIENTS_FROM: u16 = 32_768;
/// Fewer ports than this below the clients' range are too few to find free ones among.
const ENOUGH: u16 = 1_000;
const ATTEMPTS: usize = 1_000;

/// A port that was free for TCP and UDP on every one of `addresses` a moment ago, and that this process has not handed out before.
///
/// # Panics
/// When no such port can be found.
#[must_use]
pub fn free(addresses: &[IpAddr]) -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let range = below_clients(std::fs::read_to_string(CLIENTS).ok().as_deref());
    for _ in 0..ATTEMPTS {
        // At random, so that two test programs which run at once do not reach for the same one.
        let port = rand::rng().random_range(range.clone());
        let all_free = addresses.iter().all(|ip| {
            let address = SocketAddr::new(*ip, port);
            TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()
        });
        if all_free && given.insert(port) {
            return port;
        }
    }
    panic!("no port is free on all of {addresses:?}");
}

/// The ports below those of clients, by what the system says: `32768 60999`. Where it leaves too few, any but the well-known.
fn below_clients(said: Option<&str>) -> Range<u16> {
    let first = said.and_then(|text| text.split_whitespace().next()?.parse().ok());
    match first.unwrap_or(CLIENTS_FROM) {
        end if end >= FIRST + ENOUGH => FIRST..end,
        _ => FIRST..u16::MAX,
    }
}

/// A free port on 127.0.0.1.
#[must_use]
pub fn local() -> u16 {
    free(&[IpAddr::V4(Ipv4Addr::LOCALHOST)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_lie_below_those_of_clients() {
        assert_eq!(below_clients(Some("32768\t60999\n")), 10_000..32_768);
        assert_eq!(below_clients(Some("20000 20015")), 10_000..20_000);
        assert_eq!(below_clients(Some("1024 65000")), 10_000..u16::MAX);
        assert_eq!(below_clients(Some("what")), 10_000..32_768);
        assert_eq!(below_clients(None), 10_000..32_768);
    }

    #[test]
    fn no_port_is_handed_out_twice() {
        let ports: BTreeSet<u16> = (0..50).map(|_| local()).collect();
        assert_eq!(ports.len(), 50);
    }
}

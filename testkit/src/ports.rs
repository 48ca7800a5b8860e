//! Free ports for servers that cannot choose one themselves.
//!
//! The ports are below the system's range of ephemeral ports. A port inside that range could be assigned to a client's socket
//! before the server binds it, or while the server is restarted; and a UDP client with shared ports, like `dig`, could get
//! the very port of the server that it asks, and then read its own question as the answer.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rand::RngExt;

/// The file with the range of ephemeral ports (Linux).
const CLIENTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// The lowest port that is used: well-known services are below.
const FIRST: u16 = 10_000;
/// The beginning of the ephemeral range if the system does not report it.
const CLIENTS_FROM: u16 = 32_768;
/// With fewer ports than this below the ephemeral range, there are too few to find free ones.
const ENOUGH: u16 = 1_000;
const ATTEMPTS: usize = 1_000;

/// A port that was just free for TCP and UDP on all of `addresses`, and that no test program that runs has handed out before.
///
/// # Panics
/// When no such port can be found.
#[must_use]
pub fn free(addresses: &[IpAddr]) -> u16 {
    static GIVEN: Mutex<BTreeMap<u16, File>> = Mutex::new(BTreeMap::new());
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let range = below_clients(std::fs::read_to_string(CLIENTS).ok().as_deref());
    for _ in 0..ATTEMPTS {
        // Random, so that concurrent test programs rarely choose the same one.
        let port = rand::rng().random_range(range.clone());
        if given.contains_key(&port) {
            continue;
        }
        let Some(lock) = lock(port) else { continue };
        let all_free = addresses.iter().all(|ip| {
            let address = SocketAddr::new(*ip, port);
            TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()
        });
        if all_free {
            given.insert(port, lock);
            return port;
        }
    }
    panic!("no port is free on all of {addresses:?}");
}

/// Takes a port for this process until it ends; `None` if another process has it.
fn lock(port: u16) -> Option<File> {
    let folder = std::env::temp_dir().join("fdn-test-ports");
    std::fs::create_dir_all(&folder).ok()?;
    let file = File::create(folder.join(port.to_string())).ok()?;
    file.try_lock().ok()?;
    Some(file)
}

/// The ports below the ephemeral range, given the system's range `32768 60999`. If these are too few, all but the well-known ports.
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
    use std::collections::BTreeSet;

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
        // Nor to another process: a lock counts for the file that was opened, whoever opened it.
        assert!(ports.into_iter().all(|port| lock(port).is_none()));
    }
}

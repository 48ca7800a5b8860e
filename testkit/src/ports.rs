//! Free ports for servers that cannot be asked to choose one themselves.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Mutex, PoisonError};

/// A port that was free for TCP and UDP on every one of `addresses` a moment ago, and that this process has not handed out before.
///
/// # Panics
/// When no such port can be found.
#[must_use]
pub fn free(addresses: &[IpAddr]) -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..1000 {
        let Ok(listener) = TcpListener::bind((addresses[0], 0)) else {
            continue;
        };
        let Ok(port) = listener.local_addr().map(|a| a.port()) else {
            continue;
        };
        drop(listener);
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

/// A free port on 127.0.0.1.
#[must_use]
pub fn local() -> u16 {
    free(&[IpAddr::V4(Ipv4Addr::LOCALHOST)])
}

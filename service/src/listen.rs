//! Binds addresses, with readable errors.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::error::ServiceError;

/// The number of connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

fn explain(address: SocketAddr, setting: &str, source: std::io::Error) -> ServiceError {
    let setting = setting.to_owned();
    if source.kind() == ErrorKind::AddrInUse {
        ServiceError::AddressTaken { address, setting }
    } else {
        ServiceError::Listen {
            address,
            setting,
            source,
        }
    }
}

/// Binds a TCP listener (non-blocking, address reusable after a restart). Errors name `setting`, the flag or setting of the address.
///
/// # Errors
/// [`ServiceError::AddressTaken`] when another program listens there, [`ServiceError::Listen`] for any other reason.
pub fn tcp(address: SocketAddr, setting: &str) -> Result<TcpListener, ServiceError> {
    let bind = || {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    bind().map_err(|source| explain(address, setting, source))
}

/// Makes the kernel close a connection whose peer acknowledged nothing for `gone` (tcp(7): `TCP_USER_TIMEOUT`), and probe an idle one.
///
/// # Errors
/// When a socket option cannot be set.
pub fn set_liveness_timeout(stream: &impl AsFd, gone: Duration) -> std::io::Result<()> {
    let socket = SockRef::from(stream);
    let ask = TcpKeepalive::new().with_time(gone).with_interval(gone / 2);
    socket.set_tcp_keepalive(&ask)?;
    socket.set_tcp_user_timeout(Some(gone))
}

/// Binds a UDP socket (non-blocking).
///
/// # Errors
/// As for [`tcp`].
pub fn udp(address: SocketAddr, setting: &str) -> Result<UdpSocket, ServiceError> {
    let bind = || {
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    bind().map_err(|source| explain(address, setting, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_address_is_said_with_the_flag() {
        let first = tcp(SocketAddr::from(([127, 0, 0, 1], 0)), "--listen").expect("free");
        let address = first.local_addr().expect("address");
        let error = tcp(address, "--listen").expect_err("taken").to_string();
        assert!(
            error.contains("already taken")
                && error.contains("--listen")
                && error.contains(&address.to_string())
        );
    }
}

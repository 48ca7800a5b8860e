//! Checks that all addresses are available before anything starts, so that a taken port results in one message and not in half a network.

use fdn_service::{ServiceError, listen};

use super::plan::{Listener, Plan};
use crate::error::CliError;

/// Binds every address once and releases it.
///
/// # Errors
/// The first address that is not available, with the flag that changes it.
pub fn check(plan: &Plan) -> Result<(), CliError> {
    for listener in plan.listeners() {
        try_one(&listener).map_err(|e| explain(e, &listener))?;
    }
    Ok(())
}

fn try_one(listener: &Listener) -> Result<(), ServiceError> {
    drop(listen::tcp(listener.address, listener.flag)?);
    if listener.udp {
        drop(listen::udp(listener.address, listener.flag)?);
    }
    Ok(())
}

fn explain(error: ServiceError, listener: &Listener) -> CliError {
    match error {
        ServiceError::Listen { source, .. }
            if source.kind() == std::io::ErrorKind::AddrNotAvailable =>
        {
            CliError::NoAddress {
                address: listener.address.ip(),
            }
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, UdpSocket};

    use super::*;

    fn listener(address: SocketAddr) -> Listener {
        Listener {
            address,
            flag: "--dns",
            udp: true,
        }
    }

    #[test]
    fn a_port_taken_for_udp_alone_is_found() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("socket");
        let address = socket.local_addr().expect("address");
        let error = try_one(&listener(address)).expect_err("taken").to_string();
        assert!(
            error.contains(&address.to_string()) && error.contains("--dns"),
            "{error}"
        );
    }

    #[test]
    fn an_address_that_is_not_this_machines_is_told_apart() {
        let foreign = listener(SocketAddr::from(([192, 0, 2, 1], 5300)));
        let error = explain(try_one(&foreign).expect_err("foreign"), &foreign);
        assert!(
            error
                .to_string()
                .contains("192.0.2.1 is not an address of this machine"),
            "{error}"
        );
        assert!(
            error
                .hint()
                .expect("hint")
                .contains("ifconfig lo0 alias 192.0.2.1")
        );
    }

    #[test]
    fn what_was_tried_is_free_again() {
        let address = TcpListener::bind("127.0.0.1:0")
            .expect("free")
            .local_addr()
            .expect("address");
        try_one(&listener(address)).expect("free");
        try_one(&listener(address)).expect("still free");
    }
}

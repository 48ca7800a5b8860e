//! The health check of a container, made by the same program in a separate process, so that an image needs no other tool for it.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::error::ServiceError;

/// The timeout of connecting, and then of each step.
const PATIENCE: Duration = Duration::from_secs(4);
/// The length of an HTTP response up to the status code, in bytes.
const STATUS: usize = "HTTP/1.1 200".len();

/// Asks the process on this machine that listens on this address for `/healthz`. With TLS it only checks that a connection is accepted:
/// certificates name hosts, not this machine's own addresses.
///
/// # Errors
/// [`ServiceError::Unhealthy`] when there is no answer, or its status is not 200.
pub fn check(listen: SocketAddr, tls: bool) -> Result<(), ServiceError> {
    let address = own(listen);
    ask(address, tls).map_err(|source| ServiceError::Unhealthy { address, source })
}

fn ask(address: SocketAddr, tls: bool) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    if tls {
        return Ok(());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut status = [0; STATUS];
    stream.read_exact(&mut status)?;
    if status.ends_with(b" 200") {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&status).into_owned();
    Err(std::io::Error::other(format!("the answer is {told}")))
}

/// The address by which a listener is reached from its own machine: the loopback address if it listens on all.
fn own(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Answers one connection with this response.
    fn answering(line: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("accept");
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).expect("request");
                request.extend(byte);
            }
            stream.write_all(line.as_bytes()).expect("answer");
        });
        address
    }

    #[test]
    fn an_answer_of_200_is_health() {
        check(answering("HTTP/1.1 200 OK\r\n\r\n"), false).expect("healthy");
    }

    #[test]
    fn another_answer_is_told() {
        let error = check(answering("HTTP/1.1 503 Service Unavailable\r\n\r\n"), false);
        let error = error.expect_err("not healthy");
        let cause = std::error::Error::source(&error).expect("a cause");
        assert!(cause.to_string().contains("503"), "{cause}");
    }

    #[test]
    fn nobody_there_is_told_with_the_address() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        check(address, true).expect("it lets connect");
        drop(listener);
        let error = check(address, false).expect_err("nobody there");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }

    #[test]
    fn a_listener_on_all_addresses_is_asked_on_loopback() {
        let own = |text: &str| own(text.parse().expect("address")).to_string();
        assert_eq!(own("0.0.0.0:8600"), "127.0.0.1:8600");
        assert_eq!(own("[::]:8600"), "[::1]:8600");
        assert_eq!(own("192.0.2.7:8600"), "192.0.2.7:8600");
    }
}

//! One HTTP/1.1 exchange with the first reachable gateway of a list.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::request::Body;
use crate::client::root_cause;
use crate::error::CliError;

/// The timeout of connecting to one address.
const CONNECT: Duration = Duration::from_secs(3);

/// A connection to a gateway.
#[derive(Debug)]
pub(in crate::commands) struct Connection {
    /// The address of the gateway.
    pub(in crate::commands) address: SocketAddr,
    /// How long connecting took, including failed addresses.
    pub(in crate::commands) took: Duration,
    stream: TcpStream,
}

/// Connects to the first address that accepts. Also returns the addresses that failed, with the reasons.
///
/// # Errors
/// When no address accepts.
pub(in crate::commands) async fn connect(
    addresses: &[SocketAddr],
) -> Result<(Connection, Vec<(SocketAddr, String)>), CliError> {
    let began = Instant::now();
    let mut skipped = Vec::new();
    for address in addresses {
        match tokio::time::timeout(CONNECT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Disables Nagle's algorithm: small requests must not wait for an acknowledgement (RFC 896).
                drop(stream.set_nodelay(true));
                return Ok((
                    Connection {
                        address: *address,
                        took: began.elapsed(),
                        stream,
                    },
                    skipped,
                ));
            }
            Ok(Err(error)) => skipped.push((*address, root_cause(&error))),
            Err(_) => skipped.push((
                *address,
                format!("no connection within {} s", CONNECT.as_secs()),
            )),
        }
    }
    let place = addresses
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    let reason = skipped.last().map_or_else(
        || "there is no address".to_owned(),
        |(_, reason)| reason.clone(),
    );
    Err(CliError::Unreachable {
        what: "a gateway",
        place,
        reason,
    })
}

/// Sends the request and returns the head of the response, and the time that it took.
///
/// # Errors
/// When the connection breaks before the head has arrived.
pub(in crate::commands) async fn send(
    connection: Connection,
    request: Request<Body>,
) -> Result<(Response<Incoming>, Duration), CliError> {
    let began = Instant::now();
    let address = connection.address;
    let broken = |e: hyper::Error| {
        CliError::Cut(format!(
            "{address} ended the connection without an answer: {}",
            root_cause(&e)
        ))
    };
    let (mut sender, driver) = http1::handshake(TokioIo::new(connection.stream))
        .await
        .map_err(broken)?;
    tokio::spawn(async move {
        // Errors of the connection are also seen by the exchange.
        drop(driver.await);
    });
    let response = sender.send_request(request).await.map_err(broken)?;
    Ok((response, began.elapsed()))
}

//! The listener of the simulated API server.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{Shared, api};

/// Instead of a response: close the connection.
#[derive(Debug)]
pub(super) struct Closed;

#[derive(Debug)]
pub(super) struct Server {
    address: SocketAddr,
    /// False while the server is away. Closed with this object, which ends the listener and all connections.
    here: watch::Sender<bool>,
}

impl Server {
    pub(super) async fn start(shared: Arc<Shared>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (here, presence) = watch::channel(true);
        tokio::spawn(async move {
            loop {
                let mut ended = presence.clone();
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    _ = ended.wait_for(|_| false) => return,
                };
                let Ok((stream, _)) = accepted else { continue };
                if *presence.borrow() {
                    tokio::spawn(serve(shared.clone(), stream, presence.clone()));
                }
            }
        });
        Ok(Self { address, here })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn disconnect(&self) {
        self.here.send_replace(false);
    }

    pub(super) fn reconnect(&self) {
        self.here.send_replace(true);
    }
}

async fn serve(shared: Arc<Shared>, stream: TcpStream, mut presence: watch::Receiver<bool>) {
    drop(stream.set_nodelay(true));
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let shared = shared.clone();
        async move {
            match api::answer(&shared, request).await {
                Ok(response) => Ok(response),
                Err(Closed) => Err(std::io::Error::other("closed on purpose")),
            }
        }
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        outcome = connection => drop(outcome),
        _ = presence.wait_for(|here| !here) => {}
    }
}

/// The body type; sending it cannot fail.
pub(super) type Body = http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, Infallible>;

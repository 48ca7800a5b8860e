//! Connects to other nodes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tonic::client::Grpc;
use tower_service::Service;
use tracing::debug;

use super::outbox::Drain;
use super::{LinkEvent, Links, Peer, WINDOW};
use crate::wire::codec::{FrameCodec, PATH};

/// Why a node could not be reached.
#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error("connecting took too long")]
    Timeout,
    #[error("no connection")]
    Connect(#[from] std::io::Error),
    #[error("no HTTP/2 connection")]
    Http(#[from] hyper::Error),
    #[error("no stream: {0}")]
    Refused(String),
}

/// Connects to a node and serves the stream until it ends.
pub(crate) async fn dial(links: Arc<Links>, address: SocketAddr) {
    let connected = timeout(links.connect_timeout(), connect(&links, address)).await;
    match connected.unwrap_or(Err(DialError::Timeout)) {
        Ok((sender, peer)) => {
            if let Err(error) = stream(&links, sender, peer, address).await {
                debug!(%address, %error, "a node refused the stream");
            }
        }
        Err(error) => {
            debug!(%address, error = &error as &dyn std::error::Error, "a node was not reached")
        }
    }
    // Nobody receives this while the node is stopping.
    let _ = links.events.send(LinkEvent::Unreached(address)).await;
}

async fn connect(
    links: &Links,
    address: SocketAddr,
) -> Result<(SendRequest<Body>, Option<Peer>), DialError> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let Some(source) = &links.tls else {
        return Ok((handshake(links, stream).await?, None));
    };
    let connector = TlsConnector::from(source.current().client);
    let stream = connector
        .connect(ServerName::from(address.ip()), stream)
        .await?;
    let peer = links.identify(stream.get_ref().1.peer_certificates());
    Ok((handshake(links, stream).await?, peer))
}

async fn handshake(
    links: &Links,
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Body>, DialError> {
    let keep_alive = links.settings.timing.keep_alive.as_duration();
    let (sender, connection) = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .keep_alive_interval(keep_alive)
        .keep_alive_timeout(keep_alive)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(io))
        .await?;
    let stop = links.stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            ended = connection => {
                if let Err(error) = ended {
                    debug!(%error, "a connection to a node broke");
                }
            }
            () = stop.cancelled() => {}
        }
    });
    Ok(sender)
}

async fn stream(
    links: &Links,
    sender: SendRequest<Body>,
    peer: Option<Peer>,
    address: SocketAddr,
) -> Result<(), DialError> {
    let refused = |reason: &dyn std::fmt::Display| DialError::Refused(reason.to_string());
    let origin = Uri::builder()
        .scheme("http")
        .authority(address.to_string())
        .path_and_query("/")
        .build()
        .map_err(|error| refused(&error))?;
    let outbox = links.outbox();
    let frame_size = links.settings.limits.frame_size.as_usize();
    let mut client = Grpc::with_origin(Wire(sender), origin).max_decoding_message_size(frame_size);
    let request = tonic::Request::new(Drain(Arc::clone(&outbox)));
    let opening = client.streaming(request, PATH, FrameCodec);
    let response = timeout(links.connect_timeout(), opening)
        .await
        .map_err(|_| DialError::Timeout)?
        .map_err(|status| refused(&status.message()))?;
    links.run(response.into_inner(), outbox, peer, true).await;
    Ok(())
}

/// One HTTP/2 connection as the service that tonic's client calls.
struct Wire(SendRequest<Body>);

impl Service<http::Request<Body>> for Wire {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = std::pin::Pin<
        Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send + 'static>,
    >;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

//! Accepts connections from other nodes.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use http::StatusCode;
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tonic::server::{Grpc, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tracing::{debug, warn};

use super::outbox::Drain;
use super::{CONNECTION_WINDOW, Links, Peer, WINDOW, unwelcome};
use crate::peer::{self, HEAD_MAX, PREFIX};
use crate::wire::codec::{FrameCodec, PATH};
use crate::wire::proto::Frame;

/// Accepts connections until the node stops. The limit is twice the number of connections per member, for old and new ones.
pub(crate) async fn accept(links: Arc<Links>, listener: TcpListener) {
    let room = Arc::new(Semaphore::new(links.settings.limits.connections()));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = links.stop.cancelled() => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Most likely out of file descriptors: retrying at once would spin.
                warn!(%error, "a connection of a node cannot be accepted");
                tokio::time::sleep(links.settings.timing.ping_every.as_duration()).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            links.metrics.streams_refused.inc();
            continue;
        };
        let links = Arc::clone(&links);
        tokio::spawn(async move {
            serve(links, stream).await;
            drop(permit);
        });
    }
}

async fn serve(links: Arc<Links>, stream: TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "a connection of a node broke at once");
        return;
    }
    let Some(source) = &links.tls else {
        return converse(links, stream, None).await;
    };
    let acceptor = TlsAcceptor::from(source.current().server);
    match timeout(links.connect_timeout(), acceptor.accept(stream)).await {
        Ok(Ok(stream)) => match links.identify(stream.get_ref().1.peer_certificates()) {
            Some(peer) => converse(links, stream, Some(peer)).await,
            None => links.metrics.streams_refused.inc(),
        },
        Ok(Err(error)) => {
            debug!(%error, "a connection without a good certificate was refused");
            links.metrics.streams_refused.inc();
        }
        Err(_) => links.metrics.streams_refused.inc(),
    }
}

async fn converse(
    links: Arc<Links>,
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Option<Peer>,
) {
    let keep_alive = links.settings.timing.keep_alive.as_duration();
    let (closer, limits) = (links.stop.child_token(), links.settings.limits.clone());
    let (closed, metrics, shown) = (closer.clone(), links.metrics.clone(), peer.clone());
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (links, peer, closer) = (Arc::clone(&links), peer.clone(), closer.clone());
        async move {
            // Its certificate may have been revoked since the handshake: then nothing of the connection is served any more.
            if peer.as_ref().is_some_and(|peer| !peer.is_welcome()) {
                links.metrics.streams_refused.inc();
                closer.cancel();
                return Ok(peer::refused(StatusCode::FORBIDDEN));
            }
            Ok::<_, Infallible>(answer(links, peer, request).await)
        }
    });
    let connection = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEAD_MAX)
        .max_concurrent_streams(limits.peer_requests)
        .keep_alive_interval(keep_alive)
        .keep_alive_timeout(keep_alive)
        .serve_connection(TokioIo::new(io), service);
    tokio::select! {
        biased;
        ended = connection => {
            if let Err(error) = ended {
                debug!(%error, "a connection of a node broke");
            }
        }
        () = closed.cancelled() => {}
        // What is open ends, too.
        () = unwelcome(shown.as_ref()) => metrics.streams_refused.inc(),
    }
}

async fn answer(
    links: Arc<Links>,
    peer: Option<Peer>,
    request: http::Request<Incoming>,
) -> http::Response<tonic::body::Body> {
    let path = request.uri().path();
    if path.starts_with(PREFIX) {
        let identity = peer.map(|peer| peer.identity);
        return peer::answer(&links, identity, request).await;
    }
    if path != PATH.path() {
        return peer::refused(StatusCode::NOT_FOUND);
    }
    let frame_size = links.settings.limits.frame_size.as_usize();
    Grpc::new(FrameCodec)
        .max_decoding_message_size(frame_size)
        .streaming(Peers { links, peer }, request)
        .await
}

/// The service's one method.
struct Peers {
    links: Arc<Links>,
    peer: Option<Peer>,
}

impl StreamingService<Frame> for Peers {
    type Response = Frame;
    type ResponseStream = Answers;
    type Future = Ready<Result<Response<Answers>, Status>>;

    fn call(&mut self, request: Request<Streaming<Frame>>) -> Self::Future {
        let outbox = self.links.outbox();
        let (links, peer) = (Arc::clone(&self.links), self.peer.clone());
        let drain = Drain(Arc::clone(&outbox));
        tokio::spawn(async move {
            links.run(request.into_inner(), outbox, peer, false).await;
        });
        ready(Ok(Response::new(Answers(drain))))
    }
}

/// The frames of an outbox as the stream of a response.
struct Answers(Drain);

impl Stream for Answers {
    type Item = Result<Frame, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0)
            .poll_next(context)
            .map(|frame| frame.map(Ok))
    }
}

//! What nginx's proxy stands before while bodies are streamed: a process that takes a body to its end and says how long it was, or sends one of a length.
//! It runs on the node's core, as the function behind our gateway does.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use bytes::Bytes;
use futures::stream;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::connection::Payload;

/// The hidden argument with which this program is that process.
pub(crate) const CHILD: &str = "__bytes";
/// How long the bodies are.
pub(super) const LENGTH: u64 = 1 << 30;
/// Bytes that are handed over at a time.
const PIECE: usize = 64 << 10;

/// A body of [`LENGTH`], piece by piece.
pub(super) fn body() -> Payload {
    let piece = Bytes::from_static(&[b'x'; PIECE]);
    let pieces = LENGTH / PIECE as u64;
    let frames = (0..pieces).map(move |_| Ok::<_, Infallible>(Frame::data(piece.clone())));
    StreamBody::new(stream::iter(frames)).boxed_unsync()
}

/// Serves on a port until the process is killed.
pub(crate) fn child(port: u16) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(port))
}

async fn serve(port: u16) -> Result<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let connection =
            http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
        // Who breaks a connection off has read what it wanted.
        tokio::spawn(async move { drop(connection.await) });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Payload>, hyper::Error> {
    if request.method() != Method::POST {
        let mut response = Response::new(body());
        let length = header::HeaderValue::from(LENGTH);
        response
            .headers_mut()
            .insert(header::CONTENT_LENGTH, length);
        return Ok(response);
    }
    let (mut body, mut bytes) = (request.into_body(), 0);
    while let Some(frame) = body.frame().await {
        bytes += frame?.data_ref().map_or(0, Bytes::len);
    }
    let text = Full::new(Bytes::from(bytes.to_string()));
    Ok(Response::new(text.boxed_unsync()))
}

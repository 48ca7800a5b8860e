//! The TCP loop: messages with a length in front, pipelined, on a bounded number of connections (RFC 7766).
//!
//! A connection ends when a whole message has not arrived within the idle time, however slowly its bytes trickle in, when its peer
//! does not take an answer within the same time, when it announces a longer request than any honest one, or when the peer closes.
//! While most connections are in use the idle time is a tenth (RFC 7766, section 6.2.3), so that peers who only hold connections
//! lose them to those who ask. A connection holds one request, one answer (of whoever has a key, one copy of the zone) and two buffers, whatever is sent: the caps bound memory.
//! [`converse`] works on any byte stream, that of [`super::tls`] among them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Responder;
use super::streams::{self, Counts, Limits};
use crate::metrics::Transport;

/// Bytes of each of a connection's two buffers.
const BUFFER: usize = 4096;

/// Accepts and answers until `shutdown`.
pub async fn serve(
    listener: TcpListener,
    responder: Arc<Responder>,
    limits: Limits,
    shutdown: CancellationToken,
) {
    let counts = Counts {
        open: responder.metrics().tcp_open.clone(),
        refused: responder.metrics().tcp_refused.clone(),
    };
    streams::accept(listener, limits, counts, shutdown, |stream, peer, place| {
        let responder = Arc::clone(&responder);
        async move {
            let from = (peer, Transport::Tcp);
            converse(stream, from, &responder, limits.request, || place.idle()).await;
        }
    })
    .await;
}

/// Answers the messages of one stream in their order until it ends. `from` is who asks, and how; `longest` is the longest request in
/// bytes, `idle` tells the idle time of the moment.
pub async fn converse(
    stream: impl AsyncRead + AsyncWrite + Send,
    (peer, transport): (SocketAddr, Transport),
    responder: &Responder,
    longest: usize,
    idle: impl Fn() -> Duration + Send + Sync,
) {
    let (reader, writer) = tokio::io::split(stream);
    let mut reader = BufReader::with_capacity(BUFFER, reader);
    let mut writer = BufWriter::with_capacity(BUFFER, writer);
    let mut message = Vec::new();
    'open: loop {
        if !matches!(
            timeout(idle(), read_message(&mut reader, &mut message, longest)).await,
            Ok(Ok(()))
        ) {
            break;
        }
        let replies = responder.replies(&message, peer, transport);
        if replies.is_empty() {
            break;
        }
        // More requests that have arrived already share a segment with this answer.
        let flush = reader.buffer().is_empty();
        for reply in &replies {
            if !matches!(
                timeout(idle(), write_message(&mut writer, reply, flush)).await,
                Ok(Ok(()))
            ) {
                break 'open;
            }
        }
    }
    // The peer may be gone; then there is nobody to tell.
    drop(timeout(idle(), writer.shutdown()).await);
}

async fn read_message(
    reader: &mut (impl AsyncRead + Unpin),
    message: &mut Vec<u8>,
    longest: usize,
) -> std::io::Result<()> {
    let len = usize::from(reader.read_u16().await?);
    if len > longest {
        return Err(std::io::Error::other("a request of no honest length"));
    }
    message.resize(len, 0);
    reader.read_exact(message).await.map(drop)
}

async fn write_message(
    writer: &mut (impl AsyncWrite + Unpin),
    reply: &[u8],
    flush: bool,
) -> std::io::Result<()> {
    let len = u16::try_from(reply.len()).map_err(std::io::Error::other)?;
    writer.write_u16(len).await?;
    writer.write_all(reply).await?;
    if flush { writer.flush().await } else { Ok(()) }
}

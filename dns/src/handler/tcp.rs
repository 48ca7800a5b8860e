//! The TCP loop: length-prefixed messages, pipelined, on a limited number of connections (RFC 7766).
//!
//! A connection is closed if a whole message has not arrived within the idle time, however slowly its bytes arrive; if its peer does not
//! accept an answer within the same time; if it announces a longer request than the limit; or if the peer closes it. While most connections are
//! in use the idle time is a tenth (RFC 7766, section 6.2.3), so that peers that only hold connections lose them to those that ask.
//! A connection holds one request, one answer (for a client with a key, one copy of the zone) and two buffers, whatever is sent: the limits
//! bound the memory. [`converse`] works on any byte stream, including that of [`super::tls`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Responder;
use super::streams::{self, ConnectionMetrics, Limits};
use crate::metrics::Transport;

/// The size of each of a connection's two buffers, in bytes.
const BUFFER: usize = 4096;

/// Accepts connections and answers until `shutdown`.
pub async fn serve(
    listener: TcpListener,
    responder: Arc<Responder>,
    limits: Limits,
    shutdown: CancellationToken,
) {
    let metrics = ConnectionMetrics {
        open: responder.metrics().tcp_open.clone(),
        refused: responder.metrics().tcp_refused.clone(),
    };
    streams::accept(listener, limits, metrics, shutdown, |stream, peer, slot| {
        let responder = Arc::clone(&responder);
        async move {
            let from = (peer, Transport::Tcp);
            converse(stream, from, &responder, limits.request, || slot.idle()).await;
        }
    })
    .await;
}

/// Answers the messages of one stream in order until it ends. `peer` and `transport` say who asks, and how; `longest` is the longest request in
/// bytes, `idle` returns the current idle time.
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
        // If further requests have arrived already, their answers share a segment with this one.
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
    // If the peer is gone, the error does not matter.
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

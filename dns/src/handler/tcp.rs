//! The TCP loop: messages with a length in front, pipelined, on a bounded number of connections (RFC 7766).
//!
//! A connection ends when a whole message has not arrived within the idle time, however slowly its octets trickle in, when its peer
//! does not take an answer within the same time, or when the peer closes. [`converse`] works on any byte stream.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Responder;
use crate::metrics::Transport;

/// Pause after a connection could not be accepted (such as with no file descriptor left).
const FAILED_PAUSE: Duration = Duration::from_millis(50);

/// Bounds of the connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// Connections at once from one address.
    pub per_client: usize,
    /// How long a whole message may take to arrive, or an answer to be taken.
    pub idle: Duration,
}

/// Who is connected.
#[derive(Default)]
struct Connected {
    clients: Mutex<(usize, BTreeMap<IpAddr, usize>)>,
}

impl Connected {
    fn lock(&self) -> MutexGuard<'_, (usize, BTreeMap<IpAddr, usize>)> {
        // Counts are changed in one step each; a panic elsewhere cannot leave them half changed.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, client: IpAddr, limits: Limits) -> bool {
        let mut clients = self.lock();
        let own = clients.1.get(&client).copied().unwrap_or(0);
        if clients.0 >= limits.connections || own >= limits.per_client {
            return false;
        }
        clients.0 += 1;
        clients.1.insert(client, own + 1);
        true
    }

    fn leave(&self, client: IpAddr) {
        let mut clients = self.lock();
        clients.0 -= 1;
        if let Some(own) = clients.1.get_mut(&client) {
            *own -= 1;
            if *own == 0 {
                clients.1.remove(&client);
            }
        }
    }
}

/// Leaves when dropped, however the connection ended.
struct Presence {
    connected: Arc<Connected>,
    client: IpAddr,
    responder: Arc<Responder>,
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.connected.leave(self.client);
        self.responder.metrics().tcp_open.dec();
    }
}

/// Accepts and answers until `shutdown`.
pub async fn serve(
    listener: TcpListener,
    responder: Arc<Responder>,
    limits: Limits,
    shutdown: CancellationToken,
) {
    let connected = Arc::new(Connected::default());
    let conversations = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => break,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(FAILED_PAUSE).await;
            continue;
        };
        let client = peer.ip().to_canonical();
        if !connected.enter(client, limits) {
            responder.metrics().tcp_refused.inc();
            continue;
        }
        responder.metrics().tcp_open.inc();
        let presence = Presence {
            connected: Arc::clone(&connected),
            client,
            responder: Arc::clone(&responder),
        };
        let shutdown = shutdown.clone();
        // Answers are small and complete: waiting for more to send only delays them.
        drop(stream.set_nodelay(true));
        conversations.spawn(async move {
            tokio::select! {
                () = converse(stream, peer, &presence.responder, limits.idle) => {}
                () = shutdown.cancelled() => {}
            }
        });
    }
    conversations.close();
    conversations.wait().await;
}

/// Answers the messages of one stream in their order until it ends.
pub async fn converse(
    stream: impl AsyncRead + AsyncWrite + Send,
    peer: SocketAddr,
    responder: &Responder,
    idle: Duration,
) {
    let (reader, writer) = tokio::io::split(stream);
    let (mut reader, mut writer) = (BufReader::new(reader), BufWriter::new(writer));
    let mut message = Vec::new();
    loop {
        if !matches!(
            timeout(idle, read_message(&mut reader, &mut message)).await,
            Ok(Ok(()))
        ) {
            break;
        }
        let Some(reply) = responder.respond(&message, peer, Transport::Tcp) else {
            break;
        };
        // More requests that have arrived already share a segment with this answer.
        let flush = reader.buffer().is_empty();
        if !matches!(
            timeout(idle, write_message(&mut writer, &reply, flush)).await,
            Ok(Ok(()))
        ) {
            break;
        }
    }
    // The peer may be gone; then there is nobody to tell.
    drop(timeout(idle, writer.shutdown()).await);
}

async fn read_message(
    reader: &mut (impl AsyncRead + Unpin),
    message: &mut Vec<u8>,
) -> std::io::Result<()> {
    let len = reader.read_u16().await?;
    message.resize(usize::from(len), 0);
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

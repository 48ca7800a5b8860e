//! The UDP loop: one datagram in, at most one out.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use super::Responder;
use crate::metrics::Transport;

/// The largest request that is read; what is longer is cut and then refused as malformed.
const REQUEST_MAX: usize = 4096;
/// Pause after the socket failed, so that a lasting failure does not spin.
const FAILED_PAUSE: Duration = Duration::from_millis(10);

/// Answers until `shutdown`.
pub async fn serve(socket: UdpSocket, responder: Arc<Responder>, shutdown: CancellationToken) {
    let stopped = shutdown.cancelled();
    tokio::pin!(stopped);
    let mut buffer = vec![0; REQUEST_MAX];
    loop {
        let received = tokio::select! {
            biased;
            received = socket.recv_from(&mut buffer) => received,
            () = &mut stopped => return,
        };
        let Ok((len, from)) = received else {
            // Errors here are those of earlier answers (an asker that is gone) or passing shortages of the system.
            tokio::time::sleep(FAILED_PAUSE).await;
            continue;
        };
        // RFC 1035 knows no port 0; an answer to it could not be sent.
        if from.port() == 0 {
            responder.metrics().ignored();
            continue;
        }
        if let Some(reply) = responder.respond(&buffer[..len], from, Transport::Udp) {
            // An answer that cannot be sent is lost like any datagram: the asker asks again.
            drop(socket.send_to(&reply, from).await);
        }
        if shutdown.is_cancelled() {
            return;
        }
    }
}

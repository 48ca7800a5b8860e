//! Detects the end of an abandoned call, as far as it is visible from outside the instance.
//!
//! HTTP/1.1 has no message to cancel a request. Closing the connection tells the instance, but also removes the only place where its answer would
//! be visible. So only our half is closed, which every server sees like a close (its reads end), and the other half is watched:
//! a server that stops, or that continues and then answers nobody, closes it.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::call::CallGuard;

/// How long an answer may take to end once it has begun. A longer one is a stream, whose server checks only its
/// writes: they fail when the connection is closed.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Waits until the instance has visibly dropped the call on this connection, or nobody wants to know any more. `answers` tells
/// whether part of the answer was already received.
pub(super) async fn until_dropped(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answers: bool,
    guard: &CallGuard,
) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let mut bytes = vec![0; 4096];
    let over = async {
        if !answers && !matches!(stream.read(&mut bytes).await, Ok(read) if read > 0) {
            return;
        }
        let rest = async { while matches!(stream.read(&mut bytes).await, Ok(read) if read > 0) {} };
        drop(timeout(ANSWER_TIMEOUT, rest).await);
    };
    tokio::select! {
        () = over => {}
        () = guard.given_up() => {}
    }
}

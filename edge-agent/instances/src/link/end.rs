//! The end of a call that was given up, as far as it can be seen from outside the instance.
//!
//! HTTP/1.1 has no word for it. Closing the connection tells the instance, and takes away the only place where its answer would
//! show. So our half alone is closed, which every server sees as it sees a close (its reads end), and the other half is watched:
//! a server that stops, or that works on and then answers nobody, closes it.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::call::CallGuard;

/// How long an answer may take to end once it has begun. One that takes longer is a stream, and its server looks at its writes
/// only: they fail when the connection is closed.
const ANSWER: Duration = Duration::from_secs(1);

/// Waits until the instance is seen to have let go of the call on this connection, or nobody wants to know any more. `answers` if
/// some of the answer was here already.
pub(super) async fn given_up(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answers: bool,
    hold: &CallGuard,
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
        drop(timeout(ANSWER, rest).await);
    };
    tokio::select! {
        () = over => {}
        () = hold.given_up() => {}
    }
}

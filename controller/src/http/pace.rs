//! The pace of request bodies: none may stand still for too long, nor come slower on the whole than the slowest rate. Otherwise clients that send next
//! to nothing could keep for ever what a request holds while its body arrives: its permit, the place of an upload or of a submission.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::error::PayloadError;
use futures::StreamExt as _;
use tokio::time::{Instant, timeout};

/// The slowest rate, in bytes per second: 256 kbit/s. A slow line may upload with it, a component of 16 MiB in nine minutes.
const SLOWEST: u64 = 32 << 10;

/// What of a body has arrived, and how long that took.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    received: u64,
    /// The time that was spent waiting for the client, not that in which the server was busy with what had arrived.
    waited: Duration,
}

impl Pace {
    /// How long the next piece may take, if the client may be silent for `idle`.
    fn left(self, idle: Duration) -> Duration {
        let needed = Duration::from_millis(self.received.saturating_mul(1000) / SLOWEST);
        let whole = idle.saturating_add(needed);
        whole.saturating_sub(self.waited).min(idle)
    }
}

/// Wakes whoever waits for a piece, and notes when that was: how long the piece then lies there is the server's time.
struct Arrival {
    reader: Waker,
    asked: Instant,
    arrived: OnceLock<Instant>,
}

impl Wake for Arrival {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.arrived.get_or_init(Instant::now);
        self.reader.wake_by_ref();
    }
}

impl Arrival {
    /// How long the client was waited for, if the reader asks again `now`.
    fn waited(&self, now: Instant) -> Duration {
        let until = self.arrived.get().copied().unwrap_or(now);
        until.saturating_duration_since(self.asked)
    }
}

/// The body, which fails and sets `late` once it is too slow.
pub(super) fn paced(payload: Payload, idle: Duration, late: Rc<Cell<bool>>) -> Payload {
    let start = (payload, Pace::default());
    let pieces = futures::stream::unfold(start, move |(mut payload, mut pace)| {
        let late = Rc::clone(&late);
        async move {
            let (left, mut waits) = (pace.left(idle), None::<Arc<Arrival>>);
            let next = poll_fn(|context| {
                let asked = Instant::now();
                if let Some(arrival) = waits.take() {
                    pace.waited += arrival.waited(asked);
                }
                let arrival = Arc::new(Arrival {
                    reader: context.waker().clone(),
                    asked,
                    arrived: OnceLock::new(),
                });
                let waker = Waker::from(Arc::clone(&arrival));
                let piece = payload.poll_next_unpin(&mut Context::from_waker(&waker));
                if piece.is_pending() {
                    waits = Some(arrival);
                }
                piece
            });
            let piece = match timeout(left, next).await {
                Ok(piece) => piece?,
                Err(_) => {
                    late.set(true);
                    Err(PayloadError::Io(io::ErrorKind::TimedOut.into()))
                }
            };
            pace.received += piece.as_ref().map_or(0, |bytes| bytes.len() as u64);
            Some((piece, (payload, pace)))
        }
    });
    // Readers may ask again after the end.
    Payload::from(pieces.fuse().boxed_local())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const IDLE: Duration = Duration::from_secs(30);

    #[test]
    fn a_client_that_sends_little_has_little_time() {
        let left = |received, waited| {
            let waited = Duration::from_secs(waited);
            Pace { received, waited }.left(IDLE).as_secs()
        };
        assert_eq!((left(0, 0), left(1, 29), left(2, 30)), (30, 1, 0));
        // What comes fast earns time for the rest, but never a longer silence.
        assert_eq!((left(100 * SLOWEST, 100), left(100 * SLOWEST, 1)), (30, 30));
        assert_eq!(
            (left(100 * SLOWEST, 120), left(100 * SLOWEST, 131)),
            (10, 0)
        );
    }

    #[test]
    fn what_has_arrived_and_is_not_read_is_not_waited_for() {
        let asked = Instant::now();
        let arrival = Arc::new(Arrival {
            reader: Waker::noop().clone(),
            asked,
            arrived: OnceLock::new(),
        });
        let hour = Duration::from_secs(3600);
        assert_eq!(arrival.waited(asked + hour), hour);
        Waker::from(Arc::clone(&arrival)).wake();
        assert!(arrival.waited(asked + hour) < hour);
    }

    #[actix_web::test]
    async fn a_body_that_stands_still_fails_and_another_one_arrives() {
        let late = Rc::new(Cell::new(false));
        let whole = Payload::from(vec![b'x'; 9]);
        let mut whole = paced(whole, IDLE, Rc::clone(&late));
        assert_eq!(
            whole.next().await.expect("a piece").expect("in time"),
            "xxxxxxxxx"
        );
        assert!(whole.next().await.is_none() && !late.get());
        let still = futures::stream::pending::<Result<Bytes, PayloadError>>();
        let still = Payload::from(still.boxed_local());
        let mut still = paced(still, Duration::from_millis(20), Rc::clone(&late));
        let failed = still.next().await.expect("an end");
        assert!(matches!(failed, Err(PayloadError::Io(_))) && late.get());
    }
}

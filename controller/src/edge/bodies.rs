//! Request bodies of machines, within limits: the size of one, the time it takes to arrive, the number read at once for one machine, and the memory
//! of all of them together. Even a stolen machine key gives no more of a controller than that.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fdn_core::ByteSize;
use http_body_util::BodyExt as _;
use hyper::body::Body;
use prometheus::IntGauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::Error;
use crate::settings::EdgeSettings;

/// The shared limits of request bodies.
#[derive(Debug)]
pub(super) struct Bodies {
    /// The bytes that may still be held.
    room: Arc<Semaphore>,
    /// How long one body may take to arrive.
    timeout: Duration,
}

/// A complete body; its bytes count towards the limit as long as it is held.
pub(super) struct ReceivedBody {
    pub(super) bytes: Bytes,
    _counted: HeldBytes,
    _permit: OwnedSemaphorePermit,
}

/// Bytes that are held.
struct HeldBytes {
    permit: Option<OwnedSemaphorePermit>,
    bytes: i64,
    gauge: IntGauge,
}

impl HeldBytes {
    /// Counts more bytes; `false` if there is no room.
    fn grow(&mut self, room: &Arc<Semaphore>, by: usize) -> bool {
        let more = u32::try_from(by).ok();
        let more = more.and_then(|by| Arc::clone(room).try_acquire_many_owned(by).ok());
        let Some(more) = more else {
            return false;
        };
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            none => *none = Some(more),
        }
        let by = i64::try_from(by).unwrap_or(i64::MAX);
        self.bytes += by;
        self.gauge.add(by);
        true
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.gauge.sub(self.bytes);
    }
}

impl Bodies {
    /// The limits of a controller with these settings.
    #[must_use]
    pub(super) fn new(settings: &EdgeSettings) -> Self {
        let room = settings.bodies_size.as_usize();
        Self {
            room: Arc::new(Semaphore::new(room.min(Semaphore::MAX_PERMITS))),
            timeout: settings.body_timeout.as_duration(),
        }
    }

    /// Reads a body of at most `limit` bytes, after waiting for one of the machine's `permits`.
    ///
    /// # Errors
    /// When it is larger, breaks off, does not arrive in time, or there is no room for it.
    pub(super) async fn receive<B>(
        &self,
        body: B,
        limit: ByteSize,
        permits: &Arc<Semaphore>,
        gauge: IntGauge,
    ) -> Result<ReceivedBody, Error>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let received = timeout(self.timeout, self.read_all(body, limit, permits, gauge)).await;
        received.unwrap_or(Err(try_later(
            "a body that does not come in edge.body_timeout",
        )))
    }

    async fn read_all<B>(
        &self,
        mut body: B,
        limit: ByteSize,
        permits: &Arc<Semaphore>,
        gauge: IntGauge,
    ) -> Result<ReceivedBody, Error>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let permit = Arc::clone(permits).acquire_owned().await;
        let permit = permit.map_err(|_| try_later("the connection is over"))?;
        let mut counted = HeldBytes {
            permit: None,
            bytes: 0,
            gauge,
        };
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| Error::BadRequest(format!("the body broke off: {e}")))?;
            let Ok(piece) = frame.into_data() else {
                continue;
            };
            if bytes.len() + piece.len() > limit.as_usize() {
                return Err(Error::BodyTooLarge(limit));
            }
            if !counted.grow(&self.room, piece.len()) {
                return Err(try_later(
                    "the bodies of all machines fill edge.bodies_size",
                ));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(ReceivedBody {
            bytes: bytes.freeze(),
            _counted: counted,
            _permit: permit,
        })
    }
}

const fn try_later(what: &'static str) -> Error {
    Error::TooMany {
        what,
        after: Duration::from_secs(1),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use fdn_core::DurationMs;
    use futures::StreamExt as _;
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;

    use super::*;

    fn bodies(size: u64) -> Bodies {
        Bodies::new(&EdgeSettings {
            bodies_size: ByteSize::from_bytes(size),
            body_timeout: DurationMs::from_millis(20),
            ..EdgeSettings::default()
        })
    }

    fn gauge() -> IntGauge {
        IntGauge::new("bytes", "of bodies").expect("a gauge")
    }

    fn body(size: usize) -> Full<Bytes> {
        Full::new(Bytes::from(vec![b'x'; size]))
    }

    #[tokio::test]
    async fn all_bodies_together_take_so_much_and_give_it_back() {
        let (bodies, gauge, permits) = (bodies(100), gauge(), Arc::new(Semaphore::new(9)));
        let limit = ByteSize::from_bytes(80);
        let receive = |size| bodies.receive(body(size), limit, &permits, gauge.clone());
        let kept = receive(70).await.expect("room");
        assert_eq!((kept.bytes.len(), gauge.get()), (70, 70));
        assert!(matches!(receive(81).await, Err(Error::BodyTooLarge(_))));
        assert!(matches!(receive(31).await, Err(Error::TooMany { .. })));
        assert_eq!(receive(30).await.expect("room").bytes.len(), 30);
        drop(kept);
        assert_eq!(gauge.get(), 0);
        assert_eq!(receive(80).await.expect("room").bytes.len(), 80);
    }

    #[tokio::test]
    async fn one_that_never_ends_is_given_up_and_so_is_one_behind_others() {
        let (bodies, gauge, permits) = (bodies(100), gauge(), Arc::new(Semaphore::new(1)));
        let limit = ByteSize::from_bytes(80);
        let first = futures::stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from("x")))]);
        let endless = StreamBody::new(first.chain(futures::stream::pending()));
        let given_up = bodies
            .receive(endless, limit, &permits, gauge.clone())
            .await;
        assert!(matches!(given_up, Err(Error::TooMany { .. })));
        assert_eq!(gauge.get(), 0);
        let kept = bodies
            .receive(body(1), limit, &permits, gauge.clone())
            .await;
        let second = bodies
            .receive(body(1), limit, &permits, gauge.clone())
            .await;
        assert!(kept.is_ok() && matches!(second, Err(Error::TooMany { .. })));
        drop(kept);
        assert!(
            bodies
                .receive(body(1), limit, &permits, gauge)
                .await
                .is_ok()
        );
    }
}

//! The broker between controllers: RabbitMQ or in process, one contract. No machine at the edge reaches it.
//!
//! A [`Broker`] takes [`Envelope`]s and hands them to subscribers at least once. [`memory::MemoryBroker`] keeps everything in the
//! process (`fdn up`), [`amqp::AmqpBroker`] speaks to RabbitMQ; both pass the battery of `tests/contract.rs`:
//!
//! - **Confirmed**: [`Broker::publish`] returns when the broker has taken responsibility, not before.
//! - **Fan-out or shared**: on [`Channel::Changes`] every consumer name has a queue of its own; on [`Channel::Jobs`] one queue is shared,
//!   and each message goes to one consumer.
//! - **Kept while away**: the queue of a consumer that subscribed once fills while it is gone.
//! - **Acknowledged**: a delivery dropped without [`Delivery::ack`] comes again; [`Delivery::reject`], or the
//!   [`DELIVERY_LIMIT`]th failure, moves it to the dead letters.
//! - **Bounded**: a queue holds [`Limits::queue`] messages; the oldest make room, because every message is either repeated
//!   by its sender or repaired from a snapshot. On [`Channel::Jobs`] the next one is refused instead, and its sender told. A consumer holds `prefetch` unacknowledged deliveries.
//! - **Ordered** per queue as long as nothing is delivered a second time.

mod amqp;
mod error;
mod memory;

use std::sync::Arc;

use async_trait::async_trait;
use fdn_core::message::{Channel, Envelope};

pub use amqp::{AmqpBroker, AmqpOptions};
pub use error::BusError;
pub use memory::MemoryBroker;

/// How often a message is delivered before it counts as poison.
pub const DELIVERY_LIMIT: u32 = 5;

/// A broker that several parts of a process share.
pub type SharedBroker = Arc<dyn Broker>;

/// Bounds of a broker's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Messages that one queue holds; beyond it the oldest are dropped and counted, or the next is refused ([`Channel::refuses_when_full`]).
    pub queue: usize,
    /// Dead letters kept; beyond it the oldest are dropped.
    pub dead_letters: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queue: 100_000,
            dead_letters: 10_000,
        }
    }
}

/// Who wants which messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The channel.
    pub channel: Channel,
    /// The consumer's own name: a controller's. The same name again continues the same queue. On a shared channel it
    /// only names the consumer in the broker's lists.
    pub consumer: String,
    /// How many unacknowledged deliveries it may hold.
    pub prefetch: u16,
}

/// Takes messages and hands them on. See the crate's documentation for the contract.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// Sends a message on its channel and returns when the broker is responsible for it.
    ///
    /// # Errors
    /// When the broker is away or refuses; the message may or may not have been taken, so it must be sent again.
    async fn publish(&self, envelope: &Envelope) -> Result<(), BusError>;

    /// Starts to consume. The stream of deliveries outlives a loss of the broker: it goes on when the broker is back.
    ///
    /// # Errors
    /// When the subscription itself is not valid. An absent broker is no error: deliveries begin when it appears.
    async fn subscribe(&self, subscription: Subscription) -> Result<Deliveries, BusError>;

    /// Whether messages can be published now.
    ///
    /// # Errors
    /// Why not.
    async fn check(&self) -> Result<(), BusError>;

    /// How many dead letters of a channel wait for somebody to look at them.
    ///
    /// # Errors
    /// When the broker is away.
    async fn dead_letters(&self, channel: Channel) -> Result<u64, BusError>;

    /// What this broker has counted since it started.
    fn counters(&self) -> Counters;
}

/// What a broker counted since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages published and confirmed.
    pub published: u64,
    /// Deliveries handed out.
    pub delivered: u64,
    /// Deliveries after the first of the same message.
    pub redelivered: u64,
    /// Messages moved to the dead letters by this process.
    pub dead: u64,
    /// Queues given up because they did not answer although the broker did. Whoever consumes may have missed messages, as with a
    /// queue that was full, and gets over it in the same way: through a snapshot.
    pub replaced: u64,
    /// Times a queue was set up and bound. What was published before, while it was not, went past it.
    pub bound: u64,
    /// Times the connection was lost.
    pub reconnects: u64,
}

/// The channel of a message that may pass through a broker.
fn channel_of(envelope: &Envelope) -> Result<Channel, BusError> {
    let message = &envelope.message;
    let channel = message.channel();
    channel.ok_or(BusError::NotForBroker {
        kind: message.kind(),
    })
}

/// How a delivery ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ack,
    Retry,
    Reject,
}

/// One delivery of a message. Dropping it without a verdict is a [`Delivery::retry`].
pub struct Delivery {
    envelope: Arc<Envelope>,
    attempt: u32,
    settle: Option<Box<dyn FnOnce(Verdict) + Send + Sync>>,
}

impl Delivery {
    fn new(
        envelope: Arc<Envelope>,
        attempt: u32,
        settle: impl FnOnce(Verdict) + Send + Sync + 'static,
    ) -> Self {
        Self {
            envelope,
            attempt,
            settle: Some(Box::new(settle)),
        }
    }

    /// The message.
    #[must_use]
    pub fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    /// 1 for the first delivery of this message from this queue, as far as the broker knows.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The message has been dealt with; it will not come again.
    pub fn ack(mut self) {
        self.end(Verdict::Ack);
    }

    /// The message could not be dealt with now; it comes again, at most [`DELIVERY_LIMIT`] times in all.
    pub fn retry(mut self) {
        self.end(Verdict::Retry);
    }

    /// The message can never be dealt with; it goes to the dead letters.
    pub fn reject(mut self) {
        self.end(Verdict::Reject);
    }

    fn end(&mut self, verdict: Verdict) {
        if let Some(settle) = self.settle.take() {
            settle(verdict);
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.end(Verdict::Retry);
    }
}

impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivery")
            .field("envelope", &self.envelope)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// The deliveries of one subscription.
#[derive(Debug)]
pub struct Deliveries {
    receiver: tokio::sync::mpsc::Receiver<Delivery>,
    _guard: tokio_util::sync::DropGuard,
}

impl Deliveries {
    /// The next delivery; `None` when the broker has been shut down for good.
    pub async fn next(&mut self) -> Option<Delivery> {
        self.receiver.recv().await
    }
}

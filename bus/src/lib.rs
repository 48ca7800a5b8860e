//! The message broker between controllers, with two implementations of one contract: RabbitMQ and in-process. No machine at the edge reaches it.
//!
//! A [`Broker`] accepts [`Envelope`]s and delivers them to subscribers at least once. [`memory::MemoryBroker`] keeps everything in the
//! process (`fdn up`), [`amqp::AmqpBroker`] uses RabbitMQ; both pass the tests in `tests/contract.rs`:
//!
//! - **Confirmed**: [`Broker::publish`] returns only when the broker has taken responsibility.
//! - **Fan-out or shared**: on [`Channel::Changes`] every consumer name has a queue of its own; on [`Channel::Jobs`] one queue is shared,
//!   and each message goes to one consumer.
//! - **Kept while away**: the queue of a consumer that subscribed once collects messages while the consumer is gone.
//! - **Acknowledged**: a delivery dropped without [`Delivery::ack`] is redelivered; [`Delivery::reject`], or the
//!   [`DELIVERY_LIMIT`]th failure, moves it to the dead letters.
//! - **Bounded**: a queue holds [`Limits::queue`] messages; beyond that the oldest are dropped, because every message is either repeated
//!   by its sender or repaired from a snapshot. On [`Channel::Jobs`] the next message is refused instead, and its sender gets an error.
//!   A consumer holds at most `prefetch` unacknowledged deliveries.
//! - **Ordered** per queue as long as nothing is redelivered.

mod amqp;
mod error;
mod memory;

use std::sync::Arc;

use async_trait::async_trait;
use fdn_core::message::{Channel, Envelope};

pub use amqp::{AmqpBroker, AmqpOptions};
pub use error::BusError;
pub use memory::MemoryBroker;

/// The most deliveries of a message; if the last of them fails too, the message is dead-lettered as poison.
pub const DELIVERY_LIMIT: u32 = 5;

/// A broker shared by several parts of a process.
pub type SharedBroker = Arc<dyn Broker>;

/// Bounds of a broker's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most messages in one queue; beyond it the oldest are dropped and counted, or the next is refused ([`Channel::refuses_when_full`]).
    pub queue: usize,
    /// The most dead letters; beyond it the oldest are dropped.
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

/// A request to consume messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The channel to consume from.
    pub channel: Channel,
    /// The name of the consumer (a controller). Subscribing with the same name continues the same queue. On a shared channel it
    /// is only the consumer's name in the broker's lists.
    pub consumer: String,
    /// The most unacknowledged deliveries that it may hold.
    pub prefetch: u16,
}

/// A message broker. See the crate's documentation for the contract.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// Publishes a message on its channel and returns once the broker is responsible for it.
    ///
    /// # Errors
    /// When the broker is away or refuses; it may or may not have accepted the message, so it must be sent again.
    async fn publish(&self, envelope: &Envelope) -> Result<(), BusError>;

    /// Starts to consume. The stream of deliveries survives a loss of the broker and continues when it is back.
    ///
    /// # Errors
    /// When the subscription itself is not valid. An absent broker is not an error: deliveries begin when it appears.
    async fn subscribe(&self, subscription: Subscription) -> Result<Deliveries, BusError>;

    /// Checks whether messages can be published now.
    ///
    /// # Errors
    /// Says why they cannot.
    async fn check(&self) -> Result<(), BusError>;

    /// The number of dead letters of a channel, which wait for an operator.
    ///
    /// # Errors
    /// When the broker is away.
    async fn dead_letters(&self, channel: Channel) -> Result<u64, BusError>;

    /// The counters of this broker since it started.
    fn counters(&self) -> Counters;
}

/// Counters of a broker since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages published and confirmed.
    pub published: u64,
    /// Deliveries passed to subscribers, redeliveries included.
    pub delivered: u64,
    /// Redeliveries: deliveries of a message after its first.
    pub redelivered: u64,
    /// Messages that this process moved to the dead letters.
    pub dead: u64,
    /// Queues replaced because they did not answer although the broker did. Their consumers may have missed messages, as with a full
    /// queue, and recover in the same way: through a snapshot.
    pub replaced: u64,
    /// How often a queue was set up and bound. It did not receive what was published before that, while it was not bound.
    pub bound: u64,
    /// How often the connection was re-established after a loss.
    pub reconnects: u64,
}

/// The channel of a message.
///
/// # Errors
/// When the message is not of a kind that passes through a broker.
fn channel_of(envelope: &Envelope) -> Result<Channel, BusError> {
    let message = &envelope.message;
    let channel = message.channel();
    channel.ok_or(BusError::NotForBroker {
        kind: message.kind(),
    })
}

/// The outcome of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ack,
    Retry,
    Reject,
}

/// One delivery of a message. Dropping it without a verdict acts as [`Delivery::retry`].
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

    /// 1 for the first delivery of this message from this queue, as far as the broker knows, and so on.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Acknowledges the message: it has been handled and is not delivered again.
    pub fn ack(mut self) {
        self.end(Verdict::Ack);
    }

    /// Returns the message to the queue because it could not be handled now; it is delivered at most [`DELIVERY_LIMIT`] times in all.
    pub fn retry(mut self) {
        self.end(Verdict::Retry);
    }

    /// Moves the message to the dead letters because it can never be handled.
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
    /// The next delivery; `None` once the broker has been shut down for good.
    pub async fn next(&mut self) -> Option<Delivery> {
        self.receiver.recv().await
    }
}

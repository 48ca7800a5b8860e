//! The consumer of one subscription: it consumes, forwards deliveries, settles them, and reconnects for ever.
//!
//! A queue that stays silent for [`REPLACE_AFTER`] although the broker answers everything else does not recover by itself (see
//! `topology`), and as long as it is bound, nothing published to its exchange is confirmed. It is deleted and declared again, empty.
//! No information is lost with its messages: each is repeated by its sender or repaired from a snapshot.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fdn_core::message::{Envelope, SCHEMA};
use futures::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Acker, Channel, Consumer};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::warn;

use super::Shared;
use crate::{Delivery, Subscription, Verdict};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The time limit for declaring the queue, and for starting to consume.
const SETUP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long, over all attempts together, a queue may leave the consume request unanswered. RabbitMQ opens its port once its queues
/// have been started; electing the leader then takes a second or so, and reading a full queue some seconds more.
const REPLACE_AFTER: Duration = Duration::from_secs(30);
/// The time limit for deleting a queue: RabbitMQ first asks the queue itself, for five seconds.
const DELETE_TIMEOUT: Duration = Duration::from_secs(20);

/// Why a consumer did not start.
enum Failure {
    /// The broker could not be reached, or refused.
    Unreachable(Option<lapin::Error>),
    /// The broker answered, but the queue did not within this time.
    Unresponsive(Duration),
}

impl From<lapin::Error> for Failure {
    fn from(cause: lapin::Error) -> Self {
        Self::Unreachable(Some(cause))
    }
}

/// Consumes until the subscriber is gone.
pub(super) async fn run(
    shared: Arc<Shared>,
    subscription: Subscription,
    out: mpsc::Sender<Delivery>,
) {
    let queue = shared
        .names
        .queue(subscription.channel, &subscription.consumer);
    let mut pause = FIRST_PAUSE;
    let mut silence = Duration::ZERO;
    while !out.is_closed() {
        match set_up(&shared, &subscription, &queue).await {
            Ok((channel, consumer)) => {
                (pause, silence) = (FIRST_PAUSE, Duration::ZERO);
                forward(&shared, channel, consumer, &out).await;
            }
            // Logged as a warning only the first time: what the broker refuses once, it refuses again.
            Err(Failure::Unreachable(Some(cause))) if pause == FIRST_PAUSE => {
                warn!(queue, %cause, "cannot consume; trying again");
                silence = Duration::ZERO;
            }
            Err(Failure::Unreachable(cause)) => {
                tracing::debug!(queue, ?cause, "cannot consume");
                silence = Duration::ZERO;
            }
            Err(Failure::Unresponsive(time)) => {
                silence += time;
                tracing::debug!(queue, ?silence, "the queue does not answer");
                if silence >= REPLACE_AFTER {
                    silence = Duration::ZERO;
                    replace_queue(&shared, &queue).await;
                }
            }
        }
        tokio::select! {
            () = out.closed() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Forwards deliveries until the consumer ends or the subscriber is gone.
async fn forward(
    shared: &Arc<Shared>,
    channel: Channel,
    mut consumer: Consumer,
    out: &mpsc::Sender<Delivery>,
) {
    loop {
        let next = tokio::select! {
            next = consumer.next() => next,
            () = out.closed() => None,
        };
        match next {
            None => {
                drop(channel.close(200, "done".into()).await);
                return;
            }
            Some(Err(_)) => return,
            Some(Ok(message)) => {
                if let Some(delivery) = decode(shared, message).await
                    && out.send(delivery).await.is_err()
                {
                    return;
                }
            }
        }
    }
}

async fn set_up(
    shared: &Shared,
    subscription: &Subscription,
    queue: &str,
) -> Result<(Channel, Consumer), Failure> {
    let declare = async {
        let channel = shared
            .link
            .consumer(&shared.names, subscription.channel, &subscription.consumer)
            .await?;
        channel
            .basic_qos(subscription.prefetch.max(1), BasicQosOptions::default())
            .await?;
        Ok::<_, Option<lapin::Error>>(channel)
    };
    let Ok(channel) = tokio::time::timeout(SETUP_TIMEOUT, declare).await else {
        shared.link.reset().await;
        return Err(Failure::Unreachable(None));
    };
    let channel = channel.map_err(Failure::Unreachable)?;
    let requested_at = Instant::now();
    let consume = channel.basic_consume(
        queue.into(),
        "".into(),
        BasicConsumeOptions::default(),
        FieldTable::default(),
    );
    let consumer = match tokio::time::timeout(SETUP_TIMEOUT, consume).await {
        Ok(Ok(consumer)) => consumer,
        // A healthy queue answers at once. If the connection ended while the queue was silent, the silence counts.
        Ok(Err(_)) if requested_at.elapsed() > SETUP_TIMEOUT / 4 => {
            return Err(Failure::Unresponsive(requested_at.elapsed()));
        }
        Ok(Err(cause)) => return Err(cause.into()),
        Err(_) => {
            // The pending request still blocks its channel in the broker.
            shared.link.reset().await;
            return Err(Failure::Unresponsive(requested_at.elapsed()));
        }
    };
    // The queue is bound only now, so that a queue that does not answer cannot keep publishers from their confirms.
    shared
        .names
        .bind(&channel, subscription.channel, &subscription.consumer)
        .await?;
    shared.counters.bound.fetch_add(1, Ordering::Relaxed);
    Ok((channel, consumer))
}

/// Deletes a queue that does not answer; the next attempt declares it again.
async fn replace_queue(shared: &Shared, queue: &str) {
    let delete = async {
        let channel = shared.link.channel(&shared.names).await?;
        channel
            .queue_delete(queue.into(), QueueDeleteOptions::default())
            .await?;
        Ok::<_, Option<lapin::Error>>(())
    };
    match tokio::time::timeout(DELETE_TIMEOUT, delete).await {
        Ok(Ok(())) => {
            shared.counters.replaced.fetch_add(1, Ordering::Relaxed);
            warn!(
                queue,
                "the queue did not answer for {REPLACE_AFTER:?}, although the broker did; replaced by an empty one"
            );
        }
        Ok(Err(cause)) => warn!(
            queue,
            ?cause,
            "the queue does not answer and cannot be deleted; trying again"
        ),
        Err(_) => {
            shared.link.reset().await;
            warn!(
                queue,
                "the queue does not answer and was not deleted in {DELETE_TIMEOUT:?}; trying again"
            );
        }
    }
}

/// Decodes a delivery; one that cannot be decoded goes to the dead letters.
async fn decode(shared: &Arc<Shared>, message: lapin::message::Delivery) -> Option<Delivery> {
    let attempt = attempts_before(&message) + 1;
    let acker = message.acker;
    let envelope = match serde_json::from_slice::<Envelope>(&message.data) {
        Ok(envelope) if envelope.schema <= SCHEMA => envelope,
        Ok(envelope) => {
            warn!(id = %envelope.id, schema = envelope.schema, "message of a newer schema; upgrade this process");
            settle(shared, &acker, Verdict::Reject).await;
            return None;
        }
        Err(cause) => {
            warn!(%cause, "message cannot be read");
            settle(shared, &acker, Verdict::Reject).await;
            return None;
        }
    };
    shared.counters.delivered.fetch_add(1, Ordering::Relaxed);
    if attempt > 1 {
        shared.counters.redelivered.fetch_add(1, Ordering::Relaxed);
    }
    let owner = Arc::clone(shared);
    Some(Delivery::new(Arc::new(envelope), attempt, move |verdict| {
        let handle = owner.handle.clone();
        handle.spawn(async move { settle(&owner, &acker, verdict).await });
    }))
}

async fn settle(shared: &Shared, acker: &Acker, verdict: Verdict) {
    // If the connection is gone, RabbitMQ redelivers by itself: an error here needs no handling.
    drop(match verdict {
        Verdict::Ack => acker.ack(BasicAckOptions::default()).await,
        Verdict::Retry => {
            acker
                .nack(BasicNackOptions {
                    requeue: true,
                    multiple: false,
                })
                .await
        }
        Verdict::Reject => {
            shared.counters.dead.fetch_add(1, Ordering::Relaxed);
            acker
                .nack(BasicNackOptions {
                    requeue: false,
                    multiple: false,
                })
                .await
        }
    });
}

/// The number of earlier deliveries of the message by a quorum queue (`x-delivery-count`).
fn attempts_before(message: &lapin::message::Delivery) -> u32 {
    let count = message
        .properties
        .headers()
        .as_ref()
        .and_then(|headers| headers.inner().get("x-delivery-count"));
    let number = match count {
        Some(AMQPValue::LongLongInt(n)) => *n,
        Some(AMQPValue::LongInt(n)) => i64::from(*n),
        Some(AMQPValue::LongUInt(n)) => i64::from(*n),
        Some(AMQPValue::ShortInt(n)) => i64::from(*n),
        Some(AMQPValue::ShortShortInt(n)) => i64::from(*n),
        _ => i64::from(message.redelivered),
    };
    u32::try_from(number).unwrap_or(0)
}

//! The exchanges and queues that are declared in RabbitMQ.
//!
//! | thing | name | what |
//! | --- | --- | --- |
//! | exchange | `NS.changes` | fanout, durable |
//! | queue | `NS.changes.CONTROLLER` | one for each controller, bound to the exchange; deleted after a week without consumer |
//! | queue | `NS.jobs` | shared; refuses further messages while it is full |
//! | queue | `NS.CHANNEL.dead` | dead letters of the channel |
//!
//! All queues are durable quorum queues with a length limit that drops the oldest (except `NS.jobs`), and a delivery limit after which a
//! message is dead-lettered.
//!
//! A queue is used only once its existence is safe. RabbitMQ writes a message to disk before it confirms it, but writes *which files
//! belong to which quorum queue* up to a second after the queue was declared; if it is killed in between, it comes back with an empty
//! member under the queue's name that never elects a leader (`docs/adr/0005-quorum-queues.md`). Therefore whoever declares a new queue
//! waits for [`SETTLE`] before anything is published to it: only then does the connection count as made, and a consumer's queue is bound
//! to its exchange only after that wait and after it has answered. `consumer` replaces a queue that never answers.

use std::time::Duration;

use fdn_core::message::Channel as Topic;
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ErrorKind, ExchangeKind};

use crate::{DELIVERY_LIMIT, Limits};

/// A week, in ms: a controller that was away for longer reads the database anyway.
const UNUSED_QUEUE_MS: i64 = 7 * 24 * 3600 * 1000;
/// How long after its declaration a queue is safe: RabbitMQ saves its directory of quorum queues half a second to a second after
/// the last change; this is twice that.
const SETTLE: Duration = Duration::from_secs(2);
const TOPICS: [Topic; 2] = [Topic::Changes, Topic::Jobs];

/// The `x-overflow` policies: what a full queue does with the next message.
const DROP_OLDEST: &str = "drop-head";
const REFUSE_NEXT: &str = "reject-publish";

/// The names and bounds of everything that is declared.
pub(super) struct Names {
    namespace: String,
    limits: Limits,
}

impl Names {
    pub(super) const fn new(namespace: String, limits: Limits) -> Self {
        Self { namespace, limits }
    }

    fn topic(&self, topic: Topic) -> String {
        format!("{}.{}", self.namespace, topic.as_str())
    }

    /// The name of a topic's dead-letter queue.
    pub(super) fn dead(&self, topic: Topic) -> String {
        format!("{}.dead", self.topic(topic))
    }

    /// The name of the queue from which `consumer` takes a topic's messages.
    pub(super) fn queue(&self, topic: Topic, consumer: &str) -> String {
        if topic.is_fan_out() {
            format!("{}.{consumer}", self.topic(topic))
        } else {
            self.topic(topic)
        }
    }

    /// The exchange and routing key under which a topic's messages are published.
    pub(super) fn route(&self, topic: Topic) -> (String, String) {
        if topic.is_fan_out() {
            (self.topic(topic), String::new())
        } else {
            (String::new(), self.topic(topic))
        }
    }

    /// Declares what every process needs (exchanges, the shared queue, the dead-letter queues) and, if any queue is new, waits until it is safe.
    pub(super) async fn declare(&self, connection: &Connection) -> lapin::Result<()> {
        let amqp = connection.create_channel().await?;
        let mut fresh = false;
        for topic in TOPICS {
            if topic.is_fan_out() {
                let options = ExchangeDeclareOptions {
                    durable: true,
                    ..ExchangeDeclareOptions::default()
                };
                let name = self.topic(topic);
                amqp.exchange_declare(
                    name.into(),
                    ExchangeKind::Fanout,
                    options,
                    FieldTable::default(),
                )
                .await?;
            } else {
                fresh |= declare_queue(
                    connection,
                    &amqp,
                    self.topic(topic),
                    self.work_arguments(topic),
                )
                .await?;
            }
            let arguments = bounded(self.limits.dead_letters, DROP_OLDEST);
            fresh |= declare_queue(connection, &amqp, self.dead(topic), arguments).await?;
        }
        if fresh {
            tokio::time::sleep(SETTLE).await;
        }
        amqp.close(200, "declared".into()).await
    }

    /// Declares the queue from which `consumer` takes a topic's messages and, if it is new, waits until it is safe. A fan-out queue
    /// receives nothing before [`Self::bind`].
    pub(super) async fn declare_consumer(
        &self,
        connection: &Connection,
        topic: Topic,
        consumer: &str,
    ) -> lapin::Result<()> {
        let mut arguments = self.work_arguments(topic);
        if topic.is_fan_out() {
            arguments.insert("x-expires".into(), AMQPValue::LongLongInt(UNUSED_QUEUE_MS));
        }
        let amqp = connection.create_channel().await?;
        if declare_queue(connection, &amqp, self.queue(topic, consumer), arguments).await? {
            tokio::time::sleep(SETTLE).await;
        }
        amqp.close(200, "declared".into()).await
    }

    /// Binds the consumer's queue to its exchange: it receives what is published from now on. Does nothing for a shared topic.
    pub(super) async fn bind(
        &self,
        amqp: &Channel,
        topic: Topic,
        consumer: &str,
    ) -> lapin::Result<()> {
        if !topic.is_fan_out() {
            return Ok(());
        }
        let (queue, exchange) = (self.queue(topic, consumer), self.topic(topic));
        amqp.queue_bind(
            queue.into(),
            exchange.into(),
            "".into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        )
        .await
    }

    fn work_arguments(&self, topic: Topic) -> FieldTable {
        let overflow = if topic.refuses_when_full() {
            REFUSE_NEXT
        } else {
            DROP_OLDEST
        };
        let mut arguments = bounded(self.limits.queue, overflow);
        arguments.insert(
            "x-dead-letter-exchange".into(),
            AMQPValue::LongString("".into()),
        );
        arguments.insert(
            "x-dead-letter-routing-key".into(),
            AMQPValue::LongString(self.dead(topic).into()),
        );
        // RabbitMQ dead-letters a message once its failures exceed this number, so one more delivery is made than it says.
        arguments.insert(
            "x-delivery-limit".into(),
            AMQPValue::LongLongInt(i64::from(DELIVERY_LIMIT) - 1),
        );
        arguments
    }
}

/// Declares a queue; `true` if it did not exist before. For an existing queue this checks its arguments.
async fn declare_queue(
    connection: &Connection,
    amqp: &Channel,
    name: String,
    arguments: FieldTable,
) -> lapin::Result<bool> {
    let fresh = !exists(connection, &name).await?;
    let options = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    amqp.queue_declare(name.into(), options, arguments).await?;
    Ok(fresh)
}

/// Checks on a channel of its own, because RabbitMQ closes the channel when the queue does not exist.
async fn exists(connection: &Connection, queue: &str) -> lapin::Result<bool> {
    let probe = connection.create_channel().await?;
    let options = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::default()
    };
    match probe
        .queue_declare(queue.into(), options, FieldTable::default())
        .await
    {
        Ok(_) => probe.close(200, "it exists".into()).await.map(|()| true),
        Err(cause) if is_not_found(&cause) => Ok(false),
        Err(cause) => Err(cause),
    }
}

fn is_not_found(cause: &lapin::Error) -> bool {
    matches!(cause.kind(), ErrorKind::ProtocolError(e) if *e.kind() == AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND))
}

fn bounded(length: usize, overflow: &str) -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert(
        "x-queue-type".into(),
        AMQPValue::LongString("quorum".into()),
    );
    arguments.insert(
        "x-max-length".into(),
        AMQPValue::LongLongInt(i64::try_from(length).unwrap_or(i64::MAX)),
    );
    arguments.insert("x-overflow".into(), AMQPValue::LongString(overflow.into()));
    arguments
}

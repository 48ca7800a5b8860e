//! The broker on RabbitMQ, over AMQP 0-9-1.
//!
//! It uses durable quorum queues, publisher confirms, manual acknowledgements, prefetch and a dead-letter queue per channel; `topology`
//! lists what is declared. A process has one connection, with a channel in confirm mode for publishing and a channel for each
//! subscription. When the connection is lost, everything on it is given up: publishing fails at once, so that the caller's outbox
//! keeps the message, and subscriptions reconnect with increasing pauses. RabbitMQ then redelivers what was not acknowledged; a queue
//! that it cannot restore is replaced by its consumer (`consumer`).
//!
//! All AMQP work runs on the runtime on which the broker was made, whichever thread calls.

mod consumer;
mod link;
mod topology;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use fdn_core::message::{Channel, Envelope};
use lapin::options::{BasicPublishOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Confirmation};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::{Broker, BusError, Counters, Deliveries, Limits, Subscription, channel_of};
use link::Link;
use topology::Names;

/// The time limit for a confirm, after which the connection counts as dead.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for the number of messages in a queue.
const COUNT_TIMEOUT: Duration = Duration::from_secs(5);
/// AMQP's delivery mode for a message that survives a restart of the broker.
const PERSISTENT: u8 = 2;

/// Connection options for RabbitMQ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmqpOptions {
    /// `amqp://user@host:port/vhost` or `amqps://…`; it may contain a password, but a password file is the better place.
    pub url: String,
    /// A file that contains the password.
    pub password_file: Option<PathBuf>,
    /// The prefix of the name of every exchange and queue, so that several networks can share a vhost.
    pub namespace: String,
    /// The connection's name in RabbitMQ's lists.
    pub name: String,
    /// Bounds of the queues.
    pub limits: Limits,
}

/// A [`Broker`] on RabbitMQ.
pub struct AmqpBroker {
    shared: Arc<Shared>,
}

struct Shared {
    link: Link,
    names: Names,
    handle: Handle,
    counters: AtomicCounters,
}

#[derive(Default)]
struct AtomicCounters {
    published: AtomicU64,
    delivered: AtomicU64,
    redelivered: AtomicU64,
    dead: AtomicU64,
    replaced: AtomicU64,
    bound: AtomicU64,
}

impl AmqpBroker {
    /// Prepares a broker. The connection is made when it is first needed, and again whenever it is lost; RabbitMQ need not be running yet.
    ///
    /// Must be called on a tokio runtime, which then carries all AMQP work.
    ///
    /// # Errors
    /// When the address is not valid or the password file cannot be read.
    pub fn connect(options: AmqpOptions) -> Result<Self, BusError> {
        let mut url = Url::parse(&options.url).map_err(|e| BusError::Address(e.to_string()))?;
        if !matches!(url.scheme(), "amqp" | "amqps") || url.host().is_none() {
            return Err(BusError::Address(format!(
                "scheme {:?} or host missing",
                url.scheme()
            )));
        }
        if let Some(path) = &options.password_file {
            let password = std::fs::read_to_string(path)
                .map_err(|e| BusError::Address(format!("password file {}: {e}", path.display())))?;
            url.set_password(Some(password.trim()))
                .map_err(|()| BusError::Address("a password cannot be set on it".to_owned()))?;
        }
        let handle = Handle::current();
        Ok(Self {
            shared: Arc::new(Shared {
                link: Link::new(url, options.name, handle.clone()),
                names: Names::new(options.namespace, options.limits),
                handle,
                counters: AtomicCounters::default(),
            }),
        })
    }
}

impl Shared {
    fn unreachable(&self, source: impl Into<Option<lapin::Error>>) -> BusError {
        BusError::Unreachable {
            address: self.link.address(),
            source: source.into(),
        }
    }

    async fn publish(
        &self,
        channel: Channel,
        envelope: &Envelope,
        payload: &[u8],
    ) -> Result<(), BusError> {
        let amqp = self
            .link
            .publisher(&self.names)
            .await
            .map_err(|e| self.unreachable(e))?;
        let (exchange, key) = self.names.route(channel);
        let properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_content_type("application/json".into())
            .with_type(envelope.message.kind().into())
            .with_message_id(envelope.id.to_string().into());
        let sent = async {
            amqp.basic_publish(
                exchange.into(),
                key.into(),
                BasicPublishOptions::default(),
                payload,
                properties,
            )
            .await?
            .await
        };
        match tokio::time::timeout(CONFIRM_TIMEOUT, sent).await {
            Ok(Ok(Confirmation::Ack(_))) => {
                self.counters.published.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Ok(Ok(_)) => Err(BusError::NotConfirmed { id: envelope.id }),
            Ok(Err(cause)) => {
                self.link.reset().await;
                Err(self.unreachable(cause))
            }
            Err(_) => {
                self.link.reset().await;
                Err(BusError::NotConfirmed { id: envelope.id })
            }
        }
    }

    async fn dead_letters(&self, channel: Channel) -> Result<u64, BusError> {
        let amqp = self
            .link
            .channel(&self.names)
            .await
            .map_err(|e| self.unreachable(e))?;
        let options = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        let declare = amqp.queue_declare(
            self.names.dead(channel).into(),
            options,
            FieldTable::default(),
        );
        // A queue may be silent although the broker answers everything else, so the connection is kept.
        match tokio::time::timeout(COUNT_TIMEOUT, declare).await {
            Ok(Ok(queue)) => Ok(u64::from(queue.message_count())),
            Ok(Err(cause)) => Err(self.unreachable(cause)),
            Err(_) => Err(self.unreachable(None)),
        }
    }

    /// Like [`Self::on_runtime`], but also when the caller is gone: a publication that is not confirmed has to make its connection anew.
    async fn on_runtime_to_the_end<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<T, BusError>> + Send + 'static,
    ) -> Result<T, BusError> {
        match self.handle.spawn(work).await {
            Ok(result) => result,
            Err(_) => Err(self.unreachable(None)),
        }
    }

    /// Runs AMQP work on the runtime that owns the connection, until it is done or the caller is gone.
    async fn on_runtime<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<T, BusError>> + Send + 'static,
    ) -> Result<T, BusError> {
        match AbortOnDropHandle::new(self.handle.spawn(work)).await {
            Ok(result) => result,
            // Whoever waits for the task has not aborted it: only a runtime that is shutting down drops it.
            Err(_) => Err(self.unreachable(None)),
        }
    }
}

#[async_trait]
impl Broker for AmqpBroker {
    async fn publish(&self, envelope: &Envelope) -> Result<(), BusError> {
        let channel = channel_of(envelope)?;
        let payload = serde_json::to_vec(envelope).map_err(|source| BusError::Encode {
            id: envelope.id,
            source,
        })?;
        let (shared, envelope) = (Arc::clone(&self.shared), envelope.clone());
        self.shared
            .on_runtime_to_the_end(
                async move { shared.publish(channel, &envelope, &payload).await },
            )
            .await
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Deliveries, BusError> {
        let (sender, receiver) = mpsc::channel(usize::from(subscription.prefetch.max(1)));
        let stop = CancellationToken::new();
        let guard = stop.clone().drop_guard();
        let work = consumer::run(Arc::clone(&self.shared), subscription, sender);
        self.shared.handle.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = work => {}
            }
        });
        Ok(Deliveries {
            receiver,
            _guard: guard,
        })
    }

    async fn check(&self) -> Result<(), BusError> {
        let shared = Arc::clone(&self.shared);
        self.shared
            .on_runtime(async move {
                shared
                    .link
                    .publisher(&shared.names)
                    .await
                    .map(drop)
                    .map_err(|e| shared.unreachable(e))
            })
            .await
    }

    async fn dead_letters(&self, channel: Channel) -> Result<u64, BusError> {
        let shared = Arc::clone(&self.shared);
        self.shared
            .on_runtime(async move { shared.dead_letters(channel).await })
            .await
    }

    fn counters(&self) -> Counters {
        let counters = &self.shared.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            published: read(&counters.published),
            delivered: read(&counters.delivered),
            redelivered: read(&counters.redelivered),
            dead: read(&counters.dead),
            replaced: read(&counters.replaced),
            bound: read(&counters.bound),
            reconnects: self.shared.link.reconnects(),
        }
    }
}

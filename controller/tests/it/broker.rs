//! A broker for tests: the in-memory one, with simulated outages and lost confirmations.

use std::sync::atomic::{AtomicU8, Ordering};

use async_trait::async_trait;
use fdn_bus::{Broker, BusError, Counters, Deliveries, MemoryBroker, Subscription};
use fdn_core::message::{Channel, Envelope};
use fdn_testkit::wait;

/// A broker that can be down, and can lose confirmations.
#[derive(Default)]
pub(crate) struct TestBroker {
    inner: MemoryBroker,
    mode: AtomicU8,
}

const UP: u8 = 0;
const DOWN: u8 = 1;
const UNCONFIRMED: u8 = 2;

impl TestBroker {
    pub(crate) fn up(&self) {
        self.mode.store(UP, Ordering::SeqCst);
    }

    pub(crate) fn down(&self) {
        self.mode.store(DOWN, Ordering::SeqCst);
    }

    /// Accepts the next message, but loses its confirmation.
    pub(crate) fn lose_a_confirmation(&self) {
        self.mode.store(UNCONFIRMED, Ordering::SeqCst);
    }

    /// Subscribes as another controller would.
    pub(crate) async fn listen(&self, channel: Channel) -> Deliveries {
        let subscription = Subscription {
            channel,
            consumer: "test".to_owned(),
            prefetch: 100,
        };
        self.inner
            .subscribe(subscription)
            .await
            .expect("subscribed")
    }
}

#[async_trait]
impl Broker for TestBroker {
    async fn publish(&self, envelope: &Envelope) -> Result<(), BusError> {
        match self.mode.load(Ordering::SeqCst) {
            UP => self.inner.publish(envelope).await,
            UNCONFIRMED => {
                self.inner.publish(envelope).await?;
                self.up();
                Err(BusError::NotConfirmed { id: envelope.id })
            }
            _ => Err(BusError::NotConfirmed { id: envelope.id }),
        }
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Deliveries, BusError> {
        self.inner.subscribe(subscription).await
    }

    async fn check(&self) -> Result<(), BusError> {
        self.inner.check().await
    }

    async fn dead_letters(&self, channel: Channel) -> Result<u64, BusError> {
        self.inner.dead_letters(channel).await
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

/// The next message of this kind.
pub(crate) async fn next_of(deliveries: &mut Deliveries, kind: &str) -> Envelope {
    loop {
        let envelope = next(deliveries).await;
        if envelope.message.kind() == kind {
            return envelope;
        }
    }
}

/// The next message of a subscription.
pub(crate) async fn next(deliveries: &mut Deliveries) -> Envelope {
    let delivery = tokio::time::timeout(wait::PATIENCE, deliveries.next())
        .await
        .expect("a message comes")
        .expect("the broker lives");
    let envelope = delivery.envelope().clone();
    delivery.ack();
    envelope
}

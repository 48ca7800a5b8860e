//! The in-process broker, for the embedded network and for tests.
//!
//! One mutex guards all queues; it is held for a few instructions at a time and never across an await.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use fdn_core::message::{Channel, Envelope};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::{
    Broker, BusError, Counters, DELIVERY_LIMIT, Deliveries, Delivery, Limits, Subscription,
    Verdict, channel_of,
};

type QueueName = (Channel, String);

/// A [`Broker`] that keeps its queues in memory.
#[derive(Debug, Default)]
pub struct MemoryBroker {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    limits: Limits,
    state: Mutex<State>,
    published: AtomicU64,
    delivered: AtomicU64,
    redelivered: AtomicU64,
    dead: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    queues: BTreeMap<QueueName, Queue>,
    dead: BTreeMap<Channel, VecDeque<Arc<Envelope>>>,
}

#[derive(Debug, Default)]
struct Queue {
    ready: VecDeque<QueuedMessage>,
    wake: Arc<Notify>,
}

#[derive(Clone, Debug)]
struct QueuedMessage {
    envelope: Arc<Envelope>,
    attempts: u32,
}

impl MemoryBroker {
    /// A broker with these bounds.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            shared: Arc::new(Shared {
                limits,
                ..Shared::default()
            }),
        }
    }

    /// The number of messages dropped because a queue was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while the lock is held cannot leave a queue half changed: every change is one push or pop.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, queue: &mut Queue, message: QueuedMessage, front: bool) {
        let channel = message.envelope.message.channel();
        let refuses = channel.is_some_and(Channel::refuses_when_full);
        // A message that returns to a queue which refuses new ones when full must never be dropped: nobody else holds it.
        if queue.ready.len() >= self.limits.queue && !refuses {
            queue.ready.pop_front();
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        if front {
            queue.ready.push_front(message);
        } else {
            queue.ready.push_back(message);
        }
        queue.wake.notify_one();
    }

    fn settle(&self, name: &QueueName, message: QueuedMessage, verdict: Verdict) {
        let retry = match verdict {
            Verdict::Ack => return,
            Verdict::Retry => message.attempts < DELIVERY_LIMIT,
            Verdict::Reject => false,
        };
        let mut state = self.state();
        if retry {
            if let Some(queue) = state.queues.get_mut(name) {
                self.push(queue, message, true);
            }
            return;
        }
        self.dead.fetch_add(1, Ordering::Relaxed);
        let dead = state.dead.entry(name.0).or_default();
        if dead.len() >= self.limits.dead_letters {
            dead.pop_front();
        }
        dead.push_back(message.envelope);
    }

    /// Takes the next message of a queue, if any.
    fn pop(&self, name: &QueueName) -> Option<QueuedMessage> {
        let mut state = self.state();
        let queue = state.queues.get_mut(name)?;
        let mut message = queue.ready.pop_front()?;
        if !queue.ready.is_empty() {
            queue.wake.notify_one();
        }
        message.attempts += 1;
        self.delivered.fetch_add(1, Ordering::Relaxed);
        if message.attempts > 1 {
            self.redelivered.fetch_add(1, Ordering::Relaxed);
        }
        Some(message)
    }
}

fn queue_name(subscription: &Subscription) -> QueueName {
    let owner = if subscription.channel.is_fan_out() {
        subscription.consumer.clone()
    } else {
        String::new()
    };
    (subscription.channel, owner)
}

/// Moves messages from a queue to one consumer, with at most `prefetch` of them unacknowledged.
async fn pump(
    shared: Arc<Shared>,
    name: QueueName,
    wake: Arc<Notify>,
    prefetch: usize,
    out: mpsc::Sender<Delivery>,
) {
    let room = Arc::new(Semaphore::new(prefetch));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        let message = loop {
            match shared.pop(&name) {
                Some(message) => break message,
                None => wake.notified().await,
            }
        };
        let (owner, queue, kept) = (Arc::clone(&shared), name.clone(), message.clone());
        let delivery = Delivery::new(message.envelope, message.attempts, move |verdict| {
            owner.settle(&queue, kept, verdict);
            drop(permit);
        });
        if out.send(delivery).await.is_err() {
            return;
        }
    }
}

#[async_trait]
impl Broker for MemoryBroker {
    async fn publish(&self, envelope: &Envelope) -> Result<(), BusError> {
        let channel = channel_of(envelope)?;
        let message = QueuedMessage {
            envelope: Arc::new(envelope.clone()),
            attempts: 0,
        };
        let mut state = self.shared.state();
        if !channel.is_fan_out() {
            let queue = state.queues.entry((channel, String::new())).or_default();
            if channel.refuses_when_full() && queue.ready.len() >= self.shared.limits.queue {
                return Err(BusError::NotConfirmed { id: envelope.id });
            }
        }
        for ((of, _), queue) in &mut state.queues {
            if *of == channel {
                self.shared.push(queue, message.clone(), false);
            }
        }
        self.shared.published.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Deliveries, BusError> {
        let name = queue_name(&subscription);
        let wake = Arc::clone(
            &self
                .shared
                .state()
                .queues
                .entry(name.clone())
                .or_default()
                .wake,
        );
        let prefetch = usize::from(subscription.prefetch.max(1));
        let (sender, receiver) = mpsc::channel(prefetch);
        let stop = CancellationToken::new();
        let guard = stop.clone().drop_guard();
        let work = pump(Arc::clone(&self.shared), name, wake, prefetch, sender);
        tokio::spawn(async move {
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
        Ok(())
    }

    async fn dead_letters(&self, channel: Channel) -> Result<u64, BusError> {
        Ok(self
            .shared
            .state()
            .dead
            .get(&channel)
            .map_or(0, |dead| dead.len() as u64))
    }

    fn counters(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            published: read(&self.shared.published),
            delivered: read(&self.shared.delivered),
            redelivered: read(&self.shared.redelivered),
            dead: read(&self.shared.dead),
            replaced: 0,
            bound: 0,
            reconnects: 0,
        }
    }
}

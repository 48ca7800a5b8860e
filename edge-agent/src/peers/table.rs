//! The instances that the cluster has ordered on this node, by task, from the order until they are gone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fdn_cluster::TaskId;
use fdn_core::NodeId;
use fdn_instances::{Exit, Instance, LogLine};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use super::wire::Failure;
use crate::invocations::placer::Placed;

/// The progress of an instance.
#[derive(Clone, Debug)]
pub(super) enum Progress {
    /// The instance is being started.
    Starting,
    /// The instance was started.
    Started(Arc<dyn Instance>),
    /// The instance failed to start.
    Failed(Arc<Failure>),
    /// The instance is gone.
    Gone(Exit, Vec<LogLine>),
}

/// Why an instance must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndReason {
    /// Its requesting node no longer wants it: it ends after this grace period.
    Requested(Duration),
    /// Nobody follows it any more, or another one has replaced it: this node may keep it for itself.
    Unfollowed,
    /// Its room is needed.
    RoomNeeded,
}

/// An instance that the cluster has ordered.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) task: TaskId,
    /// The node that requested it and alone may call it.
    pub(super) requester: NodeId,
    pub(super) progress: watch::Sender<Progress>,
    pub(super) end: watch::Sender<Option<EndReason>>,
    /// The requesting node's calls that run in it.
    pub(super) calls: AtomicUsize,
    /// When its last call ended; meaningful while no call runs.
    idle_since: Mutex<Instant>,
    /// The number of its followers.
    watchers: watch::Sender<usize>,
    /// The started instance for the caller on this node: set once, taken once.
    local_instance: Mutex<Option<Placed>>,
    pub(super) taken: Notify,
}

/// Follows an entry until dropped.
pub(super) struct FollowerGuard(Arc<Entry>);

impl Drop for FollowerGuard {
    fn drop(&mut self) {
        self.0.watchers.send_modify(|count| *count -= 1);
    }
}

impl Entry {
    pub(super) fn new(task: TaskId, requester: NodeId) -> Arc<Self> {
        Arc::new(Self {
            task,
            requester,
            progress: watch::Sender::new(Progress::Starting),
            end: watch::Sender::new(None),
            calls: AtomicUsize::new(0),
            idle_since: Mutex::new(Instant::now()),
            watchers: watch::Sender::new(0),
            local_instance: Mutex::default(),
            taken: Notify::new(),
        })
    }

    /// Records the end of a call.
    pub(super) fn call_ended(&self) {
        *self
            .idle_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.calls.fetch_sub(1, Ordering::Relaxed);
    }

    /// How long no call has run in it; `None` while one does.
    pub(super) fn idle(&self, now: Instant) -> Option<Duration> {
        if self.calls.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let idle_since = *self
            .idle_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Some(now.saturating_duration_since(idle_since))
    }

    pub(super) fn follow(self: &Arc<Self>) -> FollowerGuard {
        self.watchers.send_modify(|count| *count += 1);
        FollowerGuard(Arc::clone(self))
    }

    /// Resolves when nobody has followed it for `after`.
    pub(super) async fn orphaned(&self, after: Duration) {
        let mut watchers = self.watchers.subscribe();
        loop {
            // This cannot fail: `self` owns the sender.
            drop(watchers.wait_for(|count| *count == 0).await);
            let followed = watchers.wait_for(|count| *count > 0);
            if timeout(after, followed).await.is_err() {
                return;
            }
        }
    }

    /// Resolves with the reason when it must end.
    pub(super) async fn ends(&self) -> EndReason {
        let mut end = self.end.subscribe();
        let end = end.wait_for(Option::is_some).await;
        end.ok()
            .and_then(|end| *end)
            .unwrap_or(EndReason::RoomNeeded)
    }

    /// Whether it was told to end.
    pub(super) fn is_ending(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// The instance, while it runs.
    pub(super) fn instance(&self) -> Option<Arc<dyn Instance>> {
        match &*self.progress.borrow() {
            Progress::Started(instance) => Some(Arc::clone(instance)),
            Progress::Starting | Progress::Failed(_) | Progress::Gone(..) => None,
        }
    }

    /// Provides the instance to the caller on this node.
    pub(super) fn provide_locally(&self, placed: Placed) {
        let instance = Arc::clone(&placed.instance);
        *self.local_instance() = Some(placed);
        self.progress.send_replace(Progress::Started(instance));
    }

    /// Takes the instance; only the first call returns it.
    pub(super) fn take(&self) -> Option<Placed> {
        let placed = self.local_instance().take();
        if placed.is_some() {
            self.taken.notify_one();
        }
        placed
    }

    fn local_instance(&self) -> MutexGuard<'_, Option<Placed>> {
        self.local_instance
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// All entries: as many as the cluster lets run here.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: Mutex<BTreeMap<u64, Arc<Entry>>>,
    added: Notify,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, entry: Arc<Entry>) {
        self.lock().insert(entry.task.0, entry);
        self.added.notify_waiters();
    }

    pub(super) fn get(&self, task: TaskId) -> Option<Arc<Entry>> {
        self.lock().get(&task.0).cloned()
    }

    pub(super) fn remove(&self, task: TaskId) {
        self.lock().remove(&task.0);
    }

    pub(super) fn all(&self) -> Vec<Arc<Entry>> {
        self.lock().values().cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// The entry of a task, waiting at most `patience` for its order to arrive.
    pub(super) async fn find(&self, task: TaskId, patience: Duration) -> Option<Arc<Entry>> {
        let finding = async {
            loop {
                let added = self.added.notified();
                tokio::pin!(added);
                // Registered before the lookup, so that an entry added in between is not missed.
                added.as_mut().enable();
                if let Some(entry) = self.get(task) {
                    return entry;
                }
                added.await;
            }
        };
        timeout(patience, finding).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(task: u64) -> Arc<Entry> {
        Entry::new(TaskId(task), "n-1".parse().expect("node"))
    }

    #[tokio::test]
    async fn what_nobody_follows_is_an_orphan_after_a_while() {
        let entry = entry(1);
        let short = Duration::from_millis(1);
        entry.orphaned(short).await;
        let first = entry.follow();
        let second = entry.follow();
        let waiting = async || timeout(Duration::from_millis(20), entry.orphaned(short)).await;
        assert!(waiting().await.is_err());
        drop(first);
        assert!(waiting().await.is_err(), "one follows it still");
        drop(second);
        entry.orphaned(short).await;
        let _again = entry.follow();
        assert!(waiting().await.is_err(), "it was found again");
    }

    #[tokio::test]
    async fn an_order_that_comes_after_the_question_is_found() {
        let table = Arc::new(Table::default());
        assert!(table.find(TaskId(7), Duration::ZERO).await.is_none());
        let patience = Duration::from_secs(60);
        let asking = tokio::spawn({
            let table = Arc::clone(&table);
            async move { table.find(TaskId(7), patience).await }
        });
        tokio::task::yield_now().await;
        table.add(entry(8));
        table.add(entry(7));
        assert!(asking.await.expect("it ends").is_some());
        table.remove(TaskId(7));
        assert_eq!(table.len(), 1);
    }
}

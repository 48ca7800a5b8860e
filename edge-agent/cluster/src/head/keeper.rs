//! Keeps the lease on being the head for as long as this node could be the head, and lets it go otherwise.
//!
//! The store gives the lease to whoever asks first, and only its holder stands for election ([`super`]). So a node that cannot be the head must not
//! keep it: else the cluster would have no head for as long as that node runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fdn_core::enrol::{LeaseRequest, LeaseResponse};
use fdn_core::{ClusterId, NodeId};
use tokio::sync::watch;
use tracing::debug;

use super::LeaseView;
use super::lease::LeaseStore;

/// The duration for which the lease is requested.
const LEASE: Duration = Duration::from_secs(5);

/// What is known of the lease.
#[derive(Debug)]
struct Keeper {
    /// The next request.
    request: LeaseRequest,
    /// When the last request was sent that was answered: the answer speaks of the store's state at some time after that.
    answered: Instant,
    view: LeaseView,
}

impl Keeper {
    fn new(now: Instant, node: NodeId) -> Self {
        Self {
            request: LeaseRequest {
                node,
                epoch: None,
                ttl_ms: u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX),
            },
            answered: now,
            view: LeaseView::Unavailable,
        }
    }

    /// Handles the answer to a request that was sent at this time.
    fn receive(&mut self, sent: Instant, lease: &LeaseResponse) {
        self.answered = sent;
        let is_mine = lease.holder == self.request.node
            && self.request.epoch.is_none_or(|epoch| epoch == lease.epoch);
        self.request.epoch = is_mine.then_some(lease.epoch);
        self.view = if is_mine {
            LeaseView::Mine
        } else {
            LeaseView::Others
        };
    }

    /// Lets the lease end by itself. While the store is not asked, nothing becomes known of it: only what this node held is over.
    fn let_go(&mut self) {
        self.request.epoch = None;
        if self.view == LeaseView::Mine {
            self.view = LeaseView::Others;
        }
    }

    fn view_at(&mut self, now: Instant) -> LeaseView {
        if now.duration_since(self.answered) > LEASE {
            self.view = LeaseView::Unavailable;
        }
        self.view
    }
}

/// Requests the lease again and again while this node is fit to be the head, and publishes its state.
pub(crate) async fn keep(
    store: Arc<dyn LeaseStore>,
    cluster: ClusterId,
    node: NodeId,
    mut fit: watch::Receiver<bool>,
    view: watch::Sender<LeaseView>,
) {
    let mut keeper = Keeper::new(Instant::now(), node);
    let pause = LEASE / 4;
    loop {
        let is_fit = *fit.borrow_and_update();
        if is_fit {
            let sent = Instant::now();
            let asked = store.acquire(&cluster, &keeper.request);
            let answer = tokio::time::timeout(pause, asked).await;
            match answer {
                Ok(Ok(lease)) => keeper.receive(sent, &lease),
                Ok(Err(error)) => debug!(%error, "the lease of the head"),
                Err(_) => debug!("the store of the head's lease did not answer in time"),
            }
        } else {
            keeper.let_go();
        }
        view.send_replace(keeper.view_at(Instant::now()));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // A node that has become fit asks at once: the cluster may be waiting for a head.
            changed = fit.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;

    use super::*;
    use crate::head::lease::{LeaseFuture, MemoryLeases};

    fn cluster() -> ClusterId {
        "paris-1".parse().unwrap()
    }

    fn ask(store: &MemoryLeases, keeper: &mut Keeper, at: Instant) -> LeaseView {
        let lease = store.acquire_at(at, &cluster(), &keeper.request);
        keeper.receive(at, &lease);
        keeper.view_at(at)
    }

    #[test]
    fn a_lease_that_was_let_go_is_another_candidates_within_its_duration() {
        let store = MemoryLeases::default();
        let start = Instant::now();
        let mut a = Keeper::new(start, "a".parse().unwrap());
        let mut b = Keeper::new(start, "b".parse().unwrap());
        assert_eq!(ask(&store, &mut a, start), LeaseView::Mine);
        assert_eq!(ask(&store, &mut b, start), LeaseView::Others);
        let last = start + LEASE / 2;
        assert_eq!(ask(&store, &mut a, last), LeaseView::Mine, "it is renewed");
        a.let_go();
        assert_eq!(a.view_at(last), LeaseView::Others);
        let first_end = start + LEASE;
        assert_eq!(ask(&store, &mut b, first_end), LeaseView::Others);
        let over = last + LEASE;
        assert_eq!(ask(&store, &mut b, over), LeaseView::Mine);
        assert_eq!(ask(&store, &mut a, over), LeaseView::Others, "fit again");
        // One that has not asked for longer than a lease lasts does not know what the store says.
        let later = over + LEASE + Duration::from_millis(1);
        assert_eq!(a.view_at(later), LeaseView::Unavailable);
    }

    #[test]
    fn who_is_fit_again_before_the_lease_has_ended_begins_it_anew() {
        let store = MemoryLeases::default();
        let start = Instant::now();
        let mut keeper = Keeper::new(start, "a".parse().unwrap());
        assert_eq!(ask(&store, &mut keeper, start), LeaseView::Mine);
        keeper.let_go();
        let soon = start + LEASE / 2;
        assert_eq!(ask(&store, &mut keeper, soon), LeaseView::Mine);
        assert_eq!(keeper.request.epoch, Some(2));
    }

    #[derive(Default)]
    struct Counted {
        leases: MemoryLeases,
        asked: AtomicUsize,
    }

    impl LeaseStore for Counted {
        fn acquire<'a>(
            &'a self,
            cluster: &'a ClusterId,
            request: &'a LeaseRequest,
        ) -> LeaseFuture<'a> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.leases.acquire(cluster, request)
        }
    }

    #[tokio::test]
    async fn a_node_asks_for_the_lease_only_while_it_is_fit() {
        let counted = Arc::new(Counted::default());
        let store: Arc<dyn LeaseStore> = counted.clone();
        let asked = || counted.asked.load(Ordering::Relaxed);
        let (fit, is_fit) = watch::channel(false);
        let (sender, view) = watch::channel(LeaseView::Unavailable);
        let name = "a".parse().unwrap();
        let mut keeping = pin!(keep(store, cluster(), name, is_fit, sender));
        assert!(keeping.as_mut().now_or_never().is_none());
        assert_eq!(asked(), 0);
        assert_eq!(*view.borrow(), LeaseView::Unavailable);
        fit.send_replace(true);
        assert!(keeping.as_mut().now_or_never().is_none());
        assert!(asked() > 0, "it does not wait for the next turn");
        assert_eq!(*view.borrow(), LeaseView::Mine);
        let before = asked();
        fit.send_replace(false);
        assert!(keeping.as_mut().now_or_never().is_none());
        assert_eq!(asked(), before);
        assert_eq!(*view.borrow(), LeaseView::Others);
        drop(fit);
        assert!(keeping.now_or_never().is_some(), "it ends with its node");
    }
}

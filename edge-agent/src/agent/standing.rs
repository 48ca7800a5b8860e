//! Publishes the operators' decisions about this node.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{CONDITION_ACCEPTING, Shared};
use crate::fleet::Work;

impl Shared {
    /// Publishes whether the node takes new work, and reports every change to the controller at once.
    pub(super) fn follow_fleet(&self) -> impl Future<Output = ()> + use<> {
        let mut views = self.fleet.subscribe();
        let (readiness, changed) = (self.readiness.clone(), Arc::clone(&self.changed));
        let (stopping, stop) = (Arc::clone(&self.draining), self.stop.clone());
        let takes_work = self.metrics.takes_work.clone();
        async move {
            loop {
                let work = views.borrow_and_update().work();
                takes_work.set(i64::from(work == Work::Taken));
                if !stopping.load(Ordering::Relaxed) {
                    readiness.set(CONDITION_ACCEPTING, work == Work::Taken, why(work));
                }
                changed.notify_one();
                tokio::select! {
                    () = stop.cancelled() => return,
                    next = views.changed() => if next.is_err() { return },
                }
            }
        }
    }
}

/// Why a node does not take new work.
const fn why(work: Work) -> &'static str {
    match work {
        Work::Taken => "",
        Work::Cordoned => "an operator drains this node",
        Work::Removed => "this node was removed from the network",
    }
}

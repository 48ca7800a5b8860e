//! Instances whose requesting nodes are gone: the node that runs them keeps them warm, and lends them to the next node that asks.
//!
//! In this way a restarted node, for instance after an upgrade, recovers its instances on other nodes: the nodes that kept them answer its tasks
//! for such instances at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fdn_instances::{Exit, ExitReason, InstanceState, StartSpec};
use tokio::time::{Duration, timeout};
use tracing::info;

use super::Node;
use super::host::TaskEndGuard;
use super::table::{Entry, Progress};
use crate::invocations::placer::{Placed, Placer};
use crate::invocations::stopped;

impl Node {
    /// Keeps an idle instance that nobody follows as this node's own.
    ///
    /// # Errors
    /// Returns the instance when it has calls in progress or does not answer, or when this node cannot keep it.
    pub(super) fn keep(
        &self,
        entry: &Entry,
        mut placed: Placed,
        ended: TaskEndGuard,
    ) -> Result<(), Box<(Placed, TaskEndGuard)>> {
        let serves = matches!(
            *placed.instance.state().borrow(),
            InstanceState::Ready | InstanceState::Paused
        );
        let is_idle = entry.calls.load(Ordering::Relaxed) == 0;
        let own = self.own.get();
        let own = own.filter(|_| serves && is_idle && !self.is_draining());
        let Some(own) = own else {
            return Err(Box::new((placed, ended)));
        };
        let weight = self.local.weight(placed.instance.description().resources);
        let share = self.room.share(weight);
        // The cluster may assign this room again only when the instance is gone from here.
        let reservation = placed.reservation.take();
        placed.reservation =
            reservation.map(|reservation| reservation.with_guard(Box::new((ended, share))));
        // From now on the requesting node no longer has the instance, should that node still exist.
        entry.progress.send_replace(Progress::Gone(
            Exit {
                code: None,
                reason: ExitReason::Stopped,
            },
            Vec::new(),
        ));
        if let Err(placed) = own.take_in(placed) {
            info!(task = ?entry.task, "an instance that nobody wants is ended");
            self.runtime.spawn(async move {
                stopped(&*placed.instance, Duration::ZERO).await;
                drop(placed);
            });
        } else {
            self.metrics.kept.inc();
        }
        Ok(())
    }

    /// Takes one of the kept instances and resumes it; `None` if there is none.
    pub(super) async fn lend(&self, spec: &StartSpec) -> Option<Placed> {
        let mut placed = self.own.get()?.lend(&spec.description)?;
        let instance = Arc::clone(&placed.instance);
        if !matches!(
            timeout(self.start_timeout, instance.resume()).await,
            Ok(Ok(()))
        ) {
            self.runtime.spawn(async move {
                stopped(&*placed.instance, Duration::ZERO).await;
                drop(placed);
            });
            return None;
        }
        // The new task accounts for the room now.
        if let Some(reservation) = &mut placed.reservation {
            reservation.drop_guards();
        }
        self.metrics.lent.inc();
        Some(placed)
    }
}

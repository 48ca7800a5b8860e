//! Executes the cluster's orders on this node: starts instances within the ledger, watches them until they are gone, and ends those that nobody
//! uses any more.

use std::sync::{Arc, Weak};
use std::time::Duration;

use fdn_cluster::{Cluster, Host, InstanceEvent, StartOrder, TaskId};
use fdn_core::{Coded, ErrorCode, NodeId};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::order::Order;
use super::table::{EndReason, Entry, Progress};
use super::wire::Failure;
use super::{Node, chain};
use crate::invocations::placer::{Need, PlaceError, Placed};
use crate::invocations::stopped;

/// How long the reason of a failed start is kept for the node that requested it.
const KEPT: Duration = Duration::from_secs(5);

/// Receives the cluster's orders.
pub(super) struct Orders(pub(super) Weak<Node>);

/// Reports to the cluster, once, when dropped, that the instance of a task is gone.
#[derive(Debug)]
pub(super) struct TaskEndGuard {
    pub(super) cluster: Cluster,
    pub(super) task: TaskId,
}

impl Drop for TaskEndGuard {
    fn drop(&mut self) {
        self.cluster.ended(self.task);
    }
}

impl Host for Orders {
    fn start(&mut self, order: StartOrder) {
        let Some(node) = self.0.upgrade() else {
            return;
        };
        let decoded = Order::decode(&order.payload);
        let requester = decoded.as_ref().map(|order| order.asker.clone());
        let entry = Entry::new(order.task, requester.unwrap_or_else(|_| node.me.clone()));
        // Added before this returns, so that a node that asks for the task next finds it.
        node.table.add(Arc::clone(&entry));
        node.metrics.held.set(node.table.len() as i64);
        let runtime = node.runtime.clone();
        runtime.spawn(async move {
            node.run(&entry, decoded).await;
            node.table.remove(entry.task);
            node.metrics.held.set(node.table.len() as i64);
        });
    }

    fn end(&mut self, task: TaskId) {
        if let Some(entry) = self.0.upgrade().and_then(|node| node.table.get(task)) {
            entry.end.send_replace(Some(EndReason::Unfollowed));
        }
    }

    fn instance_event(&mut self, event: InstanceEvent) {
        let Some(node) = self.0.upgrade() else {
            return;
        };
        match event {
            InstanceEvent::Lost(task) => {
                if let Some(lost) = node.follows.lost(task) {
                    node.connections.drop_node(&lost);
                }
            }
            InstanceEvent::Ended(task) | InstanceEvent::Failed(task) => {
                node.follows.ended(task, &node.runtime);
            }
            // Tasks are not declared idempotent, since the pool itself replaces lost instances and would end up with two. A returned instance has
            // been replaced and is not wanted back: nobody follows it, so its node keeps it for itself or ends it.
            InstanceEvent::Rerun(..) | InstanceEvent::Returned(..) => {}
        }
    }
}

impl Node {
    async fn run(self: &Arc<Self>, entry: &Arc<Entry>, order: Result<Order, String>) {
        let cluster = self.cluster.wait().await.clone();
        let started = match order {
            Ok(order) => self.begin(&order, &entry.requester).await,
            Err(reason) => Err(refused(ErrorCode::Internal, reason, false)),
        };
        let task = entry.task;
        let ended = TaskEndGuard { cluster, task };
        match started {
            Ok(mut placed) if entry.requester == self.me => {
                // The guard reports the end of the task when the instance releases what it holds.
                placed.reservation = placed
                    .reservation
                    .map(|reservation| reservation.with_guard(Box::new(ended)));
                entry.provide_locally(placed);
                let orphan = timeout(
                    self.settings.orphan_after.as_duration(),
                    entry.taken.notified(),
                );
                if orphan.await.is_err()
                    && let Some(placed) = entry.take()
                {
                    info!(?task, "nobody waits for an instance any more");
                    stopped(&*placed.instance, Duration::ZERO).await;
                }
            }
            Ok(placed) => {
                self.metrics.started.with_label_values(&["ok"]).inc();
                self.serve(entry, placed, ended).await;
            }
            Err(failure) => self.not_started(entry, failure, ended).await,
        }
    }

    /// Starts an instance of a version deployed here, or lends an idle one whose requesting node is gone.
    async fn begin(&self, order: &Order, requester: &NodeId) -> Result<Placed, Failure> {
        let known = self.registry.get(&order.key);
        let spec = known.map(|known| known.spec).ok_or_else(|| {
            let reason = format!("{} is not deployed here yet", order.key);
            refused(ErrorCode::NotReady, reason, true)
        })?;
        if *requester != self.me
            && let Some(placed) = self.lend(&spec).await
        {
            return Ok(placed);
        }
        // The cluster's figures do not include what calls in sandboxes hold: the ledger decides, and the requesting node learns it at once.
        let room = self.local.has_room(spec.description.resources);
        let part = room.and_then(|()| self.local.take_share(&spec.description));
        let part = part.map_err(|short| refused(ErrorCode::Overloaded, short, true))?;
        // Boxed, as every other placement is.
        let placed = Box::pin(self.local.place_with(spec, Need::Call, part)).await;
        placed.map_err(|error| failure(&error))
    }

    /// Reports why the start failed. Keeps unusable room reserved for a while, and the reason for a requesting node that asks late.
    async fn not_started(&self, entry: &Entry, failure: Failure, ended: TaskEndGuard) {
        let label = if failure.elsewhere {
            "refused"
        } else {
            "failed"
        };
        self.metrics.started.with_label_values(&[label]).inc();
        let is_node = failure.elsewhere;
        entry
            .progress
            .send_replace(Progress::Failed(Arc::new(failure)));
        if is_node {
            // The cluster would offer this room again at once, although nothing can be started in it now.
            sleep(self.settings.refused_room.as_duration()).await;
        }
        ended.cluster.failed(ended.task);
        drop(ended);
        sleep(KEPT).await;
    }

    /// Runs an instance for another node until it ends, must end, or nobody follows it any more.
    async fn serve(&self, entry: &Arc<Entry>, placed: Placed, ended: TaskEndGuard) {
        let instance = Arc::clone(&placed.instance);
        let (task, requester) = (entry.task, &entry.requester);
        entry
            .progress
            .send_replace(Progress::Started(Arc::clone(&instance)));
        let mut state = instance.state();
        let end = tokio::select! {
            _ = state.wait_for(|state| state.exit().is_some()) => EndReason::Requested(Duration::ZERO),
            end = entry.ends() => end,
            () = entry.orphaned(self.settings.orphan_after.as_duration()) => {
                warn!(?task, asker = %requester, "nothing is heard of the node that an instance runs for");
                self.metrics.orphans.inc();
                EndReason::Unfollowed
            }
        };
        let (grace, kept) = match end {
            EndReason::Requested(grace) => (grace, Err(Box::new((placed, ended)))),
            EndReason::RoomNeeded => (self.stop_grace, Err(Box::new((placed, ended)))),
            EndReason::Unfollowed => (self.stop_grace, self.keep(entry, placed, ended)),
        };
        let Err(left) = kept else {
            info!(?task, asker = %requester, "an instance that ran for another node is kept");
            return;
        };
        if end != EndReason::Requested(grace) {
            info!(?task, asker = %requester, "an instance that runs for another node is ended");
        }
        let exit = stopped(&*instance, grace).await;
        let log = instance.log_tail();
        entry.progress.send_replace(Progress::Gone(exit, log));
        let (placed, ended) = *left;
        drop(placed);
        drop(ended);
    }
}

fn refused(code: ErrorCode, reason: String, elsewhere: bool) -> Failure {
    Failure {
        code,
        reason,
        log: Vec::new(),
        elsewhere,
    }
}

fn failure(error: &PlaceError) -> Failure {
    use fdn_instances::StartError;
    // Failures of the node or its engine may not occur elsewhere; the function's own faults occur on every node.
    let is_its_own = matches!(
        error,
        PlaceError::Start(
            StartError::ImageInvalid { .. }
                | StartError::Unsupported { .. }
                | StartError::Exited { .. }
                | StartError::NotReady { .. },
        )
    );
    Failure {
        code: error.code(),
        reason: chain(error),
        log: error.log().to_vec(),
        elsewhere: !is_its_own,
    }
}

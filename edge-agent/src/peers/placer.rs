//! Places instances anywhere in the cluster: the cluster finds room, the node that has it starts the instance, and this node calls it there.

use std::sync::Arc;

use async_trait::async_trait;
use fdn_cluster::{Cluster, Outcome, ScalingTask, Settlement, TaskId};
use fdn_core::device::GpuRequest;
use fdn_core::{AppName, ErrorCode, InstanceId, MebiBytes, Millis, NodeId, Resources, TenantTag};
use fdn_instances::{Description, Image, Kind, StartError, StartSpec};
use fdn_scheduling::invocation::Weight;
use tokio::time::{Duration, Instant, sleep, timeout};
use tracing::info;

use super::followed::StartResult;
use super::order::{Key, Order};
use super::placement::Placement;
use super::remote::{RemoteInstance, Share};
use super::table::Progress;
use super::wire::Failure;
use super::{ClusterPlacer, Node};
use crate::invocations::placer::{Need, PlaceError, Placed, Placer, Registration};

/// How long to wait for the order of a task that was settled for this node: both go through the same process.
const ORDER: Duration = Duration::from_secs(5);
/// The pause before a second node is tried; it grows with each further one.
const PAUSE: Duration = Duration::from_millis(20);

#[async_trait]
impl Placer for ClusterPlacer {
    async fn place(&self, spec: StartSpec, need: Need) -> Result<Placed, PlaceError> {
        let node = &self.0;
        let cluster = node.cluster.get().filter(|_| !node.has_left());
        let Some(cluster) = cluster else {
            return node.local.place(spec, need).await;
        };
        timeout(node.start_timeout, node.place(cluster, spec, need))
            .await
            .unwrap_or(Err(PlaceError::Late(node.start_timeout)))
    }

    async fn prepare(&self, image: &Image) -> Result<(), StartError> {
        self.0.local.prepare(image).await
    }

    async fn runs_containers(&self) -> bool {
        let node = &self.0;
        if node.local.kind() == Kind::Elsewhere {
            // The other members are unknown before it has met them.
            node.met.wait().await;
            return node.room.has_others();
        }
        true
    }

    async fn lacks_devices(&self, request: &GpuRequest) -> Option<String> {
        let node = &self.0;
        let lacking = match node.local.kind() {
            Kind::Elsewhere => "this node runs no containers".to_owned(),
            _ => node.local.lacks_devices(request).await?,
        };
        // The other members are unknown before it has met them.
        node.met.wait().await;
        let others = node.room.others_could_have(request.total());
        (!others).then_some(lacking)
    }

    fn found(&self, description: &Description) -> Vec<Placed> {
        self.0.local.found(description)
    }

    fn pauses(&self) -> bool {
        // Nodes of a cluster are alike; a node that cannot pause refuses the order and the instance stays awake.
        self.0.local.pauses()
    }

    fn weight(&self, resources: Resources) -> Weight {
        self.0.local.weight(resources)
    }

    fn room(&self) -> Weight {
        self.0.room.now(Instant::now(), &self.0.ledger)
    }

    fn max_weight(&self) -> Weight {
        self.0.room.max_weight(self.0.ledger.capacity())
    }

    fn register(&self, spec: &StartSpec, expected: Millis) -> Registration {
        let ahead = self.0.local.register(spec, expected);
        Some(Box::new((self.0.registry.add(spec, expected), ahead)))
    }

    fn set_tenant(&self, app: &AppName, tenant: TenantTag) {
        self.0.local.set_tenant(app, tenant);
    }

    fn evict_standby(&self) {
        self.0.local.evict_standby();
    }

    fn placement(&self, instance: InstanceId) -> Option<Arc<Placement>> {
        self.0.placements().remove(&instance)
    }
}

impl Node {
    async fn place(
        &self,
        cluster: &Cluster,
        spec: StartSpec,
        need: Need,
    ) -> Result<Placed, PlaceError> {
        let weight = self.local.weight(spec.description.resources);
        let task = self.task(&spec);
        let mut refused = 0;
        loop {
            if self.is_draining() && self.room.is_alone() {
                // No other node can take the instance: calls that still come are served here.
                return self.local.place(spec, need).await;
            }
            let wanted = (&spec.description, need);
            let Some(outcome) = self.request_room(cluster, task.clone(), wanted).await else {
                // The cluster's part of this node has stopped.
                return self.local.place(spec, need).await;
            };
            let id = TaskId(outcome.task);
            let (node, failure) = match self.settled(outcome, refused, wanted)? {
                Some(placement) => {
                    let share = self.room.share(weight);
                    match self.started(id, &placement.node, share).await {
                        Ok(placed) => {
                            self.record_placement(&spec, placement, placed.instance.id());
                            return Ok(placed);
                        }
                        Err(failure) => (placement.node, failure),
                    }
                }
                None => (
                    self.me.clone(),
                    lost("nobody can say whether it was started"),
                ),
            };
            refused += 1;
            if !failure.elsewhere || refused >= self.settings.attempts {
                return Err(failed(node, failure));
            }
            self.metrics.retried.inc();
            info!(%node, reason = %failure.reason, refused, "an instance is started on another node");
            sleep(PAUSE * refused).await;
        }
    }

    /// The task that requests an instance.
    fn task(&self, spec: &StartSpec) -> ScalingTask {
        let order = Order {
            asker: self.me.clone(),
            key: Key::of(&spec.description),
        };
        let known = self.registry.get(&order.key);
        ScalingTask {
            label: 0,
            demand: spec.description.resources,
            expected: known.map_or(Millis::ZERO, |known| known.expected),
            payload: order.encode(),
            // The pool replaces lost instances itself; a rerun would be one too many.
            idempotent: false,
        }
    }

    /// Where the cluster has found room; `None` if it is unknown whether the instance was started.
    fn settled(
        &self,
        outcome: Outcome,
        refused: u32,
        wanted: (&Description, Need),
    ) -> Result<Option<Placement>, PlaceError> {
        match outcome.result {
            Settlement::Started { node, trace } => Ok(Some(Placement {
                took: outcome.took,
                found_at: Instant::now().into_std(),
                node,
                hops: trace,
                refused,
            })),
            Settlement::Refused(reason) => {
                self.handle_no_room(wanted);
                Err(PlaceError::NoRoom(reason.to_string()))
            }
            Settlement::Unresolved => Ok(None),
        }
    }

    /// Requests room; while there is none, idle instances give way.
    async fn request_room(
        &self,
        cluster: &Cluster,
        task: ScalingTask,
        wanted: (&Description, Need),
    ) -> Option<Outcome> {
        let mut outcomes = cluster.scale(vec![task]).await.ok()?;
        let mut patience = self.settings.full_after.as_duration();
        loop {
            match timeout(patience, outcomes.next()).await {
                Ok(outcome) => return outcome,
                // Without a head or a majority, the task waits for those and not for room.
                Err(_) => match cluster.status().await {
                    Ok(status) if status.quorum && status.head.is_some() => {
                        self.handle_no_room(wanted);
                    }
                    Ok(_) | Err(_) => {}
                },
            }
            patience = self.settings.full_pause.as_duration();
        }
    }

    /// The handle to an instance that the cluster has ordered, once it is started.
    async fn started(&self, task: TaskId, node: &NodeId, share: Share) -> Result<Placed, Failure> {
        if *node == self.me {
            self.here(task, share).await
        } else {
            self.there(task, node, share).await
        }
    }

    async fn here(&self, task: TaskId, share: Share) -> Result<Placed, Failure> {
        let entry = self.table.find(task, ORDER).await;
        let entry = entry.ok_or_else(|| lost("the order did not come"))?;
        let mut progress = entry.progress.subscribe();
        let started = progress
            .wait_for(|progress| !matches!(progress, Progress::Starting))
            .await
            .ok()
            .map(|started| started.clone());
        match started {
            Some(Progress::Failed(failure)) => Err((*failure).clone()),
            Some(_) => {
                let taken = entry.take();
                let mut placed = taken.ok_or_else(|| lost("the instance is gone"))?;
                placed.reservation = placed
                    .reservation
                    .map(|reservation| reservation.with_guard(Box::new(share)));
                Ok(placed)
            }
            None => Err(lost("the instance is gone")),
        }
    }

    async fn there(&self, task: TaskId, node: &NodeId, share: Share) -> Result<Placed, Failure> {
        let (connections, runtime) = (&self.connections, &self.runtime);
        let following = self.follows.begin(task, node.clone(), connections, runtime);
        let mut start_result = following.followed.start_result.subscribe();
        let known = start_result
            .wait_for(|start_result| !matches!(start_result, StartResult::Waiting))
            .await
            .ok()
            .map(|start_result| start_result.clone());
        let description = match known {
            Some(StartResult::Started(description)) => *description,
            Some(StartResult::Failed(failure)) => return Err(failure),
            Some(StartResult::Waiting) | None => return Err(lost("nothing is heard of it")),
        };
        let instance = RemoteInstance {
            description,
            following,
            connections: Arc::clone(connections),
            metrics: self.metrics.clone(),
            _share: share,
        };
        Ok(Placed {
            instance: Arc::new(instance),
            reservation: None,
        })
    }

    /// Keeps how an instance was placed, for the first call that it gets.
    fn record_placement(&self, spec: &StartSpec, placement: Placement, instance: InstanceId) {
        let (app, version) = (&spec.description.app, spec.description.version);
        info!(%app, %version, %instance, way = %placement, took = ?placement.took, "an instance was placed");
        self.placements().insert(instance, Arc::new(placement));
    }

    /// Handles that the cluster had no room: idle instances of other nodes on this node give way, and less is requested until that may have
    /// changed. If a GPU is needed, idle instances of this node first give up all of theirs: only they hold GPU memory, and main memory may not
    /// be short.
    fn handle_no_room(&self, (wanted, need): (&Description, Need)) {
        self.make_room_for_instance(wanted.resources);
        let needs_gpu = wanted.resources.gpu_memory_mib > MebiBytes(0) && need == Need::Call;
        let own = self.own.get().filter(|_| needs_gpu);
        if own.is_some_and(|own| own.evict_for_gpu(wanted) > MebiBytes(0)) {
            return;
        }
        let pause = self.settings.full_pause.as_duration();
        self.room.refused(Instant::now(), pause);
        self.ring();
        if let Some(bell) = self.bell.get().cloned() {
            self.runtime.spawn(async move {
                sleep(pause).await;
                bell.notify_one();
            });
        }
    }
}

fn lost(reason: &str) -> Failure {
    Failure {
        code: ErrorCode::InstanceLost,
        reason: reason.to_owned(),
        log: Vec::new(),
        elsewhere: true,
    }
}

fn failed(node: NodeId, failure: Failure) -> PlaceError {
    PlaceError::Elsewhere {
        node,
        code: failure.code,
        reason: failure.reason,
        log: failure.log,
    }
}

//! After the agent's restart: the instances that run already are found again, and hold their resources before anything else is started.
//!
//! What still fits waits for its function to claim it ([`Placer::found`](super::Placer::found)). What no longer fits is stopped, and until it is gone
//! it holds as much as the others have left of the node.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use fdn_core::{InstanceId, Resources};
use fdn_instances::{Description, Instance, RuntimeError};
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{LocalPlacer, Placed, on_the_node};
use crate::invocations::ledger::InstanceReservation;
use crate::invocations::slices::{self, Slices};
use crate::invocations::stop::{LONGEST_PAUSE, PAUSE, stop_later};

impl LocalPlacer {
    /// Reconciles the allocation table of devices with what runs. Returns the instances that must end because their devices have no room for
    /// them.
    async fn reconcile(&self, running: &[Arc<dyn Instance>]) -> BTreeSet<InstanceId> {
        let Some(sharing) = self.sharing.clone() else {
            return BTreeSet::new();
        };
        let running: Vec<_> = running
            .iter()
            .filter_map(|instance| slices::running(instance.description()))
            .collect();
        match spawn_blocking(move || sharing.devices().reconcile(running)).await {
            Ok(Ok(done)) => done.lost,
            Ok(Err(failure)) => {
                warn!(%failure, "the allocation table of devices is as before the restart");
                BTreeSet::new()
            }
            Err(failure) => {
                warn!(%failure, "the allocation table of devices is as before the restart");
                BTreeSet::new()
            }
        }
    }

    /// Reserves the resources of a running instance; an error says why it cannot stay.
    fn held(&self, instance: &dyn Instance) -> Result<InstanceReservation, String> {
        let description = instance.description();
        let reservation = self.ledger.reserve(on_the_node(description.resources))?;
        let memory = description.resources.memory_mib;
        let apps = self.apps.as_ref();
        let reservation =
            reservation.with_part(apps.map(|apps| apps.found(&description.app, memory)));
        Ok(reservation.with_slices(self.slices_of(description)))
    }

    /// The slices that a running instance holds; they are released when this is dropped.
    fn slices_of(&self, description: &Description) -> Option<Slices> {
        let sharing = self.sharing.as_ref();
        let sharing = sharing.filter(|_| !description.devices.is_empty());
        sharing.map(|sharing| Slices::held(sharing, description.id))
    }

    /// Like [`LocalPlacer::adopt`], again with growing pauses until the engine responds: if anything was started before it is known what runs, the
    /// node's resources would be given away twice.
    ///
    /// # Errors
    /// When the engine has not responded within `patience`; nothing is reserved then.
    pub async fn adopt_once_told(&self, patience: Duration) -> Result<usize, RuntimeError> {
        let end = Instant::now() + patience;
        let mut pause = PAUSE;
        loop {
            match self.adopt().await {
                Ok(count) => return Ok(count),
                Err(failure) if Instant::now() + pause > end => return Err(failure),
                Err(failure) => {
                    warn!(%failure, again_in = ?pause, "what runs from before cannot be told; the node waits for that");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Finds the instances that run already after the agent's restart, and reserves their resources before anything else is started.
    ///
    /// # Errors
    /// When the engine does not respond; nothing is reserved then.
    pub async fn adopt(&self) -> Result<usize, RuntimeError> {
        // First, because it adopts what has begun to run meanwhile, and removes the rest.
        let collected = self.runtime.collect().await?;
        for (id, reason) in collected.failed {
            warn!(%id, %reason, "an ended instance could not be removed");
        }
        let running = self.runtime.adopt().await?;
        let lost = self.reconcile(&running).await;
        let (mut found, mut misfits) = (BTreeMap::new(), Vec::new());
        for instance in running {
            let id = instance.id();
            let held = if lost.contains(&id) {
                Err("its devices have no room for it".to_owned())
            } else {
                self.held(&*instance)
            };
            match held {
                Ok(reservation) => {
                    self.noted(&instance);
                    let reservation = Some(reservation);
                    found.insert(
                        id,
                        Placed {
                            instance,
                            reservation,
                        },
                    );
                }
                Err(short) => {
                    warn!(%id, %short, "an instance that runs no longer fits this node and is stopped");
                    misfits.push(instance);
                }
            }
        }
        // Last, so that nothing that fits gives way: until they are gone they hold what is left.
        for instance in misfits {
            let description = instance.description();
            let rest = self.ledger.reserve_rest(on_the_node(description.resources));
            let reservation = Some(rest.with_slices(self.slices_of(description)));
            stop_later(
                Placed {
                    instance,
                    reservation,
                },
                Duration::ZERO,
            );
        }
        let count = found.len();
        if count > 0 {
            info!(count, "instances run on from before");
        }
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(count)
    }

    /// The resources of the instances that were found running and are not claimed yet.
    #[must_use]
    pub fn found_resources(&self) -> Vec<(InstanceId, Resources)> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let resources = |placed: &Placed| placed.instance.description().resources;
        found
            .iter()
            .map(|(id, placed)| (*id, resources(placed)))
            .collect()
    }

    /// Adds a guard to an instance that was found running; it is dropped when the instance is gone.
    pub fn guard_found(&self, id: InstanceId, guard: Box<dyn Any + Send + Sync>) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(placed) = found.get_mut(&id) {
            let reservation = placed.reservation.take();
            placed.reservation = reservation.map(|reservation| reservation.with_guard(guard));
        }
    }

    /// Stops, in the background, instances that were found running but belong to no deployed function.
    pub fn stop_unclaimed(&self) {
        let left = std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner));
        for (id, placed) in left {
            info!(%id, "an instance of nothing that is deployed is stopped");
            stop_later(placed, Duration::from_secs(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use fdn_core::{MebiBytes, MilliCpu};
    use fdn_instances::fake::{FakeEngine, FakeProgram, FakeRuntime};
    use fdn_instances::{Capabilities, Collected, Image, Kind, Owner, Runtime};
    use fdn_instances::{StartError, StartSpec};
    use futures::FutureExt;
    use uuid::Uuid;

    use super::*;
    use crate::invocations::ledger::Ledger;

    /// An engine on which one more instance runs by the time it is first asked what serves nobody: it was started by the agent before.
    #[derive(Debug)]
    struct LateEngine {
        runtime: Arc<FakeRuntime>,
        late: Mutex<Option<StartSpec>>,
    }

    #[async_trait]
    impl Runtime for LateEngine {
        fn kind(&self) -> Kind {
            self.runtime.kind()
        }

        fn owner(&self) -> &Owner {
            self.runtime.owner()
        }

        fn capabilities(&self) -> Capabilities {
            self.runtime.capabilities()
        }

        async fn check(&self) -> Result<(), RuntimeError> {
            self.runtime.check().await
        }

        async fn prepare(&self, image: &Image) -> Result<(), StartError> {
            self.runtime.prepare(image).await
        }

        async fn start(&self, spec: StartSpec) -> Result<Arc<dyn Instance>, StartError> {
            self.runtime.start(spec).await
        }

        async fn adopt(&self) -> Result<Vec<Arc<dyn Instance>>, RuntimeError> {
            self.runtime.adopt().await
        }

        async fn collect(&self) -> Result<Collected, RuntimeError> {
            let late = self.late.lock().expect("lock").take();
            if let Some(spec) = late {
                self.runtime.start(spec).await.expect("it starts");
            }
            self.runtime.collect().await
        }
    }

    fn node() -> (Arc<FakeEngine>, Arc<FakeRuntime>, StartSpec) {
        let engine = FakeEngine::new();
        let image = engine.add_image("here", FakeProgram::text("here"));
        let runtime = engine.runtime("eu".parse().expect("name"), "n".parse().expect("name"));
        let spec = StartSpec::new(
            InstanceId::from_uuid(Uuid::from_u128(1)),
            "app".parse().expect("name"),
            "main".parse().expect("name"),
            image,
            Resources::new(MilliCpu(100), MebiBytes(64)),
        );
        (engine, runtime, spec)
    }

    fn placer(runtime: Arc<dyn Runtime>) -> (Arc<Ledger>, LocalPlacer) {
        let ledger = Ledger::new(Resources::new(MilliCpu(1000), MebiBytes(1000)), 1);
        let placer = LocalPlacer::new(runtime, Arc::clone(&ledger), Duration::from_secs(60));
        (ledger, placer)
    }

    #[tokio::test]
    async fn what_runs_is_held_once_the_engine_answers_again() {
        let (engine, runtime, spec) = node();
        runtime.start(spec).await.expect("it starts");
        let (ledger, placer) = placer(runtime);
        engine.set_unreachable(true);
        let mut adopted = Box::pin(placer.adopt_once_told(Duration::from_secs(60)));
        let first = adopted.as_mut().now_or_never();
        assert!(first.is_none(), "it is not told");
        engine.set_unreachable(false);
        assert_eq!(adopted.await.expect("it is told"), 1);
        assert_eq!(ledger.held(), MebiBytes(64));
    }

    #[tokio::test]
    async fn an_engine_that_goes_on_failing_is_not_waited_for_for_ever() {
        let (engine, runtime, spec) = node();
        runtime.start(spec).await.expect("it starts");
        let (ledger, placer) = placer(runtime);
        engine.set_unreachable(true);
        let error = placer.adopt_once_told(Duration::ZERO).await;
        let error = error.expect_err("it is not told");
        assert!(matches!(error, RuntimeError::Unreachable { .. }), "{error}");
        assert_eq!(ledger.held(), MebiBytes(0));
    }

    #[tokio::test]
    async fn what_begins_to_run_meanwhile_is_held_too() {
        let (_engine, runtime, spec) = node();
        let late = Mutex::new(Some(spec));
        let (ledger, placer) = placer(Arc::new(LateEngine { runtime, late }));
        assert_eq!(placer.adopt().await.expect("the engine answers"), 1);
        assert_eq!(ledger.held(), MebiBytes(64));
    }
}

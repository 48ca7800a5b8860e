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
use tracing::{info, warn};

use super::{LocalPlacer, Placed, on_the_node};
use crate::invocations::ledger::InstanceReservation;
use crate::invocations::slices::{self, Slices};
use crate::invocations::stop::stop_later;

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

    /// Finds the instances that run already after the agent's restart, and reserves their resources before anything else is started.
    ///
    /// # Errors
    /// When the engine does not respond.
    pub async fn adopt(&self) -> Result<usize, RuntimeError> {
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
        let collected = self.runtime.collect().await?;
        for (id, reason) in collected.failed {
            warn!(%id, %reason, "an ended instance could not be removed");
        }
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

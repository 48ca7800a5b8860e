//! GPU slices of instances: bound before an instance starts, released when it is gone.
//!
//! The allocation table of [`fdn_devices`] decides which devices an instance gets. Changes are written to disk before anybody acts on them, so
//! they are made on threads that may block.
//!
//! If no device has room and idle instances hold what is missing, as few of them as possible are ended ([`IdleInstances`]), and the new instance waits
//! until their slices are released, just as idle instances give way for memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use fdn_core::InstanceId;
use fdn_core::device::GpuRequest;
use fdn_devices::grant::THREADS;
use fdn_devices::{BindError, Devices, RunningBinding};
use fdn_instances::{Description, StartSpec};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tracing::{error, info, warn};

use super::placer::{Need, PlaceError};
use super::stop::{LONGEST_PAUSE, PAUSE};

/// A source of idle instances on this node that hold slices, which it ends where they are needed.
pub trait IdleInstances: Send + Sync {
    /// Idle instances that hold slices of this node's devices, in the order in which they would be evicted, except those of the function of
    /// `wanted`: they would serve the same calls.
    fn idle(&self, wanted: &Description) -> Vec<InstanceId>;

    /// Ends an instance; `false` if it is no longer idle.
    fn end(&self, instance: InstanceId) -> bool;
}

/// The devices of this node, and the sources of idle instances that hold slices of them.
pub struct Sharing {
    devices: Devices,
    idle_instances: Mutex<Vec<Arc<dyn IdleInstances>>>,
    freed: Notify,
}

/// Whether there will be room for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outlook {
    /// There is room now.
    Free,
    /// Idle instances are ending.
    Soon,
    /// No idle instance can make room.
    None,
}

impl Sharing {
    /// For these devices.
    #[must_use]
    pub fn new(devices: Devices) -> Arc<Self> {
        Arc::new(Self {
            devices,
            idle_instances: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// The devices.
    #[must_use]
    pub const fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Adds a source of idle instances, to be asked after those added before.
    pub fn add_idle_instances(&self, idle_instances: Arc<dyn IdleInstances>) {
        let mut all = self
            .idle_instances
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.push(idle_instances);
    }

    /// Ends idle instances so that a request can be bound, if that helps. `going` are those that were already ended for it.
    async fn evict_idle(
        self: &Arc<Self>,
        request: &GpuRequest,
        wanted: &Description,
        going: &mut BTreeSet<InstanceId>,
    ) -> Outlook {
        let idle_instances = {
            let all = self
                .idle_instances
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            all.clone()
        };
        // Those already ending first, so that no others are ended in their place.
        let mut order: Vec<InstanceId> = going.iter().copied().collect();
        let mut whose = BTreeMap::new();
        for one in idle_instances {
            for id in one.idle(wanted) {
                order.push(id);
                whose.insert(id, Arc::clone(&one));
            }
        }
        // The allocation table is locked while it is written, so this may wait for the disk.
        let (sharing, request) = (Arc::clone(self), request.clone());
        let to_evict =
            spawn_blocking(move || sharing.devices.instances_to_evict(&request, &order)).await;
        let Ok(Some(to_evict)) = to_evict else {
            return Outlook::None;
        };
        if to_evict.is_empty() {
            return Outlook::Free;
        }
        let mut outlook = Outlook::None;
        for id in to_evict {
            // One that is busy again is not ended. If too little room is left without it, that shows once the others are gone.
            let goes = going.contains(&id) || whose.get(&id).is_some_and(|one| one.end(id));
            if goes {
                outlook = Outlook::Soon;
                if going.insert(id) {
                    info!(%id, "an idle instance gives way: its slices of devices are needed");
                }
            }
        }
        outlook
    }

    /// Releases the slices of an instance that is gone. Blocks.
    fn unbind(&self, instance: InstanceId) -> Result<(), BindError> {
        let done = match self.devices.unbind(instance) {
            // A device that is gone has taken its bindings with it.
            Err(BindError::NotBound(_)) => Ok(()),
            done => done,
        };
        self.freed.notify_waiters();
        done
    }

    /// Releases the slices of an instance that is gone, again with growing pauses while the disk fails.
    async fn release(self: Arc<Self>, instance: InstanceId) {
        let mut pause = PAUSE;
        loop {
            let sharing = Arc::clone(&self);
            match spawn_blocking(move || sharing.unbind(instance)).await {
                Ok(Err(failure @ BindError::Store(_))) => {
                    warn!(%instance, %failure, again_in = ?pause, "slices stay bound for now");
                }
                Ok(Err(failure)) => {
                    error!(%instance, %failure, "slices stay bound until the next start");
                    return;
                }
                // If it broke off, the process is ending.
                Ok(Ok(())) | Err(_) => return,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl fmt::Debug for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharing").finish_non_exhaustive()
    }
}

/// The slices of this node's devices that an instance holds, until this is dropped.
pub struct Slices {
    sharing: Arc<Sharing>,
    instance: InstanceId,
}

impl Slices {
    /// Binds the devices that the instance asks for and adds them to its specification; `None` if it asks for none. If a call needs the instance,
    /// waits for idle instances that give way; the caller must bound the wait.
    ///
    /// # Errors
    /// When no device has room, or the disk fails.
    pub async fn bind(
        sharing: &Arc<Sharing>,
        spec: &mut StartSpec,
        need: Need,
    ) -> Result<Option<Self>, PlaceError> {
        let Some(request) = spec.gpu.clone() else {
            return Ok(None);
        };
        let mut going = BTreeSet::new();
        loop {
            let freed = sharing.freed.notified();
            tokio::pin!(freed);
            // Registered before the check, so that a release in between is not missed.
            freed.as_mut().enable();
            let refused = match Self::bind_now(sharing, spec, &request).await {
                Err(PlaceError::Devices(refused @ BindError::NoRoom { .. }))
                    if need == Need::Call =>
                {
                    refused
                }
                done => return done.map(Some),
            };
            let outlook = sharing.evict_idle(&request, &spec.description, &mut going);
            match outlook.await {
                Outlook::Free => {}
                Outlook::Soon => freed.await,
                Outlook::None => return Err(refused.into()),
            }
        }
    }

    async fn bind_now(
        sharing: &Arc<Sharing>,
        spec: &mut StartSpec,
        request: &GpuRequest,
    ) -> Result<Self, PlaceError> {
        let (id, app) = (spec.description.id, spec.description.app.clone());
        let (sharing, request) = (Arc::clone(sharing), request.clone());
        let bound = spawn_blocking(move || {
            let grants = sharing.devices.bind(id, &app, &request)?;
            // Held from here on, even if the caller has stopped waiting.
            Ok::<_, BindError>((Self::held(&sharing, id), grants))
        });
        let bound = bound.await.map_err(|failure| {
            error!(%id, %failure, "binding devices broke off");
            PlaceError::NoRoom("the devices of the node cannot be bound now".to_owned())
        })?;
        let (slices, grants) = bound?;
        spec.description.devices = grants;
        Ok(slices)
    }

    /// The slices of an instance whose binding is already in the allocation table.
    #[must_use]
    pub fn held(sharing: &Arc<Sharing>, instance: InstanceId) -> Self {
        Self {
            sharing: Arc::clone(sharing),
            instance,
        }
    }
}

impl Drop for Slices {
    fn drop(&mut self) {
        let (sharing, instance) = (Arc::clone(&self.sharing), self.instance);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(sharing.release(instance));
        } else if let Err(failure) = sharing.unbind(instance) {
            warn!(%instance, %failure, "slices stay bound until the next start");
        }
    }
}

impl fmt::Debug for Slices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slices").field(&self.instance).finish()
    }
}

/// A running instance in the form of the allocation table, for the agent's restart; `None` for one without devices.
#[must_use]
pub fn running(description: &Description) -> Option<RunningBinding> {
    let first = description.devices.first()?;
    let devices = description.devices.iter();
    let devices = devices.filter_map(|grant| grant.device.parse().ok());
    let cores = first
        .env
        .get(THREADS)
        .and_then(|text| text.parse::<u8>().ok());
    let cores = cores.and_then(|cores| cores.try_into().ok());
    Some(RunningBinding {
        instance: description.id,
        app: description.app.clone(),
        memory: first.memory,
        cores,
        devices: devices.collect(),
    })
}

#[cfg(test)]
mod tests;

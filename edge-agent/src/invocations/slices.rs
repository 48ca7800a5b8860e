//! GPU slices of instances: bound before an instance starts, given back when it is gone.
//!
//! The book of [`fdn_devices`] decides which devices an instance gets. Changes are on disk before anybody acts on them, so they are made
//! on threads that may wait.

use std::fmt;

use fdn_core::InstanceId;
use fdn_devices::grant::THREADS;
use fdn_devices::{BindError, Devices, Running};
use fdn_instances::{Description, StartSpec};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tracing::{error, warn};

use super::placer::PlaceError;

/// What an instance holds of the node's devices, until this is dropped.
pub struct Slices {
    devices: Devices,
    instance: InstanceId,
}

impl Slices {
    /// Binds what the instance asks for and puts it into its specification; nothing for one that asks for none.
    ///
    /// # Errors
    /// When no device has room, or the disk fails.
    pub async fn bind(devices: &Devices, spec: &mut StartSpec) -> Result<Option<Self>, PlaceError> {
        let Some(request) = spec.gpu.clone() else {
            return Ok(None);
        };
        let (id, app) = (spec.description.id, spec.description.app.clone());
        let book = devices.clone();
        let bound = spawn_blocking(move || {
            let grants = book.bind(id, &app, &request)?;
            // Held from here on, also if nobody waits for it any more.
            Ok::<_, BindError>((Self::held(&book, id), grants))
        });
        let bound = bound.await.map_err(|failure| {
            error!(%id, %failure, "binding devices broke off");
            PlaceError::NoRoom("the devices of the node cannot be bound now".to_owned())
        })?;
        let (slices, grants) = bound?;
        spec.description.devices = grants;
        Ok(Some(slices))
    }

    /// Of an instance whose binding is in the book.
    #[must_use]
    pub fn held(devices: &Devices, instance: InstanceId) -> Self {
        Self {
            devices: devices.clone(),
            instance,
        }
    }
}

impl Drop for Slices {
    fn drop(&mut self) {
        let (devices, instance) = (self.devices.clone(), self.instance);
        let unbind = move || match devices.unbind(instance) {
            // A device that is gone has taken its bindings with it.
            Ok(()) | Err(BindError::NotBound(_)) => {}
            Err(failure) => warn!(%instance, %failure, "slices stay bound until the next start"),
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(unbind)),
            Err(_) => unbind(),
        }
    }
}

impl fmt::Debug for Slices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slices").field(&self.instance).finish()
    }
}

/// An instance that runs, as the book is told after the agent's restart; nothing of one without devices.
#[must_use]
pub fn running(description: &Description) -> Option<Running> {
    let first = description.devices.first()?;
    let devices = description.devices.iter();
    let devices = devices.filter_map(|grant| grant.device.parse().ok());
    let cores = first
        .env
        .get(THREADS)
        .and_then(|text| text.parse::<u8>().ok());
    let cores = cores.and_then(|cores| cores.try_into().ok());
    Some(Running {
        instance: description.id,
        app: description.app.clone(),
        memory: first.memory,
        cores,
        devices: devices.collect(),
    })
}

#[cfg(test)]
mod tests;

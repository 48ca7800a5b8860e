//! Which devices the machine has, and what happens to them.

mod nvml;
mod simulated;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fdn_core::device::DeviceKind;
use fdn_core::{DeviceId, MebiBytes};
use serde::{Deserialize, Serialize};
use tracing::info;

pub use nvml::NvmlDiscovery;
pub use simulated::SimulatedDiscovery;

use crate::error::DiscoveryError;
use crate::health::HealthEvent;
use crate::settings::DevicesSettings;

/// A device that slices can be bound of. A GPU that MIG has cut up is none: its instances are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// What the driver calls it.
    pub id: DeviceId,
    /// What it is.
    pub kind: DeviceKind,
    /// Its model, such as `NVIDIA H200`.
    pub model: String,
    /// The GPU that it is a part of.
    pub parent: Option<DeviceId>,
    /// Memory that programs can use.
    pub memory: MebiBytes,
}

/// Finds devices and hears of their faults.
pub trait Discovery: Send + Sync + 'static {
    /// The devices that are there now.
    ///
    /// # Errors
    /// When the driver cannot say. What was known before stays true.
    fn devices(&self) -> Result<Vec<Device>, DiscoveryError>;

    /// Tells of events until `stop` is set, blocking the thread; looks at `stop` at least once a second.
    ///
    /// # Errors
    /// When events cannot be had, or no longer.
    fn watch(
        &self,
        stop: &AtomicBool,
        report: &mut dyn FnMut(HealthEvent),
    ) -> Result<(), DiscoveryError>;
}

/// A machine without devices.
struct Nothing;

impl Discovery for Nothing {
    fn devices(&self) -> Result<Vec<Device>, DiscoveryError> {
        Ok(Vec::new())
    }

    fn watch(&self, _: &AtomicBool, _: &mut dyn FnMut(HealthEvent)) -> Result<(), DiscoveryError> {
        Ok(())
    }
}

/// The discovery that the settings ask for. Without NVML's library there are no devices, which is said once.
#[must_use]
pub fn from_settings(settings: &DevicesSettings) -> Arc<dyn Discovery> {
    if settings.simulated.count > 0 {
        info!(
            count = settings.simulated.count,
            model = settings.simulated.model,
            "GPU devices are simulated"
        );
        let devices = SimulatedDiscovery::new(settings.simulated.devices());
        return Arc::new(match &settings.simulated.faults {
            Some(file) => devices.with_faults(file.clone()),
            None => devices,
        });
    }
    if !settings.enabled {
        return Arc::new(Nothing);
    }
    found(NvmlDiscovery::open())
}

/// What was opened, or nothing.
fn found(opened: Result<NvmlDiscovery, DiscoveryError>) -> Arc<dyn Discovery> {
    match opened {
        Ok(nvml) => Arc::new(nvml),
        Err(reason) => {
            info!(%reason, "no GPU devices: NVML cannot be used");
            Arc::new(Nothing)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn a_machine_without_the_drivers_library_has_no_devices() {
        let opened = NvmlDiscovery::open_library(OsStr::new("libnvidia-ml-of-no-driver.so.1"));
        assert!(opened.is_err(), "there is no such library");
        let found = found(opened);
        let devices = found.devices().expect("none is an answer");
        assert!(devices.is_empty(), "{devices:?}");
        let stop = AtomicBool::new(false);
        let mut told = Vec::new();
        found
            .watch(&stop, &mut |event| told.push(event))
            .expect("there is nothing to watch");
        assert!(told.is_empty(), "{told:?}");
    }
}

//! Discovers the machine's devices and their faults.

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

/// A device of which slices can be bound. A GPU that is divided by MIG is not one: its MIG instances are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The id that the driver gives it.
    pub id: DeviceId,
    /// The kind of the device.
    pub kind: DeviceKind,
    /// Its model, such as `NVIDIA H200`.
    pub model: String,
    /// The GPU that it is a part of, for MIG instances.
    pub parent: Option<DeviceId>,
    /// The memory that programs can use.
    pub memory: MebiBytes,
}

/// Finds devices and reports their faults.
pub trait Discovery: Send + Sync + 'static {
    /// The devices that are present now.
    ///
    /// # Errors
    /// When the driver cannot tell. What was known before remains valid.
    fn devices(&self) -> Result<Vec<Device>, DiscoveryError>;

    /// Reports events until `stop` is set, blocking the thread; checks `stop` at least once a second.
    ///
    /// # Errors
    /// When events are not available, or no longer.
    fn watch(
        &self,
        stop: &AtomicBool,
        report: &mut dyn FnMut(HealthEvent),
    ) -> Result<(), DiscoveryError>;
}

/// A machine without devices.
struct NoDevices;

impl Discovery for NoDevices {
    fn devices(&self) -> Result<Vec<Device>, DiscoveryError> {
        Ok(Vec::new())
    }

    fn watch(&self, _: &AtomicBool, _: &mut dyn FnMut(HealthEvent)) -> Result<(), DiscoveryError> {
        Ok(())
    }
}

/// The discovery according to the settings. Without NVML's library there are no devices, which is logged once.
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
        return Arc::new(NoDevices);
    }
    found(NvmlDiscovery::open())
}

/// The opened discovery, or that of a machine without devices.
fn found(opened: Result<NvmlDiscovery, DiscoveryError>) -> Arc<dyn Discovery> {
    match opened {
        Ok(nvml) => Arc::new(nvml),
        Err(reason) => {
            info!(%reason, "no GPU devices: NVML cannot be used");
            Arc::new(NoDevices)
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

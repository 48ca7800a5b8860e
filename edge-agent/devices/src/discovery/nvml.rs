//! Devices through the NVIDIA Management Library, loaded at run time.
//!
//! A GPU in MIG mode is replaced by its MIG instances, each a device with its own memory. Events are reported for whole GPUs: they apply to all
//! instances of a GPU.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fdn_core::device::DeviceKind;
use fdn_core::{DeviceId, MebiBytes};
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{EventSet, Nvml};
use tracing::{info, warn};

use super::{Device, Discovery};
use crate::error::DiscoveryError;
use crate::health::{Health, HealthEvent};

/// The library's name as installed by drivers; the name without a version exists with development files only.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// The answer of `nvmlDeviceGetMigMode` for a GPU that is divided.
const MIG_ENABLED: u32 = 1;
/// The duration of one wait for events, in ms.
const TICK: u32 = 1000;

/// The devices of the NVIDIA driver.
pub struct NvmlDiscovery {
    nvml: Nvml,
}

impl NvmlDiscovery {
    /// Loads the library.
    ///
    /// # Errors
    /// When the library or the driver is missing.
    pub fn open() -> Result<Self, DiscoveryError> {
        Self::open_library(OsStr::new(LIBRARY))
    }

    pub(super) fn open_library(name: &OsStr) -> Result<Self, DiscoveryError> {
        let nvml = Nvml::builder().lib_path(name).init()?;
        let version = nvml.sys_driver_version().unwrap_or_default();
        info!(driver = version, "GPU devices are looked for through NVML");
        Ok(Self { nvml })
    }

    /// The GPU itself, or its MIG instances.
    fn found(&self, gpu: &nvml_wrapper::Device<'_>) -> Result<Vec<Device>, DiscoveryError> {
        let id: DeviceId = gpu.uuid()?.parse()?;
        let model = gpu.name()?;
        // GPUs without MIG answer with an error.
        let is_cut = gpu.mig_mode().is_ok_and(|mode| mode.current == MIG_ENABLED);
        if !is_cut {
            return Ok(vec![Device {
                id,
                kind: DeviceKind::Gpu,
                model,
                parent: None,
                memory: usable(gpu)?,
            }]);
        }
        let mut parts = Vec::new();
        for index in 0..gpu.mig_device_count()? {
            let part = match gpu.mig_device_by_index(index) {
                Ok(part) => part,
                // The indices of MIG instances need not be consecutive.
                Err(NvmlError::NotFound | NvmlError::InvalidArg) => continue,
                Err(error) => return Err(error.into()),
            };
            parts.push(Device {
                id: part.uuid()?.parse()?,
                kind: DeviceKind::Mig,
                model: model.clone(),
                parent: Some(id.clone()),
                memory: usable(&part)?,
            });
        }
        Ok(parts)
    }

    /// An event set of all GPUs that can report faults, and those GPUs. A lost GPU must not take the others' events away: it is left out.
    fn subscribed(&self) -> Result<(EventSet<'_>, BTreeMap<DeviceId, EventTypes>), DiscoveryError> {
        let wanted = EventTypes::CRITICAL_XID_ERROR
            | EventTypes::DOUBLE_BIT_ECC_ERROR
            | EventTypes::MIG_CONFIG_CHANGE;
        let mut able = BTreeMap::new();
        let mut set = self.nvml.create_event_set()?;
        for index in 0..self.nvml.device_count()? {
            let Ok(gpu) = self.nvml.device_by_index(index) else {
                continue;
            };
            let id: DeviceId = match gpu.uuid() {
                Ok(id) => id.parse()?,
                Err(NvmlError::GpuLost) => continue,
                Err(error) => return Err(error.into()),
            };
            let events = gpu
                .supported_event_types()
                .map_or_else(|_| EventTypes::empty(), |all| all & wanted);
            if events.is_empty() {
                warn!(device = %id, "the driver tells of no faults of this GPU");
                continue;
            }
            set = gpu.register_events(events, set).map_err(|e| e.error)?;
            able.insert(id, events);
        }
        Ok((set, able))
    }
}

/// The memory that programs can use: the total without what the driver reserves.
fn usable(device: &nvml_wrapper::Device<'_>) -> Result<MebiBytes, DiscoveryError> {
    let info = device.memory_info()?;
    Ok(MebiBytes(info.total.saturating_sub(info.reserved) >> 20))
}

impl Discovery for NvmlDiscovery {
    fn devices(&self) -> Result<Vec<Device>, DiscoveryError> {
        let mut devices = Vec::new();
        for index in 0..self.nvml.device_count()? {
            let gpu = match self.nvml.device_by_index(index) {
                Ok(gpu) => gpu,
                // A lost GPU is not present; one without permission belongs to somebody else.
                Err(NvmlError::GpuLost | NvmlError::NoPermission) => continue,
                Err(error) => return Err(error.into()),
            };
            match self.found(&gpu) {
                Ok(found) => devices.extend(found),
                // The driver may hand out a lost GPU, and tell nothing about it.
                Err(DiscoveryError::Nvml(NvmlError::GpuLost)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(devices)
    }

    fn watch(
        &self,
        stop: &AtomicBool,
        report: &mut dyn FnMut(HealthEvent),
    ) -> Result<(), DiscoveryError> {
        let (set, able) = self.subscribed()?;
        info!(gpus = able.len(), "faults of GPUs are watched");
        let mut lost = BTreeSet::new();
        while !stop.load(Ordering::Relaxed) {
            match set.wait(TICK) {
                Ok(event) => match event.device.uuid() {
                    Ok(device) => {
                        let device = device.parse()?;
                        if let Some(what) = health(event.event_type, event.event_data.as_ref()) {
                            report(HealthEvent { device, what });
                        }
                    }
                    // Of a lost GPU the driver may not even tell the id.
                    Err(failure) => {
                        warn!(%failure, kind = ?event.event_type, "an event of a GPU that does not say which one it is");
                        self.report_lost(&able, &mut lost, report);
                    }
                },
                Err(NvmlError::Timeout) => {}
                Err(NvmlError::GpuLost) => {
                    self.report_lost(&able, &mut lost, report);
                    // The driver may answer this at once as long as the GPU is gone; events of the others wait in the set.
                    thread::sleep(Duration::from_millis(TICK.into()));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl NvmlDiscovery {
    /// Reports the GPUs that are lost now and were not before. The driver does not say which GPU it was, so each is queried.
    fn report_lost(
        &self,
        known: &BTreeMap<DeviceId, EventTypes>,
        before: &mut BTreeSet<DeviceId>,
        report: &mut dyn FnMut(HealthEvent),
    ) {
        let lost = self.lost(known);
        for device in lost.difference(before) {
            report(HealthEvent {
                device: device.clone(),
                what: Health::Lost,
            });
        }
        *before = lost;
    }

    fn lost(&self, known: &BTreeMap<DeviceId, EventTypes>) -> BTreeSet<DeviceId> {
        let gone = |id: &&DeviceId| {
            let gpu = self.nvml.device_by_uuid(id.as_str());
            gpu.and_then(|gpu| gpu.memory_info()).is_err()
        };
        known.keys().filter(gone).cloned().collect()
    }
}

/// The meaning of a driver event; `None` if it does not matter.
fn health(kind: EventTypes, xid: Option<&XidError>) -> Option<Health> {
    if kind.contains(EventTypes::CRITICAL_XID_ERROR) {
        return Some(match xid {
            Some(XidError::Value(number)) => Health::Xid(Some(*number)),
            Some(XidError::Unknown) | None => Health::Xid(None),
        });
    }
    if kind.contains(EventTypes::DOUBLE_BIT_ECC_ERROR) {
        return Some(Health::DoubleBitEcc);
    }
    kind.contains(EventTypes::MIG_CONFIG_CHANGE)
        .then_some(Health::Reconfigured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_the_driver_are_understood() {
        let xid = EventTypes::CRITICAL_XID_ERROR;
        assert_eq!(
            health(xid, Some(&XidError::Value(79))),
            Some(Health::Xid(Some(79)))
        );
        assert_eq!(
            health(xid, Some(&XidError::Unknown)),
            Some(Health::Xid(None))
        );
        assert_eq!(
            health(EventTypes::DOUBLE_BIT_ECC_ERROR, None),
            Some(Health::DoubleBitEcc)
        );
        assert_eq!(
            health(EventTypes::MIG_CONFIG_CHANGE, None),
            Some(Health::Reconfigured)
        );
        assert_eq!(health(EventTypes::CLOCK_CHANGE, None), None);
    }
}

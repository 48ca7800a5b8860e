//! Simulated devices, for tests and for operators without a GPU.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fdn_core::DeviceId;

use super::{Device, Discovery};
use crate::error::DiscoveryError;
use crate::health::{Health, HealthEvent};

/// The duration of one wait for events.
const TICK: Duration = Duration::from_millis(100);

/// The most lines that are read of the file of faults.
const LINES_MAX: usize = 1024;

/// Simulated devices and events.
pub struct SimulatedDiscovery {
    devices: Mutex<Vec<Device>>,
    sender: Sender<HealthEvent>,
    events: Mutex<Receiver<HealthEvent>>,
    faults: Option<PathBuf>,
}

impl SimulatedDiscovery {
    /// A discovery of these devices.
    #[must_use]
    pub fn new(devices: Vec<Device>) -> Self {
        let (sender, events) = mpsc::channel();
        Self {
            devices: Mutex::new(devices),
            sender,
            events: Mutex::new(events),
            faults: None,
        }
    }

    /// Adds a file of faults: the devices that it names, one per line, have failed as long as they are listed. A missing file lists none.
    #[must_use]
    pub fn with_faults(mut self, file: PathBuf) -> Self {
        self.faults = Some(file);
        self
    }

    /// The devices that the file of faults lists.
    fn failed(&self) -> BTreeSet<DeviceId> {
        let text = self.faults.as_ref().map(std::fs::read_to_string);
        let text = text.and_then(Result::ok).unwrap_or_default();
        let lines = text.lines().take(LINES_MAX);
        lines.filter_map(|line| line.trim().parse().ok()).collect()
    }

    /// Replaces the devices; the next scan finds the new ones.
    pub fn set(&self, devices: Vec<Device>) {
        *self.devices.lock().unwrap_or_else(PoisonError::into_inner) = devices;
    }

    /// Reports an event of a device.
    pub fn inject(&self, event: HealthEvent) {
        // The receiver is a field of `self`.
        drop(self.sender.send(event));
    }
}

impl Discovery for SimulatedDiscovery {
    fn devices(&self) -> Result<Vec<Device>, DiscoveryError> {
        let devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(devices.clone())
    }

    fn watch(
        &self,
        stop: &AtomicBool,
        report: &mut dyn FnMut(HealthEvent),
    ) -> Result<(), DiscoveryError> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = BTreeSet::new();
        while !stop.load(Ordering::Relaxed) {
            let failed = self.failed();
            let event = |device: &DeviceId, what| HealthEvent {
                device: device.clone(),
                what,
            };
            for device in failed.difference(&before) {
                report(event(device, Health::Lost));
            }
            for device in before.difference(&failed) {
                report(event(device, Health::Recovered));
            }
            before = failed;
            if let Ok(event) = events.recv_timeout(TICK) {
                report(event);
            }
        }
        Ok(())
    }
}

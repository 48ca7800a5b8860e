//! Devices that are made up: whatever a test or an operator without a GPU says.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{Device, Discovery};
use crate::error::DiscoveryError;
use crate::health::HealthEvent;

/// How long one wait for events takes.
const TICK: Duration = Duration::from_millis(100);

/// Devices and events as they are told.
pub struct SimulatedDiscovery {
    devices: Mutex<Vec<Device>>,
    sender: Sender<HealthEvent>,
    events: Mutex<Receiver<HealthEvent>>,
}

impl SimulatedDiscovery {
    /// These devices.
    #[must_use]
    pub fn new(devices: Vec<Device>) -> Self {
        let (sender, events) = mpsc::channel();
        Self {
            devices: Mutex::new(devices),
            sender,
            events: Mutex::new(events),
        }
    }

    /// Other devices from now on: found at the next scan.
    pub fn set(&self, devices: Vec<Device>) {
        *self.devices.lock().unwrap_or_else(PoisonError::into_inner) = devices;
    }

    /// Something happens to a device.
    pub fn inject(&self, event: HealthEvent) {
        // The receiver lives as long as this.
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
        while !stop.load(Ordering::Relaxed) {
            if let Ok(event) = events.recv_timeout(TICK) {
                report(event);
            }
        }
        Ok(())
    }
}

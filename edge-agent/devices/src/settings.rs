//! The section `[devices]` of the agent's settings.

use std::path::PathBuf;

use fdn_core::device::DeviceKind;
use fdn_core::{ByteSize, DeviceId, DurationMs, MebiBytes};
use fdn_scheduling::resource::{DeviceChoice, MemoryUnit, Score};
use serde::{Deserialize, Serialize};

use crate::allocations::AllocationOptions;
use crate::discovery::Device;

/// How groups of like devices are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScoreName {
    /// The least left over on the devices that the instance gets.
    #[default]
    SmallestLeftover,
    /// The most in use.
    Packing,
    /// The least in use: spreads instances.
    LeastRequested,
}

impl ScoreName {
    pub(crate) fn score(self) -> Score<u128> {
        match self {
            Self::SmallestLeftover => Score::SmallestLeftover,
            Self::Packing => Score::Packing,
            Self::LeastRequested => Score::LeastRequested,
        }
    }
}

/// Which device of a group an instance gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceOrder {
    /// The one with the least free that suffices: keeps other devices whole.
    #[default]
    MostUsed,
    /// The one with the most free: spreads instances.
    LeastUsed,
}

impl DeviceOrder {
    pub(crate) const fn choice(self) -> DeviceChoice {
        match self {
            Self::MostUsed => DeviceChoice::MostUsed,
            Self::LeastUsed => DeviceChoice::LeastUsed,
        }
    }
}

/// Simulated devices, for machines without a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SimulatedGroup {
    /// The number of devices.
    pub count: u32,
    /// The memory of each.
    pub memory: ByteSize,
    /// The model name.
    pub model: String,
    /// The number of equal MIG instances that each is divided into; 0 leaves it whole.
    pub mig: u32,
    /// A file with device ids, one per line, of devices that count as failed while they are listed. For rehearsing faults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<PathBuf>,
}

impl Default for SimulatedGroup {
    fn default() -> Self {
        Self {
            count: 0,
            memory: ByteSize::from_mib(80 << 10),
            model: "FDN Simulated 80GB".to_owned(),
            mig: 0,
            faults: None,
        }
    }
}

impl SimulatedGroup {
    /// The simulated devices.
    #[must_use]
    pub fn devices(&self) -> Vec<Device> {
        let name = |text: String| -> DeviceId {
            text.parse()
                .expect("letters, digits and hyphens are a device id")
        };
        let memory = self.memory.as_bytes() >> 20;
        let mut devices = Vec::new();
        for gpu in 0..self.count {
            let whole = Device {
                id: name(format!("SIM-{gpu}")),
                kind: DeviceKind::Simulated,
                model: self.model.clone(),
                parent: None,
                memory: MebiBytes(memory),
            };
            if self.mig == 0 {
                devices.push(whole);
                continue;
            }
            devices.extend((0..self.mig).map(|part| Device {
                id: name(format!("SIM-{gpu}-mig-{part}")),
                parent: Some(whole.id.clone()),
                memory: MebiBytes(memory / u64::from(self.mig)),
                ..whole.clone()
            }));
        }
        devices
    }
}

/// GPU devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DevicesSettings {
    /// Whether to look for GPUs at all.
    pub enabled: bool,
    /// The unit in which memory is bound: a request is rounded up to it, a device's memory down.
    pub unit: ByteSize,
    /// The maximum number of instances that hold slices at the same time.
    pub max_bindings: usize,
    /// How groups of like devices are compared.
    pub score: ScoreName,
    /// Which device of a group is chosen.
    pub order: DeviceOrder,
    /// The interval between scans for devices.
    pub rescan: DurationMs,
    /// Xid errors that are a program's fault and do not affect the device.
    pub ignored_xids: Vec<u64>,
    /// The folder of the MPS control daemon's pipes; used only while the daemon runs.
    pub mps_pipe: PathBuf,
    /// The shared-memory folder of the MPS daemon, if containers need it mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mps_shm: Option<PathBuf>,
    /// Simulated devices; with a `count`, no real ones are looked for.
    pub simulated: SimulatedGroup,
}

impl Default for DevicesSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            unit: ByteSize::from_mib(256),
            max_bindings: 1024,
            score: ScoreName::default(),
            order: DeviceOrder::default(),
            rescan: DurationMs::from_secs(30),
            ignored_xids: vec![13, 31, 43, 45, 68, 109],
            mps_pipe: PathBuf::from("/tmp/nvidia-mps"),
            mps_shm: None,
            simulated: SimulatedGroup::default(),
        }
    }
}

/// The maximum number of simulated devices: a typing error must not exhaust the memory.
const SIMULATED_MAX: u32 = 1024;

impl DevicesSettings {
    /// Refuses values that cannot work; returns the violated rule.
    ///
    /// # Errors
    /// With the first violated rule.
    pub fn check(&self) -> Result<(), &'static str> {
        let simulated = self
            .simulated
            .count
            .saturating_mul(self.simulated.mig.max(1));
        let rules = [
            (
                self.unit.as_bytes() >= 1 << 20 && self.unit.as_bytes().is_multiple_of(1 << 20),
                "devices.unit must be whole MiB, at least 1MiB",
            ),
            (
                self.max_bindings > 0,
                "devices.max_bindings must be at least 1",
            ),
            (
                self.rescan.as_millis() >= 1000,
                "devices.rescan must be at least 1s",
            ),
            (
                simulated <= SIMULATED_MAX,
                "devices.simulated must make 1024 devices at most",
            ),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(rule),
            None => Ok(()),
        }
    }

    /// The options of the allocation table.
    #[must_use]
    pub fn allocations(&self) -> AllocationOptions {
        AllocationOptions {
            unit: MemoryUnit::new(self.unit.to_mebibytes()).unwrap_or(MemoryUnit::MIB_256),
            max_bindings: self.max_bindings,
            score: self.score,
            order: self.order,
        }
    }
}

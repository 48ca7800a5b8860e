//! What a node reports about its devices.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::device::Percent;
use crate::id::{AppName, DeviceId, InstanceId};
use crate::unit::{MebiBytes, Timestamp};

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A whole GPU.
    Gpu,
    /// A MIG instance of a GPU.
    Mig,
    /// A simulated device, on machines without a GPU.
    Simulated,
}

impl DeviceKind {
    /// The name in tables and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Mig => "mig",
            Self::Simulated => "simulated",
        }
    }
}

/// Whether a device is in service, that is, whether slices of it are allocated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum DeviceState {
    /// Slices of the device are allocated.
    InService,
    /// No slices of the device are allocated.
    OutOfService {
        /// Why the device is out of service, in words.
        reason: String,
        /// Since when it is out of service.
        since: Timestamp,
    },
}

impl DeviceState {
    /// Whether slices are given out.
    #[must_use]
    pub const fn is_in_service(&self) -> bool {
        matches!(self, Self::InService)
    }
}

/// The slice of a device that an instance holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SliceStatus {
    /// The instance's id.
    pub instance: InstanceId,
    /// The app that the instance serves.
    pub app: AppName,
    /// The memory that the slice reserves, in MiB.
    pub memory_mib: MebiBytes,
    /// The share of the device's cores, in percent; absent if the function requests none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<Percent>,
}

/// A device of a node, and its allocated slices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceStatus {
    /// The device's id, as given by its driver.
    pub id: DeviceId,
    /// The kind of the device.
    pub kind: DeviceKind,
    /// The model as its driver reports it, such as `NVIDIA H200`.
    pub model: String,
    /// The GPU to which the device belongs; only for MIG instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<DeviceId>,
    /// The memory of the device, in MiB.
    pub memory_mib: MebiBytes,
    /// The allocated part of the memory, in MiB.
    pub bound_mib: MebiBytes,
    /// Whether the device is in service.
    #[serde(flatten)]
    pub state: DeviceState,
    /// The allocated slices, by instance.
    #[serde(default)]
    pub slices: Vec<SliceStatus>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_survives_json() {
        for state in [
            DeviceState::InService,
            DeviceState::OutOfService {
                reason: "Xid 79".into(),
                since: Timestamp(5),
            },
        ] {
            let status = DeviceStatus {
                id: "GPU-1".parse().expect("id"),
                kind: DeviceKind::Mig,
                model: "NVIDIA H200".into(),
                parent: Some("GPU-0".parse().expect("id")),
                memory_mib: MebiBytes(10),
                bound_mib: MebiBytes(4),
                state,
                slices: vec![SliceStatus {
                    instance: InstanceId::from_uuid(uuid::Uuid::from_u128(1)),
                    app: "thumbs".parse().expect("app"),
                    memory_mib: MebiBytes(4),
                    cores: None,
                }],
            };
            let json = serde_json::to_string(&status).expect("json");
            assert_eq!(
                serde_json::from_str::<DeviceStatus>(&json).expect("own json"),
                status
            );
        }
    }
}

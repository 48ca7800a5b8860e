//! What a node reports about its devices.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::device::Percent;
use crate::id::{AppName, DeviceId, InstanceId};
use crate::unit::{MebiBytes, Timestamp};

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A whole GPU.
    Gpu,
    /// A MIG instance of a GPU.
    Mig,
    /// Simulated, for machines without a GPU.
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

/// Whether slices of a device are given out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum DeviceState {
    /// They are.
    InService,
    /// They are not, and why.
    OutOfService {
        /// For people.
        reason: String,
        /// Since when.
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

/// What one instance holds of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SliceStatus {
    /// The instance.
    pub instance: InstanceId,
    /// The app that it serves.
    pub app: AppName,
    /// Memory bound.
    pub memory_mib: MebiBytes,
    /// Share of the cores, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<Percent>,
}

/// A device and who holds what of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceStatus {
    /// The device.
    pub id: DeviceId,
    /// What it is.
    pub kind: DeviceKind,
    /// What its driver calls it, such as `NVIDIA H200`.
    pub model: String,
    /// The GPU that it is a part of, for MIG.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<DeviceId>,
    /// What it has.
    pub memory_mib: MebiBytes,
    /// What of it is bound.
    pub bound_mib: MebiBytes,
    /// Whether slices are given out.
    #[serde(flatten)]
    pub state: DeviceState,
    /// Who holds what, by instance.
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

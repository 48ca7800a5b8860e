//! Errors of devices.

use std::path::PathBuf;

use fdn_core::{Coded, ErrorCode, InstanceId, MebiBytes};
use fdn_scheduling::resource::ResourceError;

/// Why slices cannot be bound or released.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The devices of this node could never provide this.
    #[error("no device here can give {wanted} to {count} of a kind: {reason}")]
    Never {
        /// The memory of each device.
        wanted: MebiBytes,
        /// The number of devices.
        count: u32,
        /// What is missing.
        reason: &'static str,
    },
    /// There is no room now.
    #[error("too few devices have {wanted} free: {count} are needed")]
    NoRoom {
        /// The memory of each device.
        wanted: MebiBytes,
        /// The number of devices.
        count: u32,
    },
    /// The allocation table has reached its maximum of bindings.
    #[error("{most} instances hold slices of devices, as many as `devices.max_bindings` allows")]
    Full {
        /// The maximum.
        most: usize,
    },
    /// The instance holds slices already.
    #[error("{0} already holds slices of devices")]
    AlreadyBound(InstanceId),
    /// The instance holds no slices.
    #[error("{0} holds no slices of devices")]
    NotBound(InstanceId),
    /// The packed words contradict the allocation table, which is a bug.
    #[error("the allocation table of devices contradicts itself")]
    Contradiction(#[from] ResourceError),
    /// The change could not be written to disk, so it was not made.
    #[error("the allocation table of devices could not be written")]
    Store(#[from] StoreError),
}

impl Coded for BindError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Never { .. } => ErrorCode::NoClusterFits,
            Self::NoRoom { .. } | Self::Full { .. } => ErrorCode::Overloaded,
            Self::AlreadyBound(_) => ErrorCode::Conflict,
            Self::NotBound(_) => ErrorCode::NotFound,
            Self::Contradiction(_) => ErrorCode::Internal,
            Self::Store(error) => error.code(),
        }
    }
}

/// Why the allocation table cannot be kept on disk.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {path}; make `data` a directory that the agent may write")]
pub struct StoreError {
    /// The file.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub source: std::io::Error,
}

impl Coded for StoreError {
    fn code(&self) -> ErrorCode {
        ErrorCode::DataDirectory
    }
}

/// Why the devices of the machine are unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoveryError {
    /// NVML failed.
    #[error("NVML: {0}")]
    Nvml(#[from] nvml_wrapper::error::NvmlError),
    /// The driver's id of a device is not valid.
    #[error("a device has a name that cannot be used: {0}")]
    Name(#[from] fdn_core::ParseError),
}

impl Coded for DiscoveryError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Internal
    }
}

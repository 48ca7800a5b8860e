//! What can go wrong with devices.

use std::path::PathBuf;

use fdn_core::{Coded, ErrorCode, InstanceId, MebiBytes};
use fdn_scheduling::resource::ResourceError;

/// Why slices cannot be bound or given back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// No device of this node could ever give so much.
    #[error("no device here can give {wanted} to {count} of a kind: {reason}")]
    Never {
        /// Memory of each device.
        wanted: MebiBytes,
        /// Of how many.
        count: u32,
        /// What is missing.
        reason: &'static str,
    },
    /// Now there is no room.
    #[error("too few devices have {wanted} free: {count} are needed")]
    NoRoom {
        /// Memory of each device.
        wanted: MebiBytes,
        /// Of how many.
        count: u32,
    },
    /// The allocation table holds as many bindings as it may.
    #[error("{most} instances hold slices of devices, as many as `devices.max_bindings` allows")]
    Full {
        /// How many.
        most: usize,
    },
    /// The instance holds slices already.
    #[error("{0} already holds slices of devices")]
    AlreadyBound(InstanceId),
    /// The instance holds nothing.
    #[error("{0} holds no slices of devices")]
    NotBound(InstanceId),
    /// The packed words say otherwise than the allocation table, which is a bug.
    #[error("the allocation table of devices contradicts itself")]
    Contradiction(#[from] ResourceError),
    /// The change could not be written, so it was not made.
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
    /// Why.
    #[source]
    pub source: std::io::Error,
}

impl Coded for StoreError {
    fn code(&self) -> ErrorCode {
        ErrorCode::DataDirectory
    }
}

/// Why the devices of the machine are not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoveryError {
    /// NVML failed.
    #[error("NVML: {0}")]
    Nvml(#[from] nvml_wrapper::error::NvmlError),
    /// The driver names a device in a way that cannot be used.
    #[error("a device has a name that cannot be used: {0}")]
    Name(#[from] fdn_core::ParseError),
}

impl Coded for DiscoveryError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Internal
    }
}

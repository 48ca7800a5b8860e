//! Why an instance could not be obtained.

use std::time::Duration;

use fdn_core::{Coded, ErrorCode, NodeId};
use fdn_devices::BindError;
use fdn_instances::{LogLine, StartError};

/// The reason why there is no instance.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// No node has room for it now.
    #[error("no node has room for the instance: {0}")]
    NoRoom(String),
    /// It did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// No device has room for its slices, or they could not be bound.
    #[error(transparent)]
    Devices(#[from] BindError),
    /// It took longer than the start timeout.
    #[error("the instance did not start within {0:?}")]
    Late(Duration),
    /// Another node had room for it, but it did not start there.
    #[error("on node {node}: {reason}")]
    Elsewhere {
        /// The other node.
        node: NodeId,
        /// The kind of failure.
        code: ErrorCode,
        /// What that node reported.
        reason: String,
        /// The last lines that the instance wrote.
        log: Vec<LogLine>,
    },
}

impl PlaceError {
    /// The last lines that the instance wrote.
    #[must_use]
    pub fn log(&self) -> &[LogLine] {
        match self {
            Self::Start(error) => error.log(),
            Self::Elsewhere { log, .. } => log,
            Self::NoRoom(_) | Self::Devices(_) | Self::Late(_) => &[],
        }
    }

    /// The label in the metrics.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::NoRoom(_) => "no_room",
            Self::Start(error) => error.label(),
            Self::Devices(_) => "devices",
            Self::Late(_) => "late",
            Self::Elsewhere { .. } => "elsewhere",
        }
    }
}

impl Coded for PlaceError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NoRoom(_) => ErrorCode::Overloaded,
            Self::Start(error) => error.code(),
            Self::Devices(error) => error.code(),
            Self::Late(_) => ErrorCode::InstanceNotStarted,
            Self::Elsewhere { code, .. } => *code,
        }
    }
}

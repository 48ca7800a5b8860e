//! Errors of instances and of the engines behind them.

use std::time::Duration;

use fdn_core::{Coded, ErrorCode, InstanceId};
use tokio::sync::watch;

use crate::log::LogLine;
use crate::runtime::Kind;
use crate::state::Exit;

/// An error of an engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The engine cannot be reached, or does not answer in time.
    #[error("{kind} does not answer: {reason}")]
    Unreachable {
        /// The kind of the runtime.
        kind: Kind,
        /// The cause.
        reason: String,
    },
    /// The engine answered with an error.
    #[error("{kind} refused to {operation}: {reason}")]
    Refused {
        /// The kind of the runtime.
        kind: Kind,
        /// The operation, such as `create the container`.
        operation: &'static str,
        /// The engine's message.
        reason: String,
    },
    /// The engine cannot be used with its present configuration.
    #[error("{kind} cannot be used: {reason}")]
    Unusable {
        /// The kind of the runtime.
        kind: Kind,
        /// What is wrong, and what to change.
        reason: String,
    },
}

impl Coded for RuntimeError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Unreachable { .. } | Self::Refused { .. } => ErrorCode::EngineFailed,
            Self::Unusable { .. } => ErrorCode::ConfigInvalid,
        }
    }
}

/// Why an instance did not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The image is not on this node and cannot be fetched.
    #[error("the image {image} cannot be had: {reason}")]
    ImageMissing {
        /// A description of the image.
        image: String,
        /// The cause.
        reason: String,
    },
    /// The image is on this node but not usable: damaged, with another digest, for another architecture.
    #[error("the image {image} cannot be used: {reason}")]
    ImageInvalid {
        /// A description of the image.
        image: String,
        /// What is wrong.
        reason: String,
    },
    /// The specification asks for something that this runtime cannot provide.
    #[error("the instance cannot be started as specified: {reason}")]
    Unsupported {
        /// What it cannot provide.
        reason: String,
    },
    /// An instance of this id exists already.
    #[error("instance {id} exists already")]
    Exists {
        /// The id.
        id: InstanceId,
    },
    /// The node or the engine has no room, whatever the node's ledger says.
    #[error("there is no room for the instance: {reason}")]
    NoRoom {
        /// What is short.
        reason: String,
    },
    /// It ended before it answered.
    #[error("the instance ended before it answered: {exit}{}", last_line(log))]
    Exited {
        /// How it ended.
        exit: Exit,
        /// The last lines that it wrote.
        log: Vec<LogLine>,
    },
    /// It runs, but did not answer in time.
    #[error(
        "the instance did not answer on its port within {after:?}: {reason}{}",
        last_line(log)
    )]
    NotReady {
        /// The startup timeout.
        after: Duration,
        /// The result of the last check, such as `connection refused`.
        reason: String,
        /// The last lines that it wrote.
        log: Vec<LogLine>,
    },
    /// The engine failed.
    #[error("the engine failed while the instance was started")]
    Engine(#[from] RuntimeError),
    /// It did not start, and something of it is still there: what was reserved for it is not free yet.
    #[error("{error}")]
    Remains {
        /// Why it did not start.
        error: Box<StartError>,
        /// What is still there.
        remains: Remains,
    },
}

/// What a failed start left, which is being removed.
#[derive(Clone, Debug)]
pub struct Remains(watch::Receiver<()>);

impl Remains {
    /// Remains that are gone once the sender is dropped.
    #[must_use]
    pub fn new() -> (watch::Sender<()>, Self) {
        let (there, remains) = watch::channel(());
        (there, Self(remains))
    }

    /// Resolves once nothing is left.
    pub async fn gone(mut self) {
        while self.0.changed().await.is_ok() {}
    }
}

impl PartialEq for Remains {
    fn eq(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }
}

impl Eq for Remains {}

fn last_line(log: &[LogLine]) -> String {
    log.last().map_or_else(String::new, |line| {
        format!("; its last line: {}", line.text)
    })
}

impl StartError {
    /// The last lines that the instance wrote, oldest first.
    #[must_use]
    pub fn log(&self) -> &[LogLine] {
        match self {
            Self::Exited { log, .. } | Self::NotReady { log, .. } => log,
            Self::Remains { error, .. } => error.log(),
            Self::ImageMissing { .. }
            | Self::ImageInvalid { .. }
            | Self::Unsupported { .. }
            | Self::Exists { .. }
            | Self::NoRoom { .. }
            | Self::Engine(_) => &[],
        }
    }

    /// A short, fixed label for metrics.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Remains { error, .. } => error.label(),
            Self::ImageMissing { .. } => "image_missing",
            Self::ImageInvalid { .. } => "image_invalid",
            Self::Unsupported { .. } => "unsupported",
            Self::Exists { .. } => "exists",
            Self::NoRoom { .. } => "no_room",
            Self::Exited { .. } => "exited",
            Self::NotReady { .. } => "not_ready",
            Self::Engine(_) => "engine",
        }
    }
}

impl Coded for StartError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::ImageMissing { .. } => ErrorCode::ImageMissing,
            Self::ImageInvalid { .. } => ErrorCode::ImageInvalid,
            Self::Unsupported { .. } => ErrorCode::InstanceUnsupported,
            Self::Exists { .. } => ErrorCode::Conflict,
            Self::NoRoom { .. } => ErrorCode::Overloaded,
            Self::Exited { .. } | Self::NotReady { .. } => ErrorCode::InstanceNotStarted,
            Self::Engine(error) => error.code(),
            Self::Remains { error, .. } => error.code(),
        }
    }
}

/// Why an operation on a running instance was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InstanceError {
    /// This runtime does not support the operation.
    #[error("{kind} cannot {operation} an instance")]
    Unsupported {
        /// The kind of the runtime.
        kind: Kind,
        /// `pause` or `resume`.
        operation: &'static str,
    },
    /// It has ended.
    #[error("the instance has ended: {0}")]
    Ended(Exit),
    /// The engine failed.
    #[error("the engine failed")]
    Engine(#[from] RuntimeError),
}

impl Coded for InstanceError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Unsupported { .. } => ErrorCode::InstanceUnsupported,
            Self::Ended(_) => ErrorCode::InstanceLost,
            Self::Engine(error) => error.code(),
        }
    }
}

//! Why the scheduler of invocations did not take something.

use fdn_core::{Coded, ErrorCode};

use super::id::{ContainerId, FunctionIndex};
use super::weight::Weight;

/// A refusal. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// As many invocations wait as may.
    #[error("{limit} invocations wait, which is the limit")]
    QueueFull {
        /// The limit.
        limit: usize,
    },
    /// As many invocations of this function wait as may.
    #[error("{limit} invocations of function {function} wait, which is the limit of one function")]
    FunctionQueueFull {
        /// The function.
        function: FunctionIndex,
        /// The limit.
        limit: usize,
    },
    /// No worker has so much memory, even when empty.
    #[error("function {function} wants {wanted}, the largest worker has {largest}")]
    TooLarge {
        /// The function.
        function: FunctionIndex,
        /// What its container needs.
        wanted: Weight,
        /// What the largest worker has.
        largest: Weight,
    },
    /// As many functions or workers are known as may.
    #[error("{limit} {what} are known, which is the limit")]
    TableFull {
        /// Of what.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The function is not registered, or was retired.
    #[error("function {function} is not registered")]
    UnknownFunction {
        /// The function.
        function: FunctionIndex,
    },
    /// The function has invocations that wait or run.
    #[error("function {function} has invocations that wait or run")]
    InUse {
        /// The function.
        function: FunctionIndex,
    },
    /// The container was released, or is not in the state that this report is about: a late or doubled message.
    #[error("container {container} is gone, or not in the state reported on")]
    UnknownContainer {
        /// The container.
        container: ContainerId,
    },
    /// There is no such worker.
    #[error("there is no worker {worker}")]
    UnknownWorker {
        /// Its number.
        worker: usize,
    },
    /// The profile cannot be.
    #[error("the profile cannot be used: {what}")]
    InvalidProfile {
        /// Why.
        what: &'static str,
    },
    /// A setting cannot be used.
    #[error("the setting cannot be used: {what}")]
    InvalidSetting {
        /// Which, and why.
        what: &'static str,
    },
}

impl Coded for Refusal {
    fn code(&self) -> ErrorCode {
        match self {
            Self::QueueFull { .. }
            | Self::FunctionQueueFull { .. }
            | Self::TooLarge { .. }
            | Self::TableFull { .. } => ErrorCode::Overloaded,
            Self::UnknownFunction { .. } => ErrorCode::NotReady,
            Self::InUse { .. } => ErrorCode::Conflict,
            Self::UnknownContainer { .. } | Self::UnknownWorker { .. } => ErrorCode::NotFound,
            Self::InvalidProfile { .. } | Self::InvalidSetting { .. } => ErrorCode::ConfigInvalid,
        }
    }
}

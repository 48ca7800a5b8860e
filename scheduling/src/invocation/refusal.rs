//! Why the scheduler of invocations refused an operation.

use fdn_core::{Coded, ErrorCode};

use super::id::{ContainerId, FunctionIndex};
use super::weight::Weight;

/// A refusal; the scheduler's state is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The bound on waiting invocations is reached.
    #[error("{limit} invocations wait, which is the limit")]
    QueueFull {
        /// The bound.
        limit: usize,
    },
    /// The bound on waiting invocations of one function is reached.
    #[error("{limit} invocations of function {function} wait, which is the limit of one function")]
    FunctionQueueFull {
        /// The function.
        function: FunctionIndex,
        /// The bound.
        limit: usize,
    },
    /// The function is larger than the capacity of every worker.
    #[error("function {function} wants {wanted}, the largest worker has {largest}")]
    TooLarge {
        /// The function.
        function: FunctionIndex,
        /// The weight of its container.
        wanted: Weight,
        /// The capacity of the largest worker.
        largest: Weight,
    },
    /// The bound on functions or workers is reached.
    #[error("{limit} {what} are known, which is the limit")]
    TableFull {
        /// Which table, for the message.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
    /// The function is not registered, or was retired.
    #[error("function {function} is not registered")]
    UnknownFunction {
        /// The function.
        function: FunctionIndex,
    },
    /// The function has waiting or running invocations or containers, or is in a group already.
    #[error("function {function} is in use: it has invocations, containers or a group already")]
    InUse {
        /// The function.
        function: FunctionIndex,
    },
    /// The container was released, or is not in the state that the report implies: a late or duplicate message.
    #[error("container {container} is gone, or not in the state reported on")]
    UnknownContainer {
        /// The container.
        container: ContainerId,
    },
    /// There is no worker with this index.
    #[error("there is no worker {worker}")]
    UnknownWorker {
        /// The index.
        worker: usize,
    },
    /// A value of the profile is out of its range.
    #[error("the profile cannot be used: {what}")]
    InvalidProfile {
        /// Which value and range, for the message.
        what: &'static str,
    },
    /// A setting is out of its range.
    #[error("the setting cannot be used: {what}")]
    InvalidSetting {
        /// Which setting and range, for the message.
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

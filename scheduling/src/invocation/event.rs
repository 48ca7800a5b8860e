//! The actions that the scheduler of invocations orders.

use super::id::{ContainerId, FunctionIndex, RequestId, WorkerIndex};

/// An order to the runtime of containers. Actions take effect in their sequence: what a start needs is released before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Run an invocation in a warm container.
    StartWarm {
        /// The invocation.
        request: RequestId,
        /// Its container.
        container: ContainerId,
        /// The container's worker.
        worker: WorkerIndex,
    },
    /// Load a container and run an invocation in it; the caller reports when it is ready, and when the invocation has ended.
    StartCold {
        /// The invocation.
        request: RequestId,
        /// The container's function.
        function: FunctionIndex,
        /// The id of the new container.
        container: ContainerId,
        /// The worker that loads it.
        worker: WorkerIndex,
    },
    /// Load a container without an invocation; the caller reports when it is ready.
    Prewarm {
        /// The container's function.
        function: FunctionIndex,
        /// The id of the new container.
        container: ContainerId,
        /// The worker that loads it.
        worker: WorkerIndex,
    },
    /// Remove an idle container.
    Release {
        /// The container.
        container: ContainerId,
        /// Its worker.
        worker: WorkerIndex,
        /// The reason, for metrics and logs.
        why: ReleaseReason,
    },
    /// Preempt an invocation and keep its container; it continues later, here or elsewhere.
    Interrupt {
        /// The invocation.
        request: RequestId,
        /// Its container.
        container: ContainerId,
    },
    /// An invocation was lost with its container; the caller decides whether to retry it.
    Lost {
        /// The invocation.
        request: RequestId,
    },
}

/// Why an idle container is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseReason {
    /// Another container needs its memory.
    Evicted,
    /// Its keep-alive time has passed.
    Expired,
    /// It will be loaded again shortly before the next invocation is expected ([`super::Keep::Reload`]).
    NotNeededYet,
    /// Its worker's memory was reduced.
    Shrunk,
    /// Its function was retired.
    Retired,
    /// Its function has more containers than its scaler wants.
    Surplus,
}

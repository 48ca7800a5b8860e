//! What the scheduler of invocations orders.

use super::id::{ContainerId, FunctionIndex, RequestId, WorkerIndex};

/// An order to those who run containers. Orders are given in the sequence in which they take effect: what a start needs is
/// released before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Run an invocation in a warm container.
    StartWarm {
        /// The invocation.
        request: RequestId,
        /// Where.
        container: ContainerId,
        /// On which worker.
        worker: WorkerIndex,
    },
    /// Load a container and run an invocation in it; to be reported when it is ready, and when the invocation has ended.
    StartCold {
        /// The invocation.
        request: RequestId,
        /// Of which function the container is.
        function: FunctionIndex,
        /// The new container.
        container: ContainerId,
        /// On which worker.
        worker: WorkerIndex,
    },
    /// Load a container that nobody waits for yet; to be reported when it is ready.
    Prewarm {
        /// Of which function.
        function: FunctionIndex,
        /// The new container.
        container: ContainerId,
        /// On which worker.
        worker: WorkerIndex,
    },
    /// Remove an idle container.
    Release {
        /// Which.
        container: ContainerId,
        /// On which worker.
        worker: WorkerIndex,
        /// Why.
        why: Why,
    },
    /// Stop an invocation and keep its container; it goes on later, here or elsewhere.
    Interrupt {
        /// The invocation.
        request: RequestId,
        /// Where it runs.
        container: ContainerId,
    },
    /// The container of an invocation is gone with it; whether it is tried again is the caller's choice.
    Lost {
        /// The invocation.
        request: RequestId,
    },
}

/// Why an idle container is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// To make room for another.
    Evicted,
    /// It was idle for as long as it is kept.
    Expired,
    /// It will be loaded again shortly before the next invocation is expected.
    NotNeededYet,
    /// Its worker has less memory now.
    Shrunk,
    /// Its function was retired.
    Retired,
    /// Its function has more than it is to have.
    Surplus,
}

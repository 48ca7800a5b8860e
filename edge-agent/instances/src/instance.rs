//! One running copy of a function version.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use fdn_core::InstanceId;
use tokio::sync::watch;

use crate::body::{Request, Response};
use crate::call::CallFailure;
use crate::error::InstanceError;
use crate::log::LogLine;
use crate::spec::Description;
use crate::state::{Exit, InstanceState};

/// A handle on an instance. Handles are shared; dropping all of them does **not** end the instance (it must survive the
/// agent): call [`Instance::stop`]. An implementation without a life outside this process (WebAssembly, the fake) says so in
/// [`crate::Capabilities::survives_agent`].
#[async_trait]
pub trait Instance: Send + Sync + fmt::Debug {
    /// Its id.
    fn id(&self) -> InstanceId {
        self.description().id
    }

    /// What it runs and holds. The same after adoption as at its start.
    fn description(&self) -> &Description;

    /// Its state, to read or to wait on. Ends in [`InstanceState::Exited`].
    fn state(&self) -> watch::Receiver<InstanceState>;

    /// Hands it one request and returns when the response's head is there; the body streams on, in both directions at once.
    ///
    /// Concurrent calls are allowed without a bound of its own: the caller keeps to [`Description::concurrency`]. There is
    /// no timeout here; dropping the future, or the response's body, cancels the call: the instance is told, and a
    /// [`crate::CallGuard`] among the request's extensions says when it is over. A response body that is cut short by the
    /// instance's end ends with an error, never as if it were whole.
    ///
    /// # Errors
    /// [`CallFailure::NotSent`] when the instance surely has not seen the request, else [`CallFailure::Interrupted`].
    async fn call(&self, request: Request) -> Result<Response, CallFailure>;

    /// Freezes it: it keeps its memory and gets no CPU. Idempotent.
    ///
    /// # Errors
    /// [`InstanceError::Unsupported`] where [`crate::Capabilities::pause`] is false; when it has ended; when the engine fails. Then
    /// its state says whether calls can be handed to it; one that may be frozen is [`InstanceState::Paused`].
    async fn pause(&self) -> Result<(), InstanceError>;

    /// Lets it go on. Returns when calls can be handed to it, which is certain then. Idempotent.
    ///
    /// # Errors
    /// As [`Instance::pause`].
    async fn resume(&self) -> Result<(), InstanceError>;

    /// Asks it to end (SIGTERM), kills it after `grace`, removes everything of it, and returns how it ended. A call that is
    /// running then may finish within the grace. Idempotent: later calls give the same end.
    ///
    /// # Errors
    /// When the engine fails: the instance may still run, and stopping may be tried again.
    async fn stop(&self, grace: Duration) -> Result<Exit, InstanceError>;

    /// The last lines that it wrote, oldest first, bounded by [`crate::LogLimits`]. Also after its end.
    fn log_tail(&self) -> Vec<LogLine>;
}

//! The handle to one running copy of a function version.

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

/// A handle to an instance. Handles are shared; dropping all of them does **not** end the instance (it must survive the
/// agent): call [`Instance::stop`]. An implementation whose instances live only in this process (WebAssembly) says so in
/// [`crate::Capabilities::survives_agent`].
#[async_trait]
pub trait Instance: Send + Sync + fmt::Debug {
    /// Its id.
    fn id(&self) -> InstanceId {
        self.description().id
    }

    /// What it runs and holds. The same after an adoption as at its start.
    fn description(&self) -> &Description;

    /// Its state, to be read or waited on. Ends in [`InstanceState::Exited`].
    fn state(&self) -> watch::Receiver<InstanceState>;

    /// Passes it one request and returns once the response's head is there; both bodies are streamed, in both directions at once.
    ///
    /// The instance does not limit concurrent calls itself: the caller must respect [`Description::concurrency`]. There is
    /// no timeout here; dropping the future, or the response's body, cancels the call: the instance is notified, and a
    /// [`crate::CallGuard`] among the request's extensions tells when the call is over. A response body that is cut short by the
    /// instance's end fails with an error, never as if it were complete.
    ///
    /// # Errors
    /// [`CallFailure::NotSent`] if the instance certainly has not seen the request, otherwise [`CallFailure::Interrupted`].
    async fn call(&self, request: Request) -> Result<Response, CallFailure>;

    /// Freezes it: it keeps its memory but gets no CPU. Idempotent.
    ///
    /// # Errors
    /// [`InstanceError::Unsupported`] where [`crate::Capabilities::pause`] is false; when it has ended; when the engine fails. After an error
    /// its state tells whether it accepts calls; one that may be frozen is [`InstanceState::Paused`].
    async fn pause(&self) -> Result<(), InstanceError>;

    /// Resumes it. Once this returns successfully, it accepts calls. Idempotent.
    ///
    /// # Errors
    /// Like [`Instance::pause`].
    async fn resume(&self) -> Result<(), InstanceError>;

    /// Asks it to end (SIGTERM), kills it after `grace`, removes everything that belongs to it, and returns how it ended. Calls that are
    /// running may finish within the grace. Idempotent: later calls return the same end.
    ///
    /// # Errors
    /// When the engine fails: the instance may still be running, and `stop` may be called again.
    async fn stop(&self, grace: Duration) -> Result<Exit, InstanceError>;

    /// The last lines that it wrote, oldest first, bounded by [`crate::LogLimits`]. Available after its end, too.
    fn log_tail(&self) -> Vec<LogLine>;
}

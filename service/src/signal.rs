//! Waits for the signal to stop.

use tokio::signal::unix::{SignalKind, signal};

/// Returns the name of the signal when SIGTERM or SIGINT (Ctrl-C) arrives.
///
/// # Errors
/// When signal handlers cannot be installed.
pub async fn stop() -> std::io::Result<&'static str> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => Ok("SIGTERM"),
        _ = interrupt.recv() => Ok("SIGINT"),
    }
}

//! Waiting for the signal to stop.

use tokio::signal::unix::{SignalKind, signal};

/// Returns when SIGTERM or SIGINT (Ctrl-C) arrives, with its name.
///
/// # Errors
/// When the process may not install signal handlers.
pub async fn stop() -> std::io::Result<&'static str> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => Ok("SIGTERM"),
        _ = interrupt.recv() => Ok("SIGINT"),
    }
}

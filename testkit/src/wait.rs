//! Waiting for a condition rather than for a fixed time.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;

/// How long a condition may take on a slow and busy machine before a test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

const POLL: Duration = Duration::from_millis(20);

/// Polls `condition` until it returns a value.
///
/// # Panics
/// After [`PATIENCE`]; the message contains `what` and the last reason.
pub async fn until<T, E: Display>(
    what: &str,
    mut condition: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    within(PATIENCE, what, &mut condition).await
}

/// Like [`until`], with another time limit.
///
/// # Panics
/// When the time limit is exceeded.
pub async fn within<T, E: Display>(
    patience: Duration,
    what: &str,
    condition: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    match try_within(patience, condition).await {
        Ok(value) => value,
        Err(reason) => panic!("waited {patience:?} for {what}: {reason}"),
    }
}

/// Like [`within`], for tests that report the failure themselves.
///
/// # Errors
/// The last reason, when the time limit is exceeded.
pub async fn try_within<T, E>(
    patience: Duration,
    mut condition: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, E> {
    let deadline = Instant::now() + patience;
    loop {
        match condition().await {
            Err(_) if Instant::now() < deadline => tokio::time::sleep(POLL).await,
            outcome => return outcome,
        }
    }
}

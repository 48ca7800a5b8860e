//! Waiting for a condition instead of for a time.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;

/// How long a condition may take on a slow and busy machine before a test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

const POLL: Duration = Duration::from_millis(20);

/// Asks `condition` again and again until it gives a value.
///
/// # Panics
/// When [`PATIENCE`] is at its end; the message holds `what` and the last reason.
pub async fn until<T, E: Display>(
    what: &str,
    mut condition: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    within(PATIENCE, what, &mut condition).await
}

/// The same with a time of one's own.
///
/// # Panics
/// When the time is over.
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

/// The same for a test that has more to say about it than that it failed.
///
/// # Errors
/// The last reason, when the time is over.
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

//! Stops an instance, retrying until it succeeds.

use std::time::Duration;

use fdn_instances::{Exit, Instance};
use tracing::warn;

/// The first pause between two attempts, which doubles, and the longest.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Stops an instance and returns how it ended: its resources are not free before the engine confirms that it is gone.
pub(crate) async fn stopped(instance: &dyn Instance, grace: Duration) -> Exit {
    let id = instance.id();
    let mut pause = PAUSE;
    loop {
        match instance.stop(grace).await {
            Ok(exit) => return exit,
            Err(failure) => {
                warn!(%id, %failure, again_in = ?pause, "an instance could not be stopped");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

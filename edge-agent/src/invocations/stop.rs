//! Stops an instance, retrying until it succeeds, and holds its resources until then.

use std::time::Duration;

use fdn_instances::{Exit, Instance};
use tracing::warn;

use super::placer::Placed;

/// The first pause between two attempts, which doubles, and the longest.
pub(super) const PAUSE: Duration = Duration::from_millis(100);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(30);

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

/// Stops an instance in the background. What was placed is held until the engine confirms that it is gone.
pub(super) fn stop_later(placed: Placed, grace: Duration) {
    tokio::spawn(async move {
        stopped(&*placed.instance, grace).await;
        drop(placed);
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fdn_core::{InstanceId, MebiBytes, MilliCpu, Resources};
    use fdn_instances::fake::{FakeEngine, FakeProgram};
    use fdn_instances::{Runtime, StartSpec};
    use uuid::Uuid;

    use super::*;
    use crate::invocations::ledger::Ledger;
    use crate::invocations::placer::LocalPlacer;

    const ROOM: Resources = Resources::new(MilliCpu(100), MebiBytes(64));

    /// A restarted node with room for one instance, on which one with this memory runs that the engine first fails to stop.
    async fn restarted(memory: u64) -> (Arc<FakeEngine>, Arc<Ledger>, LocalPlacer) {
        let engine = FakeEngine::new();
        let image = engine.add_image("here", FakeProgram::text("here"));
        let runtime = engine.runtime("eu".parse().expect("name"), "n".parse().expect("name"));
        let spec = StartSpec::new(
            InstanceId::from_uuid(Uuid::from_u128(1)),
            "app".parse().expect("name"),
            "main".parse().expect("name"),
            image,
            Resources::new(MilliCpu(100), MebiBytes(memory)),
        );
        runtime.start(spec).await.expect("it starts");
        engine.fail_stops(1);
        let ledger = Ledger::new(ROOM, 1);
        let placer = LocalPlacer::new(runtime, Arc::clone(&ledger), Duration::from_secs(60));
        (engine, ledger, placer)
    }

    #[tokio::test]
    async fn what_belongs_to_nothing_holds_its_room_until_it_is_gone() {
        let (engine, ledger, placer) = restarted(64).await;
        assert_eq!(placer.adopt().await.expect("the engine answers"), 1);
        placer.stop_unclaimed();
        let reservation = ledger.reserve_when_free(ROOM).await;
        assert!(engine.alive().is_empty(), "free, because it is gone");
        drop(reservation);
    }

    #[tokio::test]
    async fn what_no_longer_fits_holds_what_is_left_until_it_is_gone() {
        let (engine, ledger, placer) = restarted(65).await;
        assert_eq!(placer.adopt().await.expect("the engine answers"), 0);
        assert_eq!(ledger.held(), MebiBytes(64), "it still runs");
        let reservation = ledger.reserve_when_free(ROOM).await;
        assert!(engine.alive().is_empty(), "free, because it is gone");
        drop(reservation);
    }
}

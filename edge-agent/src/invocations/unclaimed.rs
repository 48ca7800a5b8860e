//! Starts that nobody waits for any more: what they hold is given back when nothing of the instance is left, and no sooner.

use std::sync::Arc;
use std::time::Duration;

use fdn_instances::{Instance, Runtime, RuntimeError, StartError, StartSpec};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::info;

use super::ledger::InstanceReservation;
use super::placer::{PlaceError, Placed};
use super::stop::stopped;

/// An instance that was started for somebody who may have gone meanwhile; stopped unless it is claimed.
pub(super) struct Unclaimed(Option<Placed>);

impl Unclaimed {
    /// One that is stopped unless somebody claims it.
    pub(super) const fn of(placed: Placed) -> Self {
        Self(Some(placed))
    }

    /// The instance, which is not stopped any more.
    pub(super) fn claim(mut self) -> Placed {
        let placed = self.0.take();
        placed.expect("it is claimed once, by value")
    }

    /// Its handle.
    pub(super) fn instance(&self) -> Arc<dyn Instance> {
        let placed = self.0.as_ref();
        Arc::clone(&placed.expect("it has not been claimed").instance)
    }

    /// Starts an instance that holds `hold`. The start goes on when this future is dropped, because only its
    /// end says that nothing is left of it; the instance is stopped then.
    pub(super) async fn start(
        runtime: &Arc<dyn Runtime>,
        spec: StartSpec,
        hold: InstanceReservation,
    ) -> Result<Placed, PlaceError> {
        let kind = runtime.kind();
        let (answer, started) = oneshot::channel();
        let runtime = Arc::clone(runtime);
        tokio::spawn(async move {
            let started = start(&*runtime, spec, hold).await;
            // Stopped if it does not arrive.
            drop(answer.send(started.map(Self::of)));
        });
        let broken = |_| {
            let reason = "the start failed in itself".to_owned();
            StartError::Engine(RuntimeError::Unusable { kind, reason })
        };
        Ok(started.await.map_err(broken)??.claim())
    }
}

async fn start(
    runtime: &dyn Runtime,
    mut spec: StartSpec,
    hold: InstanceReservation,
) -> Result<Placed, PlaceError> {
    let hold = Some(hold);
    // Nothing comes between this and its start.
    if let Some(prepared) = runtime.ahead(&spec) {
        spec.description.id = prepared;
    }
    let instance = runtime.start(spec).await?;
    Ok(Placed { instance, hold })
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        let Some(Placed { instance, hold }) = self.0.take() else {
            return;
        };
        info!(id = %instance.id(), "an instance that took too long to start is stopped");
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                stopped(&*instance, Duration::ZERO).await;
                drop(hold);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::{InstanceId, MebiBytes, MilliCpu, Resources};
    use fdn_instances::fake::{FakeEngine, FakeProgram};
    use uuid::Uuid;

    use super::*;
    use crate::invocations::ledger::Ledger;
    use crate::invocations::placer::{LocalPlacer, Need, Placer};

    #[tokio::test]
    async fn a_start_that_is_given_up_holds_its_room_until_the_instance_is_gone() {
        let room = Resources::new(MilliCpu(100), MebiBytes(64));
        let ledger = Ledger::new(room, 1);
        let engine = FakeEngine::new();
        let image = engine.add_image("slow", FakeProgram::text("late"));
        let runtime = engine.runtime("eu".parse().expect("name"), "n".parse().expect("name"));
        let placer = LocalPlacer::new(runtime, Arc::clone(&ledger), Duration::from_millis(5));
        let spec = StartSpec::new(
            InstanceId::from_uuid(Uuid::nil()),
            "app".parse().expect("name"),
            "main".parse().expect("name"),
            image,
            room,
        );
        engine.hold_starts();
        let error = placer
            .place(spec.clone(), Need::Call)
            .await
            .expect_err("it is held");
        assert!(matches!(error, PlaceError::Late(_)), "{error}");
        assert_eq!(ledger.cpu_held(), MilliCpu(100), "it may come yet");
        let error = placer.place(spec, Need::Call).await.expect_err("no room");
        assert!(matches!(error, PlaceError::Late(_)), "{error}");
        engine.release_starts();
        let hold = ledger.hold_when_free(room).await;
        assert!(engine.alive().is_empty(), "free, because it is gone");
        assert_eq!(engine.starts(), 1);
        drop(hold);
    }
}

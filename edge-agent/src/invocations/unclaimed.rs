//! Starts that nobody waits for any more: their resources are released once nothing of the instance is left, and no sooner.

use std::sync::Arc;
use std::time::Duration;

use fdn_instances::{Instance, Runtime, RuntimeError, StartError, StartSpec};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::info;

use super::ledger::InstanceReservation;
use super::placer::{PlaceError, Placed};
use super::stop::stopped;

/// A started instance whose requester may be gone; stopped unless it is claimed.
pub(super) struct Unclaimed(Option<Placed>);

impl Unclaimed {
    /// Wraps an instance, which is stopped unless it is claimed.
    pub(super) const fn of(placed: Placed) -> Self {
        Self(Some(placed))
    }

    /// Takes the instance, which is no longer stopped on drop.
    pub(super) fn claim(mut self) -> Placed {
        let placed = self.0.take();
        placed.expect("it is claimed once, by value")
    }

    /// The handle on the instance.
    pub(super) fn instance(&self) -> Arc<dyn Instance> {
        let placed = self.0.as_ref();
        Arc::clone(&placed.expect("it has not been claimed").instance)
    }

    /// Starts an instance with this reservation. The start continues even if this future is dropped, because only its end shows that
    /// nothing is left of the instance; the instance is then stopped.
    pub(super) async fn start(
        runtime: &Arc<dyn Runtime>,
        spec: StartSpec,
        reservation: InstanceReservation,
    ) -> Result<Placed, PlaceError> {
        let kind = runtime.kind();
        let (answer, started) = oneshot::channel();
        let runtime = Arc::clone(runtime);
        tokio::spawn(async move {
            let started = start(&*runtime, spec, reservation).await;
            // Stopped if nobody receives it.
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
    reservation: InstanceReservation,
) -> Result<Placed, PlaceError> {
    let reservation = Some(reservation);
    // Nothing may come between this and the start.
    if let Some(prepared) = runtime.take_precreated(&spec) {
        spec.description.id = prepared;
    }
    let instance = match runtime.start(spec).await {
        Err(StartError::Remains { error, remains }) => {
            // Why it failed is told now: the engine may take long to remove what is left.
            tokio::spawn(async move {
                remains.gone().await;
                drop(reservation);
            });
            return Err((*error).into());
        }
        started => started?,
    };
    Ok(Placed {
        instance,
        reservation,
    })
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        let Some(Placed {
            instance,
            reservation,
        }) = self.0.take()
        else {
            return;
        };
        info!(id = %instance.id(), "an instance that took too long to start is stopped");
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                stopped(&*instance, Duration::ZERO).await;
                drop(reservation);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::{InstanceId, MebiBytes, MilliCpu, Resources};
    use fdn_instances::Remains;
    use fdn_instances::fake::{FakeEngine, FakeProgram};
    use uuid::Uuid;

    use super::*;
    use crate::invocations::ledger::Ledger;
    use crate::invocations::placer::{LocalPlacer, Need, Placer};

    /// What each instance takes, and all that there is room for.
    const ROOM: Resources = Resources::new(MilliCpu(100), MebiBytes(64));

    /// A placer that waits so long for a start, with room for one instance, and what to start.
    fn placer(wait: Duration) -> (Arc<FakeEngine>, Arc<Ledger>, LocalPlacer, StartSpec) {
        let ledger = Ledger::new(ROOM, 1);
        let engine = FakeEngine::new();
        let image = engine.add_image("met", FakeProgram::text("met"));
        let runtime = engine.runtime("eu".parse().expect("name"), "n".parse().expect("name"));
        let placer = LocalPlacer::new(runtime, Arc::clone(&ledger), wait);
        let spec = StartSpec::new(
            InstanceId::from_uuid(Uuid::nil()),
            "app".parse().expect("name"),
            "main".parse().expect("name"),
            image,
            ROOM,
        );
        (engine, ledger, placer, spec)
    }

    #[tokio::test]
    async fn a_start_that_is_given_up_holds_its_room_until_the_instance_is_gone() {
        let (engine, ledger, placer, spec) = placer(Duration::from_millis(5));
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
        let reservation = ledger.reserve_when_free(ROOM).await;
        assert!(engine.alive().is_empty(), "free, because it is gone");
        assert_eq!(engine.starts(), 1);
        drop(reservation);
    }

    #[tokio::test]
    async fn why_a_start_failed_is_told_while_what_it_left_holds_its_room() {
        let (engine, ledger, placer, spec) = placer(Duration::from_secs(3600));
        let reason = StartError::Unsupported {
            reason: "the test says so".to_owned(),
        };
        let (there, remains) = Remains::new();
        engine.fail_starts([StartError::Remains {
            error: Box::new(reason.clone()),
            remains,
        }]);
        let failed = placer.place(spec, Need::Call).await;
        match failed.expect_err("it does not start") {
            PlaceError::Start(error) => assert_eq!(error, reason),
            other => panic!("{other}"),
        }
        assert!(ledger.reserve(ROOM).is_err(), "something is left");
        drop(there);
        drop(ledger.reserve_when_free(ROOM).await);
    }
}

use fdn_core::{MebiBytes, MilliCpu, Millis};
use fdn_instances::fake::{FakeEngine, FakeProgram};
use fdn_testkit::wait;

use super::*;
use crate::invocations::placer::{LocalPlacer, Need, Placer};
use crate::metrics::Metrics;

struct Rig {
    engine: Arc<FakeEngine>,
    ledger: Arc<Ledger>,
    metrics: InstanceMetrics,
    placer: LocalPlacer,
}

/// A node with 100 MiB.
fn rig(each: u32) -> Rig {
    let node: fdn_core::NodeId = "n-1".parse().expect("node");
    let engine = FakeEngine::new();
    let runtime = engine.runtime("eu".parse().expect("cluster"), node.clone());
    let room = Resources::new(MilliCpu(1000), MebiBytes(100));
    let ledger = Ledger::new(room, 4);
    let metrics = Metrics::new(&node).expect("metrics").instances;
    let placer = LocalPlacer::new(runtime, Arc::clone(&ledger), Duration::from_secs(60));
    let placer = placer.with_standby(each, Duration::from_secs(60), metrics.clone());
    Rig {
        engine,
        ledger,
        metrics,
        placer,
    }
}

impl Rig {
    fn spec(&self, name: &'static str, memory: u64) -> StartSpec {
        let image = self.engine.add_image(name, FakeProgram::text(name));
        let (app, function) = (name.parse().expect("app"), name.parse().expect("function"));
        let resources = Resources::new(MilliCpu(1), MebiBytes(memory));
        StartSpec::new(
            InstanceId::from_uuid(Uuid::nil()),
            app,
            function,
            image,
            resources,
        )
    }

    fn register(&self, spec: &StartSpec) -> Box<dyn Any + Send + Sync> {
        let registered = self.placer.register(spec, Millis::new(1.0));
        registered.expect("it is kept ready")
    }

    async fn until_paused(&self, count: usize) {
        wait::until("instances on standby", async || {
            let paused = self.engine.paused();
            (paused == count).then_some(()).ok_or(paused)
        })
        .await;
    }

    fn counted(&self, result: &str) -> u64 {
        self.metrics.standby.with_label_values(&[result]).get()
    }
}

#[tokio::test]
async fn a_start_takes_one_that_is_ready_and_it_is_replaced() {
    let rig = rig(1);
    let spec = rig.spec("hello", 20);
    let registered = rig.register(&spec);
    rig.until_paused(1).await;
    assert_eq!(rig.ledger.held(), MebiBytes(20), "it holds what it takes");
    rig.engine.hold_starts();
    let placed = rig
        .placer
        .place(spec.clone(), Need::Call)
        .await
        .expect("it is there");
    assert_eq!(*placed.instance.state().borrow(), InstanceState::Ready);
    assert_eq!((rig.engine.starts(), rig.counted("used")), (1, 1));
    assert_eq!(rig.ledger.held_by_instances(), MebiBytes(20));
    rig.engine.release_starts();
    rig.until_paused(1).await;
    let other = rig.spec("other", 20);
    let started = rig
        .placer
        .place(other, Need::Call)
        .await
        .expect("it starts");
    assert_eq!(rig.counted("used"), 1, "not of another function");
    drop((started, registered));
    rig.until_paused(0).await;
    assert_eq!(rig.engine.alive().len(), 2, "what serves is not touched");
}

#[tokio::test]
async fn one_that_does_not_wake_or_has_ended_is_not_handed_out() {
    let rig = rig(1);
    let spec = rig.spec("hello", 20);
    let _registered = rig.register(&spec);
    rig.until_paused(1).await;
    rig.engine.fail_resumes(1);
    let placed = rig
        .placer
        .place(spec.clone(), Need::Call)
        .await
        .expect("it starts");
    assert_eq!((rig.counted("used"), rig.counted("lost")), (0, 1));
    rig.until_paused(1).await;
    let kept = rig.engine.alive().into_iter();
    let kept = kept
        .map(|(_, id)| id)
        .filter(|id| *id != placed.instance.id())
        .collect::<Vec<_>>();
    for id in kept {
        assert!(rig.engine.crash(id));
    }
    wait::until("its end to be noticed", async || {
        let lost = rig.counted("lost");
        (lost == 2).then_some(()).ok_or(lost)
    })
    .await;
    assert_eq!(rig.ledger.held(), MebiBytes(20), "that of the other one");
}

#[tokio::test]
async fn they_give_way_to_starts_and_to_calls_and_take_no_room_that_is_waited_for() {
    let rig = rig(1);
    let (small, large) = (rig.spec("small", 30), rig.spec("large", 90));
    let _registered = rig.register(&small);
    rig.until_paused(1).await;
    assert!(rig.ledger.reserve(large.description.resources).is_err());
    assert!(rig.placer.has_room(large.description.resources).is_ok());
    let placed = rig
        .placer
        .place(large, Need::Call)
        .await
        .expect("room is made");
    assert_eq!((rig.engine.paused(), rig.counted("gave_way")), (0, 1));
    placed
        .instance
        .stop(Duration::ZERO)
        .await
        .expect("it stops");
    drop(placed);

    let again = rig.register(&small);
    rig.until_paused(1).await;
    assert!(rig.ledger.want(MebiBytes(80)), "a call waits for that");
    rig.ledger.close();
    rig.placer.evict_standby();
    rig.until_paused(0).await;
    wait::until("its memory", async || {
        let held = rig.ledger.held();
        (held == MebiBytes(0)).then_some(()).ok_or(held)
    })
    .await;
    let inner = &rig.placer.standby().expect("it is on").0;
    assert!(inner.next(Instant::now()).is_none(), "the call goes first");
    rig.ledger.open();
    rig.ledger.want(MebiBytes(0));
    assert!(inner.next(Instant::now()).is_some());
    drop(again);
}

#[tokio::test]
async fn after_the_agents_end_nothing_is_started_and_what_lives_on_is_left() {
    for ends in [false, true] {
        let rig = rig(1);
        let spec = rig.spec("hello", 20);
        let registered = rig.register(&spec);
        rig.until_paused(1).await;
        rig.placer.close(ends).await;
        drop(registered);
        let inner = &rig.placer.standby().expect("it is on").0;
        inner.register(&spec);
        assert!(inner.next(Instant::now()).is_none(), "closed");
        assert_eq!(rig.engine.alive().len(), usize::from(!ends));
    }
}

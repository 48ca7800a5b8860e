mod left;
mod pausing;

use fdn_core::{MebiBytes, MilliCpu, Resources};
use fdn_instances::fake::{AtStart, FakeEngine, FakeProgram};
use fdn_instances::{Exit, StartSpec, empty_body};
use futures::FutureExt;

use super::*;
use crate::invocations::placer::LocalPlacer;
use crate::metrics::Metrics;

struct Rig {
    engine: Arc<FakeEngine>,
    ledger: Arc<Ledger>,
    instances: Instances,
    _stop: Box<dyn std::any::Any>,
}

fn resources(memory: u64) -> Resources {
    Resources::new(MilliCpu(100), MebiBytes(memory))
}

async fn rig(settings: InstanceSettings) -> Rig {
    let engine = FakeEngine::new();
    on(engine, settings).await
}

async fn on(engine: Arc<FakeEngine>, settings: InstanceSettings) -> Rig {
    let node: fdn_core::NodeId = "n-1".parse().expect("node");
    let runtime = engine.runtime("eu-west".parse().expect("cluster"), node.clone());
    let ledger = Ledger::new(resources(100), 10);
    let placer = LocalPlacer::new(runtime, Arc::clone(&ledger), Duration::from_secs(60));
    placer.adopt().await.expect("the engine answers");
    let parts = InstancesParts {
        placer: Arc::new(placer),
        ledger: Arc::clone(&ledger),
        queue: QueueSettings::default(),
        settings,
        scale: ScaleSettings::default(),
        app_share: Percent::WHOLE,
        tenant_share: Percent::WHOLE,
        metrics: Metrics::new(&node).expect("metrics").instances,
    };
    let stop = CancellationToken::new();
    let (instances, _task) = Instances::start(parts, stop.clone()).expect("valid settings");
    Rig {
        engine,
        ledger,
        instances,
        _stop: Box::new(stop.drop_guard()),
    }
}

impl Rig {
    fn spec(&self, name: &str, program: FakeProgram, memory: u64) -> StartSpec {
        let image = self.engine.add_image(name, program);
        let id = fdn_core::InstanceId::from_uuid(uuid::Uuid::nil());
        let (app, function) = (name.parse().expect("app"), name.parse().expect("function"));
        let resources = Resources::new(MilliCpu(1), MebiBytes(memory));
        StartSpec::new(id, app, function, image, resources)
    }

    fn queue(&self, name: &str, program: FakeProgram, memory: u64) -> InstanceQueue {
        let spec = self.spec(name, program, memory);
        let queue = self.instances.register(spec, Millis::new(1.0));
        queue.expect("room for a function")
    }

    async fn in_flight(&self, queue: &InstanceQueue) -> Result<InFlight, Refused> {
        let until = Instant::now() + Duration::from_secs(600);
        self.instances.acquire(queue, until, false).await
    }
}

fn request() -> fdn_instances::Request {
    http::Request::new(empty_body())
}

#[tokio::test]
async fn an_instance_is_started_for_a_call_kept_and_found_again() {
    let rig = rig(InstanceSettings::default()).await;
    rig.engine.delay_starts(Duration::from_millis(80));
    let queue = rig.queue("hello", FakeProgram::text("hi"), 40);
    let mut in_flight = rig.in_flight(&queue).await.expect("started");
    assert_eq!(
        rig.ledger.held(),
        MebiBytes(40),
        "reserved before it was started"
    );
    let answer = in_flight.call(request()).await.expect("an answer");
    assert_eq!(answer.status(), 200);
    let first = in_flight.instance();
    in_flight.finished();
    drop((answer, in_flight));
    let again = rig
        .in_flight(&queue)
        .now_or_never()
        .expect("at once")
        .expect("warm");
    assert_eq!((again.instance(), rig.engine.starts()), (first, 1));
    drop(again);
    drop(queue);
    while rig.ledger.held() > MebiBytes(0) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(
        rig.engine.alive().is_empty(),
        "nobody will call it any more"
    );
}

#[tokio::test]
async fn a_call_waits_for_as_long_as_it_may_and_leaves_nothing() {
    let settings = InstanceSettings {
        wait: fdn_core::DurationMs::from_millis(50),
        ..InstanceSettings::default()
    };
    let rig = rig(settings).await;
    rig.engine.hold_starts();
    let queue = rig.queue("slow", FakeProgram::text("hi"), 40);
    let refused = rig.in_flight(&queue).await.expect_err("not in time");
    assert_eq!(refused, Refused::Late);
    let gives_up = rig.in_flight(&queue);
    assert!(gives_up.now_or_never().is_none());
    assert_eq!(queue.counts().waiting, 0);
    let large = rig.queue("large", FakeProgram::text("hi"), 101);
    let refused = rig.in_flight(&large).await.expect_err("never fits");
    assert_eq!(refused, Refused::TooLarge);
}

#[tokio::test]
async fn an_idle_instance_makes_room_and_the_new_one_waits_until_it_is_gone() {
    let rig = rig(InstanceSettings::default()).await;
    let first = rig.queue("first", FakeProgram::text("1"), 60);
    let second = rig.queue("second", FakeProgram::text("2"), 60);
    for queue in [&first, &second, &first, &second] {
        let mut in_flight = rig
            .in_flight(queue)
            .await
            .expect("the other one makes room");
        in_flight.call(request()).await.expect("an answer");
        assert!(rig.ledger.held() <= MebiBytes(100));
    }
    assert_eq!(rig.engine.starts(), 4);
}

#[tokio::test]
async fn why_instances_do_not_start_is_kept_with_their_last_lines() {
    let settings = InstanceSettings {
        retry_first: fdn_core::DurationMs::from_millis(2),
        retry_max: fdn_core::DurationMs::from_millis(20),
        ..InstanceSettings::default()
    };
    let rig = rig(settings).await;
    let broken = FakeProgram::text("never");
    let broken = broken.at_start(AtStart::Exits(Exit::ended(3)), &["no config", "giving up"]);
    let queue = rig.queue("broken", broken, 10);
    let waiting = rig.in_flight(&queue);
    tokio::pin!(waiting);
    while rig.engine.starts() < 4 {
        tokio::select! {
            in_flight = &mut waiting => panic!("{in_flight:?}"),
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
    }
    let degradation = queue.degradation().expect("something is wrong");
    assert!(
        degradation.reason.contains("status 3"),
        "{}",
        degradation.reason
    );
    assert_eq!(degradation.log, ["no config", "giving up"]);
    // After the repair, the waiting call is served.
    rig.engine.add_image("broken", FakeProgram::text("fine"));
    assert!(waiting.await.is_ok());
    assert_eq!(queue.degradation(), None);
}

#[tokio::test]
async fn an_instance_that_ends_or_stops_answering_is_replaced() {
    let rig = rig(InstanceSettings::default()).await;
    let queue = rig.queue("hello", FakeProgram::text("hi"), 10);
    let mut known = Vec::new();
    for round in 0..3 {
        let in_flight = rig.in_flight(&queue).await.expect("there is one again");
        assert!(!known.contains(&in_flight.instance()), "a new one");
        known.push(in_flight.instance());
        let id = in_flight.instance();
        drop(in_flight);
        match round {
            0 => assert!(rig.engine.crash(id)),
            _ => rig.engine.set_unresponsive(id, true),
        }
        // Noticed by the watcher, or by the call that is assigned to it.
        let mut in_flight = rig.in_flight(&queue).await.expect("a place");
        if let Err(failure) = in_flight.call(request()).await {
            assert!(failure.into_request().is_some(), "nothing was handed over");
        }
    }
    while rig.engine.alive().len() > 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn what_ran_before_the_agent_started_serves_on() {
    let rig = rig(InstanceSettings::default()).await;
    let queue = rig.queue("hello", FakeProgram::text("hi"), 30);
    let id = rig.in_flight(&queue).await.expect("started").instance();
    let engine = Arc::clone(&rig.engine);
    // The agent crashes: nothing is dropped in order.
    std::mem::forget((rig, queue));
    let rig = on(engine, InstanceSettings::default()).await;
    assert_eq!(
        rig.ledger.held(),
        MebiBytes(30),
        "reserved before anything else"
    );
    let queue = rig.queue("hello", FakeProgram::text("hi"), 30);
    let in_flight = rig
        .in_flight(&queue)
        .now_or_never()
        .expect("at once")
        .expect("warm");
    assert_eq!((in_flight.instance(), rig.engine.starts()), (id, 1));
}

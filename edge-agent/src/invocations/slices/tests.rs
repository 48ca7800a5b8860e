use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fdn_core::device::GpuRequest;
use fdn_core::{ByteSize, MebiBytes, MilliCpu, Resources, Timestamp};
use fdn_devices::discovery::from_settings;
use fdn_devices::{DeviceMetrics, DevicesSettings, Parts, SimulatedGroup};
use fdn_instances::fake::{FakeEngine, FakeProgram};

use super::*;
use crate::invocations::ledger::Ledger;
use crate::invocations::placer::{LocalPlacer, Need, Placed, Placer};

/// A node with one simulated device of 8 GiB.
struct Node {
    engine: Arc<FakeEngine>,
    folder: tempfile::TempDir,
}

fn devices(folder: &Path) -> Devices {
    let settings = DevicesSettings {
        simulated: SimulatedGroup {
            count: 1,
            memory: ByteSize::from_mib(8192),
            ..SimulatedGroup::default()
        },
        ..DevicesSettings::default()
    };
    let node = "n-1".parse().expect("node");
    Devices::open(Parts {
        discovery: from_settings(&settings),
        settings,
        folder,
        metrics: DeviceMetrics::new(&prometheus::Registry::new(), &node).expect("metrics"),
        boot: "one".to_owned(),
        now: || Timestamp(1),
    })
    .expect("the folder can be used")
}

impl Node {
    fn new() -> Self {
        Self {
            engine: FakeEngine::new(),
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    /// The agent's components, as after each of its starts.
    fn placer(&self) -> (LocalPlacer, Devices) {
        self.placer_with(Resources::new(MilliCpu(1000), MebiBytes(1000)))
    }

    fn placer_with(&self, room: Resources) -> (LocalPlacer, Devices) {
        let devices = devices(self.folder.path());
        let node: fdn_core::NodeId = "n-1".parse().expect("node");
        let runtime = self
            .engine
            .runtime("eu-west".parse().expect("cluster"), node);
        let ledger = Ledger::new(room, 10);
        let placer = LocalPlacer::new(runtime, ledger, Duration::from_secs(60));
        (placer.with_devices(devices.clone()), devices)
    }

    fn spec(&self, gpu_mib: u64) -> StartSpec {
        let image = self.engine.add_image("net", FakeProgram::text("hi"));
        let id = InstanceId::from_uuid(uuid::Uuid::nil());
        let (app, function) = ("net".parse().expect("app"), "net".parse().expect("name"));
        let resources = Resources {
            gpu_memory_mib: MebiBytes(gpu_mib),
            ..Resources::new(MilliCpu(10), MebiBytes(10))
        };
        let mut spec = StartSpec::new(id, app, function, image, resources);
        spec.gpu = Some(GpuRequest::of_memory(ByteSize::from_mib(gpu_mib)));
        spec
    }
}

fn free(devices: &Devices) -> u64 {
    devices.totals().0.get()
}

async fn place(placer: &LocalPlacer, node: &Node) -> Result<Placed, PlaceError> {
    placer.place(node.spec(4096), Need::Call).await
}

/// Waits until this much is free: slices are released on a separate thread.
async fn given_back(devices: &Devices, mib: u64) {
    while free(devices) != mib {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn instances_get_slices_until_the_devices_are_full_and_give_them_back() {
    let node = Node::new();
    let (placer, devices) = node.placer();
    let first = place(&placer, &node).await.expect("room");
    let second = place(&placer, &node).await.expect("room");
    let seen = &first.instance.description().devices;
    assert_eq!(seen.len(), 1, "it is told its device");
    assert_eq!(seen[0].memory, MebiBytes(4096));
    assert_eq!(free(&devices), 0);
    let refused = place(&placer, &node).await.expect_err("no device has room");
    assert!(matches!(
        refused,
        PlaceError::Devices(BindError::NoRoom { .. })
    ));
    drop(second);
    given_back(&devices, 4096).await;
    let third = place(&placer, &node).await.expect("room again");
    drop((first, third));
    given_back(&devices, 8192).await;
}

#[tokio::test]
async fn a_start_that_fails_gives_its_slices_back() {
    let node = Node::new();
    let (placer, devices) = node.placer();
    let mut spec = node.spec(4096);
    spec.image.digest = fdn_core::Digest::of(b"nothing");
    spec.description.digest = spec.image.digest;
    placer
        .place(spec, Need::Call)
        .await
        .expect_err("there is no such image");
    given_back(&devices, 8192).await;
}

#[tokio::test]
async fn after_a_restart_what_runs_keeps_its_slices_and_the_rest_is_free() {
    let node = Node::new();
    let (placer, before) = node.placer();
    let stays = place(&placer, &node).await.expect("room");
    let ends = place(&placer, &node).await.expect("room");
    ends.instance
        .stop(Duration::ZERO)
        .await
        .expect("it can be stopped");
    // The agent is killed: nothing is released.
    std::mem::forget((stays, ends));
    assert_eq!(free(&before), 0);
    let (placer, devices) = node.placer();
    assert_eq!(free(&devices), 0, "until it is known what runs");
    assert_eq!(placer.adopt().await.expect("the engine answers"), 1);
    assert_eq!(free(&devices), 4096);
    let found = placer.found(&node.spec(4096).description);
    assert_eq!(found.len(), 1, "it serves the function that it served");
    let id = found[0].instance.id();
    placer.end(&[id].into()).await;
    drop(found);
    given_back(&devices, 8192).await;
}

#[tokio::test]
async fn what_no_longer_fits_gives_its_slices_back_once_it_is_gone() {
    let node = Node::new();
    let (placer, _) = node.placer();
    let placed = place(&placer, &node).await.expect("room");
    // The agent is killed, and has less memory to give afterwards.
    std::mem::forget(placed);
    let less = Resources::new(MilliCpu(1000), MebiBytes(5));
    let (placer, devices) = node.placer_with(less);
    node.engine.fail_stops(1);
    assert_eq!(placer.adopt().await.expect("the engine answers"), 0);
    given_back(&devices, 8192).await;
    assert!(node.engine.alive().is_empty(), "free, because it is gone");
}

#[tokio::test]
async fn one_on_a_failed_device_is_ended_although_the_engine_fails_at_first() {
    let node = Node::new();
    let (placer, devices) = node.placer();
    let placed = place(&placer, &node).await.expect("room");
    node.engine.fail_stops(1);
    placer.end(&[placed.instance.id()].into()).await;
    let state = placed.instance.state().borrow().clone();
    assert!(state.exit().is_some(), "{state:?}");
    drop(placed);
    given_back(&devices, 8192).await;
}

#[tokio::test]
async fn slices_are_given_back_although_the_disk_fails_at_first() {
    let node = Node::new();
    let sharing = Sharing::new(devices(node.folder.path()));
    let mut spec = node.spec(4096);
    let bound = Slices::bind(&sharing, &mut spec, Need::Ahead).await;
    let slices = bound.expect("room").expect("it asks for some");
    std::fs::remove_dir_all(node.folder.path()).expect("the disk is gone");
    let tried = sharing.freed.notified();
    drop(slices);
    tried.await;
    assert_eq!(free(sharing.devices()), 4096, "it could not be written");
    std::fs::create_dir(node.folder.path()).expect("the disk is back");
    given_back(sharing.devices(), 8192).await;
}

/// A source of idle instances; unless `all_end`, the last one is busy again by the time it is to be ended.
struct Idle {
    placed: Mutex<Vec<Placed>>,
    all_end: bool,
}

impl Idle {
    fn of(placed: Vec<Placed>, all_end: bool) -> Arc<Self> {
        let placed = Mutex::new(placed);
        Arc::new(Self { placed, all_end })
    }
}

impl IdleInstances for Idle {
    fn idle(&self, _: &Description) -> Vec<InstanceId> {
        let placed = self.placed.lock().expect("lock");
        placed.iter().map(|placed| placed.instance.id()).collect()
    }

    fn end(&self, instance: InstanceId) -> bool {
        let mut placed = self.placed.lock().expect("lock");
        let found = placed.iter().position(|one| one.instance.id() == instance);
        let may = |at: &usize| self.all_end || at + 1 < placed.len();
        let found = found.filter(may);
        drop(found.map(|at| placed.remove(at)));
        found.is_some()
    }
}

#[tokio::test]
async fn what_is_idle_gives_way_to_a_call_and_not_to_what_is_started_ahead() {
    let node = Node::new();
    let (placer, devices) = node.placer();
    let busy = place(&placer, &node).await.expect("room");
    let idle = place(&placer, &node).await.expect("room");
    placer.add_idle_instances(Idle::of(vec![idle], true));
    let full = |error| matches!(error, PlaceError::Devices(BindError::NoRoom { .. }));
    let refused = placer.place(node.spec(4096), Need::Ahead).await;
    assert!(full(refused.expect_err("nobody needs it yet")));
    let refused = placer.place(node.spec(8192), Need::Call).await;
    assert!(full(refused.expect_err("half of it is in use")));
    assert_eq!(free(&devices), 0, "nobody has ended for nothing");
    let placed = place(&placer, &node).await.expect("the idle one gives way");
    assert_eq!(free(&devices), 0);
    drop((busy, placed));
    given_back(&devices, 8192).await;
}

#[tokio::test]
async fn one_that_is_busy_again_is_not_waited_for() {
    let node = Node::new();
    let (placer, devices) = node.placer();
    let mut idle = Vec::new();
    for _ in 0..2 {
        idle.push(place(&placer, &node).await.expect("room"));
    }
    placer.add_idle_instances(Idle::of(idle, false));
    // The start timeout would be a minute.
    let whole = placer.place(node.spec(8192), Need::Call);
    let refused = tokio::time::timeout(Duration::from_secs(40), whole).await;
    let refused = refused.expect("told at once").expect_err("one stays");
    assert!(matches!(
        refused,
        PlaceError::Devices(BindError::NoRoom { .. })
    ));
    given_back(&devices, 4096).await;
}

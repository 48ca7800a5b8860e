use std::sync::atomic::AtomicUsize;

use fdn_core::ByteSize;
use fdn_core::device::{DeviceState, Percent};
use nvml_wrapper::error::NvmlError;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::discovery::{Device, SimulatedDiscovery};
use crate::health::Health;
use crate::settings::SimulatedGroup;

const PATIENCE: Duration = Duration::from_secs(60);

fn gpus(count: u32) -> Vec<Device> {
    let group = SimulatedGroup {
        count,
        memory: ByteSize::from_mib(16 << 10),
        ..SimulatedGroup::default()
    };
    group.devices()
}

struct Node {
    folder: TempDir,
    discovery: Arc<SimulatedDiscovery>,
}

impl Node {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("folder"),
            discovery: Arc::new(SimulatedDiscovery::new(gpus(2))),
        }
    }

    fn open(&self, boot: &str) -> Devices {
        self.open_with(boot, self.discovery.clone())
    }

    fn open_with(&self, boot: &str, discovery: Arc<dyn Discovery>) -> Devices {
        let node = "n-1".parse().expect("node");
        Devices::open(Parts {
            settings: DevicesSettings {
                rescan: fdn_core::DurationMs::from_millis(10),
                ..DevicesSettings::default()
            },
            folder: &self.folder.path().join("devices"),
            discovery,
            metrics: DeviceMetrics::new(&prometheus::Registry::new(), &node).expect("metrics"),
            boot: boot.to_owned(),
            now: || Timestamp(9),
        })
        .expect("it opens")
    }
}

fn id(n: u128) -> InstanceId {
    InstanceId::from_uuid(Uuid::from_u128(n))
}

fn bind(devices: &Devices, n: u128, mib: u64) -> Result<Vec<DeviceGrant>, BindError> {
    let app = "thumbs".parse().expect("app");
    devices.bind(id(n), &app, &GpuRequest::of_memory(ByteSize::from_mib(mib)))
}

fn slices(devices: &Devices) -> Vec<usize> {
    devices.status().iter().map(|d| d.slices.len()).collect()
}

#[test]
fn a_binding_is_on_disk_before_anybody_acts_on_it() {
    let node = Node::new();
    let devices = node.open("boot");
    let grants = bind(&devices, 1, 1024).expect("room");
    assert_eq!(grants[0].env["FDN_GPU_DEVICES"], "SIM-0");
    // As after a kill: nothing was closed.
    let again = node.open("boot");
    assert_eq!(slices(&again), [1, 0]);
    let done = again.reconcile(Vec::new()).expect("reconciled");
    assert_eq!(done.released, [id(1)].into());
    assert_eq!(slices(&node.open("boot")), [0, 0]);
}

#[test]
fn a_device_that_is_not_known_any_more_is_not_taken_for_a_simulated_one() {
    let node = Node::new();
    let devices = node.open("boot");
    let physical = |device: &str| {
        let bound = Binding {
            instance: id(1),
            app: "thumbs".parse().expect("app"),
            memory: MebiBytes(1024),
            cores: None,
            devices: [device.parse().expect("id")].into(),
        };
        devices.grants(&bound)[0].physical
    };
    assert!(physical("GPU-gone") && !physical("SIM-0"));
}

#[test]
fn a_disk_that_fails_refuses_and_changes_nothing() {
    let node = Node::new();
    let devices = node.open("boot");
    bind(&devices, 1, 1024).expect("room");
    std::fs::remove_dir_all(node.folder.path().join("devices")).expect("the disk is gone");
    assert!(matches!(bind(&devices, 2, 1024), Err(BindError::Store(_))));
    assert!(matches!(devices.unbind(id(1)), Err(BindError::Store(_))));
    assert_eq!(slices(&devices), [1, 0]);
}

#[test]
fn an_unreadable_book_is_made_anew_from_what_runs() {
    let node = Node::new();
    let devices = node.open("boot");
    bind(&devices, 1, 12 << 10).expect("room");
    let running = Binding {
        instance: id(1),
        app: "thumbs".parse().expect("app"),
        memory: MebiBytes(12 << 10),
        cores: None,
        devices: ["SIM-0".parse().expect("id")].into(),
    };
    std::fs::write(node.folder.path().join("devices/devices.book"), "rubbish").expect("written");
    let devices = node.open("boot");
    let done = devices.reconcile(vec![running]).expect("reconciled");
    assert_eq!(done.adopted, [id(1)].into());
    let grants = bind(&devices, 2, 12 << 10).expect("room");
    assert_eq!(grants[0].device, "SIM-1");
}

#[test]
fn cores_that_the_runtime_does_not_tell_are_kept() {
    let node = Node::new();
    let app: AppName = "thumbs".parse().expect("app");
    let cores: Option<Percent> = Some(60_u8.try_into().expect("percent"));
    let request = GpuRequest {
        cores,
        ..GpuRequest::of_memory(ByteSize::from_mib(1024))
    };
    let devices = node.open("boot");
    devices.bind(id(1), &app, &request).expect("room");
    let running = Binding {
        instance: id(1),
        app,
        memory: MebiBytes(1024),
        // As without MPS.
        cores: None,
        devices: ["SIM-0".parse().expect("id")].into(),
    };
    let devices = node.open("boot");
    let done = devices.reconcile(vec![running.clone()]);
    assert_eq!(done.expect("reconciled").kept, [id(1)].into());
    assert_eq!(devices.status()[0].slices[0].cores, cores);
    // What the runtime does tell counts.
    let running = Binding {
        cores: Some(30_u8.try_into().expect("percent")),
        ..running
    };
    let done = devices.reconcile(vec![running.clone()]);
    assert_eq!(done.expect("reconciled").adopted, [id(1)].into());
    assert_eq!(devices.status()[0].slices[0].cores, running.cores);
}

#[test]
fn a_fault_that_could_not_be_written_is_acted_on_later() {
    let node = Node::new();
    let devices = node.open("boot");
    bind(&devices, 1, 1024).expect("room");
    let folder = node.folder.path().join("devices");
    std::fs::remove_dir_all(&folder).expect("the disk is gone");
    let (told, events) = mpsc::channel();
    let report = |event: Event| drop(told.send(event));
    let device: DeviceId = "SIM-0".parse().expect("id");
    let fault = HealthEvent {
        device,
        what: Health::Xid(Some(79)),
    };
    let mut unwritten = BTreeMap::new();
    assert!(!devices.handle_event(fault, &mut unwritten, &report));
    devices.retry(&mut unwritten, &report);
    assert!(events.try_recv().is_err(), "nothing is in effect");
    assert!(devices.status()[0].state.is_in_service());
    std::fs::create_dir(&folder).expect("the disk is back");
    devices.retry(&mut unwritten, &report);
    let Ok(Event::Unhealthy { instances, .. }) = events.try_recv() else {
        panic!("the fault is acted on");
    };
    assert_eq!(instances, [id(1)].into());
    assert!(!devices.status()[0].state.is_in_service());
    assert!(unwritten.is_empty(), "{unwritten:?}");
}

/// A driver that fails at the first watch, and tells of a fault at the next.
struct Stumbling {
    devices: Vec<Device>,
    watches: AtomicUsize,
}

impl Discovery for Stumbling {
    fn devices(&self) -> Result<Vec<Device>, DiscoveryError> {
        Ok(self.devices.clone())
    }

    fn watch(
        &self,
        _: &AtomicBool,
        report: &mut dyn FnMut(HealthEvent),
    ) -> Result<(), DiscoveryError> {
        if self.watches.fetch_add(1, Ordering::Relaxed) == 0 {
            return Err(NvmlError::GpuLost.into());
        }
        report(HealthEvent {
            device: self.devices[1].id.clone(),
            what: Health::DoubleBitEcc,
        });
        Ok(())
    }
}

#[test]
fn faults_are_heard_again_after_the_driver_failed() {
    let node = Node::new();
    let discovery = Stumbling {
        devices: gpus(2),
        watches: AtomicUsize::new(0),
    };
    let devices = node.open_with("boot", Arc::new(discovery));
    let (told, events) = mpsc::channel();
    let watch = devices
        .watch(move |event| drop(told.send(event)))
        .expect("threads");
    let Event::Unhealthy { devices: gone, .. } = events.recv_timeout(PATIENCE).expect("an event")
    else {
        panic!("a fault of the device");
    };
    let failing: DeviceId = "SIM-1".parse().expect("id");
    assert_eq!(gone, [failing].into());
    drop(watch);
}

#[test]
fn faults_are_acted_on_and_forgotten_with_the_machine() {
    let node = Node::new();
    let devices = node.open("boot");
    bind(&devices, 1, 1024).expect("room");
    let (told, events) = mpsc::channel();
    let watch = devices
        .watch(move |event| drop(told.send(event)))
        .expect("threads");
    let device: DeviceId = "SIM-0".parse().expect("id");
    for what in [Health::Xid(Some(31)), Health::Xid(Some(79))] {
        let device = device.clone();
        node.discovery.inject(HealthEvent { device, what });
    }
    let Event::Unhealthy {
        reason, instances, ..
    } = events.recv_timeout(PATIENCE).expect("an event")
    else {
        panic!("a fault of the device");
    };
    assert!(reason.starts_with("Xid 79"), "{reason}");
    assert_eq!(instances, [id(1)].into());
    assert_eq!(
        bind(&devices, 2, 1024).expect("the other one")[0].device,
        "SIM-1"
    );
    // When the device is gone, instances lose their slices of it.
    node.discovery.set(gpus(2).split_off(1));
    assert_eq!(
        events.recv_timeout(PATIENCE).expect("an event"),
        Event::Lost([id(1)].into())
    );
    drop(watch);
    node.discovery.set(gpus(2));
    let state = |boot| node.open(boot).status()[0].state.clone();
    assert!(
        matches!(state("boot"), DeviceState::OutOfService { reason, .. } if reason.starts_with("Xid 79"))
    );
    let devices = node.open("next boot");
    devices
        .reconcile(Vec::new())
        .expect("nothing runs after a restart of the machine");
    assert!(devices.status().iter().all(|d| d.state.is_in_service()));
}

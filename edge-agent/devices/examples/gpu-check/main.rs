//! Checks the binding of devices with the GPUs of this machine: `make gpu-check`.
//!
//! 1. Finds the devices through NVML.
//! 2. Runs 200 random sequences of binds, ends and restarts on an allocation table of them, and counts what is bound independently of the table.
//! 3. With `--fault`: a program writes to a wrong address on each whole GPU. The driver has to tell of it (Xid 31), the GPU has to go out of
//!    service, give out no slice, and be in service once it is put back. An agent on this machine that does not ignore Xid 31 takes the GPU out of
//!    service, too.
//! 4. If the MPS control daemon runs, binds two slices and starts programs with their grants: allocations within the slices must succeed, both at
//!    once, one beyond its slice must be refused by the driver, and a program with a share of the cores must see no more of them.
//!
//! It is not a test, since a machine without a GPU cannot pass it. It reports what was not run. The exit status is 0 only if all
//! but the third was run and passed, 1 after a failure, 2 without a device, 3 without MPS.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for a person"
)]

mod cuda;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use fdn_core::device::{DeviceGrant, DeviceKind, GpuRequest, Percent};
use fdn_core::{ByteSize, InstanceId, NodeId, Timestamp};
use fdn_devices::discovery::NvmlDiscovery;
use fdn_devices::{
    Binding, Device, DeviceMetrics, Devices, DevicesSettings, Discovery, Event, Parts,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use uuid::Uuid;

use crate::cuda::Cuda;

/// The size of a slice in the checks, in MiB. CUDA's own context takes some hundred MiB of it.
const SLICE: u64 = 4096;
/// The share of the cores of the second slice, in per cent.
const CORES: u8 = 30;
const SEQUENCES: u64 = 200;
/// The longest that a fault may take to be heard of.
const HEARD: Duration = Duration::from_secs(30);
/// The time after which a fault that was not heard of is caused again.
const FAULT_AGAIN: Duration = Duration::from_secs(3);

/// What a program in a slice says: the number of multiprocessors, then `given` or `refused`.
const GIVEN: &str = "given";
const REFUSED: &str = "refused";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let with_fault = match args.as_slice() {
        [] => false,
        ["--fault"] => true,
        ["--allocate", mib] => return in_slice(mib),
        ["--write-wrong-address"] => return wrong_address(),
        _ => {
            eprintln!("usage: gpu-check [--fault]");
            return ExitCode::FAILURE;
        }
    };
    let found = NvmlDiscovery::open().and_then(|nvml| Ok((nvml.devices()?, nvml)));
    let (devices, nvml) = match found {
        Ok((devices, nvml)) if !devices.is_empty() => (devices, nvml),
        Ok(_) => return not_run("NVML finds no device"),
        Err(reason) => return not_run(&reason.to_string()),
    };
    for device in &devices {
        println!(
            "found {} {} {} {}",
            device.kind.as_str(),
            device.id,
            device.model,
            device.memory
        );
    }
    let nvml: Arc<dyn Discovery> = Arc::new(nvml);
    for seed in 0..SEQUENCES {
        sequence(&nvml, &devices, seed);
    }
    println!("{SEQUENCES} random sequences of binds, ends and restarts: no device over its memory");
    let checked = || {
        let gpus = devices.iter().filter(|d| d.kind == DeviceKind::Gpu);
        let gpus: Vec<&Device> = gpus.take_while(|_| with_fault).collect();
        if gpus.is_empty() {
            println!("faults: not run, they are for whole GPUs and --fault");
        }
        for gpu in gpus {
            faults(&nvml, gpu)?;
        }
        enforced(&nvml)
    };
    checked().unwrap_or_else(|failure| {
        eprintln!("gpu-check: FAILED: {failure}");
        ExitCode::FAILURE
    })
}

fn not_run(reason: &str) -> ExitCode {
    eprintln!("gpu-check: NOT RUN: {reason}. Nothing was checked against a real device.");
    ExitCode::from(2)
}

fn open(nvml: &Arc<dyn Discovery>, folder: &Path) -> Devices {
    open_with(nvml, folder, DevicesSettings::default())
}

fn open_with(nvml: &Arc<dyn Discovery>, folder: &Path, settings: DevicesSettings) -> Devices {
    let node: NodeId = "gpu-check".parse().expect("a node's name");
    Devices::open(Parts {
        settings,
        folder,
        discovery: Arc::clone(nvml),
        metrics: DeviceMetrics::new(&prometheus::Registry::new(), &node).expect("metrics"),
        boot: "gpu-check".to_owned(),
        now: || Timestamp(0),
    })
    .expect("the allocation table opens")
}

/// Binds and ends instances at random, with a restart now and then.
fn sequence(nvml: &Arc<dyn Discovery>, found: &[Device], seed: u64) {
    let folder = tempfile::tempdir().expect("folder");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut devices = open(nvml, folder.path());
    let app = "gpu-check".parse().expect("app");
    let most = found.iter().map(|d| d.memory.get()).max().unwrap_or(1);
    let mut running = BTreeMap::<InstanceId, Binding>::new();
    for n in 0..40_u128 {
        match rng.random_range(0..4) {
            0 | 1 => {
                let id = InstanceId::from_uuid(Uuid::from_u128(n));
                let mib = rng.random_range(1..=most);
                let request = GpuRequest::of_memory(ByteSize::from_mib(mib));
                if let Ok(grants) = devices.bind(id, &app, &request) {
                    let ids = grants.iter().map(|g| g.device.parse().expect("a device"));
                    let bound = Binding {
                        instance: id,
                        app: app.clone(),
                        memory: request.memory.to_mebibytes(),
                        cores: None,
                        devices: ids.collect(),
                    };
                    running.insert(id, bound);
                }
            }
            2 => {
                let ended = running.pop_first();
                if let Some((id, _)) = ended {
                    devices.unbind(id).expect("it was bound");
                }
            }
            _ => {
                devices = open(nvml, folder.path());
                let done = devices.reconcile(running.values().cloned().collect());
                assert!(done.expect("reconciled").lost.is_empty(), "seed {seed}");
            }
        }
        for device in found {
            let on = running.values().filter(|b| b.devices.contains(&device.id));
            let bound: u64 = on.map(|b| b.memory.get()).sum();
            assert!(
                bound <= device.memory.get(),
                "seed {seed}: {} is over its memory",
                device.id
            );
        }
    }
}

/// Checks that a fault is heard of, takes the GPU out of service, and that it can be put back.
fn faults(nvml: &Arc<dyn Discovery>, gpu: &Device) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("folder");
    let settings = DevicesSettings {
        ignored_xids: Vec::new(),
        ..DevicesSettings::default()
    };
    let devices = open_with(nvml, folder.path(), settings);
    let (sender, events) = mpsc::channel();
    let watch = devices.watch(move |event| drop(sender.send(event)));
    let _watch = watch.map_err(|e| e.to_string())?;
    let due = Instant::now() + HEARD;
    let event = loop {
        write_wrong_address(gpu, folder.path())?;
        // The driver is asked from another thread, which may be late for the first one.
        match events.recv_timeout(FAULT_AGAIN) {
            Ok(event) => break event,
            Err(_) if Instant::now() < due => {}
            Err(_) => return Err(format!("no fault was heard of within {HEARD:?}")),
        }
    };
    let Event::Unhealthy { reason, .. } = event else {
        return Err(format!("{event:?} is no fault"));
    };
    println!("a fault of {}: out of service, {reason}", gpu.id);
    let id = InstanceId::from_uuid(Uuid::from_u128(1));
    let app = "gpu-check".parse().expect("app");
    let request = GpuRequest::of_memory(ByteSize::from_mib(SLICE));
    let is_out = |devices: &Devices| {
        let status = devices.status();
        let of_gpu = status.into_iter().find(|device| device.id == gpu.id);
        of_gpu.is_some_and(|device| !device.state.is_in_service())
    };
    if !is_out(&devices) {
        return Err("a GPU that failed is in service".to_owned());
    }
    // Another GPU may give one.
    let given = devices.bind(id, &app, &request).unwrap_or_default();
    if given.iter().any(|grant| grant.device == gpu.id.as_str()) {
        return Err("a GPU that failed gives slices".to_owned());
    }
    devices.restore(&gpu.id).map_err(|e| e.to_string())?;
    if is_out(&devices) {
        return Err("a GPU that was put back is out of service".to_owned());
    }
    println!("put back: it is in service again");
    Ok(())
}

/// Runs a program that faults on the GPU.
fn write_wrong_address(gpu: &Device, pipes: &Path) -> Result<(), String> {
    let exe = std::env::current_exe().expect("a path");
    let ended = Command::new(exe)
        .arg("--write-wrong-address")
        .env("CUDA_VISIBLE_DEVICES", gpu.id.as_str())
        // Where no MPS daemon is: its other clients would end with it.
        .env("CUDA_MPS_PIPE_DIRECTORY", pipes)
        .status()
        .map_err(|e| e.to_string())?;
    if ended.success() {
        return Ok(());
    }
    Err(format!("the program that faults ended with {ended}"))
}

/// A program in a slice that holds its memory until it is told to end.
struct InSlice {
    child: Child,
    multiprocessors: u32,
    is_given: bool,
}

impl InSlice {
    /// Starts it; returns when it has asked the driver.
    fn start(grant: &DeviceGrant, mib: u64) -> Result<Self, String> {
        let exe = std::env::current_exe().expect("a path");
        let mut child = Command::new(exe)
            .args(["--allocate", &mib.to_string()])
            .envs(&grant.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        let output = child.stdout.take().expect("piped");
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        read.map_err(|e| e.to_string())?;
        let (count, result) = line.trim().split_once(' ').ok_or_else(|| {
            format!("the program in a slice said {line:?}, and ended without an answer")
        })?;
        Ok(Self {
            child,
            multiprocessors: count.parse().map_err(|_| format!("{line:?}"))?,
            is_given: result == GIVEN,
        })
    }

    /// Ends it.
    fn end(mut self) -> Result<(), String> {
        drop(self.child.stdin.take());
        let ended = self.child.wait().map_err(|e| e.to_string())?;
        if ended.success() {
            return Ok(());
        }
        Err(format!("the program in a slice ended with {ended}"))
    }
}

/// Checks that the driver holds programs to their slices, if MPS runs.
fn enforced(nvml: &Arc<dyn Discovery>) -> Result<ExitCode, String> {
    let folder = tempfile::tempdir().expect("folder");
    let devices = open(nvml, folder.path());
    let app = "gpu-check".parse().expect("app");
    let of_memory = GpuRequest::of_memory(ByteSize::from_mib(SLICE));
    let with_cores = GpuRequest {
        cores: Some(Percent::try_from(CORES).expect("a share")),
        ..of_memory.clone()
    };
    let mut granted = Vec::new();
    for (n, request) in (1..).zip([of_memory, with_cores]) {
        let id = InstanceId::from_uuid(Uuid::from_u128(n));
        let grants = devices.bind(id, &app, &request);
        granted.extend(grants.map_err(|e| e.to_string())?);
    }
    let [first, second] = granted.as_slice() else {
        return Err("a slice of one device has one grant".to_owned());
    };
    if !first.env.contains_key("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT") {
        eprintln!(
            "gpu-check: NOT RUN: no MPS control daemon has its pipes in {}: an allocation past a slice is not refused \
             without it. Start one (nvidia-cuda-mps-control -d) and run this again.",
            DevicesSettings::default().mps_pipe.display()
        );
        return Ok(ExitCode::from(3));
    }
    let within = InSlice::start(first, SLICE / 2)?;
    let beside = InSlice::start(second, SLICE / 2)?;
    let past = InSlice::start(first, SLICE * 2)?;
    let (all, share) = (within.multiprocessors, beside.multiprocessors);
    for (what, program, expected) in [
        ("within a slice", within, true),
        ("within another one at the same time", beside, true),
        ("past a slice", past, false),
    ] {
        let is_given = program.is_given;
        let said = if is_given { GIVEN } else { REFUSED };
        println!("memory {what}: {said}");
        program.end()?;
        if is_given != expected {
            return Err(format!("memory {what} was {said}"));
        }
    }
    println!("cores: {all} multiprocessors, with a share of {CORES} %: {share}");
    if share == 0 || share * 100 > all * u32::from(CORES) {
        return Err(format!("a share of {CORES} % of {all} is not {share}"));
    }
    let whole = devices.status().iter().any(|d| d.kind == DeviceKind::Gpu);
    println!(
        "gpu-check: passed on {}",
        if whole { "whole GPUs" } else { "MIG instances" }
    );
    Ok(ExitCode::SUCCESS)
}

/// The program in the slice: says what it sees and whether it was given the memory, and holds it until its input ends.
fn in_slice(mib: &str) -> ExitCode {
    let done = mib
        .parse::<usize>()
        .map_err(|e| e.to_string())
        .and_then(|mib| {
            let cuda = Cuda::start()?;
            let count = cuda.multiprocessors()?;
            let is_given = cuda.allocate(mib << 20, || {
                println!("{count} {GIVEN}");
                drop(std::io::stdin().read(&mut [0]));
            })?;
            if !is_given {
                println!("{count} {REFUSED}");
            }
            Ok(())
        });
    ended(done)
}

/// The program that faults: succeeds if the driver says so.
fn wrong_address() -> ExitCode {
    let done = Cuda::start()
        .and_then(|cuda| cuda.fault())
        .and_then(|error| match error {
            0 => Err("a write to a wrong address succeeded".to_owned()),
            other => {
                println!("a write to a wrong address: CUDA error {other}");
                Ok(())
            }
        });
    ended(done)
}

fn ended(done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("gpu-check: {reason}");
            ExitCode::FAILURE
        }
    }
}

//! Checks the binding of devices with the GPUs of this machine: `make gpu-check`.
//!
//! 1. Finds the devices through NVML.
//! 2. Runs 200 random sequences of binds, ends and restarts on an allocation table of them, and counts what is bound independently of the table.
//! 3. If the MPS control daemon runs, binds a slice and starts a program with its grant: an allocation within the slice must succeed, and one
//!    beyond it must be refused by the driver.
//!
//! It is not a test, since a machine without a GPU cannot pass it. It reports what was not run. The exit status is 0 only if everything was run
//! and passed, 1 after a failure, 2 without a device, 3 without MPS.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for a person"
)]

mod cuda;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use fdn_core::device::{DeviceKind, GpuRequest};
use fdn_core::{ByteSize, InstanceId, NodeId, Timestamp};
use fdn_devices::discovery::NvmlDiscovery;
use fdn_devices::{Binding, Device, DeviceMetrics, Devices, DevicesSettings, Discovery, Parts};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use uuid::Uuid;

/// The size of the slice in the allocation check, in MiB. CUDA's own context takes some hundred MiB of it.
const SLICE: u64 = 4096;
const SEQUENCES: u64 = 200;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, mib] = args.as_slice()
        && flag == "--allocate"
    {
        return allocate(mib);
    }
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
    enforced(&nvml)
}

fn not_run(reason: &str) -> ExitCode {
    eprintln!("gpu-check: NOT RUN: {reason}. Nothing was checked against a real device.");
    ExitCode::from(2)
}

fn open(nvml: &Arc<dyn Discovery>, folder: &Path) -> Devices {
    let node: NodeId = "gpu-check".parse().expect("a node's name");
    Devices::open(Parts {
        settings: DevicesSettings::default(),
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

/// Checks that an allocation beyond a slice is refused, if MPS runs.
fn enforced(nvml: &Arc<dyn Discovery>) -> ExitCode {
    let folder = tempfile::tempdir().expect("folder");
    let devices = open(nvml, folder.path());
    let id = InstanceId::from_uuid(Uuid::from_u128(1));
    let app = "gpu-check".parse().expect("app");
    let request = GpuRequest::of_memory(ByteSize::from_mib(SLICE));
    let grants = devices.bind(id, &app, &request).expect("room for a slice");
    let grant = grants.first().expect("one device");
    if !grant.env.contains_key("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT") {
        eprintln!(
            "gpu-check: NOT RUN: no MPS control daemon has its pipes in {}: an allocation past a slice is not refused \
             without it. Start one (nvidia-cuda-mps-control -d) and run this again.",
            DevicesSettings::default().mps_pipe.display()
        );
        return ExitCode::from(3);
    }
    for (mib, expected) in [(SLICE / 4, true), (SLICE * 2, false)] {
        let exe = std::env::current_exe().expect("a path");
        let child = Command::new(exe)
            .args(["--allocate", &mib.to_string()])
            .envs(&grant.env)
            .status()
            .expect("it starts");
        let taken = match child.code() {
            Some(0) => true,
            Some(4) => false,
            other => {
                eprintln!("gpu-check: FAILED: the allocating program ended with {other:?}");
                return ExitCode::FAILURE;
            }
        };
        println!(
            "an allocation of {mib} MiB in a slice of {SLICE} MiB: {}",
            if taken { "given" } else { "refused" }
        );
        if taken != expected {
            eprintln!(
                "gpu-check: FAILED: it should have been {}",
                if expected { "given" } else { "refused" }
            );
            return ExitCode::FAILURE;
        }
    }
    let whole = devices.status().iter().any(|d| d.kind == DeviceKind::Gpu);
    println!(
        "gpu-check: passed on {}",
        if whole { "whole GPUs" } else { "MIG instances" }
    );
    ExitCode::SUCCESS
}

/// The program in the slice: exits with 0 if the memory was allocated, 4 if it was refused, 1 for anything else.
fn allocate(mib: &str) -> ExitCode {
    let Ok(mib) = mib.parse::<usize>() else {
        return ExitCode::FAILURE;
    };
    match cuda::allocate(mib << 20) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(4),
        Err(reason) => {
            eprintln!("gpu-check: {reason}");
            ExitCode::FAILURE
        }
    }
}

//! What an instance is started with, so that it sees its own devices only.
//!
//! - *Docker*: the devices are requested by their ids (`DeviceRequest` of driver `nvidia`), and the variables are set.
//! - *Kubernetes*: the variables are set; with the NVIDIA runtime class, exactly these devices become visible.
//! - *MPS*: if its control daemon runs, its client variables limit memory and threads, and its pipes are mounted. Only then does the driver
//!   enforce the memory limit; without MPS, and on a whole GPU, the allocation table only accounts for it and the function must respect it. On a
//!   MIG instance, the hardware enforces it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use fdn_core::device::{DeviceGrant, DeviceKind};

use crate::allocations::Binding;
use crate::settings::DevicesSettings;

/// The variable with which MPS limits an instance's share of a device's cores, in percent.
pub const THREADS: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

/// A running MPS control daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mps {
    pipe: PathBuf,
    shm: Option<PathBuf>,
}

impl Mps {
    /// The daemon at the pipes that the settings name, if it runs now.
    #[must_use]
    pub fn detect(settings: &DevicesSettings) -> Option<Self> {
        let pipe = &settings.mps_pipe;
        let alive = pipe.join("control").exists() && is_daemon_alive(pipe);
        alive.then(|| Self {
            pipe: pipe.clone(),
            shm: settings.mps_shm.clone(),
        })
    }
}

/// Whether the process whose id is in the file beside the pipes exists; the pipes of a killed daemon remain.
fn is_daemon_alive(pipe: &Path) -> bool {
    let id = fs::read_to_string(pipe.join("nvidia-cuda-mps-control.pid"));
    id.ok()
        .and_then(|text| text.trim().parse::<i32>().ok())
        .and_then(rustix::process::Pid::from_raw)
        .is_some_and(|pid| {
            Path::new("/proc")
                .join(pid.as_raw_nonzero().to_string())
                .exists()
        })
}

/// One grant for each device of the binding, all with the same variables.
#[must_use]
pub fn grants(bound: &Binding, kind: DeviceKind, mps: Option<&Mps>) -> Vec<DeviceGrant> {
    let env = variables(bound, kind, mps);
    let mut folders = BTreeSet::new();
    if let Some(mps) = mps.filter(|_| kind != DeviceKind::Simulated) {
        folders.insert(mps.pipe.clone());
        folders.extend(mps.shm.clone());
    }
    let grant = |device: &fdn_core::DeviceId| DeviceGrant {
        device: device.to_string(),
        memory: bound.memory,
        env: env.clone(),
        folders: folders.clone(),
        physical: kind != DeviceKind::Simulated,
    };
    bound.devices.iter().map(grant).collect()
}

fn variables(bound: &Binding, kind: DeviceKind, mps: Option<&Mps>) -> BTreeMap<String, String> {
    let ids: Vec<&str> = bound
        .devices
        .iter()
        .map(fdn_core::DeviceId::as_str)
        .collect();
    let ids = ids.join(",");
    let mut env = BTreeMap::new();
    let mut set = |name: &str, value: String| env.insert(name.to_owned(), value);
    set("FDN_GPU_DEVICES", ids.clone());
    set("FDN_GPU_MEMORY_MIB", bound.memory.get().to_string());
    if kind == DeviceKind::Simulated {
        // An engine that knows no such device would refuse to start the container.
        set("NVIDIA_VISIBLE_DEVICES", "void".to_owned());
        return env;
    }
    set("NVIDIA_VISIBLE_DEVICES", ids.clone());
    set("CUDA_VISIBLE_DEVICES", ids);
    if let Some(mps) = mps {
        // By the index of the device inside the container, where only these devices are visible.
        let limits = (0..bound.devices.len()).map(|n| format!("{n}={}M", bound.memory.get()));
        set(
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
            limits.collect::<Vec<_>>().join(","),
        );
        set(
            "CUDA_MPS_PIPE_DIRECTORY",
            mps.pipe.to_string_lossy().into_owned(),
        );
        if let Some(cores) = bound.cores {
            set(THREADS, cores.get().to_string());
        }
    }
    env
}

#[cfg(test)]
mod tests {
    use fdn_core::{InstanceId, MebiBytes};

    use super::*;

    fn bound(devices: &[&str]) -> Binding {
        Binding {
            instance: InstanceId::from_uuid(uuid::Uuid::from_u128(1)),
            app: "thumbs".parse().expect("app"),
            memory: MebiBytes(12 << 10),
            cores: Some(30.try_into().expect("percent")),
            devices: devices.iter().map(|id| id.parse().expect("id")).collect(),
        }
    }

    fn mps_at(folder: &Path, pid: u32) -> Option<Mps> {
        fs::write(folder.join("control"), b"").expect("pipe");
        fs::write(
            folder.join("nvidia-cuda-mps-control.pid"),
            format!("{pid}\n"),
        )
        .expect("pid");
        Mps::detect(&DevicesSettings {
            mps_pipe: folder.to_owned(),
            mps_shm: Some("/dev/shm".into()),
            ..DevicesSettings::default()
        })
    }

    #[test]
    fn under_mps_memory_and_threads_are_limited() {
        let folder = tempfile::tempdir().expect("folder");
        let mps = mps_at(folder.path(), std::process::id()).expect("this process lives");
        let all = grants(&bound(&["GPU-a", "GPU-b"]), DeviceKind::Gpu, Some(&mps));
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].env, all[1].env);
        let env = |name: &str| all[0].env.get(name).map(String::as_str);
        assert_eq!(env("NVIDIA_VISIBLE_DEVICES"), Some("GPU-a,GPU-b"));
        assert_eq!(env("CUDA_VISIBLE_DEVICES"), Some("GPU-a,GPU-b"));
        assert_eq!(
            env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
            Some("0=12288M,1=12288M")
        );
        assert_eq!(env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), Some("30"));
        assert_eq!(env("CUDA_MPS_PIPE_DIRECTORY"), folder.path().to_str());
        assert!(all[0].folders.contains(folder.path()) && all[0].physical);
    }

    #[test]
    fn pipes_of_a_dead_daemon_are_no_daemon() {
        let folder = tempfile::tempdir().expect("folder");
        // No process has this id: the kernel's limit is 4,194,304.
        assert_eq!(mps_at(folder.path(), 4_194_305), None);
        let nowhere = DevicesSettings {
            mps_pipe: folder.path().join("none"),
            ..DevicesSettings::default()
        };
        assert_eq!(Mps::detect(&nowhere), None);
    }

    #[test]
    fn without_mps_devices_are_visible_and_nothing_is_limited() {
        let all = grants(&bound(&["MIG-a"]), DeviceKind::Mig, None);
        assert_eq!(all[0].env["CUDA_VISIBLE_DEVICES"], "MIG-a");
        assert!(!all[0].env.keys().any(|name| name.contains("MPS")));
        assert!(all[0].folders.is_empty());
    }

    #[test]
    fn an_engine_is_not_asked_for_a_simulated_device() {
        let folder = tempfile::tempdir().expect("folder");
        let mps = mps_at(folder.path(), std::process::id());
        let all = grants(&bound(&["SIM-0"]), DeviceKind::Simulated, mps.as_ref());
        assert!(!all[0].physical && all[0].folders.is_empty());
        assert_eq!(all[0].env["NVIDIA_VISIBLE_DEVICES"], "void");
        assert_eq!(all[0].env["FDN_GPU_DEVICES"], "SIM-0");
    }
}

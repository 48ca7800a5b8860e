//! Settings of the node's resources and their use: capacity, cache, compiling, running.

use std::path::PathBuf;

use fdn_core::{ByteSize, ClientPrefix, DurationMs, MebiBytes, MilliCpu, Resources};
use fdn_runtime::{CompileWorker, Compiler, EngineOptions};
use serde::{Deserialize, Serialize};

/// The capacity that the node offers to functions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CapacitySettings {
    /// CPU in thousandths of a core; 0 means all cores.
    pub cpu_milli: MilliCpu,
    /// Memory; 0 means three quarters of the machine's.
    pub memory: ByteSize,
}

impl CapacitySettings {
    /// The capacity, with the machine's own figures for those that are 0.
    #[must_use]
    pub fn resolve(&self) -> Resources {
        let cpu = if self.cpu_milli.get() > 0 {
            self.cpu_milli
        } else {
            MilliCpu(cores() as u64 * 1000)
        };
        let memory = if self.memory.as_bytes() > 0 {
            self.memory.to_mebibytes()
        } else {
            let info = rustix::system::sysinfo();
            let unit = u64::from(info.mem_unit.max(1));
            MebiBytes((info.totalram as u64).saturating_mul(unit) / 4 * 3 / (1 << 20))
        };
        Resources::new(cpu, memory)
    }
}

/// The artifact cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheSettings {
    /// The size of components and compiled files together.
    pub size: ByteSize,
    /// The largest component that is fetched.
    pub artifact_limit: ByteSize,
    /// The most attempts of one fetch, each continuing where the last one broke off, before the app waits for its next retry.
    pub fetch_attempts: u32,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            size: ByteSize::from_mib(4096),
            artifact_limit: ByteSize::from_mib(512),
            fetch_attempts: 5,
        }
    }
}

/// Compiling components, in a process with limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CompileSettings {
    /// The compiler's executable; the running one if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<PathBuf>,
    /// The memory limit of the process.
    pub memory: ByteSize,
    /// The time limit of the process.
    pub timeout: DurationMs,
    /// The number of threads of the process; 0 means half the cores.
    pub threads: usize,
    /// The most components compiled at the same time.
    pub parallel: usize,
    /// Whether the controller's machine code is used instead of compiling, if it has any that an authority of the network has signed.
    pub from_controller: bool,
    /// The size of the cache for machine code of single functions, which spares components that contain the same language engine from being
    /// compiled as a whole. 0 disables it.
    pub cache: ByteSize,
}

impl Default for CompileSettings {
    fn default() -> Self {
        Self {
            worker: None,
            memory: ByteSize::from_mib(2048),
            timeout: DurationMs::from_secs(120),
            threads: 0,
            parallel: 1,
            from_controller: true,
            cache: ByteSize::from_mib(256),
        }
    }
}

impl CompileSettings {
    /// The compiler configured by these settings.
    #[must_use]
    pub fn compiler(&self) -> Compiler {
        let own = CompileWorker::default();
        Compiler::Worker(CompileWorker {
            exe: self.worker.clone().unwrap_or_else(|| own.exe.clone()),
            memory_limit: self.memory,
            time_limit: self.timeout.as_duration(),
            threads: if self.threads > 0 {
                self.threads
            } else {
                own.threads
            },
            ..own
        })
    }
}

/// Settings of the engine that runs functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuntimeSettings {
    /// The most instances that exist at the same time, idle ones included.
    pub max_instances: u32,
    /// The largest memory of one instance.
    pub max_memory: ByteSize,
    /// Threads for functions that compute for longer than a millisecond; 0 means one for each core.
    pub heavy_threads: usize,
    /// The most calls on those threads at the same time; one function may have three quarters of them. At least as many as there are slots
    /// (`admission.slots`), or the share of a tenant does not hold for them.
    pub heavy_calls: usize,
    /// The nice value of those threads, which lets other threads go first (0 to 19).
    pub heavy_nice: i32,
    /// The most idle instances kept for each function that permits reuse.
    pub idle_per_function: usize,
    /// How long an idle instance is kept.
    pub idle_expiry: DurationMs,
    /// Private, loopback and other non-public addresses that functions may reach if their manifests name the host, and from which identity
    /// providers' keys may be fetched.
    pub private_networks: Vec<ClientPrefix>,
}

impl Default for RuntimeSettings {
    fn default() -> Self {
        let own = EngineOptions::default();
        Self {
            max_instances: own.max_instances,
            max_memory: own.max_memory,
            heavy_threads: 0,
            heavy_calls: own.heavy_calls,
            heavy_nice: own.heavy_nice,
            idle_per_function: own.idle_per_function,
            idle_expiry: DurationMs::from_millis(
                u64::try_from(own.idle_expiry.as_millis()).unwrap_or(u64::MAX),
            ),
            private_networks: own.private_networks,
        }
    }
}

impl RuntimeSettings {
    /// The engine options for these settings.
    #[must_use]
    pub fn engine(&self) -> EngineOptions {
        EngineOptions {
            max_instances: self.max_instances,
            max_memory: self.max_memory,
            heavy_threads: if self.heavy_threads > 0 {
                self.heavy_threads
            } else {
                cores()
            },
            heavy_calls: self.heavy_calls,
            heavy_nice: self.heavy_nice,
            idle_per_function: self.idle_per_function,
            idle_expiry: self.idle_expiry.as_duration(),
            private_networks: self.private_networks.clone(),
        }
    }
}

/// The number of cores that the process may use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

//! The WebAssembly engine: one per process is enough; all functions of a node share it.

pub(crate) mod config;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use fdn_core::{ByteSize, ClientPrefix, InstanceId};
use tokio::sync::Semaphore;
use uuid::Uuid;
use wasmtime::component::Linker;
use wasmtime_wasi_http::p2::bindings::ProxyPre;

use crate::artifact::VerifiedFiles;
use crate::call::ResourceGuard;
use crate::error::{EngineError, LoadError};
use crate::function::Function;
use crate::heavy::HeavyPool;
use crate::outbound::{Lookups, Reach};
use crate::state::GuestState;
use crate::{ticker, trusted};

/// Memory maps of one live instance, measured, and of the rest of the process.
const MAPS_PER_INSTANCE: u64 = 6;
const MAPS_OF_THE_REST: u64 = 5_000;

/// The size and limits of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// The most instances that can live at the same time, including idle ones.
    pub max_instances: u32,
    /// The largest memory that a manifest may request.
    pub max_memory: ByteSize,
    /// Background threads for guests that use more than a slice of CPU.
    pub heavy_threads: usize,
    /// The most calls that can run in the background at the same time, three quarters of them of one function; one more fails as overloaded.
    pub heavy_calls: usize,
    /// The niceness of the background threads, 0 to 19 as in `nice`: how much they yield to the rest of the process.
    pub heavy_nice: i32,
    /// The most idle instances kept for each function whose calls allow reuse.
    pub idle_per_function: usize,
    /// How long an idle instance is kept.
    pub idle_expiry: Duration,
    /// Non-public addresses that functions may reach nevertheless, where their manifests name the host.
    pub private_networks: Vec<ClientPrefix>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            max_instances: 1000,
            max_memory: ByteSize::from_mib(2048),
            heavy_threads: cores,
            heavy_calls: 256,
            heavy_nice: 5,
            idle_per_function: 64,
            idle_expiry: Duration::from_secs(60),
            private_networks: Vec::new(),
        }
    }
}

/// The load of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Live instances, including idle ones.
    pub live_instances: u64,
    /// Instances waiting for a call.
    pub idle_instances: u64,
    /// The most instances that can live.
    pub max_instances: u64,
    /// Calls that now run in the background.
    pub heavy_calls: u64,
    /// The most calls that can run in the background.
    pub max_heavy_calls: u64,
    /// Functions that are now loaded.
    pub functions: u64,
}

/// Runs components, but compiles none: holds the pool of instances, the clock that cuts guests into slices, and the background
/// threads. A cheap handle; clones share one engine.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    wasmtime: wasmtime::Engine,
    linker: Linker<GuestState>,
    options: EngineOptions,
    private_networks: Arc<[ClientPrefix]>,
    /// The lookups of all functions.
    lookups: Arc<Semaphore>,
    key: String,
    warning: Option<String>,
    heavy: HeavyPool,
    verified_files: VerifiedFiles,
    functions: Mutex<Vec<Weak<Function>>>,
    instance_base: u64,
    instance_count: AtomicU64,
}

impl Engine {
    /// Creates an engine and starts its background threads.
    ///
    /// # Errors
    /// When the machine cannot provide the address space or the threads.
    pub fn new(options: EngineOptions) -> Result<Self, EngineError> {
        let settings = |error: wasmtime::Error| EngineError::Settings {
            instances: options.max_instances,
            reason: format!("{error:#}"),
        };
        let wasmtime = wasmtime::Engine::new(&config::for_running(&options)).map_err(settings)?;
        let mut linker = Linker::new(&wasmtime);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).map_err(settings)?;
        wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker).map_err(settings)?;
        ticker::register(&wasmtime).map_err(EngineError::Thread)?;
        let heavy = HeavyPool::start(
            options.heavy_threads,
            options.heavy_calls,
            options.heavy_nice,
        )
        .map_err(EngineError::Thread)?;
        let inner = Arc::new(Inner {
            key: config::key_of(&wasmtime),
            warning: warning(options.max_instances, max_map_count()),
            wasmtime,
            linker,
            heavy,
            verified_files: VerifiedFiles::default(),
            functions: Mutex::new(Vec::new()),
            instance_base: Uuid::new_v4().as_u64_pair().0,
            instance_count: AtomicU64::new(0),
            private_networks: options.private_networks.clone().into(),
            lookups: Lookups::of_all(),
            options,
        });
        inner.heavy.spawn_housekeeping(housekeeping(
            Arc::downgrade(&inner),
            inner.options.idle_expiry,
        ));
        Ok(Self { inner })
    }

    /// What an operator should change so that `max_instances` instances can really live; `None` if nothing.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        self.inner.warning.as_deref()
    }

    /// Identifies everything that compiled code depends on besides the component: engine version, settings, CPU features. Code
    /// compiled under one key runs only under the same key.
    #[must_use]
    pub fn compatibility_key(&self) -> &str {
        &self.inner.key
    }

    /// The options it was made with.
    #[must_use]
    pub fn options(&self) -> &EngineOptions {
        &self.inner.options
    }

    /// The present load.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        let functions = self.inner.functions();
        EngineStats {
            live_instances: self
                .inner
                .wasmtime
                .pooling_allocator_metrics()
                .map_or(0, |metrics| metrics.component_instances()),
            idle_instances: count(functions.iter().map(|f| f.idle_instances()).sum()),
            max_instances: u64::from(self.inner.options.max_instances),
            heavy_calls: count(self.inner.heavy.active()),
            max_heavy_calls: count(self.inner.options.heavy_calls),
            functions: count(functions.len()),
        }
    }

    /// Verifies that a compiled file is what a trusted compiler wrote, by reading all of it, and remembers that. Blocking:
    /// run it off the gateway's threads at start, so that [`Engine::load`] of a verified file is fast.
    ///
    /// # Errors
    /// When the file cannot be read, has changed since it was compiled, or is for another engine.
    pub fn verify(&self, compiled: &Path) -> Result<(), LoadError> {
        self.inner
            .verified_files
            .open_verified(compiled, &self.inner.key)
            .map(drop)
    }

    /// Loads and links a compiled component. Verifies the file first, unless [`Engine::verify`] did so and it is unchanged.
    /// Takes about a millisecond for a verified file; blocking.
    ///
    /// # Errors
    /// Like [`Engine::verify`], or when the component imports something that the network does not offer.
    pub fn load(&self, compiled: &Path) -> Result<Arc<Function>, LoadError> {
        let trusted = self
            .inner
            .verified_files
            .open_verified(compiled, &self.inner.key)?;
        let component =
            trusted::map(&self.inner.wasmtime, &trusted).map_err(|error| LoadError::Untrusted {
                path: compiled.to_owned(),
                reason: format!("{error:#}"),
            })?;
        let pre = self
            .inner
            .linker
            .instantiate_pre(&component)
            .and_then(ProxyPre::new)
            .map_err(|error| LoadError::Link {
                reason: format!("{error:#}"),
            })?;
        let function = Arc::new(Function::new(self.clone(), pre));
        let mut functions = self
            .inner
            .functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        functions.retain(|function| function.strong_count() > 0);
        functions.push(Arc::downgrade(&function));
        Ok(function)
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.inner.wasmtime
    }

    /// How the calls of one function reach the network.
    pub(crate) fn reach(&self) -> Reach {
        Reach {
            private: self.inner.private_networks.clone(),
            lookups: Lookups::new(
                self.inner.heavy.blocking().clone(),
                self.inner.lookups.clone(),
            ),
        }
    }

    pub(crate) fn heavy(&self) -> &HeavyPool {
        &self.inner.heavy
    }

    /// An id that no other instance has or will have. Half of it is random, drawn once per engine: drawing random
    /// bytes for each call would cost more than the rest of its bookkeeping.
    pub(crate) fn next_instance(&self) -> InstanceId {
        let number = self.inner.instance_count.fetch_add(1, Ordering::Relaxed);
        let mixed = Uuid::from_u64_pair(self.inner.instance_base, number);
        InstanceId::from_uuid(uuid::Builder::from_custom_bytes(mixed.into_bytes()).into_uuid())
    }

    /// Drops the idle instances of all functions, to make room. Returns how many there were.
    pub fn drop_idle(&self) -> usize {
        self.inner
            .functions()
            .iter()
            .map(|function| function.drop_idle())
            .sum()
    }

    /// Drops the `most` least recently used idle instances of all functions, to make some room. Returns how many there were; 0 only if none is idle.
    pub fn drop_idle_oldest(&self, most: usize) -> usize {
        let functions = self.inner.functions();
        loop {
            let mut idle: Vec<Instant> = functions
                .iter()
                .flat_map(|function| function.idle_times())
                .collect();
            idle.sort_unstable();
            idle.truncate(most);
            let Some(last) = idle.last() else {
                return 0;
            };
            let dropped = functions
                .iter()
                .map(|function| function.drop_idle_until(*last))
                .sum();
            // Another call may have taken or dropped just these.
            if dropped > 0 {
                return dropped;
            }
        }
    }

    /// Drops the least recently used idle instances that hold something, as many as release `wanted` of it together; none if all of them hold less.
    /// `held` says how much of it is in what an instance occupies. Returns how many there were.
    pub fn drop_idle_holding(&self, wanted: u64, held: impl Fn(&ResourceGuard) -> u64) -> usize {
        let functions = self.inner.functions();
        let mut idle: Vec<(Instant, u64)> = functions
            .iter()
            .flat_map(|function| function.idle_holding(&held))
            .collect();
        idle.sort_unstable();
        let mut released = 0_u64;
        let last = idle.into_iter().find(|(_, holds)| {
            released = released.saturating_add(*holds);
            released >= wanted
        });
        let Some((last, _)) = last else {
            return 0;
        };
        functions
            .iter()
            .map(|function| function.drop_idle_holding(last, &held))
            .sum()
    }
}

impl Inner {
    fn functions(&self) -> Vec<Arc<Function>> {
        self.functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Drops instances that have been idle for too long, as long as the engine lives.
async fn housekeeping(engine: Weak<Inner>, expiry: Duration) {
    let mut interval = tokio::time::interval(
        (expiry / 4).clamp(Duration::from_millis(10), Duration::from_secs(5)),
    );
    loop {
        interval.tick().await;
        let Some(engine) = engine.upgrade() else {
            return;
        };
        let Some(oldest) = Instant::now().checked_sub(expiry) else {
            continue;
        };
        for function in engine.functions() {
            function.expire_idle(oldest);
        }
    }
}

fn max_map_count() -> Option<u64> {
    std::fs::read_to_string("/proc/sys/vm/max_map_count")
        .ok()?
        .trim()
        .parse()
        .ok()
}

fn warning(max_instances: u32, map_count: Option<u64>) -> Option<String> {
    let needed = u64::from(max_instances) * MAPS_PER_INSTANCE + MAPS_OF_THE_REST;
    let have = map_count?;
    (have < needed).then(|| {
        format!(
            "vm.max_map_count is {have}, but {max_instances} live instances need about {needed} memory maps: set it with \
             `sysctl -w vm.max_map_count={needed}` or lower max_instances to {}",
            have.saturating_sub(MAPS_OF_THE_REST) / MAPS_PER_INSTANCE
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_memory_maps_are_said_with_what_to_do() {
        assert_eq!(warning(1000, Some(65_530)), None);
        assert_eq!(warning(10_000, None), None);
        let text = warning(20_000, Some(65_530)).expect("a warning");
        assert!(text.contains("vm.max_map_count=125000"), "{text}");
        assert!(text.contains("to 10088"), "{text}");
    }
}

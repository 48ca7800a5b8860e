//! The runtime for WebAssembly components in this process.
//!
//! Here an instance is a reservation: memory for as many sandboxes as it may serve calls at the same time. The sandboxes
//! themselves are made by [`fdn_runtime`] for each call, or reused as the manifest allows, and never more of them than
//! reserved: a call beyond the concurrency waits. A trap therefore ends a call, not the instance.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use fdn_core::api::LogStream;
use fdn_core::manifest::{AllowedHost, Manifest};
use fdn_core::{Coded, InstanceId};
use fdn_runtime::{CallContext, Engine, Function, LoadError, RequestBody};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use crate::body::{BoxError, GuardedBody, Request, Response, ensure_host};
use crate::call::CallFailure;
use crate::error::{InstanceError, RuntimeError, StartError};
use crate::instance::Instance;
use crate::link::chain;
use crate::log::{LogLine, LogSink, LogTail};
use crate::metrics::Metrics;
use crate::runtime::{Capabilities, Collected, Kind, Owner, Runtime};
use crate::spec::{Description, Image, ImageSource, Outbound, StartSpec};
use crate::state::{Exit, ExitReason, InstanceState, StateCell, ended};

/// Runs components on one engine.
pub struct WasmRuntime {
    owner: Owner,
    engine: Engine,
    sink: Arc<dyn LogSink>,
    metrics: Metrics,
    registry: Arc<Mutex<Registry>>,
}

#[derive(Default)]
struct Registry {
    instances: BTreeMap<InstanceId, Arc<WasmInstance>>,
    /// Loaded once for all instances of a file; unloaded with the last one.
    functions: BTreeMap<PathBuf, Weak<Function>>,
}

impl fmt::Debug for WasmRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WasmRuntime")
            .field("owner", &self.owner)
            .field("instances", &lock(&self.registry).instances.len())
            .finish_non_exhaustive()
    }
}

fn lock(registry: &Mutex<Registry>) -> MutexGuard<'_, Registry> {
    registry.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WasmRuntime {
    /// A runtime on this engine.
    #[must_use]
    pub fn new(owner: Owner, engine: Engine, sink: Arc<dyn LogSink>, metrics: Metrics) -> Self {
        Self {
            owner,
            engine,
            sink,
            metrics,
            registry: Arc::default(),
        }
    }

    /// The function of a compiled file.
    async fn load(&self, image: &Image) -> Result<Arc<Function>, StartError> {
        let (path, _) = component(image)?;
        let known = lock(&self.registry)
            .functions
            .get(path)
            .and_then(Weak::upgrade);
        if let Some(function) = known {
            return Ok(function);
        }
        let (engine, file) = (self.engine.clone(), path.to_owned());
        let loaded = tokio::task::spawn_blocking(move || engine.load(&file)).await;
        let function = loaded
            .map_err(|error| unusable(format!("loading a component failed: {error}")))?
            .map_err(|error| load_failed(image, &error))?;
        let mut registry = lock(&self.registry);
        registry
            .functions
            .retain(|_, function| function.strong_count() > 0);
        let entry = registry.functions.entry(path.to_owned()).or_default();
        // Another start may have loaded it meanwhile: all share one, and so its idle sandboxes.
        if let Some(first) = entry.upgrade() {
            return Ok(first);
        }
        *entry = Arc::downgrade(&function);
        Ok(function)
    }

    async fn begin(&self, spec: StartSpec) -> Result<Arc<WasmInstance>, StartError> {
        let (_, manifest) = component(&spec.image)?;
        let hosts = check(&spec, manifest)?;
        let function = self.load(&spec.image).await?;
        let secrets = spec.secrets.0.iter();
        let log = Arc::new(Output {
            description: spec.description.clone(),
            tail: LogTail::new(spec.logs),
            sink: self.sink.clone(),
        });
        let mut context = CallContext::from_manifest(manifest, [], log.clone());
        let environment = spec.env.iter().chain(secrets);
        context.env = environment
            .map(|(name, value)| (name.to_string(), value.clone()))
            .collect();
        context.allowed_hosts = Arc::new(hosts);
        let concurrency = spec.description.concurrency.get();
        let instance = Arc::new(WasmInstance {
            state: StateCell::new(InstanceState::Ready),
            slots: Arc::new(Semaphore::new(concurrency as usize)),
            function,
            context,
            log,
            metrics: self.metrics.clone(),
            registry: Arc::downgrade(&self.registry),
        });
        let id = spec.description.id;
        let mut registry = lock(&self.registry);
        if registry.instances.contains_key(&id) {
            return Err(StartError::Exists { id });
        }
        registry.instances.insert(id, instance.clone());
        self.metrics.alive(Kind::Wasm, 1);
        Ok(instance)
    }
}

fn component(image: &Image) -> Result<(&Path, &Manifest), StartError> {
    match &image.source {
        ImageSource::Component { path, manifest } => Ok((path, manifest)),
        ImageSource::Registry { .. } | ImageSource::Archive { .. } => {
            Err(StartError::Unsupported {
                reason: "a container image is not a WebAssembly component".to_owned(),
            })
        }
    }
}

/// Refuses a specification that cannot be enforced. Returns the hosts that may be called.
fn check(spec: &StartSpec, manifest: &Manifest) -> Result<BTreeSet<AllowedHost>, StartError> {
    let refuse = |reason: String| Err(StartError::Unsupported { reason });
    let description = &spec.description;
    let held = description.resources.memory_mib.get();
    let calls = u64::from(description.concurrency.get());
    let needed = manifest.memory_mib().get().saturating_mul(calls);
    if held < needed {
        return refuse(format!(
            "{calls} calls at the same time may use {needed} MiB and the instance holds {held} MiB"
        ));
    }
    if !description.devices.is_empty() {
        return refuse("a WebAssembly component cannot use devices".to_owned());
    }
    match &spec.outbound {
        Outbound::Denied => Ok(BTreeSet::new()),
        Outbound::Hosts(hosts) => Ok(hosts.clone()),
        Outbound::Open => refuse("name the hosts that the component may call".to_owned()),
    }
}

fn load_failed(image: &Image, error: &LoadError) -> StartError {
    let (image, reason) = (image.to_string(), chain(error));
    match error {
        LoadError::Read { .. } => StartError::ImageMissing { image, reason },
        _ => StartError::ImageInvalid { image, reason },
    }
}

fn unusable(reason: String) -> RuntimeError {
    RuntimeError::Unusable {
        kind: Kind::Wasm,
        reason,
    }
}

#[async_trait]
impl Runtime for WasmRuntime {
    fn kind(&self) -> Kind {
        Kind::Wasm
    }

    fn owner(&self) -> &Owner {
        &self.owner
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn check(&self) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn prepare(&self, image: &Image) -> Result<(), StartError> {
        let (path, _) = component(image)?;
        let (engine, path) = (self.engine.clone(), path.to_owned());
        let verified = tokio::task::spawn_blocking(move || engine.verify(&path)).await;
        verified
            .map_err(|error| unusable(format!("reading a component failed: {error}")))?
            .map_err(|error| load_failed(image, &error))
    }

    async fn start(&self, spec: StartSpec) -> Result<Arc<dyn Instance>, StartError> {
        let began = Instant::now();
        let started = self.begin(spec).await;
        let outcome = started.as_ref().map(|_| began.elapsed());
        self.metrics.started(Kind::Wasm, outcome);
        started.map(|instance| instance as Arc<dyn Instance>)
    }

    /// The instances of this object, because nothing outlives the process.
    async fn adopt(&self) -> Result<Vec<Arc<dyn Instance>>, RuntimeError> {
        let registry = lock(&self.registry);
        let running = registry.instances.values().cloned();
        Ok(running.map(|i| i as Arc<dyn Instance>).collect())
    }

    async fn collect(&self) -> Result<Collected, RuntimeError> {
        Ok(Collected::default())
    }
}

/// A reservation for calls of one component.
struct WasmInstance {
    state: StateCell,
    slots: Arc<Semaphore>,
    function: Arc<Function>,
    context: CallContext,
    log: Arc<Output>,
    metrics: Metrics,
    registry: Weak<Mutex<Registry>>,
}

impl fmt::Debug for WasmInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WasmInstance")
            .field("id", &self.log.description.id)
            .field("state", &self.state.get())
            .finish_non_exhaustive()
    }
}

impl WasmInstance {
    async fn run(
        &self,
        mut request: Request,
        slot: OwnedSemaphorePermit,
    ) -> Result<Response, CallFailure> {
        ensure_host(&mut request);
        let call = self
            .function
            .call(self.context.clone(), request.map(RequestBody::new));
        let response = tokio::select! {
            biased;
            response = call.response() => response,
            exit = self.state.ended() => return Err(CallFailure::interrupted(exit.to_string())),
        };
        match response {
            Ok(response) => Ok(response.map(|body| {
                let body = body.map_err(BoxError::from).boxed_unsync();
                GuardedBody::boxed(body, Box::pin(ended(self.state.watch())), slot)
            })),
            Err(error) => Err(CallFailure::Interrupted {
                code: error.code(),
                reason: error.to_string(),
            }),
        }
    }

    const fn unsupported(operation: &'static str) -> InstanceError {
        InstanceError::Unsupported {
            kind: Kind::Wasm,
            operation,
        }
    }
}

#[async_trait]
impl Instance for WasmInstance {
    fn description(&self) -> &Description {
        &self.log.description
    }

    fn state(&self) -> watch::Receiver<InstanceState> {
        self.state.watch()
    }

    async fn call(&self, request: Request) -> Result<Response, CallFailure> {
        // Closed by `stop`.
        match self.slots.clone().acquire_owned().await {
            Ok(slot) => self.run(request, slot).await,
            Err(_) => Err(CallFailure::not_sent(request, "it was stopped")),
        }
    }

    async fn pause(&self) -> Result<(), InstanceError> {
        Err(Self::unsupported("pause"))
    }

    async fn resume(&self) -> Result<(), InstanceError> {
        Err(Self::unsupported("resume"))
    }

    async fn stop(&self, grace: Duration) -> Result<Exit, InstanceError> {
        // Running calls may finish within the grace; calls that still wait after that are refused.
        let all = self.log.description.concurrency.get();
        let finished = self.slots.clone().acquire_many_owned(all);
        let finished = tokio::time::timeout(grace, finished).await;
        // Closed while all slots are taken, or the next call in the queue would get one of them.
        self.slots.close();
        drop(finished);
        let exit = Exit {
            code: None,
            reason: ExitReason::Stopped,
        };
        if self.state.set(InstanceState::Exited(exit.clone())) {
            self.metrics.exited(Kind::Wasm, &exit);
            self.metrics.alive(Kind::Wasm, -1);
            // Idle sandboxes hold memory that is no longer reserved.
            self.function.drop_idle();
            if let Some(registry) = self.registry.upgrade() {
                lock(&registry).instances.remove(&self.log.description.id);
            }
        }
        Ok(exit)
    }

    fn log_tail(&self) -> Vec<LogLine> {
        self.log.tail.lines()
    }
}

/// The sink of the output of an instance's calls.
struct Output {
    description: Description,
    tail: LogTail,
    sink: Arc<dyn LogSink>,
}

impl fdn_runtime::LogSink for Output {
    fn line(&self, _sandbox: InstanceId, stream: LogStream, text: &str) {
        self.tail.line(stream, text, |line| {
            self.sink.line(&self.description, line);
        });
    }
}

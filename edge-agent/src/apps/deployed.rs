//! A function version that can be called on this node: a compiled component, loaded at its first call or ahead of it, or a container image whose
//! instances are started on demand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_http::header::HeaderValue;
use bytes::Bytes;
use fdn_core::api::{LogLine, LogStream};
use fdn_core::manifest::Manifest;
use fdn_core::message::FunctionSpec;
use fdn_core::{
    AppName, ByteSize, Digest, FormName, FunctionName, InstanceId, MebiBytes, Millis, NodeId,
    StageName, VersionNumber,
};
use fdn_runtime::{CallContext, Engine, Function, LoadError, LogSink, NoLog, ResourceGuard};
use tokio::sync::OnceCell;

use crate::invocations::FunctionQueue;
use crate::invocations::admission::Expected;
use crate::invocations::instances::{Degradation, InstanceQueue};
use crate::invocations::ledger::MemoryReservation;
use crate::logs::AppLog;
use crate::metrics::{AppMetrics, Metrics, VersionCounts};
use crate::settings::LogsSettings;
use crate::usage::BillingKey;

/// The parts of a deployed version.
pub struct DeployedParts {
    /// The app.
    pub app: AppName,
    /// The workflow stage that it serves, if any.
    pub stage: Option<StageName>,
    /// The form, if the function has several.
    pub form: Option<FormName>,
    /// The node.
    pub node: NodeId,
    /// The function version.
    pub function: FunctionSpec,
    /// The values of the function's secrets, by name.
    pub secrets: BTreeMap<String, String>,
    /// The part that serves its calls.
    pub server: Server,
    /// The app's log.
    pub log: Arc<AppLog>,
    /// The app's counters.
    pub metrics: Arc<AppMetrics>,
}

/// The part that serves a function version's calls.
pub enum Server {
    /// Sandboxes in this process.
    Sandboxes(Sandboxes),
    /// Instances in containers or pods.
    Instances(InstanceQueue),
}

/// A component that runs in sandboxes, loaded from its compiled file.
pub struct Sandboxes {
    compiled: PathBuf,
    engine: Engine,
    loaded: Arc<OnceCell<Arc<Function>>>,
    queue: FunctionQueue,
}

impl Sandboxes {
    /// Sandboxes of `memory` each; the component is not loaded yet.
    #[must_use]
    pub fn new(compiled: PathBuf, engine: Engine, memory: MebiBytes) -> Self {
        Self {
            compiled,
            engine,
            loaded: Arc::default(),
            queue: FunctionQueue::new(memory),
        }
    }

    /// Its queue at the node's admission gate.
    #[must_use]
    pub const fn queue(&self) -> &FunctionQueue {
        &self.queue
    }

    /// The function, if it is loaded.
    #[must_use]
    pub fn loaded(&self) -> Option<&Arc<Function>> {
        self.loaded.get()
    }

    /// Returns the function and loads it if this is the first call. Loading continues even if the caller stops waiting: the next call needs it
    /// too.
    ///
    /// # Errors
    /// When the compiled file cannot be loaded: it must be compiled again.
    pub async fn load(&self, metrics: &Metrics) -> Result<&Arc<Function>, LoadError> {
        if let Some(function) = self.loaded.get() {
            return Ok(function);
        }
        let (loaded, took) = (Arc::clone(&self.loaded), metrics.cold_start.clone());
        let (engine, path) = (self.engine.clone(), self.compiled.clone());
        let loading = tokio::spawn(async move {
            let function = loaded.get_or_try_init(|| async {
                let start = Instant::now();
                let from = path.clone();
                let loaded = tokio::task::spawn_blocking(move || engine.load(&from)).await;
                took.observe(start.elapsed().as_secs_f64());
                loaded.unwrap_or_else(|error| Err(untrusted(&path, error.to_string())))
            });
            function.await.map(drop)
        });
        let ended = loading.await;
        ended.unwrap_or_else(|error| Err(untrusted(&self.compiled, error.to_string())))?;
        let found = self.loaded.get();
        found.ok_or_else(|| untrusted(&self.compiled, "it was not kept".to_owned()))
    }
}

fn untrusted(path: &Path, reason: String) -> LoadError {
    LoadError::Untrusted {
        path: path.to_owned(),
        reason,
    }
}

/// A function version that can be called.
pub struct Deployed {
    /// The app.
    pub app: AppName,
    /// The workflow stage that it serves, if any.
    pub stage: Option<StageName>,
    /// The form, if the function has several.
    pub form: Option<FormName>,
    /// The function.
    pub function: FunctionName,
    /// Its version.
    pub version: VersionNumber,
    /// The digest of the component or image.
    pub digest: Digest,
    /// Its manifest.
    pub manifest: Manifest,
    /// The app's counters.
    pub metrics: Arc<AppMetrics>,
    /// The counters of this version.
    pub counts: Arc<VersionCounts>,
    /// The version as a value of the response header.
    pub version_header: HeaderValue,
    /// What its calls are billed by.
    pub billing: Arc<BillingKey>,
    /// The part that serves its calls.
    pub server: Server,
    secrets: BTreeMap<String, String>,
    labels: Arc<LogLabels>,
    context: CallContext,
}

impl Deployed {
    /// Makes a version callable without loading it.
    #[must_use]
    pub fn new(parts: DeployedParts, logs: &LogsSettings, body_limit: ByteSize) -> Self {
        let FunctionSpec {
            function,
            version,
            digest,
            manifest,
            ..
        } = parts.function;
        let secrets = parts.secrets.clone();
        let mut context = CallContext::from_manifest(&manifest, secrets, Arc::new(NoLog));
        context.limits.log_line = logs.line.as_usize();
        context.limits.log_total = logs.call.as_usize();
        context.limits.body = context.limits.body.min(body_limit);
        let version_header = HeaderValue::from_str(&version.to_string())
            .expect("a letter and digits are a header value");
        Self {
            labels: Arc::new(LogLabels {
                log: parts.log,
                app: parts.app.clone(),
                stage: parts.stage.clone(),
                function: function.clone(),
                version,
                node: parts.node,
            }),
            billing: BillingKey::new(&parts.app, &function, version, &manifest),
            app: parts.app,
            stage: parts.stage,
            form: parts.form,
            function,
            version,
            digest,
            counts: parts.metrics.version(version),
            metrics: parts.metrics,
            version_header,
            server: parts.server,
            secrets: parts.secrets,
            context,
            manifest,
        }
    }

    /// Whether this is the same version with the same limits, variables and secrets, so that its instances can be kept.
    #[must_use]
    pub fn is(&self, function: &FunctionSpec, secrets: &BTreeMap<String, String>) -> bool {
        self.function == function.function
            && self.version == function.version
            && self.digest == function.digest
            && self.manifest == function.manifest
            && self.secrets == *secrets
    }

    /// The largest accepted request body.
    #[must_use]
    pub const fn body_limit(&self) -> ByteSize {
        self.context.limits.body
    }

    /// Whether a call need not wait for the code to load.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        match &self.server {
            Server::Sandboxes(sandboxes) => sandboxes.loaded.initialized(),
            Server::Instances(_) => true,
        }
    }

    /// Whether a call would start at once: the code is loaded, or an instance runs or is starting.
    #[must_use]
    pub fn is_warm(&self) -> bool {
        match &self.server {
            Server::Sandboxes(_) => self.is_loaded(),
            Server::Instances(_) => self.instances() > 0,
        }
    }

    /// Loads the code if it is not loaded.
    ///
    /// # Errors
    /// When the compiled file cannot be loaded: it must be compiled again.
    pub async fn load(&self, metrics: &Metrics) -> Result<(), LoadError> {
        if !self.is_loaded() {
            self.metrics.cold();
        }
        match &self.server {
            Server::Sandboxes(sandboxes) => sandboxes.load(metrics).await.map(drop),
            Server::Instances(_) => Ok(()),
        }
    }

    /// The number of idle sandboxes kept for reuse.
    #[must_use]
    pub fn idle_instances(&self) -> usize {
        match &self.server {
            Server::Sandboxes(sandboxes) => {
                sandboxes.loaded.get().map_or(0, |f| f.idle_instances())
            }
            Server::Instances(_) => 0,
        }
    }

    /// The expected times of a call.
    #[must_use]
    pub fn expected(&self) -> Expected {
        let measured = self.metrics.execution_mean();
        Expected {
            execution: measured.unwrap_or_else(|| self.manifest.expected_millis()),
            start: self.metrics.start_mean().unwrap_or(Millis::ZERO),
            warm: self.idle_instances() > 0,
        }
    }

    /// The number of instances; 0 for a function that runs in sandboxes.
    #[must_use]
    pub fn instances(&self) -> u32 {
        match &self.server {
            Server::Sandboxes(_) => 0,
            Server::Instances(queue) => {
                let counts = queue.counts();
                counts.starting + counts.open + counts.idle
            }
        }
    }

    /// The number of instances started for it so far.
    #[must_use]
    pub fn starts(&self) -> u64 {
        match &self.server {
            Server::Sandboxes(_) => 0,
            Server::Instances(queue) => queue.starts(),
        }
    }

    /// The present problem with its instances, if any.
    #[must_use]
    pub fn degradation(&self) -> Option<Degradation> {
        match &self.server {
            Server::Sandboxes(_) => None,
            Server::Instances(queue) => queue.degradation(),
        }
    }

    /// The context of one call with `left` of its time. `memory` is the reservation for its sandbox, unless the call gets an idle one.
    #[must_use]
    pub fn context(
        &self,
        request: Bytes,
        left: Duration,
        memory: Option<MemoryReservation>,
    ) -> CallContext {
        let mut context = self.context.clone();
        context.resource_guard = memory.map(|memory| Arc::new(memory) as ResourceGuard);
        context.limits.timeout = left;
        context.log = Arc::new(CallLog {
            labels: Arc::clone(&self.labels),
            request,
        });
        context
    }
}

/// What the lines of a version's calls are labelled with, and the log that they go to. An idle sandbox keeps this of its last call, so it does not
/// lead back to the version: its sandboxes would keep a replaced version alive.
struct LogLabels {
    log: Arc<AppLog>,
    app: AppName,
    stage: Option<StageName>,
    function: FunctionName,
    version: VersionNumber,
    node: NodeId,
}

/// Writes the output of one call to the app's log.
struct CallLog {
    labels: Arc<LogLabels>,
    /// The request id, in visible ASCII.
    request: Bytes,
}

impl LogSink for CallLog {
    fn line(&self, instance: InstanceId, stream: LogStream, text: &str) {
        let labels = &self.labels;
        labels.log.push(LogLine {
            at: fdn_service::now(),
            app: labels.app.clone(),
            function: labels.function.clone(),
            version: labels.version,
            node: labels.node.clone(),
            instance,
            request: String::from_utf8_lossy(&self.request).into_owned(),
            stage: labels.stage.clone(),
            stream,
            text: text.to_owned(),
        });
    }
}

#[cfg(test)]
mod tests {
    use fdn_runtime::{EngineOptions, compile_in_process};
    use fdn_testkit::{components, wait};
    use futures::FutureExt as _;

    use super::*;
    use crate::logs::LogHub;

    #[tokio::test]
    async fn what_a_sandbox_keeps_of_its_call_does_not_keep_the_version() {
        let engine = Engine::new(EngineOptions {
            max_instances: 1,
            ..EngineOptions::default()
        });
        let node: NodeId = "n-1".parse().expect("a node");
        let metrics = Metrics::new(&node).expect("metrics");
        let app: AppName = "hello".parse().expect("an app");
        let hub = LogHub::new(LogsSettings::default(), node.clone(), metrics.clone());
        let path = PathBuf::from("a.cwasm");
        let sandboxes = Sandboxes::new(path, engine.expect("an engine"), MebiBytes(1));
        let parts = DeployedParts {
            log: hub.open(&app),
            metrics: metrics.app(&app),
            app,
            stage: None,
            form: None,
            node,
            function: FunctionSpec {
                function: "a".parse().expect("a function"),
                version: VersionNumber::FIRST,
                digest: Digest::of(b"a"),
                size: 1,
                manifest: Manifest::default(),
                secrets: BTreeMap::new(),
                forms: Vec::new(),
            },
            secrets: BTreeMap::new(),
            server: Server::Sandboxes(sandboxes),
        };
        let limit = ByteSize::from_mib(1);
        let deployed = Arc::new(Deployed::new(parts, &LogsSettings::default(), limit));
        let context = deployed.context(Bytes::from_static(b"r"), Duration::from_secs(1), None);
        let version = Arc::downgrade(&deployed);
        drop(deployed);
        assert!(version.upgrade().is_none());
        drop(context);
    }

    #[tokio::test]
    async fn loading_goes_on_when_nobody_waits_for_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (wasm, native) = (folder.path().join("a.wasm"), folder.path().join("a.cwasm"));
        std::fs::write(&wasm, components::hello("hi")).expect("written");
        compile_in_process(&wasm, &native).expect("compiled");
        let engine = Engine::new(EngineOptions {
            max_instances: 1,
            ..EngineOptions::default()
        });
        let sandboxes = Sandboxes::new(native, engine.expect("an engine"), MebiBytes(1));
        let metrics = Metrics::new(&"n-1".parse().expect("a node")).expect("metrics");
        // The first caller gives up at once.
        assert!(sandboxes.load(&metrics).now_or_never().is_none());
        wait::until("the function to be loaded", async || {
            match sandboxes.loaded.initialized() {
                true => Ok(()),
                false => Err("not yet"),
            }
        })
        .await;
    }
}

//! A function version that is compiled on this node and can be called; loaded at its first call, or ahead of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_http::header::HeaderValue;
use bytes::Bytes;
use fdn_core::api::{LogLine, LogStream};
use fdn_core::manifest::Manifest;
use fdn_core::message::FunctionSpec;
use fdn_core::{AppName, ByteSize, Digest, FunctionName, InstanceId, NodeId, VersionNumber};
use fdn_runtime::{CallContext, Engine, Function, LoadError, LogSink, NoLog};
use tokio::sync::OnceCell;

use crate::logs::AppLog;
use crate::metrics::{AppMetrics, Metrics};
use crate::settings::LogsSettings;
use crate::usage::Billed;

/// What a deployed version is made of.
pub struct DeployedParts {
    /// The app.
    pub app: AppName,
    /// The node.
    pub node: NodeId,
    /// The function version.
    pub function: FunctionSpec,
    /// The values of its secrets.
    pub secrets: BTreeMap<String, String>,
    /// Its compiled file.
    pub compiled: PathBuf,
    /// What runs it.
    pub engine: Engine,
    /// The app's log.
    pub log: Arc<AppLog>,
    /// The app's counters.
    pub metrics: Arc<AppMetrics>,
}

/// A function version that can be called.
pub struct Deployed {
    /// The app.
    pub app: AppName,
    /// The function.
    pub function: FunctionName,
    /// Its version.
    pub version: VersionNumber,
    /// The component.
    pub digest: Digest,
    /// Its manifest.
    pub manifest: Manifest,
    /// The app's counters.
    pub metrics: Arc<AppMetrics>,
    /// The version as an answer's header.
    pub version_header: HeaderValue,
    /// What its calls are billed by.
    pub billed: Arc<Billed>,
    node: NodeId,
    secrets: BTreeMap<String, String>,
    compiled: PathBuf,
    engine: Engine,
    log: Arc<AppLog>,
    context: CallContext,
    loaded: OnceCell<Arc<Function>>,
}

impl Deployed {
    /// Makes a version callable, but does not load it.
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
            billed: Billed::new(&parts.app, &function, version, &manifest),
            app: parts.app,
            function,
            version,
            digest,
            metrics: parts.metrics,
            version_header,
            node: parts.node,
            secrets: parts.secrets,
            compiled: parts.compiled,
            engine: parts.engine,
            log: parts.log,
            context,
            manifest,
            loaded: OnceCell::new(),
        }
    }

    /// Whether this is the same version with the same limits, variables and secrets, so that its instances can serve on.
    #[must_use]
    pub fn is(&self, function: &FunctionSpec, secrets: &BTreeMap<String, String>) -> bool {
        self.function == function.function
            && self.version == function.version
            && self.digest == function.digest
            && self.manifest == function.manifest
            && self.secrets == *secrets
    }

    /// The largest request body.
    #[must_use]
    pub const fn body_limit(&self) -> ByteSize {
        self.context.limits.body
    }

    /// Whether it is loaded.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.loaded.initialized()
    }

    /// The loaded function, loading it if this is the first call.
    ///
    /// # Errors
    /// When the compiled file cannot be loaded: it has to be made anew.
    pub async fn load(&self, metrics: &Metrics) -> Result<&Arc<Function>, LoadError> {
        if let Some(function) = self.loaded.get() {
            return Ok(function);
        }
        self.loaded
            .get_or_try_init(|| async {
                let start = Instant::now();
                let (engine, path) = (self.engine.clone(), self.compiled.clone());
                let loaded = tokio::task::spawn_blocking(move || engine.load(&path)).await;
                metrics.cold_start.observe(start.elapsed().as_secs_f64());
                loaded.unwrap_or_else(|error| {
                    Err(LoadError::Untrusted {
                        path: self.compiled.clone(),
                        reason: error.to_string(),
                    })
                })
            })
            .await
    }

    /// Idle instances that are kept for reuse.
    #[must_use]
    pub fn idle_instances(&self) -> usize {
        self.loaded.get().map_or(0, |f| f.idle_instances())
    }

    /// The context of one call that has `left` of its time.
    #[must_use]
    pub fn context(self: &Arc<Self>, request: Bytes, left: Duration) -> CallContext {
        let mut context = self.context.clone();
        context.limits.timeout = left;
        context.log = Arc::new(CallLog {
            deployed: Arc::clone(self),
            request,
        });
        context
    }
}

/// Writes the lines of one call into the app's log.
struct CallLog {
    deployed: Arc<Deployed>,
    /// The request id: visible ASCII.
    request: Bytes,
}

impl LogSink for CallLog {
    fn line(&self, instance: InstanceId, stream: LogStream, text: &str) {
        let deployed = &self.deployed;
        deployed.log.push(LogLine {
            at: fdn_service::now(),
            app: deployed.app.clone(),
            function: deployed.function.clone(),
            version: deployed.version,
            node: deployed.node.clone(),
            instance,
            request: String::from_utf8_lossy(&self.request).into_owned(),
            stream,
            text: text.to_owned(),
        });
    }
}

//! Making one version of an app callable: secrets opened, artifact here and compiled, loaded ahead where the plan wants it.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use fdn_core::manifest::RuntimeKind;
use fdn_core::message::{AppSpec, FunctionSpec};
use fdn_core::{AppName, InstanceId, SecretName};
use fdn_instances::{Image, ImageSource, LogLimits, Outbound, Readiness, Secrets, StartSpec};
use fdn_runtime::{LoadError, NoLog, probe};
use tracing::debug;

use super::state::Version;
use super::{AppsParts, Deployed, DeployedParts, Sandboxes, Server};
use crate::error::PrepareError;
use crate::metrics::AppMetrics;

/// Prepares `version` of `app`. `current` is what answers now: it is kept if nothing of it changes.
pub(super) async fn prepare(
    parts: &AppsParts,
    app: &AppName,
    version: &Version,
    current: Option<Arc<Deployed>>,
    metrics: Arc<AppMetrics>,
    compiling: impl Fn() + Send,
) -> Result<Arc<Deployed>, PrepareError> {
    let function = entry_function(&version.spec)?;
    let secrets = open_secrets(parts, app, function)?;
    let kept = current.filter(|current| current.is(function, &secrets));
    let is_new = kept.is_none();
    let deployed = match kept {
        Some(kept) => kept,
        None => {
            let server = server(parts, app, function, &secrets, compiling).await?;
            let deployed = DeployedParts {
                app: app.clone(),
                node: parts.node.clone(),
                function: function.clone(),
                secrets,
                server,
                log: parts.hub.open(app),
                metrics,
            };
            Arc::new(Deployed::new(deployed, &parts.logs, parts.body_limit))
        }
    };
    if version.spec.primary.contains(&parts.cluster) {
        load_ahead(parts, &deployed, is_new).await?;
    }
    Ok(deployed)
}

/// What serves the calls of a function.
async fn server(
    parts: &AppsParts,
    app: &AppName,
    function: &FunctionSpec,
    secrets: &BTreeMap<String, String>,
    compiling: impl Fn() + Send,
) -> Result<Server, PrepareError> {
    let (digest, size) = (function.digest, function.size);
    match function.manifest.runtime {
        RuntimeKind::Wasm => {
            let compiled = parts.cache.prepare(digest, size, compiling).await?;
            let memory = function.manifest.memory_mib();
            let engine = parts.engine.clone();
            Ok(Server::Sandboxes(Sandboxes::new(compiled, engine, memory)))
        }
        RuntimeKind::Docker => {
            let instances = parts.instances.as_ref().ok_or_else(|| {
                PrepareError::Spec("this node runs no containers; set docker.enabled".to_owned())
            })?;
            let path = parts.cache.fetch(digest, size).await?;
            compiling();
            let source = ImageSource::Archive { path };
            let spec = start_spec(parts, app, function, secrets, Image { digest, source })?;
            instances.prepare(&spec.image).await?;
            let expected = function.manifest.expected_millis();
            let lane = instances
                .register(spec, expected)
                .map_err(|error| PrepareError::Spec(error.to_string()))?;
            Ok(Server::Instances(lane))
        }
    }
}

/// Most processes and threads of one container.
const PIDS: u32 = 256;

fn start_spec(
    parts: &AppsParts,
    app: &AppName,
    function: &FunctionSpec,
    secrets: &BTreeMap<String, String>,
    image: Image,
) -> Result<StartSpec, PrepareError> {
    let manifest = &function.manifest;
    let id = InstanceId::from_uuid(uuid::Uuid::nil());
    let name = function.function.clone();
    let mut spec = StartSpec::new(id, app.clone(), name, image, manifest.resources());
    let description = &mut spec.description;
    description.version = function.version;
    description.concurrency = NonZeroU32::new(manifest.concurrency).unwrap_or(NonZeroU32::MIN);
    description.port = manifest.port;
    description.readiness = Readiness {
        path: manifest.health_path.clone(),
        timeout: manifest.startup.as_duration(),
    };
    let values = secrets.iter().map(|(name, value)| {
        let name: Result<SecretName, _> = name.parse();
        name.map(|name| (name, value.clone()))
    });
    let values: Result<BTreeMap<_, _>, _> = values.collect();
    spec.secrets = Secrets(values.map_err(|error| PrepareError::Spec(error.to_string()))?);
    spec.env = manifest.env.clone();
    spec.pids = PIDS;
    spec.gpu.clone_from(&manifest.gpu);
    spec.outbound = if manifest.allowed_hosts.is_empty() {
        Outbound::Denied
    } else {
        Outbound::Hosts(manifest.allowed_hosts.clone())
    };
    let kept = parts.instances.as_ref();
    spec.logs = LogLimits {
        line: parts.logs.line.as_usize(),
        lines: kept.map_or(1, |instances| instances.settings().log_lines as usize),
        ..LogLimits::default()
    };
    Ok(spec)
}

/// The function version that answers calls.
fn entry_function(spec: &AppSpec) -> Result<&FunctionSpec, PrepareError> {
    let stages = spec.workflow.stages().len();
    if stages != 1 {
        return Err(PrepareError::Spec(format!(
            "the workflow has {stages} stages, this agent runs workflows of one"
        )));
    }
    let entry = spec.workflow.entry();
    spec.functions
        .iter()
        .find(|f| f.function == entry.function && f.version == entry.version)
        .ok_or_else(|| {
            PrepareError::Spec(format!(
                "function {} {} of stage {} is not in it",
                entry.function, entry.version, entry.name
            ))
        })
}

fn open_secrets(
    parts: &AppsParts,
    app: &AppName,
    function: &FunctionSpec,
) -> Result<BTreeMap<String, String>, PrepareError> {
    let mut secrets = BTreeMap::new();
    for name in &function.manifest.secrets {
        let sealed = function.secrets.get(name).ok_or_else(|| {
            PrepareError::Spec(format!("the value of secret {name} is not in it"))
        })?;
        let value = parts
            .key
            .open(&format!("{app}/{name}"), sealed)
            .map_err(|_| PrepareError::Secret(name.to_string()))?;
        secrets.insert(name.to_string(), value);
    }
    Ok(secrets)
}

async fn load_ahead(
    parts: &AppsParts,
    deployed: &Arc<Deployed>,
    is_new: bool,
) -> Result<(), PrepareError> {
    let Server::Sandboxes(sandboxes) = &deployed.server else {
        return Ok(());
    };
    let loaded = sandboxes.load(&parts.metrics).await;
    let function = loaded.inspect_err(|error| {
        if !matches!(error, LoadError::Link { .. }) {
            parts.cache.distrust(deployed.digest);
        }
    })?;
    if is_new && parts.settings.warm_call {
        let timeout = deployed.manifest.timeout.as_duration();
        // A node that is full has calls enough to warm it up.
        let Some(stay) = parts.ledger.enter(deployed.manifest.memory_mib()) else {
            return Ok(());
        };
        let mut context = deployed.context(bytes::Bytes::new(), timeout, Some(stay.memory));
        context.log = Arc::new(NoLog);
        if let Err(error) = probe::probe(function, context).await {
            // How a function answers is its own affair; the call has done its work of warming up.
            debug!(app = %deployed.app, %error, "the warm call was not answered well");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use fdn_core::workflow::{Stage, Workflow};
    use fdn_core::{Digest, VersionNumber};

    use super::*;

    fn spec(stages: &[&str]) -> AppSpec {
        let stages: Vec<Stage> = stages
            .iter()
            .map(|name| Stage {
                name: name.parse().expect("stage"),
                function: name.parse().expect("function"),
                version: VersionNumber::FIRST,
            })
            .collect();
        let edges = stages
            .windows(2)
            .map(|pair| fdn_core::workflow::Edge {
                from: pair[0].name.clone(),
                to: pair[1].name.clone(),
                size: fdn_core::ByteSize::from_bytes(1),
            })
            .collect();
        AppSpec {
            host: "a.fn.test".parse().expect("host"),
            functions: vec![FunctionSpec {
                function: "a".parse().expect("function"),
                version: VersionNumber::FIRST,
                digest: Digest::of(b"a"),
                size: 1,
                manifest: fdn_core::manifest::Manifest::default(),
                secrets: BTreeMap::new(),
            }],
            workflow: Workflow::new(stages, edges).expect("workflow"),
            primary: std::collections::BTreeSet::new(),
        }
    }

    #[test]
    fn the_entry_function_is_found_or_the_lack_of_it_named() {
        assert_eq!(entry_function(&spec(&["a"])).expect("found").size, 1);
        let error = entry_function(&spec(&["b"]))
            .expect_err("missing")
            .to_string();
        assert!(error.contains("function b v1 of stage b"), "{error}");
        let error = entry_function(&spec(&["a", "b"]))
            .expect_err("two")
            .to_string();
        assert!(error.contains("2 stages"), "{error}");
    }
}

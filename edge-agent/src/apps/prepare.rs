//! Makes a version of an app callable: opens its secrets, fetches and compiles its artifact, loads it ahead of time where the plan wants it, and
//! warms it up where the previous version is warm.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use fdn_core::manifest::{Manifest, RuntimeKind};
use fdn_core::message::{AppSpec, FunctionSpec};
use fdn_core::workflow::{RunSpec, Stage};
use fdn_core::{
    AppName, FormName, FunctionName, InstanceId, SecretName, StageName, TenantTag, VersionNumber,
};
use fdn_instances::{Image, LogLimits, Outbound, Readiness, Secrets, StartSpec};
use fdn_runtime::{LoadError, NoLog, probe};
use tracing::debug;

use super::state::Version;
use super::{
    AppsParts, Deployed, DeployedParts, Sandboxes, Server, Serving, StageServing, StageStats,
    Staged, image,
};
use crate::error::PrepareError;
use crate::gateway::split::Split;
use crate::invocations::instances::Instances;
use crate::metrics::AppMetrics;

/// Prepares `version` of `app`, with every function version that its calls are split between. Unchanged parts of `current`, which answers calls
/// now, are kept.
pub(super) async fn prepare(
    parts: &AppsParts,
    app: &AppName,
    version: &Version,
    current: Option<Serving>,
    metrics: Arc<AppMetrics>,
    compiling: impl Fn() + Send + Sync,
) -> Result<Serving, PrepareError> {
    match &version.spec.run {
        None => function(parts, app, &version.spec, current, metrics, &compiling).await,
        Some(run) => stages(parts, app, &version.spec, run, current, &compiling).await,
    }
}

/// Prepares a plain function, with every version that its calls are split between.
async fn function(
    parts: &AppsParts,
    app: &AppName,
    spec: &AppSpec,
    current: Option<Serving>,
    metrics: Arc<AppMetrics>,
    compiling: &(impl Fn() + Send + Sync),
) -> Result<Serving, PrepareError> {
    let known = current.map(|current| current.all()).unwrap_or_default();
    let ready = async |function| {
        let chosen = spec.form_in(&parts.cluster, &spec.workflow.entry().name);
        let formed = in_form(parts, function, chosen).await;
        let request = DeployRequest {
            stage: None,
            form: formed.name,
            function: &formed.function,
            tenant: spec.tenant,
            ahead: spec.primary.contains(&parts.cluster),
        };
        let deployed = deploy(parts, app, request, &known, Arc::clone(&metrics), compiling).await?;
        Ok::<_, PrepareError>((deployed, formed.stands_in))
    };
    let first = entry_function(spec)?;
    let (entry, mut stands_in) = ready(first).await?;
    let traffic = &spec.gateway.traffic;
    let mut shares = Vec::with_capacity(traffic.split.len());
    for share in &traffic.split {
        let deployed = if share.version == entry.version {
            Arc::clone(&entry)
        } else {
            let other = function_version(spec, &first.function, share.version)?;
            let (deployed, other_stands_in) = ready(other).await?;
            stands_in |= other_stands_in;
            deployed
        };
        shares.push((share.weight, deployed));
    }
    let split = (!shares.is_empty()).then(|| {
        Arc::new(Split {
            shares,
            sticky: traffic.sticky,
            pin: traffic.pin,
        })
    });
    Ok(Serving {
        entry,
        split,
        staged: None,
        stands_in,
    })
}

/// Prepares a workflow.
async fn stages(
    parts: &AppsParts,
    app: &AppName,
    spec: &AppSpec,
    run: &RunSpec,
    current: Option<Serving>,
    compiling: &(impl Fn() + Send + Sync),
) -> Result<Serving, PrepareError> {
    let before = current.and_then(|current| current.staged);
    let mut stages = Vec::with_capacity(spec.workflow.stages().len());
    let mut stands_in = false;
    for stage in spec.workflow.stages() {
        let known = before.as_ref().and_then(|old| old.find(&stage.name));
        let stats = match known {
            Some(known) => Arc::clone(&known.stats),
            None => StageStats::new(parts.metrics.stage(app, &stage.name)),
        };
        let chosen = spec.form_in(&parts.cluster, &stage.name);
        let formed = in_form(parts, function_of(spec, stage)?, chosen).await;
        stands_in |= formed.stands_in;
        let function = &*formed.function;
        let request = DeployRequest {
            stage: Some(&stage.name),
            form: formed.name,
            function,
            tenant: spec.tenant,
            ahead: run.runs_in(&stage.name, &parts.cluster),
        };
        let deployed = if runs(parts, &function.manifest).await {
            let known: Vec<_> = known.and_then(|k| k.deployed.clone()).into_iter().collect();
            let metrics = Arc::clone(&stats.metrics);
            Some(deploy(parts, app, request, &known, metrics, compiling).await?)
        } else {
            None
        };
        stages.push(StageServing {
            name: stage.name.clone(),
            function: function.function.clone(),
            version: function.version,
            manifest: function.manifest.clone(),
            stats,
            deployed,
        });
    }
    Serving::staged(Staged::new(app, spec, run, stages), stands_in)
}

/// A function version to be made callable.
struct DeployRequest<'a> {
    stage: Option<&'a StageName>,
    /// The form, if the function has several.
    form: Option<FormName>,
    function: &'a FunctionSpec,
    /// The app's tenant, if known.
    tenant: Option<TenantTag>,
    /// Whether to load it before its first call.
    ahead: bool,
}

/// Makes a function version callable, or keeps the one in `known` that has not changed.
async fn deploy(
    parts: &AppsParts,
    app: &AppName,
    request: DeployRequest<'_>,
    known: &[Arc<Deployed>],
    metrics: Arc<AppMetrics>,
    compiling: &(impl Fn() + Send + Sync),
) -> Result<Arc<Deployed>, PrepareError> {
    let function = request.function;
    let secrets = open_secrets(parts, function)?;
    let is_it = |known: &Deployed| known.form == request.form && known.is(function, &secrets);
    let kept = known.iter().find(|known| is_it(known));
    let is_new = kept.is_none();
    let deployed = match kept {
        Some(kept) => Arc::clone(kept),
        None => {
            let form = request.form.as_ref();
            let server = server(parts, app, (function, form), &secrets, compiling).await?;
            if let (Some(tenant), Some(instances)) = (request.tenant, &parts.instances) {
                // Set before the first instance starts.
                instances.set_tenant(app, tenant);
            }
            let deployed = DeployedParts {
                app: app.clone(),
                stage: request.stage.cloned(),
                form: request.form,
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
    // The new revision must not be cold while the old one is warm.
    let is_called = known.iter().any(|old| old.is_warm());
    if request.ahead || is_called {
        load_ahead(parts, &deployed, is_new && request.ahead).await?;
    }
    if is_new && is_called {
        start_ahead(parts, &deployed).await;
    }
    Ok(deployed)
}

/// A function in the form that is served here.
struct ServedForm<'a> {
    /// The form, if the function has several.
    name: Option<FormName>,
    function: Cow<'a, FunctionSpec>,
    /// Whether it replaces the chosen form, which may become runnable later.
    stands_in: bool,
}

/// The function in the form that was chosen for the cluster, if this node or another one of the cluster can run that, else in the first form that
/// can run. If none can, the function is left as it is, and preparing it tells why.
async fn in_form<'a>(
    parts: &AppsParts,
    function: &'a FunctionSpec,
    chosen: Option<&FormName>,
) -> ServedForm<'a> {
    let names = function.form_names();
    let chosen = chosen.filter(|chosen| names.contains(chosen));
    for name in chosen.into_iter().chain(&names) {
        let Some(formed) = function.in_form(name) else {
            continue;
        };
        if runs(parts, &formed.manifest).await {
            return ServedForm {
                name: Some(name.clone()),
                function: Cow::Owned(formed),
                stands_in: chosen.is_some_and(|chosen| chosen != name) && parts.instances.is_some(),
            };
        }
    }
    ServedForm {
        name: None,
        function: Cow::Borrowed(function),
        stands_in: false,
    }
}

/// Whether this node or another one of the cluster runs such functions and has the devices that they need.
async fn runs(parts: &AppsParts, manifest: &Manifest) -> bool {
    match manifest.runtime {
        RuntimeKind::Wasm => true,
        RuntimeKind::Docker => match containers(parts).await {
            Some(instances) => has_devices(instances, manifest).await.is_ok(),
            None => false,
        },
    }
}

/// Checks that the cluster has the devices that a function needs.
async fn has_devices(instances: &Instances, manifest: &Manifest) -> Result<(), PrepareError> {
    let Some(request) = &manifest.gpu else {
        return Ok(());
    };
    match instances.lacks_devices(request).await {
        None => Ok(()),
        Some(lacking) => Err(PrepareError::Devices(lacking)),
    }
}

/// The instances, if this node or its cluster runs containers. A node without an engine is a gateway to those that have one.
async fn containers(parts: &AppsParts) -> Option<&Instances> {
    let instances = parts.instances.as_ref()?;
    instances.runs_containers().await.then_some(instances)
}

/// Builds the part that serves a function's calls.
async fn server(
    parts: &AppsParts,
    app: &AppName,
    (function, form): (&FunctionSpec, Option<&FormName>),
    secrets: &BTreeMap<String, String>,
    compiling: &(impl Fn() + Send + Sync),
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
            let instances = containers(parts).await.ok_or_else(|| {
                PrepareError::Spec(
                    "neither this node nor another one of its cluster runs containers; set docker.enabled or kubernetes.enabled"
                        .to_owned(),
                )
            })?;
            has_devices(instances, &function.manifest).await?;
            let path = parts.cache.fetch(digest, size).await?;
            compiling();
            let image = image::image(digest, path, &parts.settings.registries).await?;
            let mut spec = start_spec(parts, app, function, secrets, image)?;
            spec.description.form = form.cloned();
            instances.prepare(&spec.image).await?;
            let expected = function.manifest.expected_millis();
            let queue = instances
                .register(spec, expected)
                .map_err(|error| PrepareError::Spec(error.to_string()))?;
            Ok(Server::Instances(queue))
        }
    }
}

/// The most processes and threads of one container.
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

/// The function version that answers the app's calls.
fn entry_function(spec: &AppSpec) -> Result<&FunctionSpec, PrepareError> {
    let stages = spec.workflow.stages().len();
    if stages != 1 {
        return Err(PrepareError::Spec(format!(
            "the workflow has {stages} stages and says nothing of how they are run"
        )));
    }
    let entry = spec.workflow.entry();
    function_version(spec, &entry.function, entry.version)
}

/// The function version of a stage.
fn function_of<'a>(spec: &'a AppSpec, stage: &Stage) -> Result<&'a FunctionSpec, PrepareError> {
    function_version(spec, &stage.function, stage.version)
}

fn function_version<'a>(
    spec: &'a AppSpec,
    function: &FunctionName,
    version: VersionNumber,
) -> Result<&'a FunctionSpec, PrepareError> {
    let mut all = spec.functions.iter();
    all.find(|f| f.function == *function && f.version == version)
        .ok_or_else(|| {
            PrepareError::Spec(format!(
                "function {function} {version}, which calls go to, is not in it"
            ))
        })
}

/// The values of a function's secrets, which are sealed for the function's own app, also when another app runs it as a stage.
fn open_secrets(
    parts: &AppsParts,
    function: &FunctionSpec,
) -> Result<BTreeMap<String, String>, PrepareError> {
    let mut secrets = BTreeMap::new();
    for name in &function.manifest.secrets {
        let sealed = function.secrets.get(name).ok_or_else(|| {
            PrepareError::Spec(format!("the value of secret {name} is not in it"))
        })?;
        let value = parts
            .key
            .open(&format!("{}/{name}", function.function), sealed)
            .map_err(|_| PrepareError::Secret(name.to_string()))?;
        secrets.insert(name.to_string(), value);
    }
    Ok(secrets)
}

/// Starts one instance before this version replaces another one. If it does not start in time, or there is no room for it beside the old ones,
/// calls go to this version all the same, and its status tells the problem.
async fn start_ahead(parts: &AppsParts, deployed: &Deployed) {
    if let (Server::Instances(queue), Some(instances)) = (&deployed.server, &parts.instances) {
        let longest = deployed.manifest.startup.as_duration();
        let is_there = instances.warm(queue, longest).await;
        debug!(app = %deployed.app, version = %deployed.version, is_there, "started ahead of its first call");
    }
}

async fn load_ahead(
    parts: &AppsParts,
    deployed: &Arc<Deployed>,
    with_call: bool,
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
    if with_call && parts.settings.warm_call {
        let longest = parts.settings.warm_call_timeout;
        let timeout = deployed.manifest.timeout.min(longest).as_duration();
        // A full node gets enough calls to warm up the function.
        let Some(permit) = parts.ledger.enter(deployed.manifest.memory_mib()) else {
            return Ok(());
        };
        let mut context = deployed.context(bytes::Bytes::new(), timeout, Some(permit.memory));
        context.log = Arc::new(NoLog);
        if let Err(error) = probe::probe(function, context).await {
            // Whatever the function answers, the call has warmed it up.
            debug!(app = %deployed.app, %error, "the warm call was not answered well");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use fdn_core::Digest;
    use fdn_core::workflow::{Stage, Workflow};

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
            holders: fdn_core::message::Holders::EVERYWHERE,
            host: "a.fn.test".parse().expect("host"),
            functions: vec![FunctionSpec {
                function: "a".parse().expect("function"),
                version: VersionNumber::FIRST,
                digest: Digest::of(b"a"),
                size: 1,
                manifest: fdn_core::manifest::Manifest::default(),
                secrets: BTreeMap::new(),
                forms: Vec::new(),
            }],
            workflow: Workflow::new(stages, edges).expect("workflow"),
            primary: std::collections::BTreeSet::new(),
            leaving: std::collections::BTreeSet::new(),
            run: None,
            gateway: Box::default(),
            forms: Default::default(),
            tenant: None,
        }
    }

    #[test]
    fn the_entry_function_is_found_or_the_lack_of_it_named() {
        assert_eq!(entry_function(&spec(&["a"])).expect("found").size, 1);
        let error = entry_function(&spec(&["b"]))
            .expect_err("missing")
            .to_string();
        assert!(error.contains("function b v1"), "{error}");
        let error = entry_function(&spec(&["a", "b"]))
            .expect_err("two")
            .to_string();
        assert!(error.contains("2 stages"), "{error}");
    }
}

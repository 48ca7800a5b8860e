//! Translates a specification into a request to the engine. Pure, apart from the one file that containers read.

use std::collections::{BTreeMap, HashMap};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bollard::models::{
    ContainerCreateBody, DeviceRequest, HealthConfig, HostConfig, HostConfigLogConfig, Mount,
    MountType, RestartPolicy, RestartPolicyNameEnum,
};

use super::image::LocalImage;
use super::options::DockerOptions;
use crate::runtime::Owner;
use crate::spec::{Description, StartSpec};

/// The labels on all containers and networks of the agent.
pub(super) const CLUSTER: &str = "net.fdn.cluster";
pub(super) const NODE: &str = "net.fdn.node";
/// Distinguishes agents of the same name that share an engine, where there are several. An empty one means none.
pub(super) const SCOPE: &str = "net.fdn.scope";
pub(super) const INSTANCE: &str = "net.fdn.instance";
pub(super) const DESCRIPTION: &str = "net.fdn.description";
/// The port, if it differs from the description's (on the node's own network).
pub(super) const PORT: &str = "net.fdn.port";

/// The filters that match what this owner made within its scope. Without a scope, they also match what agents of the same name made within
/// theirs: there is no filter for the absence of a label.
pub(super) fn filters(owner: &Owner, scope: Option<&str>) -> HashMap<String, Vec<String>> {
    let mut labels = vec![
        format!("{CLUSTER}={}", owner.cluster),
        format!("{NODE}={}", owner.node),
    ];
    labels.extend(scope.map(|scope| format!("{SCOPE}={scope}")));
    HashMap::from([("label".to_owned(), labels)])
}

/// Whether an object with these labels was made by this owner, within this scope (or without one if `None`).
pub(super) fn is_of(
    labels: Option<&HashMap<String, String>>,
    owner: &Owner,
    scope: Option<&str>,
) -> bool {
    let label = |name| labels?.get(name).map(String::as_str);
    label(CLUSTER) == Some(owner.cluster.as_str())
        && label(NODE) == Some(owner.node.as_str())
        && label(SCOPE).filter(|scope| !scope.is_empty()) == scope
}

pub(super) fn owner_labels(owner: &Owner) -> HashMap<String, String> {
    HashMap::from([
        (CLUSTER.to_owned(), owner.cluster.to_string()),
        (NODE.to_owned(), owner.node.to_string()),
    ])
}

/// The container's name; the engine refuses a second container of the same name.
pub(super) fn name(description: &Description) -> String {
    format!("fdn-{}", description.id)
}

/// The complete request. `network` is the engine's name of the network mode, `port` the port on which the container must listen.
pub(super) fn body(
    spec: &StartSpec,
    owner: &Owner,
    image: &LocalImage,
    network: &str,
    port: u16,
    options: &DockerOptions,
) -> ContainerCreateBody {
    // The engine adds the image's labels to these, except where both have one of the same name: an image must set none that is read here.
    let mut labels = owner_labels(owner);
    let no_scope = image.has_scope.then(String::new);
    let scope = options.scope.clone().or(no_scope);
    labels.extend(scope.map(|scope| (SCOPE.to_owned(), scope)));
    labels.insert(INSTANCE.to_owned(), spec.description.id.to_string());
    labels.insert(PORT.to_owned(), port.to_string());
    let description =
        serde_json::to_string(&spec.description).expect("a description has only string keys");
    labels.insert(DESCRIPTION.to_owned(), description);
    let mut environment = spec.environment();
    environment.insert("PORT".to_owned(), port.to_string());
    ContainerCreateBody {
        image: Some(image.reference.clone()),
        env: Some(
            environment
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect(),
        ),
        labels: Some(labels),
        hostname: Some(spec.description.function.to_string()),
        attach_stdout: Some(false),
        attach_stderr: Some(false),
        // The image's own check would run in processes of the engine, as often as the image says, outside the container's CPU limit.
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..HealthConfig::default()
        }),
        // The engine's own set-up of a network runs a process for each container, even if there is nothing to set up.
        network_disabled: own_hosts(network, options).is_some().then_some(true),
        host_config: Some(host_config(spec, image, network, options)),
        ..ContainerCreateBody::default()
    }
}

/// The CPU that a container may use while the engine starts it, in billionths of a core.
///
/// The engine's own process that sets a container up counts towards the container's quota and takes some ten milliseconds, which with a tenth
/// of a core would take a tenth of a second.
const STARTUP_CPU: i64 = 1_000_000_000;

fn nano_cpus(description: &Description) -> i64 {
    as_i64(
        description
            .resources
            .cpu_milli
            .get()
            .saturating_mul(1_000_000),
    )
}

/// The CPU limit to set once the engine's part of a start is over, in billionths of a core; `None` if it is not lower than during the start.
pub(super) fn cpu_once_started(description: &Description) -> Option<i64> {
    let nano_cpus = nano_cpus(description);
    // 0 means that there is no quota.
    (1..STARTUP_CPU).contains(&nano_cpus).then_some(nano_cpus)
}

fn host_config(
    spec: &StartSpec,
    image: &LocalImage,
    network: &str,
    options: &DockerOptions,
) -> HostConfig {
    let resources = &spec.description.resources;
    let memory = as_i64(resources.memory_mib.get().saturating_mul(1 << 20));
    HostConfig {
        memory: Some(memory),
        // Memory and swap together: without this, swap would make the memory limit ineffective.
        memory_swap: Some(memory),
        nano_cpus: Some(match cpu_once_started(&spec.description) {
            Some(_) => STARTUP_CPU,
            None => nano_cpus(&spec.description),
        }),
        pids_limit: Some(i64::from(spec.pids)),
        network_mode: Some(network.to_owned()),
        readonly_rootfs: Some(true),
        tmpfs: Some(tmpfs(image, options)),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges:true".to_owned()]),
        privileged: Some(false),
        ipc_mode: Some("private".to_owned()),
        // The agent decides about restarts; the engine's own would start containers that the agent does not know.
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".to_owned()),
            config: Some(HashMap::from([
                (
                    "max-size".to_owned(),
                    options.log_file.as_bytes().to_string(),
                ),
                ("max-file".to_owned(), "1".to_owned()),
            ])),
        }),
        // When memory is short, a function's process is killed before the node's own.
        oom_score_adj: Some(500),
        device_requests: device_requests(spec),
        mounts: mounts(spec, own_hosts(network, options)),
        ..HostConfig::default()
    }
}

/// `/tmp`, and a bounded in-memory file system for each volume that the image declares: an anonymous volume would be
/// writable without a bound in spite of the read-only root.
fn tmpfs(image: &LocalImage, options: &DockerOptions) -> HashMap<String, String> {
    let flags = format!("rw,nosuid,nodev,noexec,size={}", options.tmp.as_bytes());
    std::iter::once("/tmp")
        .chain(image.volumes.iter().map(String::as_str))
        .map(|path| (path.to_owned(), flags.clone()))
        .collect()
}

fn device_requests(spec: &StartSpec) -> Option<Vec<DeviceRequest>> {
    let granted = spec.description.devices.iter().filter(|d| d.physical);
    let ids: Vec<String> = granted.map(|d| d.device.clone()).collect();
    (!ids.is_empty()).then(|| {
        vec![DeviceRequest {
            driver: Some("nvidia".to_owned()),
            device_ids: Some(ids),
            capabilities: Some(vec![vec!["gpu".to_owned()]]),
            ..DeviceRequest::default()
        }]
    })
}

/// The file in [`DockerOptions::folder`] that defines `localhost`; made by [`write_hosts`].
fn hosts(folder: &Path) -> PathBuf {
    folder.join("hosts")
}

/// The names known to containers without a network.
const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost\n";

/// Writes the files that containers read.
///
/// A file with the right content is not replaced: while the engine starts a container, it opens the mount's source a second time,
/// and takes a file that was replaced in between for an attack.
pub(super) fn write_hosts(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let place = hosts(folder);
    if std::fs::read_to_string(&place).is_ok_and(|text| text == HOSTS) {
        return Ok(());
    }
    let whole = folder.join(format!("hosts.{}", uuid::Uuid::now_v7().simple()));
    std::fs::write(&whole, HOSTS)?;
    // Readable whatever user the program in the container runs as.
    std::fs::set_permissions(&whole, Permissions::from_mode(0o644))?;
    // The file appears complete or not at all, and the first of two concurrent writers wins.
    match std::fs::hard_link(&whole, &place) {
        Ok(()) => std::fs::remove_file(&whole),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            if std::fs::read_to_string(&place).is_ok_and(|text| text == HOSTS) {
                return std::fs::remove_file(&whole);
            }
            std::fs::rename(&whole, &place)
        }
        Err(error) => Err(error),
    }
}

/// The hosts file for a container that gets none from the engine.
fn own_hosts(network: &str, options: &DockerOptions) -> Option<PathBuf> {
    let folder = options.folder.as_ref()?;
    (network == "none").then(|| hosts(folder))
}

fn mounts(spec: &StartSpec, hosts: Option<PathBuf>) -> Option<Vec<Mount>> {
    let hosts = hosts.map(|path| Mount {
        target: Some("/etc/hosts".to_owned()),
        source: Some(path.display().to_string()),
        typ: Some(MountType::BIND),
        read_only: Some(true),
        ..Mount::default()
    });
    let mounts: Vec<Mount> = folders(spec).chain(hosts).collect();
    (!mounts.is_empty()).then_some(mounts)
}

fn folders(spec: &StartSpec) -> impl Iterator<Item = Mount> {
    let folders: BTreeMap<String, ()> = spec
        .description
        .devices
        .iter()
        .flat_map(|d| &d.folders)
        .map(|path| (path.display().to_string(), ()))
        .collect();
    folders.into_keys().map(|path| Mount {
        target: Some(path.clone()),
        source: Some(path),
        typ: Some(MountType::BIND),
        ..Mount::default()
    })
}

fn as_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

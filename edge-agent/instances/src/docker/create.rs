//! A specification as the engine wants to hear it. Pure.

use std::collections::{BTreeMap, HashMap};

use bollard::models::{
    ContainerCreateBody, DeviceRequest, HostConfig, HostConfigLogConfig, Mount, MountType,
    RestartPolicy, RestartPolicyNameEnum,
};

use super::image::LocalImage;
use super::options::DockerOptions;
use crate::runtime::Owner;
use crate::spec::{Description, StartSpec};

/// The labels on everything of ours.
pub(super) const CLUSTER: &str = "net.fdn.cluster";
pub(super) const NODE: &str = "net.fdn.node";
pub(super) const INSTANCE: &str = "net.fdn.instance";
pub(super) const DESCRIPTION: &str = "net.fdn.description";
/// The port, where it is not the description's (on the node's own network).
pub(super) const PORT: &str = "net.fdn.port";

/// The filters that match what this owner made, and nothing else.
pub(super) fn filters(owner: &Owner) -> HashMap<String, Vec<String>> {
    let labels = vec![
        format!("{CLUSTER}={}", owner.cluster),
        format!("{NODE}={}", owner.node),
    ];
    HashMap::from([("label".to_owned(), labels)])
}

pub(super) fn owner_labels(owner: &Owner) -> HashMap<String, String> {
    HashMap::from([
        (CLUSTER.to_owned(), owner.cluster.to_string()),
        (NODE.to_owned(), owner.node.to_string()),
    ])
}

/// The container's name; the engine refuses a second one.
pub(super) fn name(description: &Description) -> String {
    format!("fdn-{}", description.id)
}

/// The whole order. `network` is the engine's name of the network mode, `port` where the container shall listen.
pub(super) fn body(
    spec: &StartSpec,
    owner: &Owner,
    image: &LocalImage,
    network: &str,
    port: u16,
    options: &DockerOptions,
) -> ContainerCreateBody {
    let mut labels = owner_labels(owner);
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
        host_config: Some(host_config(spec, image, network, options)),
        ..ContainerCreateBody::default()
    }
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
        // Memory and swap together: no swap, or a limit on memory is none.
        memory_swap: Some(memory),
        nano_cpus: Some(as_i64(resources.cpu_milli.get().saturating_mul(1_000_000))),
        pids_limit: Some(i64::from(spec.pids)),
        network_mode: Some(network.to_owned()),
        readonly_rootfs: Some(true),
        tmpfs: Some(tmpfs(image, options)),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges:true".to_owned()]),
        privileged: Some(false),
        ipc_mode: Some("private".to_owned()),
        // The agent decides about restarts; the engine's own would start what nobody knows of.
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
        // A function's process goes before the node's own when memory is short.
        oom_score_adj: Some(500),
        device_requests: device_requests(spec),
        mounts: folders(spec),
        ..HostConfig::default()
    }
}

/// `/tmp`, and a bounded file system in memory for each volume that the image declares: an anonymous volume would be
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

fn folders(spec: &StartSpec) -> Option<Vec<Mount>> {
    let folders: BTreeMap<String, ()> = spec
        .description
        .devices
        .iter()
        .flat_map(|d| &d.folders)
        .map(|path| (path.display().to_string(), ()))
        .collect();
    (!folders.is_empty()).then(|| {
        folders
            .into_keys()
            .map(|path| Mount {
                target: Some(path.clone()),
                source: Some(path),
                typ: Some(MountType::BIND),
                ..Mount::default()
            })
            .collect()
    })
}

fn as_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

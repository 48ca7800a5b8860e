//! Translates a specification into a pod. Pure.
//!
//! The pod is bound to its node here: `spec.nodeName` is set, so the scheduler of Kubernetes is not involved, and the kubelet of
//! the node, which checks its own resources, is the last authority. Requests equal limits (quality of service *guaranteed*), so
//! that both ledgers count the same.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EmptyDirVolumeSource, EnvVar, EnvVarSource,
    HostPathVolumeSource, LocalObjectReference, Pod, PodSecurityContext, PodSpec,
    ResourceRequirements, SeccompProfile, Secret, SecretKeySelector, SecurityContext, Volume,
    VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::options::KubernetesOptions;
use crate::runtime::Owner;
use crate::spec::{Description, Outbound, StartSpec};

/// The labels on all objects of the agent, the same as on Docker containers.
pub(super) const CLUSTER: &str = "net.fdn.cluster";
pub(super) const NODE: &str = "net.fdn.node";
pub(super) const INSTANCE: &str = "net.fdn.instance";
/// The label by which network policies select: `denied` or `open`.
pub(super) const OUTBOUND: &str = "net.fdn.outbound";
/// Annotations: the description, and the mark of the start that created the pod.
pub(super) const DESCRIPTION: &str = "net.fdn.description";
pub(super) const START: &str = "net.fdn.start";
/// The name of a pod's only container.
pub(super) const CONTAINER: &str = "function";
/// A program that no image has: a pod that only fetches its image ends without running anything of it.
const NOTHING: &str = "/.fdn-fetches-only";

/// The label selector that matches this owner's objects, and nothing else.
pub(super) fn selector(owner: &Owner) -> String {
    format!("{CLUSTER}={},{NODE}={}", owner.cluster, owner.node)
}

/// Whether a pod is this owner's, in case a server ignored the selector.
pub(super) fn is_owned(pod: &Pod, owner: &Owner) -> bool {
    let label = |name| pod.metadata.labels.as_ref()?.get(name).map(String::as_str);
    label(CLUSTER) == Some(owner.cluster.as_str()) && label(NODE) == Some(owner.node.as_str())
}

/// The pod's name; the API server refuses a second pod of the same name.
pub(super) fn name(description: &Description) -> String {
    format!("fdn-{}", description.id).replace('_', "-")
}

fn labels(owner: &Owner) -> BTreeMap<String, String> {
    let pairs = [
        (CLUSTER, owner.cluster.to_string()),
        (NODE, owner.node.to_string()),
        ("app.kubernetes.io/managed-by", "fdn".to_owned()),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}

/// The complete pod. `image` is the reference that the kubelet pulls, `start` the mark of this start.
pub(super) fn body(
    spec: &StartSpec,
    owner: &Owner,
    image: &str,
    start: &str,
    options: &KubernetesOptions,
) -> Pod {
    let description = &spec.description;
    let mut labels = labels(owner);
    let outbound = match spec.outbound {
        Outbound::Open => "open",
        Outbound::Denied | Outbound::Hosts(_) => "denied",
    };
    for (name, value) in [
        (INSTANCE, description.id.to_string()),
        ("net.fdn.app", description.app.to_string()),
        ("net.fdn.function", description.function.to_string()),
        ("net.fdn.version", description.version.to_string()),
        (OUTBOUND, outbound.to_owned()),
    ] {
        labels.insert(name.to_owned(), value);
    }
    let text = serde_json::to_string(description).expect("a description has only string keys");
    let annotations = BTreeMap::from([
        (DESCRIPTION.to_owned(), text),
        (START.to_owned(), start.to_owned()),
    ]);
    let (volumes, mounts) = volumes(spec, options);
    let container = Container {
        name: CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        env: Some(environment(spec, start)),
        ports: Some(vec![ContainerPort {
            container_port: i32::from(description.port.get()),
            ..ContainerPort::default()
        }]),
        resources: Some(resources(spec, options)),
        volume_mounts: Some(mounts),
        security_context: Some(security()),
        ..Container::default()
    };
    let mut pod = pod(container, options);
    pod.metadata = ObjectMeta {
        name: Some(name(description)),
        labels: Some(labels),
        annotations: Some(annotations),
        ..ObjectMeta::default()
    };
    if let Some(pod) = &mut pod.spec {
        pod.hostname = Some(description.function.to_string());
        pod.volumes = Some(volumes);
        if description.devices.iter().any(|device| device.physical) {
            pod.runtime_class_name
                .clone_from(&options.gpu_runtime_class);
        }
    }
    pod
}

/// A pod that has its image pulled and ends at once.
pub(super) fn fetch(name: &str, owner: &Owner, image: &str, options: &KubernetesOptions) -> Pod {
    let little = |cpu: &str, memory: &str| {
        BTreeMap::from([
            ("cpu".to_owned(), Quantity(cpu.to_owned())),
            ("memory".to_owned(), Quantity(memory.to_owned())),
        ])
    };
    let container = Container {
        name: CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(vec![NOTHING.to_owned()]),
        resources: Some(ResourceRequirements {
            requests: Some(little("1m", "16Mi")),
            limits: Some(little("1m", "16Mi")),
            ..ResourceRequirements::default()
        }),
        security_context: Some(security()),
        ..Container::default()
    };
    let mut labels = labels(owner);
    labels.insert(OUTBOUND.to_owned(), "denied".to_owned());
    let mut pod = pod(container, options);
    pod.metadata = ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(labels),
        ..ObjectMeta::default()
    };
    pod
}

/// The common part of all pods of the agent.
fn pod(container: Container, options: &KubernetesOptions) -> Pod {
    let secrets = options.image_pull_secrets.iter();
    let seccomp = SeccompProfile {
        type_: "RuntimeDefault".to_owned(),
        localhost_profile: None,
    };
    Pod {
        spec: Some(PodSpec {
            node_name: Some(options.node.clone()),
            // The agent decides about restarts.
            restart_policy: Some("Never".to_owned()),
            service_account_name: options.service_account.clone(),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            termination_grace_period_seconds: i64::try_from(options.grace.as_secs()).ok(),
            image_pull_secrets: Some(
                secrets
                    .map(|name| LocalObjectReference { name: name.clone() })
                    .collect(),
            ),
            security_context: Some(PodSecurityContext {
                run_as_non_root: (!options.allow_root).then_some(true),
                run_as_user: options.user.map(i64::from),
                run_as_group: options.user.map(i64::from),
                fs_group: options.user.map(i64::from),
                seccomp_profile: Some(seccomp),
                ..PodSecurityContext::default()
            }),
            containers: vec![container],
            ..PodSpec::default()
        }),
        ..Pod::default()
    }
}

fn security() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        privileged: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".to_owned()]),
            add: None,
        }),
        ..SecurityContext::default()
    }
}

fn resources(spec: &StartSpec, options: &KubernetesOptions) -> ResourceRequirements {
    let wanted = &spec.description.resources;
    let mut amounts = BTreeMap::from([
        (
            "cpu".to_owned(),
            Quantity(format!("{}m", wanted.cpu_milli.get())),
        ),
        (
            "memory".to_owned(),
            Quantity(format!("{}Mi", wanted.memory_mib.get())),
        ),
    ]);
    let slices = spec
        .description
        .devices
        .iter()
        .filter(|d| d.physical)
        .count();
    if let Some(name) = options.gpu_resource.as_ref().filter(|_| slices > 0) {
        amounts.insert(name.clone(), Quantity(slices.to_string()));
    }
    ResourceRequirements {
        requests: Some(amounts.clone()),
        limits: Some(amounts),
        ..ResourceRequirements::default()
    }
}

/// Escapes a value: Kubernetes replaces `$(NAME)` in values and reads `$$` as `$`, but functions must see what their owner wrote.
fn literally(value: &str) -> String {
    value.replace('$', "$$")
}

/// The name of a start's Secret. Another start, even of the same instance, has another one, which may still wait for its removal.
fn secret_name(spec: &StartSpec, start: &str) -> String {
    let (mark, _) = start.split_once('-').unwrap_or((start, ""));
    format!("{}-{mark}", name(&spec.description))
}

/// The environment of the container. Secrets are only referenced here: their values are in a Secret that the pod owns.
fn environment(spec: &StartSpec, start: &str) -> Vec<EnvVar> {
    let secrets = &spec.secrets.0;
    let secret = secret_name(spec, start);
    let mut imposed = spec.imposed();
    imposed.insert("PORT".to_owned(), spec.description.port.to_string());
    let mut plain = spec.environment();
    plain.retain(|name, _| !secrets.keys().any(|key| key.as_str() == name));
    // These override secrets too: of two entries of one name the last one would apply.
    plain.extend(imposed.clone());
    let plain = plain.into_iter().map(|(name, value)| EnvVar {
        name,
        value: Some(literally(&value)),
        value_from: None,
    });
    let hidden = secrets
        .keys()
        .filter(|key| !imposed.contains_key(key.as_str()));
    let hidden = hidden.map(|key| EnvVar {
        name: key.to_string(),
        value: None,
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: secret.clone(),
                key: key.to_string(),
                optional: Some(false),
            }),
            ..EnvVarSource::default()
        }),
    });
    plain.chain(hidden).collect()
}

/// `/tmp` in memory, and the folders of the devices under the same paths.
fn volumes(spec: &StartSpec, options: &KubernetesOptions) -> (Vec<Volume>, Vec<VolumeMount>) {
    let mount = |name: &str, path: &str| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    };
    let mut volumes = vec![Volume {
        name: "tmp".to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            size_limit: Some(Quantity(options.tmp.as_bytes().to_string())),
            ..EmptyDirVolumeSource::default()
        }),
        ..Volume::default()
    }];
    let mut mounts = vec![mount("tmp", "/tmp")];
    let devices = &spec.description.devices;
    let mut folders: Vec<_> = devices.iter().flat_map(|d| &d.folders).collect();
    folders.sort();
    folders.dedup();
    for (at, folder) in folders.into_iter().enumerate() {
        let (name, path) = (format!("device-{at}"), folder.display().to_string());
        mounts.push(mount(&name, &path));
        volumes.push(Volume {
            name,
            host_path: Some(HostPathVolumeSource {
                path,
                type_: Some("Directory".to_owned()),
            }),
            ..Volume::default()
        });
    }
    (volumes, mounts)
}

/// The values of an instance's secrets, owned by its pod: Kubernetes itself removes them with the pod, so that this process
/// only needs the right to create secrets, and can read none at all. `None` if the instance has none.
pub(super) fn secret(spec: &StartSpec, owner: &Owner, uid: &str, start: &str) -> Option<Secret> {
    let values = &spec.secrets.0;
    let name = name(&spec.description);
    (!values.is_empty()).then(|| Secret {
        metadata: ObjectMeta {
            name: Some(secret_name(spec, start)),
            labels: Some(labels(owner)),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                name,
                uid: uid.to_owned(),
                controller: Some(true),
                block_owner_deletion: Some(false),
            }]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        string_data: Some(
            values
                .iter()
                .map(|(key, value)| (key.to_string(), value.clone()))
                .collect(),
        ),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    })
}

//! The pods made of specifications, and the interpretation of statuses.

use std::path::PathBuf;
use std::time::Duration;

use fdn_core::device::DeviceGrant;
use fdn_core::{Digest, InstanceId, MebiBytes, MilliCpu, Resources};
use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::options::KubernetesOptions;
use super::pod;
use super::status::{Blocked, Stage, view};
use crate::runtime::Owner;
use crate::spec::{Image, ImageSource, StartSpec};
use crate::state::{Exit, ExitReason};

fn owner() -> Owner {
    Owner {
        cluster: "eu-west".parse().unwrap(),
        node: "eu-west-1".parse().unwrap(),
    }
}

fn options() -> KubernetesOptions {
    KubernetesOptions {
        node: "worker-7".to_owned(),
        image_pull_secrets: vec!["regcred".to_owned()],
        ..KubernetesOptions::default()
    }
}

fn spec() -> StartSpec {
    let source = ImageSource::Registry {
        repository: "registry.example.com/team/thumbs".to_owned(),
        credentials: None,
    };
    let image = Image {
        digest: Digest::of(b"an image"),
        source,
    };
    let id = InstanceId::from_uuid(Uuid::from_u128(7));
    let resources = Resources::new(MilliCpu(250), MebiBytes(64));
    let (app, function) = ("shop".parse().unwrap(), "thumbs".parse().unwrap());
    let mut spec = StartSpec::new(id, app, function, image, resources);
    spec.env
        .insert("PRICE".parse().unwrap(), "$5 $(HOME) $$".to_owned());
    spec.secrets
        .0
        .insert("TOKEN".parse().unwrap(), "hush".to_owned());
    spec
}

const START: &str = "0badcafe-0000-4000-8000-000000000000";

fn made(spec: &StartSpec, options: &KubernetesOptions) -> Value {
    let pod = pod::body(
        spec,
        &owner(),
        "registry.example.com/x@sha256:0",
        START,
        options,
    );
    serde_json::to_value(pod).unwrap()
}

#[test]
fn a_pod_is_bound_closed_in_and_owned() {
    let pod = made(&spec(), &options());
    assert_eq!(
        pod["metadata"]["name"],
        "fdn-ins-00000000000000000000000000000007"
    );
    let labels = &pod["metadata"]["labels"];
    for (name, value) in [
        ("net.fdn.cluster", "eu-west"),
        ("net.fdn.node", "eu-west-1"),
        ("net.fdn.app", "shop"),
        ("net.fdn.function", "thumbs"),
        ("net.fdn.version", "v1"),
        ("net.fdn.outbound", "denied"),
        ("net.fdn.instance", "ins_00000000000000000000000000000007"),
    ] {
        assert_eq!(labels[name], value, "{name}");
    }
    let spec = &pod["spec"];
    assert_eq!(spec["nodeName"], "worker-7");
    assert_eq!(spec["restartPolicy"], "Never");
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(spec["enableServiceLinks"], false);
    assert_eq!(spec["terminationGracePeriodSeconds"], 30);
    assert_eq!(spec["imagePullSecrets"], json!([{ "name": "regcred" }]));
    assert_eq!(
        spec["securityContext"],
        json!({ "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } })
    );
    let container = &spec["containers"][0];
    assert_eq!(
        container["securityContext"],
        json!({
            "allowPrivilegeEscalation": false, "privileged": false, "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] }
        })
    );
    let amounts = json!({ "cpu": "250m", "memory": "64Mi" });
    assert_eq!(
        container["resources"],
        json!({ "limits": amounts, "requests": amounts })
    );
    let tmp = json!({ "medium": "Memory", "sizeLimit": (64u64 << 20).to_string() });
    assert_eq!(spec["volumes"], json!([{ "name": "tmp", "emptyDir": tmp }]));
}

#[test]
fn variables_are_meant_literally_and_secrets_are_only_named() {
    let pod = made(&spec(), &options());
    let environment = pod["spec"]["containers"][0]["env"].as_array().unwrap();
    let of = |name: &str| {
        environment
            .iter()
            .find(|variable| variable["name"] == name)
            .unwrap()
    };
    assert_eq!(of("PRICE")["value"], "$$5 $$(HOME) $$$$");
    assert_eq!(of("PORT")["value"], "8080");
    let source = &of("TOKEN")["valueFrom"]["secretKeyRef"];
    assert_eq!(source["key"], "TOKEN");
    assert_eq!(
        source["name"],
        "fdn-ins-00000000000000000000000000000007-0badcafe"
    );
    assert!(!pod.to_string().contains("hush"), "{pod}");
    let secret = pod::secret(&spec(), &owner(), "the-uid", START).unwrap();
    assert_eq!(secret.metadata.name.as_deref(), source["name"].as_str());
    let owners = secret.metadata.owner_references.unwrap();
    assert_eq!(
        (owners[0].kind.as_str(), owners[0].uid.as_str()),
        ("Pod", "the-uid")
    );
    let mut without = spec();
    without.secrets.0.clear();
    assert!(pod::secret(&without, &owner(), "the-uid", START).is_none());
}

#[test]
fn a_secret_hides_the_variable_of_its_name() {
    let mut spec = spec();
    spec.env
        .insert("TOKEN".parse().unwrap(), "plain".to_owned());
    let pod = made(&spec, &options());
    let environment = pod["spec"]["containers"][0]["env"].as_array().unwrap();
    let tokens = environment
        .iter()
        .filter(|variable| variable["name"] == "TOKEN");
    let tokens: Vec<_> = tokens.collect();
    assert_eq!(tokens.len(), 1, "{tokens:?}");
    assert!(tokens[0]["value"].is_null(), "{tokens:?}");
}

#[test]
fn slices_of_devices_are_variables_folders_and_what_the_cluster_counts() {
    let mut spec = spec();
    spec.secrets
        .0
        .insert("NVIDIA_VISIBLE_DEVICES".parse().unwrap(), "all".to_owned());
    spec.description.devices = vec![DeviceGrant {
        device: "GPU-1".to_owned(),
        memory: MebiBytes(4096),
        env: [("NVIDIA_VISIBLE_DEVICES".to_owned(), "GPU-1".to_owned())].into(),
        folders: [PathBuf::from("/tmp/nvidia-mps")].into(),
        physical: true,
    }];
    let mut options = options();
    options.gpu_runtime_class = Some("nvidia".to_owned());
    options.gpu_resource = Some("nvidia.com/gpu.shared".to_owned());
    let pod = made(&spec, &options);
    let container = &pod["spec"]["containers"][0];
    assert_eq!(pod["spec"]["runtimeClassName"], "nvidia");
    assert_eq!(
        container["resources"]["limits"]["nvidia.com/gpu.shared"],
        "1"
    );
    let visible = json!({ "name": "NVIDIA_VISIBLE_DEVICES", "value": "GPU-1" });
    let entries = container["env"].as_array().unwrap().iter();
    let same: Vec<_> = entries
        .filter(|variable| variable["name"] == "NVIDIA_VISIBLE_DEVICES")
        .collect();
    assert_eq!(same, [&visible], "no secret stands over it");
    assert!(container["env"].as_array().unwrap().contains(&visible));
    assert_eq!(
        pod["spec"]["volumes"][1]["hostPath"]["path"],
        "/tmp/nvidia-mps"
    );
    assert_eq!(container["volumeMounts"][1]["mountPath"], "/tmp/nvidia-mps");
    spec.description.devices[0].physical = false;
    let pod = made(&spec, &options);
    assert!(
        pod["spec"]["runtimeClassName"].is_null(),
        "a simulated device"
    );
}

#[test]
fn the_user_is_the_images_own_unless_one_is_set() {
    let mut options = options();
    options.user = Some(65532);
    let security = made(&spec(), &options)["spec"]["securityContext"].clone();
    assert_eq!(
        (&security["runAsUser"], &security["runAsNonRoot"]),
        (&json!(65532), &json!(true))
    );
    options.user = None;
    options.allow_root = true;
    let security = made(&spec(), &options)["spec"]["securityContext"].clone();
    assert!(security["runAsUser"].is_null() && security["runAsNonRoot"].is_null());
}

fn stage(status: Value) -> Stage {
    let pod = json!({ "metadata": { "name": "x", "uid": "u" }, "status": status });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    view(&pod).unwrap().stage
}

fn with_state(phase: &str, state: &Value) -> Value {
    json!({
        "phase": phase, "podIP": "10.1.2.3",
        "containerStatuses": [{
            "name": "function", "image": "x", "imageID": "", "ready": false, "restartCount": 0, "state": state
        }]
    })
}

fn waits(reason: &str, message: &str) -> Stage {
    let waiting = json!({ "waiting": { "reason": reason, "message": message } });
    stage(with_state("Pending", &waiting))
}

fn ended(reason: &str, code: i32) -> Stage {
    let state = json!({ "terminated": { "reason": reason, "exitCode": code } });
    stage(with_state("Failed", &state))
}

#[test]
fn statuses_of_pods_that_do_not_run_say_what_is_wrong() {
    assert!(matches!(stage(json!({})), Stage::Waiting(_)));
    assert!(matches!(waits("ContainerCreating", ""), Stage::Waiting(_)));
    for reason in ["ErrImagePull", "ImagePullBackOff"] {
        assert!(
            matches!(waits(reason, "x"), Stage::Blocked(Blocked::Missing(_))),
            "{reason}"
        );
    }
    assert!(matches!(
        waits("InvalidImageName", ""),
        Stage::Blocked(Blocked::Invalid(_))
    ));
    let secret = waits("CreateContainerConfigError", "secret \"fdn-x\" not found");
    assert!(
        matches!(secret, Stage::Waiting(_)),
        "it is made just after the pod"
    );
    let root = waits(
        "CreateContainerConfigError",
        "container has runAsNonRoot and image will run as root",
    );
    assert!(
        matches!(root, Stage::Blocked(Blocked::Invalid(_))),
        "{root:?}"
    );
    let broken = waits("CreateContainerError", "exec format error");
    assert!(
        matches!(broken, Stage::Blocked(Blocked::Invalid(_))),
        "{broken:?}"
    );
    let engine = waits("CreateContainerError", "context deadline exceeded");
    assert!(
        matches!(engine, Stage::Blocked(Blocked::Failed(_))),
        "{engine:?}"
    );
    let unscheduled = stage(json!({ "phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"
    }] }));
    assert_eq!(
        unscheduled,
        Stage::Blocked(Blocked::NoRoom("0/3 nodes".to_owned()))
    );
    let refused = stage(json!({ "phase": "Failed", "reason": "OutOfmemory", "message": "x" }));
    assert!(
        matches!(refused, Stage::Ended(_, Some(Blocked::NoRoom(_)))),
        "{refused:?}"
    );
}

#[test]
fn ends_are_told_apart() {
    let running = stage(with_state("Running", &json!({ "running": {} })));
    assert_eq!(running, Stage::Running("10.1.2.3".parse().unwrap()));
    assert_eq!(ended("Error", 7), Stage::Ended(Exit::ended(7), None));
    assert_eq!(ended("Completed", 0), Stage::Ended(Exit::ended(0), None));
    let memory = Exit {
        code: Some(137),
        reason: ExitReason::OutOfMemory,
    };
    assert_eq!(ended("OOMKilled", 137), Stage::Ended(memory, None));
    assert_eq!(
        ended("ContainerStatusUnknown", 137),
        Stage::Ended(Exit::lost(), None)
    );
    assert!(matches!(
        ended("StartError", 128),
        Stage::Ended(_, Some(Blocked::Invalid(_)))
    ));
    let lost = json!({ "phase": "Running", "reason": "NodeLost" });
    assert_eq!(stage(lost), Stage::Ended(Exit::lost(), None));
    let state = json!({ "terminated": { "reason": "Error", "exitCode": 137 } });
    let mut evicted = with_state("Failed", &state);
    evicted["reason"] = json!("Evicted");
    let exit = Exit {
        code: Some(137),
        reason: ExitReason::Lost,
    };
    assert_eq!(stage(evicted), Stage::Ended(exit, None));
}

#[test]
fn a_deletion_and_its_grace_are_seen() {
    let pod = json!({ "metadata": {
        "uid": "u", "deletionTimestamp": "2026-11-21T18:00:00Z", "deletionGracePeriodSeconds": 9
    } });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let view = view(&pod).unwrap();
    assert!(view.deleting);
    assert_eq!(view.grace, Duration::from_secs(9));
}

proptest! {
    /// Whatever a server reports, interpreting it does not fail.
    #[test]
    fn no_status_is_too_strange(
        phase in "[A-Za-z]{0,9}", reason in "[A-Za-z]{0,20}", message in ".{0,40}", ip in "[0-9.:a-f]{0,15}", code in any::<i32>(),
        which in 0usize..4,
    ) {
        let state = match which {
            0 => json!({ "waiting": { "reason": reason, "message": message } }),
            1 => json!({ "running": {} }),
            2 => json!({ "terminated": { "reason": reason, "message": message, "exitCode": code } }),
            _ => json!({}),
        };
        let mut status = with_state(&phase, &state);
        status["podIP"] = json!(ip);
        stage(status);
    }
}

//! Pods of a simulated Kubernetes cluster, with the rights of `deploy/kubernetes/rbac.yaml` and no others.

mod faults;
mod life;
mod manifests;
mod refusals;
mod tls;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use fdn_core::Digest;
use fdn_instances::kubernetes::{Access, KubernetesOptions, KubernetesRuntime};
use fdn_instances::{Description, Image, ImageSource, Instance, LogLine, LogSink, Owner, Runtime};
use fdn_testkit::kubernetes::{self as testkit, Cluster, Kubelet, Permission, Resource};
use serde_json::{Value, json};

use crate::contract::contract;
use crate::subject::{PATIENCE, Program, Subject};

/// The namespace of functions.
pub(crate) const NAMESPACE: &str = "fdn-functions";
const NODE: &str = "worker-1";
const REPOSITORY: &str = "registry.test/team/probe";
/// The grace for stopping.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// A cluster with one node that knows the probe.
pub(crate) struct Pods {
    pub(crate) cluster: Cluster,
    pub(crate) kubelet: Kubelet,
    folder: tempfile::TempDir,
}

/// An image in the registry.
pub(crate) fn image_named(name: &str) -> Image {
    Image {
        digest: Digest::of(name.as_bytes()),
        source: ImageSource::Registry {
            repository: REPOSITORY.to_owned(),
            credentials: None,
        },
    }
}

/// The documents of a manifest in `deploy/kubernetes`.
pub(crate) fn manifest(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy/kubernetes")
        .join(name);
    let text = std::fs::read_to_string(&path).expect("the manifest is part of the project");
    let documents = serde_norway::Deserializer::from_str(&text);
    documents
        .map(|document| serde::Deserialize::deserialize(document).expect("it is YAML"))
        .collect()
}

/// The rights that the manifest grants in the namespace of functions.
pub(crate) fn granted() -> BTreeSet<Permission> {
    let words = |value: &Value| -> Vec<String> {
        let all = value.as_array().expect("a list").iter();
        all.map(|word| word.as_str().expect("text").to_owned())
            .collect()
    };
    let mut rights = BTreeSet::new();
    for role in manifest("rbac.yaml")
        .iter()
        .filter(|object| object["kind"] == "Role")
    {
        assert_eq!(role["metadata"]["namespace"], NAMESPACE);
        for rule in role["rules"].as_array().expect("rules") {
            assert_eq!(rule["apiGroups"], json!([""]));
            assert!(
                rule["resourceNames"].is_null(),
                "names are not known before"
            );
            for resource in words(&rule["resources"]) {
                let verbs = words(&rule["verbs"]).into_iter();
                rights.extend(verbs.map(|verb| (resource.clone(), verb)));
            }
        }
    }
    rights
}

impl Pods {
    pub(crate) async fn new() -> Self {
        let cluster = Cluster::start().await.expect("a port");
        cluster.grant(granted());
        let kubelet = cluster.node(NODE);
        let folder = tempfile::tempdir().expect("a folder");
        cluster
            .write_kubeconfig(&folder.path().join("kubeconfig"))
            .expect("a file");
        let pods = Self {
            cluster,
            kubelet,
            folder,
        };
        pods.add_image("probe", testkit::Image::default());
        pods
    }

    pub(crate) fn add_image(&self, name: &str, image: testkit::Image) {
        let reference = format!("{REPOSITORY}@{}", Digest::of(name.as_bytes()));
        self.kubelet.add_image(&reference, image);
    }

    pub(crate) async fn connect(
        &self,
        owner: Owner,
        change: impl FnOnce(&mut KubernetesOptions),
    ) -> Arc<KubernetesRuntime> {
        let mut options = KubernetesOptions {
            access: Access::Kubeconfig {
                path: self.folder.path().join("kubeconfig"),
                context: None,
            },
            namespace: NAMESPACE.to_owned(),
            node: NODE.to_owned(),
            network_policies: true,
            // No pause of a busy machine is taken for a failure.
            last_lines: PATIENCE / 2,
            ..KubernetesOptions::default()
        };
        options.health.timeout = PATIENCE;
        change(&mut options);
        let connecting = KubernetesRuntime::connect(owner, options);
        Arc::new(connecting.await.expect("the API server answers"))
    }

    pub(crate) fn pods(&self) -> Vec<Value> {
        self.cluster.objects(Resource::Pods, NAMESPACE)
    }

    /// The pod of an instance.
    pub(crate) fn pod(&self, instance: &dyn Instance) -> Value {
        let id = instance.id().to_string();
        let found = self.pods().into_iter();
        let mut found =
            found.filter(|pod| pod["metadata"]["labels"]["net.fdn.instance"] == id.as_str());
        found.next().expect("the instance has a pod")
    }
}

pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().expect("text")
}

fn is_of(object: &Value, owner: &Owner) -> bool {
    let labels = &object["metadata"]["labels"];
    labels["net.fdn.cluster"] == owner.cluster.as_str()
        && labels["net.fdn.node"] == owner.node.as_str()
}

/// A pod as somebody else, or a crash, leaves it.
pub(crate) fn strange_pod(name: &str, labels: &Value) -> Value {
    json!({
        "metadata": { "name": name, "labels": labels },
        "spec": { "nodeName": NODE, "containers": [{ "name": "function", "image": "nowhere.test/x" }] }
    })
}

pub(crate) fn owner_labels(owner: &Owner) -> Value {
    json!({ "net.fdn.cluster": owner.cluster.as_str(), "net.fdn.node": owner.node.as_str() })
}

/// Keeps all lines.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<Vec<String>>);

impl Lines {
    pub(crate) fn seen(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }
}

impl LogSink for Lines {
    fn line(&self, _instance: &Description, line: &LogLine) {
        self.0.lock().expect("no panic").push(line.text.clone());
    }
}

#[async_trait]
impl Subject for Pods {
    async fn runtime(&self, owner: Owner) -> Arc<dyn Runtime> {
        self.connect(owner, |_| {}).await
    }

    fn image(&self, _program: Program) -> Image {
        image_named("probe")
    }

    fn missing_image(&self) -> Image {
        image_named("nowhere")
    }

    async fn kill(&self, instance: &dyn Instance) {
        self.kubelet.kill(text(&self.pod(instance), "uid"));
    }

    async fn leftovers(&self, owner: &Owner) -> usize {
        let secrets = self.cluster.objects(Resource::Secrets, NAMESPACE);
        let all = self.pods().into_iter().chain(secrets);
        all.filter(|object| is_of(object, owner)).count()
    }

    async fn leave_half_made(&self, owner: &Owner, _image: &Image) {
        let mut labels = owner_labels(owner);
        let id = fdn_core::InstanceId::from_uuid(uuid::Uuid::new_v4());
        labels["net.fdn.instance"] = json!(id.to_string());
        let name = format!("fdn-{id}").replace('_', "-");
        let pod = strange_pod(&name, &labels);
        self.cluster.put(Resource::Pods, NAMESPACE, pod);
    }
}

contract!(for_all, Pods::new());
contract!(processes, Pods::new());

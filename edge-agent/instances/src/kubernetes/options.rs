//! How the Kubernetes runtime is set up.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::ByteSize;

use crate::link::LinkLimits;
use crate::link::health::HealthChecks;
use crate::log::{LogSink, NoSink};
use crate::metrics::Metrics;

/// How the API server is reached, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// As the service account of the pod that this process runs in.
    InCluster,
    /// As a file says.
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The context in it; the current one if absent.
        context: Option<String>,
    },
}

/// Settings of [`crate::kubernetes::KubernetesRuntime`].
#[derive(Clone)]
pub struct KubernetesOptions {
    /// How the API server is reached.
    pub access: Access,
    /// Where pods are made. Nothing else is looked at.
    pub namespace: String,
    /// The Kubernetes node on which they run (`spec.nodeName`).
    pub node: String,
    /// Secrets of the namespace with which images are pulled.
    pub image_pull_secrets: Vec<String>,
    /// The repository to which the images of uploaded archives were copied, such as `registry.example.com/fdn`.
    pub repository: Option<String>,
    /// The service account of pods, the namespace's own if absent. Its token is never mounted.
    pub service_account: Option<String>,
    /// The runtime class of pods with GPU slices, such as `nvidia`.
    pub gpu_runtime_class: Option<String>,
    /// The resource of which a pod asks one for each GPU slice, where Kubernetes counts GPUs as well.
    pub gpu_resource: Option<String>,
    /// The user that functions run as; the image's own if absent.
    pub user: Option<u32>,
    /// Whether an image may run as root.
    pub allow_root: bool,
    /// Whether the cluster's network enforces the policies of `deploy/kubernetes`. Without, a function that may not connect
    /// anywhere is refused rather than left unguarded.
    pub network_policies: bool,
    /// The size of a pod's `/tmp`, in memory, within the memory of its function.
    pub tmp: ByteSize,
    /// What a pod gets to end its calls when the cluster deletes it, as for the drain of a node.
    pub grace: Duration,
    /// How long one answer of the API server may take, and a pod that ends beyond its grace.
    pub engine_timeout: Duration,
    /// How long a pod may take until its container runs: its image is pulled then.
    pub image_timeout: Duration,
    /// How long the last lines of an ended pod may take to arrive.
    pub last_lines: Duration,
    /// Requests to the API server at the same time; others wait. Watches and logs that are followed do not count.
    pub requests: usize,
    /// How often one request is tried.
    pub attempts: u32,
    /// Pods whose output is followed at the same time; that of others is read at their end.
    pub logs: usize,
    /// How long one watch lasts before it is renewed, and so the longest that a connection lost without a word goes unnoticed.
    pub watch: Duration,
    /// How running pods are checked.
    pub health: HealthChecks,
    /// Bounds on the connections to one pod.
    pub link: LinkLimits,
    /// Takes every line of output.
    pub sink: Arc<dyn LogSink>,
    /// Counters.
    pub metrics: Metrics,
}

impl Default for KubernetesOptions {
    fn default() -> Self {
        Self {
            access: Access::InCluster,
            namespace: "fdn-functions".to_owned(),
            node: String::new(),
            image_pull_secrets: Vec::new(),
            repository: None,
            service_account: None,
            gpu_runtime_class: None,
            gpu_resource: None,
            user: None,
            allow_root: false,
            network_policies: false,
            tmp: ByteSize::from_mib(64),
            grace: Duration::from_secs(30),
            engine_timeout: Duration::from_secs(10),
            image_timeout: Duration::from_secs(600),
            last_lines: Duration::from_secs(2),
            requests: 16,
            attempts: 5,
            logs: 256,
            watch: Duration::from_secs(240),
            health: HealthChecks::default(),
            link: LinkLimits::default(),
            sink: Arc::new(NoSink),
            metrics: Metrics::default(),
        }
    }
}

impl fmt::Debug for KubernetesOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubernetesOptions")
            .field("access", &self.access)
            .field("namespace", &self.namespace)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

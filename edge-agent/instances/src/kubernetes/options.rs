//! Options of the Kubernetes runtime.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::ByteSize;

use crate::link::LinkLimits;
use crate::link::health::HealthChecks;
use crate::log::{LogSink, NoSink};
use crate::metrics::Metrics;

/// How to reach the API server, and with which identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// As the service account of the pod in which this process runs.
    InCluster,
    /// As configured in a kubeconfig file.
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The context in it; the current one if absent.
        context: Option<String>,
    },
}

/// Options of [`crate::kubernetes::KubernetesRuntime`].
#[derive(Clone)]
pub struct KubernetesOptions {
    /// How to reach the API server.
    pub access: Access,
    /// The namespace of the pods. No other namespace is accessed.
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
    /// The resource of which a pod requests one for each GPU slice, if Kubernetes counts GPUs as well.
    pub gpu_resource: Option<String>,
    /// The user id under which functions run; the image's own if absent.
    pub user: Option<u32>,
    /// Whether an image may run as root.
    pub allow_root: bool,
    /// Whether the cluster's network enforces the policies of `deploy/kubernetes`. If not, a function without outbound access
    /// is refused rather than left unguarded.
    pub network_policies: bool,
    /// The size of a pod's `/tmp`, which is in memory and counts towards the memory of its function.
    pub tmp: ByteSize,
    /// The time that a pod gets to finish its calls when the cluster deletes it, for example while a node is drained.
    pub grace: Duration,
    /// The time limit for one answer of the API server, and for the end of a pod beyond its grace.
    pub engine_timeout: Duration,
    /// The time limit until a pod's container runs, including pulling its image.
    pub image_timeout: Duration,
    /// How long to wait for the last lines of an ended pod.
    pub last_lines: Duration,
    /// The most concurrent requests to the API server; others wait. Watches and followed logs do not count.
    pub requests: usize,
    /// How often one request is attempted.
    pub attempts: u32,
    /// How many pods' output is followed at the same time; that of others is read at their end.
    pub logs: usize,
    /// How long one watch lasts before it is renewed, and so the longest time for which a silently lost connection goes unnoticed.
    pub watch: Duration,
    /// How running pods are checked.
    pub health: HealthChecks,
    /// Limits on the connections to one pod.
    pub link: LinkLimits,
    /// Receives every line of output.
    pub sink: Arc<dyn LogSink>,
    /// The counters.
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

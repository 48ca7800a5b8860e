//! The Kubernetes cluster that a node belongs to.

use std::path::PathBuf;
use std::sync::Arc;

use fdn_core::{ByteSize, DurationMs, NodeId};
use fdn_instances::kubernetes::{Access, KubernetesOptions};
use fdn_instances::{HealthChecks, LinkLimits, LogSink, Metrics};
use serde::{Deserialize, Serialize};

/// Whether and how pods are run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KubernetesSettings {
    /// Whether this node runs container images as pods. If so, the agent does not start without the API server.
    pub enabled: bool,
    /// The kubeconfig file for access to the API server; if absent, the agent's own service account is used.
    pub kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig file; its current one if absent.
    pub context: Option<String>,
    /// The namespace of pods.
    pub namespace: String,
    /// This node's name in Kubernetes; if absent, its name in the network.
    pub node: Option<String>,
    /// The secrets in the namespace with which images are pulled.
    pub image_pull_secrets: Vec<String>,
    /// The repository to which the images of uploaded archives are copied.
    pub repository: Option<String>,
    /// The service account of pods, whose token is not mounted.
    pub service_account: Option<String>,
    /// The user that functions run as, by number; the image's own if absent.
    pub user: Option<u32>,
    /// Whether images may run as root.
    pub allow_root: bool,
    /// Whether the Kubernetes network enforces `deploy/kubernetes/network.yaml`.
    pub network_policies: bool,
    /// The runtime class of pods with GPU slices.
    pub gpu_runtime_class: Option<String>,
    /// The resource of which such a pod requests one for each slice.
    pub gpu_resource: Option<String>,
    /// The size of a pod's `/tmp`, which is in memory and counts towards the memory of its function.
    pub tmp: ByteSize,
    /// How long a pod that the cluster deletes may take to end its calls.
    pub grace: DurationMs,
    /// The timeout for an answer of the API server.
    pub engine_timeout: DurationMs,
    /// The timeout for a pod's container to run.
    pub image_timeout: DurationMs,
    /// The most concurrent requests to the API server.
    pub requests: usize,
    /// The most attempts for a request.
    pub attempts: u32,
    /// The most pods whose output is followed at the same time.
    pub logs: usize,
    /// The duration of one watch.
    pub watch: DurationMs,
    /// The pause between two health checks of a running pod.
    pub health_interval: DurationMs,
    /// The timeout of a health check.
    pub health_timeout: DurationMs,
    /// The number of failed checks in a row after which a pod is replaced.
    pub health_failures: u32,
}

impl Default for KubernetesSettings {
    fn default() -> Self {
        let options = KubernetesOptions::default();
        let span = |span: std::time::Duration| DurationMs::from_secs(span.as_secs());
        Self {
            enabled: false,
            kubeconfig: None,
            context: None,
            namespace: options.namespace,
            node: None,
            image_pull_secrets: options.image_pull_secrets,
            repository: options.repository,
            service_account: options.service_account,
            user: options.user,
            allow_root: options.allow_root,
            network_policies: options.network_policies,
            gpu_runtime_class: options.gpu_runtime_class,
            gpu_resource: options.gpu_resource,
            tmp: options.tmp,
            grace: span(options.grace),
            engine_timeout: span(options.engine_timeout),
            image_timeout: span(options.image_timeout),
            requests: options.requests,
            attempts: options.attempts,
            logs: options.logs,
            watch: span(options.watch),
            health_interval: span(options.health.interval),
            health_timeout: span(options.health.timeout),
            health_failures: options.health.failures,
        }
    }
}

impl KubernetesSettings {
    /// Checks that the values can work.
    ///
    /// # Errors
    /// Names the key, and what it must be.
    pub fn check(&self) -> Result<(), &'static str> {
        let second = DurationMs::from_secs(1);
        let label = |name: &str| !name.is_empty() && name.len() <= 63 && !name.contains('/');
        let optional = [&self.node, &self.service_account, &self.repository];
        let rules = [
            (
                label(&self.namespace),
                "kubernetes.namespace must be the name of a namespace",
            ),
            (
                optional.iter().all(|text| text.as_deref() != Some("")),
                "kubernetes.node, service_account and repository are named or absent",
            ),
            (
                self.user != Some(0) || self.allow_root,
                "kubernetes.user is root; set kubernetes.allow_root as well if that is meant",
            ),
            (
                self.requests > 0 && self.attempts > 0 && self.logs > 0 && self.health_failures > 0,
                "kubernetes.requests, attempts, logs and health_failures must be at least 1",
            ),
            (
                self.engine_timeout >= second && self.image_timeout >= second,
                "kubernetes.engine_timeout and kubernetes.image_timeout must be at least 1s",
            ),
            (
                self.grace >= second && self.watch >= second,
                "kubernetes.grace and kubernetes.watch must be at least 1s",
            ),
            (
                self.health_interval.as_millis() >= 100 && self.health_timeout.as_millis() >= 100,
                "kubernetes.health_interval and kubernetes.health_timeout must be at least 100ms",
            ),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(rule),
            None => Ok(()),
        }
    }

    /// The runtime's options; `node` is this node's name in the network.
    #[must_use]
    pub fn options(
        &self,
        node: &NodeId,
        sink: Arc<dyn LogSink>,
        metrics: Metrics,
    ) -> KubernetesOptions {
        let access = match &self.kubeconfig {
            Some(path) => Access::Kubeconfig {
                path: path.clone(),
                context: self.context.clone(),
            },
            None => Access::InCluster,
        };
        KubernetesOptions {
            access,
            namespace: self.namespace.clone(),
            node: self.node.clone().unwrap_or_else(|| node.to_string()),
            image_pull_secrets: self.image_pull_secrets.clone(),
            repository: self.repository.clone(),
            service_account: self.service_account.clone(),
            gpu_runtime_class: self.gpu_runtime_class.clone(),
            gpu_resource: self.gpu_resource.clone(),
            user: self.user,
            allow_root: self.allow_root,
            network_policies: self.network_policies,
            tmp: self.tmp,
            grace: self.grace.as_duration(),
            engine_timeout: self.engine_timeout.as_duration(),
            image_timeout: self.image_timeout.as_duration(),
            last_lines: KubernetesOptions::default().last_lines,
            requests: self.requests,
            attempts: self.attempts,
            logs: self.logs,
            watch: self.watch.as_duration(),
            health: HealthChecks {
                interval: self.health_interval.as_duration(),
                timeout: self.health_timeout.as_duration(),
                failures: self.health_failures,
            },
            link: LinkLimits::default(),
            sink,
            metrics,
        }
    }
}

#[cfg(test)]
mod tests {
    use fdn_instances::NoSink;

    use super::*;

    #[test]
    fn the_node_is_its_own_name_unless_kubernetes_has_another() {
        let mut settings = KubernetesSettings::default();
        let options = |settings: &KubernetesSettings| {
            let node = "eu-west-1".parse().unwrap();
            settings.options(&node, Arc::new(NoSink), Metrics::default())
        };
        assert_eq!(options(&settings).node, "eu-west-1");
        assert_eq!(options(&settings).access, Access::InCluster);
        settings.node = Some("ip-10-0-0-1.ec2.internal".to_owned());
        settings.kubeconfig = Some("/etc/fdn/kubeconfig".into());
        assert_eq!(options(&settings).node, "ip-10-0-0-1.ec2.internal");
        assert!(matches!(
            options(&settings).access,
            Access::Kubeconfig { .. }
        ));
    }
}

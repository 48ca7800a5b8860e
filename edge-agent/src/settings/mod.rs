//! Settings of an agent. `deploy/config/edge-agent.toml` documents every key; [`Settings::check`] refuses values that cannot work.

mod docker;
mod forward;
mod invocations;
mod kubernetes;
mod network;
mod peers;
mod policy;
mod registries;
mod reports;
mod resources;
mod tls;
mod traces;
mod workflows;

use std::path::PathBuf;

use fdn_core::{ClusterId, GeoPoint, NodeId, RegionName};
use fdn_devices::DevicesSettings;
use fdn_link::ControllerLinkSettings;
use fdn_service::logs::LogSettings;
use fdn_spool::SpoolSettings;
use serde::{Deserialize, Serialize};

pub use docker::{DockerSettings, Network as ContainerNetwork};
pub use forward::ForwardSettings;
pub use invocations::{InstanceSettings, KeepAliveName, OrderName, QueueSettings, ScaleSettings};
pub use kubernetes::KubernetesSettings;
pub use network::{
    AdminSettings, AdmissionSettings, ControllerSettings, GatewaySettings, GatewayTlsSettings,
    NetworkSettings,
};
pub use peers::PeerSettings;
pub use policy::PolicySettings;
pub use registries::RegistrySettings;
pub use reports::{AppsSettings, LogsSettings, ReportSettings, StopSettings};
pub use resources::{CacheSettings, CapacitySettings, CompileSettings, RuntimeSettings, cores};
pub use tls::TlsSettings;
pub use traces::TraceSettings;
pub use workflows::WorkflowSettings;

use crate::error::Error;
use crate::invocations::policy as rules;

/// All settings of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// This node's name, unique in the network.
    pub node: NodeId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// Its region.
    pub region: RegionName,
    /// Its geographic location.
    pub location: GeoPoint,
    /// The node's speed relative to the reference machine.
    pub speed: f64,
    /// The directory for desired state and artifacts.
    pub data: PathBuf,
    /// The listener for clients.
    pub gateway: GatewaySettings,
    /// The listener for operators and DNS servers.
    pub admin: AdminSettings,
    /// How many calls may run, wait and be held.
    pub admission: AdmissionSettings,
    /// The order of waiting calls.
    pub queue: QueueSettings,
    /// Instances in containers and pods.
    pub instances: InstanceSettings,
    /// The Docker engine, for containers.
    pub docker: DockerSettings,
    /// The Kubernetes cluster, for pods instead of containers.
    pub kubernetes: KubernetesSettings,
    /// How the number of instances follows the load.
    pub scale: ScaleSettings,
    /// The one connection to the controllers.
    pub centre: ControllerLinkSettings,
    /// The controllers' API, where the machine joined.
    pub controller: ControllerSettings,
    /// How processes of the network authenticate each other without certificates.
    pub network: NetworkSettings,
    /// The node's certificate.
    pub tls: TlsSettings,
    /// The other nodes of the cluster.
    pub peers: PeerSettings,
    /// Running workflows.
    pub workflows: WorkflowSettings,
    /// Handing calls on that this node cannot serve.
    pub forward: ForwardSettings,
    /// The capacity that the node offers.
    pub capacity: CapacitySettings,
    /// GPU devices.
    pub devices: DevicesSettings,
    /// The spool of usage records.
    pub usage: SpoolSettings,
    /// The artifact cache.
    pub cache: CacheSettings,
    /// Compiling components.
    pub compile: CompileSettings,
    /// The engine that runs functions.
    pub runtime: RuntimeSettings,
    /// Making apps ready.
    pub apps: AppsSettings,
    /// Policies of apps.
    pub policy: PolicySettings,
    /// Logs of functions.
    pub logs: LogsSettings,
    /// Exporting spans of calls.
    pub traces: TraceSettings,
    /// Reports to the controller.
    pub reports: ReportSettings,
    /// Stopping.
    pub stop: StopSettings,
    /// The agent's own log.
    pub log: LogSettings,
}

impl Default for Settings {
    fn default() -> Self {
        let name = "the default is a valid name";
        Self {
            node: "local-1".parse().expect(name),
            cluster: "local".parse().expect(name),
            region: "local".parse().expect(name),
            location: GeoPoint::new(0.0, 0.0).expect("the origin is a position"),
            speed: 1.0,
            data: PathBuf::from("/var/lib/fdn/edge-agent"),
            gateway: GatewaySettings::default(),
            admin: AdminSettings::default(),
            admission: AdmissionSettings::default(),
            queue: QueueSettings::default(),
            instances: InstanceSettings::default(),
            docker: DockerSettings::default(),
            kubernetes: KubernetesSettings::default(),
            scale: ScaleSettings::default(),
            centre: ControllerLinkSettings::default(),
            controller: ControllerSettings::default(),
            network: NetworkSettings::default(),
            tls: TlsSettings::default(),
            peers: PeerSettings::default(),
            workflows: WorkflowSettings::default(),
            forward: ForwardSettings::default(),
            capacity: CapacitySettings::default(),
            devices: DevicesSettings::default(),
            usage: SpoolSettings::default(),
            cache: CacheSettings::default(),
            compile: CompileSettings::default(),
            runtime: RuntimeSettings::default(),
            apps: AppsSettings::default(),
            policy: PolicySettings::default(),
            logs: LogsSettings::default(),
            traces: TraceSettings::default(),
            reports: ReportSettings::default(),
            stop: StopSettings::default(),
            log: LogSettings::default(),
        }
    }
}

impl Settings {
    /// Checks that the values can work.
    ///
    /// # Errors
    /// Names the first invalid key and what it must be.
    pub fn check(&self) -> Result<(), Error> {
        let rules = [
            (
                self.speed.is_finite() && self.speed > 0.0,
                "speed must be more than 0",
            ),
            (
                self.admission.slots > 0,
                "admission.slots must be at least 1",
            ),
            (
                self.gateway.tls.listen.is_none() || !self.gateway.tls.certificates.is_empty(),
                "gateway.tls.listen needs a certificate in gateway.tls.certificates",
            ),
            (
                [
                    self.gateway.head_timeout,
                    self.gateway.tls.check_interval,
                    self.gateway.tls.handshake,
                ]
                .iter()
                .all(|limit| limit.as_millis() > 0),
                "gateway.head_timeout, gateway.tls.check_interval and gateway.tls.handshake must be longer than 0s",
            ),
            (self.apps.parallel > 0, "apps.parallel must be at least 1"),
            (
                self.apps
                    .registries
                    .iter()
                    .all(|r| !r.host.is_empty() && !r.host.contains('/')),
                "apps.registries: host must be a host, with its port if it has one, and no scheme or path",
            ),
            (
                self.compile.parallel > 0,
                "compile.parallel must be at least 1",
            ),
            (
                self.cache.size >= self.cache.artifact_limit,
                "cache.size must be at least cache.artifact_limit",
            ),
            (
                self.cache.fetch_attempts > 0,
                "cache.fetch_attempts must be at least 1",
            ),
            (self.logs.lines > 0, "logs.lines must be at least 1"),
            (
                self.logs.follow_buffer > 0,
                "logs.follow_buffer must be at least 1",
            ),
            (
                self.reports.status_interval.as_millis() >= 100,
                "reports.status_interval must be at least 100ms",
            ),
            (
                self.reports.rtt_interval.as_millis() >= 100,
                "reports.rtt_interval must be at least 100ms",
            ),
            (
                self.reports.run_interval.as_millis() >= 100 && self.reports.runs > 0,
                "reports.run_interval must be at least 100ms, and reports.runs at least 1",
            ),
            (
                self.tls.is_whole(),
                "tls.ca, tls.certificate and tls.key are named together or not at all",
            ),
            (
                self.tls.renew_retry.as_millis() >= 100
                    && self.tls.renew_retry <= self.tls.renew_retry_max,
                "tls.renew_retry must be at least 100ms and at most tls.renew_retry_max",
            ),
            (
                !(self.docker.enabled && self.kubernetes.enabled),
                "docker.enabled and kubernetes.enabled: a node runs container images with one of them",
            ),
            (
                (0..=19).contains(&self.runtime.heavy_nice),
                "runtime.heavy_nice must be from 0 to 19",
            ),
            (
                self.controller.url.starts_with("http://")
                    || self.controller.url.starts_with("https://"),
                "controller.url must begin with http:// or https://",
            ),
        ];
        if let Some((_, rule)) = rules.iter().find(|(holds, _)| !holds) {
            return Err(Error::Settings((*rule).to_owned()));
        }
        rules::check(&self.queue, &self.instances, &self.scale)?;
        self.centre.check()?;
        self.peers.check(&self.tls, &self.gateway)?;
        self.workflows.check(&self.tls)?;
        self.forward.check()?;
        let parts = self.devices.check().and_then(|()| self.usage.check());
        let parts = parts.and_then(|()| self.docker.check());
        let parts = parts.and_then(|()| self.kubernetes.check());
        let parts = parts.and_then(|()| self.policy.check());
        let parts = parts.and_then(|()| self.traces.check());
        parts.map_err(|rule| Error::Settings(rule.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use fdn_core::ByteSize;

    use super::*;

    fn sample() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/config/edge-agent.toml")
    }

    fn keys(value: &toml::Value, path: &str, out: &mut Vec<String>) {
        match value {
            toml::Value::Table(table) => {
                for (key, value) in table {
                    let dot = if path.is_empty() { "" } else { "." };
                    keys(value, &format!("{path}{dot}{key}"), out);
                }
            }
            _ => out.push(path.to_owned()),
        }
    }

    #[test]
    fn the_sample_parses_and_names_every_key() {
        let settings: Settings =
            fdn_service::config::load(Some(&sample()), &[]).expect("the sample is valid");
        settings.check().expect("the sample can work");
        let text = std::fs::read_to_string(sample()).expect("the sample is part of the project");
        let mut all = Vec::new();
        let table = toml::Value::try_from(Settings::default()).expect("settings are TOML");
        keys(&table, "", &mut all);
        for extra in [
            "gateway.advertise",
            "compile.worker",
            "devices.mps_shm",
            "tls.ca",
            "tls.certificate",
            "tls.key",
            "docker.scope",
            "kubernetes.kubeconfig",
            "kubernetes.context",
            "kubernetes.node",
            "kubernetes.repository",
            "kubernetes.service_account",
            "kubernetes.user",
            "kubernetes.gpu_runtime_class",
            "kubernetes.gpu_resource",
            "workflows.advertise",
            "peers.cluster.advertise",
            "peers.cluster.tls",
            "centre.proxy",
            "controller.ca_file",
            "traces.otlp",
            "traces.headers_file",
            "traces.ca_file",
            "gateway.tls.listen",
            "gateway.tls.certificates.certificate_file",
            "gateway.tls.certificates.key_file",
        ] {
            all.push(extra.to_owned());
        }
        for key in all {
            let last = key.rsplit('.').next().expect("a key has a last part");
            let documented = text.lines().any(|line| {
                let line = line.trim_start_matches("# ");
                line.starts_with(&format!("{last} =")) || line.contains(&format!("{last} = "))
            });
            assert!(documented, "deploy/config/edge-agent.toml lacks {key}");
        }
    }

    #[test]
    fn the_settings_of_the_kubernetes_manifest_can_work() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes/edge-agent.yaml");
        let manifest = std::fs::read_to_string(path).expect("the manifest is part of the project");
        let (_, block) = manifest
            .split_once("edge-agent.toml: |\n")
            .expect("its ConfigMap holds the settings");
        let indented = block
            .lines()
            .take_while(|line| line.is_empty() || line.starts_with("    "));
        let text: Vec<&str> = indented.map(str::trim_start).collect();
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("edge-agent.toml");
        std::fs::write(&file, text.join("\n")).expect("a file");
        // The pod's environment variables for its node.
        let here = ("gateway.advertise", "192.0.2.7:8080".to_owned());
        let settings: Settings =
            fdn_service::config::load(Some(&file), &[here]).expect("the settings are valid");
        settings.check().expect("the settings can work");
        assert!(settings.kubernetes.enabled && settings.kubernetes.network_policies);
        // All nodes form one cluster, by the files that joining wrote on each.
        let peers = settings.peers.cluster(&settings.tls, &settings.gateway);
        assert!(settings.peers.enabled && peers.tls.is_some() && !peers.seeds.is_empty());
    }

    #[test]
    fn the_defaults_can_work() {
        Settings::default().check().expect("defaults");
        let capacity = CapacitySettings::default().resolve();
        assert!(capacity.cpu_milli.get() >= 1000 && capacity.memory_mib.get() > 0);
    }

    #[test]
    fn a_weight_that_is_none_is_refused_with_its_bounds() {
        for weight in [0, 1001] {
            let text = format!("[gateway]\nweight = {weight}\n");
            let error = toml::from_str::<Settings>(&text).expect_err("refused");
            assert!(error.to_string().contains("from 1 to 1000"), "{error}");
        }
    }

    #[test]
    fn what_cannot_work_is_named() {
        type Change = fn(&mut Settings);
        let cases: [(&str, Change); 12] = [
            ("gateway.tls.certificates", |s| {
                s.gateway.tls.listen = Some(([127, 0, 0, 1], 0).into());
            }),
            ("docker.scope", |s| s.docker.scope = Some("a b".to_owned())),
            ("docker.enabled and kubernetes.enabled", |s| {
                s.docker.enabled = true;
                s.kubernetes.enabled = true;
            }),
            ("kubernetes.user", |s| s.kubernetes.user = Some(0)),
            ("kubernetes.requests", |s| s.kubernetes.requests = 0),
            ("devices.max_bindings", |s| s.devices.max_bindings = 0),
            ("usage.size", |s| s.usage.size = ByteSize::from_bytes(1)),
            ("tls.key", |s| s.tls.ca = Some("ca.pem".into())),
            ("admission.slots", |s| s.admission.slots = 0),
            ("speed", |s| s.speed = 0.0),
            ("cache.size", |s| s.cache.size = ByteSize::from_bytes(1)),
            ("controller.url", |s| s.controller.url = "127.0.0.1".into()),
        ];
        for (key, change) in cases {
            let mut settings = Settings::default();
            change(&mut settings);
            let error = settings.check().expect_err(key).to_string();
            assert!(error.contains(key), "{error}");
        }
    }
}

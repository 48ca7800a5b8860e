//! Settings of an agent. `deploy/config/edge-agent.toml` documents every key; [`Settings::check`] refuses what cannot work.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use fdn_core::{
    ByteSize, ClientPrefix, ClusterId, DurationMs, GeoPoint, MebiBytes, MilliCpu, NodeId,
    RegionName, Resources,
};
use fdn_runtime::{CompileWorker, Compiler, EngineOptions};
use fdn_service::logs::LogSettings;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Everything that can be set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// This node's name, unique in the network.
    pub node: NodeId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// Its region.
    pub region: RegionName,
    /// Where it is.
    pub location: GeoPoint,
    /// Speed relative to the reference machine.
    pub speed: f64,
    /// The folder for desired state and artifacts.
    pub data: PathBuf,
    /// The listener for clients.
    pub gateway: GatewaySettings,
    /// The listener for operators.
    pub admin: AdminSettings,
    /// How many calls run, wait and are held.
    pub admission: AdmissionSettings,
    /// Where the controller is and how often it is asked.
    pub controller: ControllerSettings,
    /// What all processes of the network share.
    pub network: NetworkSettings,
    /// The message broker.
    pub broker: BrokerSettings,
    /// What the node offers.
    pub capacity: CapacitySettings,
    /// The artifact cache.
    pub cache: CacheSettings,
    /// Compiling components.
    pub compile: CompileSettings,
    /// Running functions.
    pub runtime: RuntimeSettings,
    /// Making apps ready.
    pub apps: AppsSettings,
    /// Logs of functions.
    pub logs: LogsSettings,
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
            controller: ControllerSettings::default(),
            network: NetworkSettings::default(),
            broker: BrokerSettings::default(),
            capacity: CapacitySettings::default(),
            cache: CacheSettings::default(),
            compile: CompileSettings::default(),
            runtime: RuntimeSettings::default(),
            apps: AppsSettings::default(),
            logs: LogsSettings::default(),
            reports: ReportSettings::default(),
            stop: StopSettings::default(),
            log: LogSettings::default(),
        }
    }
}

/// The listener for clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewaySettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where clients reach it, if that is another address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertise: Option<SocketAddr>,
    /// Threads that answer clients; 0 means one for each core.
    pub workers: usize,
    /// Connections in all; beyond it new ones wait in the kernel.
    pub max_connections: usize,
    /// How long an idle connection is kept.
    pub keep_alive: DurationMs,
    /// How long a client may take to send a request's head.
    pub head_timeout: DurationMs,
    /// The largest request body on this node, whatever a manifest allows.
    pub body_limit: ByteSize,
    /// Request bodies up to this size are read whole before the function starts, which is fastest.
    pub inline_body: ByteSize,
    /// Peers whose `x-forwarded-host` and `x-forwarded-proto` are believed.
    pub trusted_proxies: Vec<ClientPrefix>,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            advertise: None,
            workers: 0,
            max_connections: 20_000,
            keep_alive: DurationMs::from_secs(75),
            head_timeout: DurationMs::from_secs(10),
            body_limit: ByteSize::from_mib(512),
            inline_body: ByteSize::from_bytes(64 << 10),
            trusted_proxies: Vec::new(),
        }
    }
}

/// The listener for operators: health, metrics, logs of functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminSettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where the network reaches it, if that is another address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertise: Option<SocketAddr>,
}

impl Default for AdminSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8081)),
            advertise: None,
        }
    }
}

/// How many calls run, wait and are held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdmissionSettings {
    /// Calls that run at the same time.
    pub slots: u32,
    /// Calls that wait for a slot; one more is refused.
    pub waiting: u32,
    /// How long a call waits for a slot.
    pub wait: DurationMs,
    /// Calls held because their app is being made ready; one more is refused.
    pub held: u32,
    /// How long such a call is held.
    pub hold: DurationMs,
}

impl Default for AdmissionSettings {
    fn default() -> Self {
        Self {
            slots: 256,
            waiting: 1024,
            wait: DurationMs::from_secs(2),
            held: 256,
            hold: DurationMs::from_secs(15),
        }
    }
}

/// Where the controller is and how often it is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControllerSettings {
    /// Its address.
    pub url: String,
    /// How often the snapshot of all apps is read, give or take a fifth.
    pub snapshot_interval: DurationMs,
    /// The largest snapshot that is read.
    pub snapshot_limit: ByteSize,
    /// The longest silence while reading from it.
    pub read_timeout: DurationMs,
}

impl Default for ControllerSettings {
    fn default() -> Self {
        Self {
            url: "http://127.0.0.1:8600".to_owned(),
            snapshot_interval: DurationMs::from_secs(30),
            snapshot_limit: ByteSize::from_mib(256),
            read_timeout: DurationMs::from_secs(15),
        }
    }
}

/// What all processes of the network share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkSettings {
    /// The file with the token that processes of the network show each other.
    pub token_file: PathBuf,
    /// The file with the key that secrets are sealed with.
    pub key_file: PathBuf,
}

impl Default for NetworkSettings {
    fn default() -> Self {
        Self {
            token_file: PathBuf::from("/etc/fdn/network.token"),
            key_file: PathBuf::from("/etc/fdn/network.key"),
        }
    }
}

/// The message broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BrokerSettings {
    /// Its address, without a password.
    pub url: String,
    /// The file with the password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// The prefix of all its exchanges and queues.
    pub namespace: String,
    /// Messages of desired state taken but not yet on disk.
    pub prefetch: u16,
}

impl Default for BrokerSettings {
    fn default() -> Self {
        Self {
            url: "amqp://fdn@127.0.0.1:5672/%2f".to_owned(),
            password_file: None,
            namespace: "fdn".to_owned(),
            prefetch: 64,
        }
    }
}

/// What the node offers to functions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CapacitySettings {
    /// Thousandths of a core; 0 means all cores.
    pub cpu_milli: MilliCpu,
    /// Memory; 0 means three quarters of the machine's.
    pub memory: ByteSize,
}

impl CapacitySettings {
    /// The capacity with the machine's own figures where none were set.
    #[must_use]
    pub fn resolve(&self) -> Resources {
        let cpu = if self.cpu_milli.get() > 0 {
            self.cpu_milli
        } else {
            MilliCpu(cores() as u64 * 1000)
        };
        let memory = if self.memory.as_bytes() > 0 {
            self.memory.to_mebibytes()
        } else {
            let info = rustix::system::sysinfo();
            let unit = u64::from(info.mem_unit.max(1));
            MebiBytes((info.totalram as u64).saturating_mul(unit) / 4 * 3 / (1 << 20))
        };
        Resources::new(cpu, memory)
    }
}

/// The artifact cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheSettings {
    /// Components and compiled files together.
    pub size: ByteSize,
    /// The largest component that is fetched.
    pub artifact_limit: ByteSize,
    /// How often one fetch is tried, each time where the last one broke off, before the app waits for its next try.
    pub fetch_attempts: u32,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            size: ByteSize::from_mib(4096),
            artifact_limit: ByteSize::from_mib(512),
            fetch_attempts: 5,
        }
    }
}

/// Compiling components, in a process with limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CompileSettings {
    /// The program that compiles; the running one if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<PathBuf>,
    /// Its memory.
    pub memory: ByteSize,
    /// Its time.
    pub timeout: DurationMs,
    /// Its threads; 0 means half the cores.
    pub threads: usize,
    /// Components compiled at the same time.
    pub parallel: usize,
}

impl Default for CompileSettings {
    fn default() -> Self {
        Self {
            worker: None,
            memory: ByteSize::from_mib(2048),
            timeout: DurationMs::from_secs(120),
            threads: 0,
            parallel: 1,
        }
    }
}

impl CompileSettings {
    /// The compiler these settings describe.
    #[must_use]
    pub fn compiler(&self) -> Compiler {
        let own = CompileWorker::default();
        Compiler::Worker(CompileWorker {
            exe: self.worker.clone().unwrap_or_else(|| own.exe.clone()),
            memory_limit: self.memory,
            time_limit: self.timeout.as_duration(),
            threads: if self.threads > 0 {
                self.threads
            } else {
                own.threads
            },
            ..own
        })
    }
}

/// Running functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuntimeSettings {
    /// Instances that live at the same time, idle ones included.
    pub max_instances: u32,
    /// The largest memory of one instance.
    pub max_memory: ByteSize,
    /// Threads for functions that compute for longer than a millisecond; 0 means one for each core.
    pub heavy_threads: usize,
    /// Calls on those threads at the same time.
    pub heavy_calls: usize,
    /// How much those threads give way to the others (0 to 19).
    pub heavy_nice: i32,
    /// Idle instances kept for each function that allows reuse.
    pub idle_per_function: usize,
    /// How long an idle instance is kept.
    pub idle_expiry: DurationMs,
}

impl Default for RuntimeSettings {
    fn default() -> Self {
        let own = EngineOptions::default();
        Self {
            max_instances: own.max_instances,
            max_memory: own.max_memory,
            heavy_threads: 0,
            heavy_calls: own.heavy_calls,
            heavy_nice: own.heavy_nice,
            idle_per_function: own.idle_per_function,
            idle_expiry: DurationMs::from_millis(
                u64::try_from(own.idle_expiry.as_millis()).unwrap_or(u64::MAX),
            ),
        }
    }
}

impl RuntimeSettings {
    /// The engine these settings describe.
    #[must_use]
    pub fn engine(&self) -> EngineOptions {
        EngineOptions {
            max_instances: self.max_instances,
            max_memory: self.max_memory,
            heavy_threads: if self.heavy_threads > 0 {
                self.heavy_threads
            } else {
                cores()
            },
            heavy_calls: self.heavy_calls,
            heavy_nice: self.heavy_nice,
            idle_per_function: self.idle_per_function,
            idle_expiry: self.idle_expiry.as_duration(),
        }
    }
}

/// Making apps ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AppsSettings {
    /// Apps that are made ready at the same time.
    pub parallel: usize,
    /// The pause before a failed app is tried again; it doubles with each failure.
    pub retry_first: DurationMs,
    /// The longest such pause.
    pub retry_max: DurationMs,
    /// Whether an app of this cluster gets one call (`GET /` with `x-fdn-probe: 1`) when it is loaded, so that the first client
    /// finds it warm.
    pub warm_call: bool,
    /// Names of deleted apps remembered until the next snapshot.
    pub tombstones: usize,
}

impl Default for AppsSettings {
    fn default() -> Self {
        Self {
            parallel: 4,
            retry_first: DurationMs::from_secs(1),
            retry_max: DurationMs::from_secs(60),
            warm_call: true,
            tombstones: 10_000,
        }
    }
}

/// Logs of functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogsSettings {
    /// Lines kept for each app.
    pub lines: usize,
    /// Text kept for each app.
    pub size: ByteSize,
    /// The longest line; the rest is cut.
    pub line: ByteSize,
    /// All lines of one call together.
    pub call: ByteSize,
    /// Lines that a follower may lag behind before it loses some.
    pub follow_buffer: usize,
    /// Followers at the same time.
    pub followers: usize,
}

impl Default for LogsSettings {
    fn default() -> Self {
        Self {
            lines: 2000,
            size: ByteSize::from_mib(1),
            line: ByteSize::from_bytes(4096),
            call: ByteSize::from_bytes(64 << 10),
            follow_buffer: 1024,
            followers: 64,
        }
    }
}

/// Reports to the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReportSettings {
    /// How often the node tells how it is.
    pub status_interval: DurationMs,
    /// How often it tells the round-trip times it measured.
    pub rtt_interval: DurationMs,
    /// Client prefixes kept between two such reports.
    pub rtt_prefixes: usize,
}

impl Default for ReportSettings {
    fn default() -> Self {
        Self {
            status_interval: DurationMs::from_secs(2),
            rtt_interval: DurationMs::from_secs(5),
            rtt_prefixes: 4096,
        }
    }
}

/// Stopping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StopSettings {
    /// How long the node goes on accepting after it has told that it drains.
    pub drain: DurationMs,
    /// How long calls that run may take to end, rounded up to whole seconds.
    pub grace: DurationMs,
}

impl Default for StopSettings {
    fn default() -> Self {
        Self {
            drain: DurationMs::from_secs(3),
            grace: DurationMs::from_secs(30),
        }
    }
}

/// How many cores the process may use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Settings {
    /// Refuses values that cannot work.
    ///
    /// # Errors
    /// Names the first such key and what it must be.
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
            (self.apps.parallel > 0, "apps.parallel must be at least 1"),
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
            (
                self.broker.prefetch > 0,
                "broker.prefetch must be at least 1",
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
                self.controller.snapshot_interval.as_millis() >= 100,
                "controller.snapshot_interval must be at least 100ms",
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
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(Error::Settings((*rule).to_owned())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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
            "broker.password_file",
            "compile.worker",
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
    fn the_defaults_can_work() {
        Settings::default().check().expect("defaults");
        let capacity = CapacitySettings::default().resolve();
        assert!(capacity.cpu_milli.get() >= 1000 && capacity.memory_mib.get() > 0);
    }

    #[test]
    fn what_cannot_work_is_named() {
        type Change = fn(&mut Settings);
        let cases: [(&str, Change); 4] = [
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

//! Settings of a cluster's node. `deploy/config/edge-agent.toml` documents every key; [`ClusterSettings::check`] rejects invalid ones.

use std::net::SocketAddr;
use std::path::PathBuf;

use fdn_core::{ByteSize, DurationMs, Millis};
use fdn_scheduling::instance::{
    GlobalSettings, Limits, ListSettings, Policy, Settings, Spread, SubmitterSettings,
};
use serde::{Deserialize, Serialize};

use crate::clock::millis;
use crate::error::ClusterError;
use crate::membership::Timing;

/// The minimum time without news of a task after which it is sent again.
const RESEND: Millis = Millis::new(1000.0);
/// How long an unanswered task of this node holds back others; after that it is assumed to wait for room somewhere.
const PATIENCE: Millis = Millis::new(500.0);
/// How long changes of the free capacity are gathered before the head is told: one message from each node to one.
const NOTICE: Millis = Millis::new(5.0);

/// How room for an instance is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// A random node, two other nodes by probes, then the global scheduler.
    #[default]
    LocalProbeGlobal,
    /// A random node, then the best of a few according to a snapshot, then the global scheduler.
    Hints,
    /// A random node, then the global scheduler.
    BottomUp,
    /// A random node, then two others, again and again.
    ReProbing,
    /// Probes that wait in the queues of two nodes.
    LateBinding,
    /// The global scheduler immediately.
    Central,
}

impl Mode {
    const fn policy(self) -> Policy {
        match self {
            Self::LocalProbeGlobal => Policy::LocalProbeGlobal,
            Self::Hints => Policy::Hints,
            Self::BottomUp | Self::Central => Policy::BottomUp,
            Self::ReProbing => Policy::ReProbing,
            Self::LateBinding => Policy::LateBinding,
        }
    }
}

/// All settings of a cluster's node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterSettings {
    /// The address on which to listen for other nodes.
    pub listen: SocketAddr,
    /// The address at which they reach this node, if different.
    pub advertise: Option<SocketAddr>,
    /// Nodes to ask for admission. With none, or only this node's own address, it is the first node of its cluster.
    pub seeds: Vec<SocketAddr>,
    /// Whether this node founds a cluster when no seed answers within `timing.found_after`, not even with a refusal: for one of the seeds.
    pub founder: bool,
    /// How room for an instance is found.
    pub mode: Mode,
    /// Whether this node may be the head.
    pub candidate: bool,
    /// The certificates; required unless `plaintext` is set.
    pub tls: Option<TlsSettings>,
    /// Communicate without encryption and trust every name: on loopback addresses only.
    pub plaintext: bool,
    /// Times.
    pub timing: TimingSettings,
    /// Bounds.
    pub limits: LimitSettings,
    /// The global stage, on the head.
    pub global: GlobalStageSettings,
    /// Artificial slow-downs, for benchmarks and tests.
    pub emulate: EmulateSettings,
}

/// The paths of the certificates, in PEM format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSettings {
    /// The authority that signs the cluster's nodes.
    pub ca: PathBuf,
    /// This node's certificate, which names it (`fdn://cluster/<cluster>/node/<node>`), with the chain up to the authority.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
}

/// Times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimingSettings {
    /// A round trip between two nodes, scheduling included, in milliseconds: leases and timeouts of probes are derived from it.
    pub round_trip_ms: f64,
    /// How long a scaling task is wanted.
    pub wanted: DurationMs,
    /// How long a task is remembered after that: longer than the clocks of the cluster differ.
    pub memory: DurationMs,
    /// How often members ping each other.
    pub ping_every: DurationMs,
    /// How long an answer to a ping lets a node act.
    pub lease: DurationMs,
    /// The silence after which a member is suspect.
    pub suspect_after: DurationMs,
    /// The silence after which it is given up, if most agree.
    pub dead_after: DurationMs,
    /// How long a founder waits for an answer of a seed before it founds a cluster.
    pub found_after: DurationMs,
    /// How long candidates wait for votes.
    pub election: DurationMs,
    /// How often the head tells all nodes the free capacities, in hint mode.
    pub snapshot_every: DurationMs,
    /// The time limit for connecting, including TLS.
    pub connect: DurationMs,
    /// The longest pause between two attempts to connect.
    pub reconnect_most: DurationMs,
    /// How often an idle connection is checked.
    pub keep_alive: DurationMs,
}

/// Bounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitSettings {
    /// Members of the cluster.
    pub members: usize,
    /// Messages waiting to be sent to one node; further ones are dropped, and their senders recover from that.
    pub send_queue: usize,
    /// Messages in one frame.
    pub frame: usize,
    /// Bytes of one frame.
    pub frame_size: ByteSize,
    /// Frames received and not yet handled, of all nodes together.
    pub receive_queue: usize,
    /// Bytes of a task's payload, which describes its instance.
    pub payload: ByteSize,
    /// Tasks of this node that are not settled; further ones are refused.
    pub open: usize,
    /// Of these, tasks in flight without an answer yet: further ones are held back on this node and the shortest sent first, so that an
    /// overloaded cluster keeps doing what it can.
    pub window: usize,
    /// Instances on this node.
    pub running: usize,
    /// Tasks that a node, or the head, remembers; one more is refused. A million takes 40 MiB when in use, 16 MiB of it from the start.
    pub remembered: usize,
    /// Tasks waiting at the global scheduler.
    pub waiting: usize,
    /// Instances that this node requested and keeps track of.
    pub placed: usize,
    /// Connections to each other node for calls to instances there.
    pub peer_connections: usize,
    /// Calls and followed instances on one such connection at the same time.
    pub peer_requests: u32,
}

impl LimitSettings {
    /// The most connections of all other nodes, each counted twice: an old one may not have ended when its successor arrives.
    pub(crate) const fn connections(&self) -> usize {
        let each = self.peer_connections.saturating_add(1);
        self.members.saturating_mul(each).saturating_mul(2)
    }
}

/// How the head finds room for tasks that have not found any without it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GlobalStageSettings {
    /// Threads that score nodes on copies of what the head believes, while one committer has the last word; 0: the head's own task chooses,
    /// using a tree over all nodes.
    pub pre_schedulers: usize,
    /// The most tasks handed out to them at a time.
    pub in_flight: usize,
    /// How many nodes each of them names for a task.
    pub list: usize,
    /// How many nodes, drawn at random, each of them considers for a task.
    pub sample: usize,
    /// How many lists for one task may fail before the committer considers all nodes itself.
    pub retries: u32,
    /// The time after which a task that was handed out is taken back, because its thread is gone.
    pub lease: DurationMs,
}

/// Artificial slow-downs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EmulateSettings {
    /// The delay of every message between two nodes, in milliseconds.
    pub one_way_delay_ms: f64,
    /// The duration of each decision of the global scheduler, in milliseconds.
    pub decision_ms: f64,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 8443)),
            advertise: None,
            seeds: Vec::new(),
            founder: true,
            mode: Mode::default(),
            candidate: true,
            tls: None,
            plaintext: false,
            timing: TimingSettings::default(),
            limits: LimitSettings::default(),
            global: GlobalStageSettings::default(),
            emulate: EmulateSettings::default(),
        }
    }
}

impl Default for GlobalStageSettings {
    fn default() -> Self {
        Self {
            pre_schedulers: 0,
            in_flight: 64,
            list: 8,
            sample: 50,
            retries: 1,
            lease: DurationMs::from_secs(1),
        }
    }
}

impl Default for TimingSettings {
    fn default() -> Self {
        Self {
            round_trip_ms: 5.0,
            wanted: DurationMs::from_secs(30),
            memory: DurationMs::from_secs(2),
            ping_every: DurationMs::from_millis(250),
            lease: DurationMs::from_millis(1500),
            suspect_after: DurationMs::from_millis(1000),
            dead_after: DurationMs::from_millis(2000),
            found_after: DurationMs::from_secs(5),
            election: DurationMs::from_millis(300),
            snapshot_every: DurationMs::from_millis(10),
            connect: DurationMs::from_secs(3),
            reconnect_most: DurationMs::from_secs(5),
            keep_alive: DurationMs::from_secs(10),
        }
    }
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            members: 512,
            send_queue: 65_536,
            frame: 512,
            frame_size: ByteSize::from_mib(4),
            receive_queue: 1024,
            payload: ByteSize::from_bytes(1024),
            open: 1 << 18,
            window: 1024,
            running: 65_536,
            remembered: 1 << 20,
            waiting: 1 << 18,
            placed: 1 << 18,
            peer_connections: 2,
            peer_requests: 4096,
        }
    }
}

impl ClusterSettings {
    /// Checks the settings, in particular combinations of them.
    ///
    /// # Errors
    /// The first invalid setting, by its name.
    pub fn check(&self) -> Result<(), ClusterError> {
        let (timing, limits) = (&self.timing, &self.limits);
        let address = self.advertise.unwrap_or(self.listen);
        let rules = [
            (
                self.tls.is_some() || self.plaintext,
                "tls must be set, or plaintext for a cluster on one machine",
            ),
            (
                !self.plaintext || self.listen.ip().is_loopback(),
                "plaintext is for loopback addresses only: listen",
            ),
            (
                !address.ip().is_unspecified(),
                "advertise must be set when listen is every address",
            ),
            (
                timing.round_trip_ms > 0.0 && timing.round_trip_ms.is_finite(),
                "timing.round_trip_ms must be above 0",
            ),
            (
                timing.ping_every.as_millis() > 0
                    && timing.ping_every.as_millis() * 3 <= timing.lease.as_millis(),
                "timing.lease must be three times timing.ping_every at least",
            ),
            (
                timing.dead_after > timing.lease && timing.dead_after >= timing.suspect_after,
                "timing.dead_after must be above timing.lease and timing.suspect_after",
            ),
            (
                self.emulate.one_way_delay_ms >= 0.0 && self.emulate.decision_ms >= 0.0,
                "emulate: times must not be negative",
            ),
            (
                (1..=65_536).contains(&limits.members),
                "limits.members must be from 1 to 65536",
            ),
            (
                (1..=64).contains(&limits.peer_connections) && limits.peer_requests >= 8,
                "limits.peer_connections must be from 1 to 64, limits.peer_requests at least 8",
            ),
            (
                limits.frame > 0 && limits.send_queue >= limits.frame && limits.receive_queue > 0,
                "limits.send_queue must hold a frame, limits.receive_queue one",
            ),
            (limits.window > 0, "limits.window must be 1 at least"),
            (
                self.global.pre_schedulers <= 64 && (1..=65_536).contains(&self.global.in_flight),
                "global.pre_schedulers must be 64 at most, global.in_flight from 1 to 65536",
            ),
            (
                self.global.list > 0 && self.global.sample > 0 && self.global.lease.as_millis() > 0,
                "global.list, global.sample and global.lease must be above 0",
            ),
            (
                self.global.pre_schedulers == 0 || self.emulate.decision_ms <= 0.0,
                "emulate.decision_ms is for a head without pre-schedulers: global.pre_schedulers",
            ),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            None => self
                .node()
                .validate()
                .map_err(|error| ClusterError::Settings(error.to_string())),
            Some((_, text)) => Err(ClusterError::Settings(text.to_owned())),
        }
    }

    pub(crate) fn node(&self) -> Settings {
        let round_trip = Millis::new(self.timing.round_trip_ms);
        Settings {
            memory: millis(self.timing.memory.as_duration()),
            limits: Limits {
                running: self.limits.running,
                memory: self.limits.remembered,
                ..Limits::default()
            },
            notice_every: NOTICE,
            // Nodes number each other independently, so they cannot agree on a distribution of slots.
            hint_spread: Spread::Even,
            ..Settings::for_round_trip(round_trip).with_policy(self.mode.policy())
        }
    }

    pub(crate) fn global(&self) -> GlobalSettings {
        GlobalSettings {
            memory: millis(self.timing.memory.as_duration()),
            queue: self.limits.waiting,
            memory_limit: self.limits.remembered,
            ..GlobalSettings::for_round_trip(Millis::new(self.timing.round_trip_ms))
        }
    }

    pub(crate) fn lists(&self) -> ListSettings {
        ListSettings {
            in_flight: self.global.in_flight,
            retries: self.global.retries,
            lease: millis(self.global.lease.as_duration()),
            ..ListSettings::default()
        }
    }

    pub(crate) fn submitter(&self) -> SubmitterSettings {
        let memory = millis(self.timing.memory.as_duration());
        SubmitterSettings {
            wanted: millis(self.timing.wanted.as_duration()),
            memory: memory * 0.5,
            open: self.limits.open,
            window: self.limits.window,
            patience: PATIENCE,
            central: self.mode == Mode::Central,
            // Streams between live nodes lose messages only at the bound of a queue. A task that waits is not lost, and resending adds
            // to the load that delays it.
            resend: Millis::new(self.timing.round_trip_ms * 50.0).max(RESEND),
            resend_most: RESEND * 4.0,
        }
    }

    pub(crate) fn membership(&self) -> Timing {
        let timing = &self.timing;
        Timing {
            lease: millis(timing.lease.as_duration()),
            suspect_after: millis(timing.suspect_after.as_duration()),
            dead_after: millis(timing.dead_after.as_duration()),
            fresh: millis(timing.ping_every.as_duration()) * 3.0,
            members: self.limits.members,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_need_certificates_and_an_address() {
        let settings = ClusterSettings::default();
        assert!(settings.check().is_err());
        let settings = ClusterSettings {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            plaintext: true,
            ..settings
        };
        settings.check().unwrap();
        let open = ClusterSettings {
            listen: SocketAddr::from(([192, 0, 2, 1], 8443)),
            ..settings.clone()
        };
        let error = open.check().unwrap_err().to_string();
        assert!(error.contains("loopback"), "{error}");
        let mut hasty = settings;
        hasty.timing.dead_after = hasty.timing.lease;
        let error = hasty.check().unwrap_err().to_string();
        assert!(error.contains("dead_after"), "{error}");
    }

    #[test]
    fn settings_are_read_from_text() {
        let text = r#"
            listen = "127.0.0.1:9000"
            seeds = ["127.0.0.1:9001"]
            mode = "hints"
            plaintext = true
            [timing]
            wanted = "10s"
            [emulate]
            one_way_delay_ms = 0.25
        "#;
        let settings: ClusterSettings = toml::from_str(text).unwrap();
        assert_eq!(settings.mode, Mode::Hints);
        assert_eq!(settings.timing.wanted, DurationMs::from_secs(10));
        settings.check().unwrap();
        assert!(toml::from_str::<ClusterSettings>("sedes = []").is_err());
    }
}

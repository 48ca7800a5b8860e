//! Options of the Docker runtime.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::ByteSize;
use serde::{Deserialize, Serialize};

use crate::link::LinkLimits;
use crate::link::health::HealthChecks;
use crate::log::{LogSink, NoSink};
use crate::metrics::Metrics;

/// How containers without outbound access ([`crate::Outbound::Denied`]) are reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// No network but the container's own loopback, which the agent enters. The strictest and the fastest to start;
    /// the agent needs `CAP_SYS_ADMIN` and must see the engine's processes (same machine, same process namespace).
    #[default]
    Isolated,
    /// A bridge of this node's own without a way out (`internal`), for functions that are trusted ([`DockerOptions::trusted`]): containers
    /// reach everything that the node serves on any address; they also reach each other, unless the engine filters that as it is told to; and
    /// with an engine older than version 25 they reach everything.
    Bridge,
    /// The node's network, on a free port. No isolation at all: for functions that are trusted as much as the agent itself.
    Host,
}

/// Options of [`crate::docker::DockerRuntime`].
#[derive(Clone)]
pub struct DockerOptions {
    /// The engine's Unix socket.
    pub socket: PathBuf,
    /// Distinguishes the containers of agents with the same cluster and node that share the engine. Without one, only containers without
    /// a scope are this agent's.
    pub scope: Option<String>,
    /// Whether containers are left to the next agent when this one stops regularly; otherwise they must be ended before.
    pub outlive_agent: bool,
    /// How containers are reached.
    pub network: Network,
    /// Whether all functions are trusted as much as the agent itself. Otherwise only [`Network::Isolated`] is accepted.
    pub trusted: bool,
    /// A folder for files that containers read, which the engine sees under the same path. With one, containers without a network start
    /// in half the time: the engine need not make their `/etc/hosts`.
    pub folder: Option<PathBuf>,
    /// Where control groups are mounted: instances are paused through them where the agent may write to them, because the engine takes more
    /// than ten milliseconds for a pause. If `None`, the engine is always used.
    pub cgroups: Option<PathBuf>,
    /// The size of the container's `/tmp`, and of each volume that its image declares. They are in memory and count
    /// towards the instance's limit.
    pub tmp: ByteSize,
    /// How much of a container's output the engine keeps on disk.
    pub log_file: ByteSize,
    /// The time limit for an answer of the engine; pulling and loading images may take [`DockerOptions::image_timeout`].
    pub engine_timeout: Duration,
    /// The largest unpacked size of an image, uploaded or pulled.
    pub image_unfolded: ByteSize,
    /// The most disk space for fetched images; beyond it, unneeded ones are evicted.
    pub image_cache: ByteSize,
    /// The time limit for making an image available.
    pub image_timeout: Duration,
    /// How long to wait for the last lines of an ended container.
    pub last_lines: Duration,
    /// How many starts are passed to the engine at the same time; others wait.
    pub parallel_starts: usize,
    /// Containers created ahead for each specification whose starts are expected; 0 means none.
    pub ahead: usize,
    /// How running containers are checked.
    pub health: HealthChecks,
    /// Limits on the connections to one container.
    pub link: LinkLimits,
    /// Receives every line of output.
    pub sink: Arc<dyn LogSink>,
    /// The counters.
    pub metrics: Metrics,
}

impl Default for DockerOptions {
    fn default() -> Self {
        Self {
            socket: PathBuf::from("/var/run/docker.sock"),
            scope: None,
            outlive_agent: true,
            network: Network::Isolated,
            trusted: false,
            folder: None,
            cgroups: Some(PathBuf::from("/sys/fs/cgroup")),
            tmp: ByteSize::from_mib(64),
            log_file: ByteSize::from_mib(1),
            engine_timeout: Duration::from_secs(30),
            image_unfolded: fdn_runtime::image::UNPACKED_MAX,
            image_cache: ByteSize::from_mib(20 << 10),
            image_timeout: Duration::from_secs(600),
            last_lines: Duration::from_secs(2),
            parallel_starts: 8,
            ahead: 1,
            health: HealthChecks::default(),
            link: LinkLimits::default(),
            sink: Arc::new(NoSink),
            metrics: Metrics::default(),
        }
    }
}

impl DockerOptions {
    /// The largest unpacked size of an image, and the time limit for making it available.
    pub(super) const fn image_bounds(&self) -> (ByteSize, Duration) {
        (self.image_unfolded, self.image_timeout)
    }
}

impl std::fmt::Debug for DockerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DockerOptions")
            .field("socket", &self.socket)
            .field("network", &self.network)
            .finish_non_exhaustive()
    }
}

//! How the Docker runtime is set up.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::ByteSize;
use serde::{Deserialize, Serialize};

use crate::link::LinkLimits;
use crate::link::health::HealthChecks;
use crate::log::{LogSink, NoSink};
use crate::metrics::Metrics;

/// How containers that may not connect anywhere ([`crate::Outbound::Denied`]) are reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// No network but the container's own loopback, into which the agent reaches. The strictest and the fastest to start;
    /// the agent needs `CAP_SYS_ADMIN` and must see the engine's processes (same machine, same process namespace).
    #[default]
    Isolated,
    /// A bridge of this node's own without a way out (`internal`), for functions that are trusted ([`DockerOptions::trusted`]): containers
    /// reach what the node serves on all its addresses; and each other, and where the engine is older than version 25 everything, unless the
    /// engine filters that, which it is told to.
    Bridge,
    /// The node's network, on a free port. No isolation at all: for functions that are trusted as the agent itself is.
    Host,
}

/// Settings of [`crate::docker::DockerRuntime`].
#[derive(Clone)]
pub struct DockerOptions {
    /// The engine's Unix socket.
    pub socket: PathBuf,
    /// Tells the containers of agents apart that have the same cluster and node and share the engine. Without one, only containers without
    /// one are this agent's.
    pub scope: Option<String>,
    /// Whether containers are left to the next agent when this one stops in order; else they are to be ended before.
    pub outlive_agent: bool,
    /// How containers are reached.
    pub network: Network,
    /// Whether all functions are trusted as the agent itself is. Else only [`Network::Isolated`] is taken.
    pub trusted: bool,
    /// A folder for files that containers read, which the engine sees under the same path. With one, containers without a network start
    /// in half the time: the engine need not make their `/etc/hosts`.
    pub folder: Option<PathBuf>,
    /// Where control groups are mounted: instances are paused there where the agent may write, which takes the engine more than ten
    /// milliseconds. Without, the engine is always asked.
    pub cgroups: Option<PathBuf>,
    /// The size of the container's `/tmp`, and of each volume that its image declares. They are in memory and count
    /// towards the instance's limit.
    pub tmp: ByteSize,
    /// How much of a container's output the engine keeps on disk.
    pub log_file: ByteSize,
    /// How long the engine may take to answer; pulling and loading images may take [`DockerOptions::image_timeout`].
    pub engine_timeout: Duration,
    /// What an image may unfold to, whether it was uploaded or is pulled.
    pub image_unfolded: ByteSize,
    /// How much images may take that were brought here; beyond it those that nobody needs go.
    pub image_cache: ByteSize,
    /// How long it may take to have an image ready.
    pub image_timeout: Duration,
    /// How long the last lines of an ended container may take to arrive.
    pub last_lines: Duration,
    /// Starts that are handed to the engine at the same time; others wait.
    pub parallel_starts: usize,
    /// Containers created ahead for each specification that is expected to be started; 0 means none.
    pub ahead: usize,
    /// How running containers are checked.
    pub health: HealthChecks,
    /// Bounds on the connections to one container.
    pub link: LinkLimits,
    /// Takes every line of output.
    pub sink: Arc<dyn LogSink>,
    /// Counters.
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
            image_unfolded: fdn_runtime::image::UNFOLDED,
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
    /// How large an image may be once it is unfolded, and how long it may take to have it.
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

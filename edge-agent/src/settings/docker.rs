//! The Docker engine of a node.

use std::path::PathBuf;
use std::sync::Arc;

use fdn_core::{ByteSize, DurationMs};
use fdn_instances::docker::DockerOptions;
pub use fdn_instances::docker::Network;
use fdn_instances::{HealthChecks, LinkLimits, LogSink, Metrics};
use serde::{Deserialize, Serialize};

/// How containers are run, if they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DockerSettings {
    /// Whether this node runs container images. The agent does not start without its engine then.
    pub enabled: bool,
    /// The engine's Unix socket.
    pub socket: PathBuf,
    /// Tells the containers of agents apart that have the same cluster and node names and share the engine: a word of lower-case letters,
    /// digits and hyphens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Whether containers run on when the agent stops, for the next one to take them in; else they end with it.
    pub outlive_agent: bool,
    /// How containers are reached.
    pub network: Network,
    /// Whether every function that this node is told to run is trusted as the agent itself is. Without, only the network `isolated` is taken:
    /// on the others containers reach what this node serves, and more.
    pub trusted: bool,
    /// Where control groups are mounted. Idle instances are paused there, within a millisecond, where the agent may write and sees the
    /// engine's processes; otherwise, or when this is empty, by the engine.
    pub cgroups: PathBuf,
    /// The size of a container's `/tmp`, in memory, within the memory of its function.
    pub tmp: ByteSize,
    /// How much of a container's output the engine keeps on disk.
    pub log_file: ByteSize,
    /// How long the engine may take to answer.
    pub engine_timeout: DurationMs,
    /// What an image may unfold to, whether it was uploaded or is pulled.
    pub image_unfolded: ByteSize,
    /// How much images may take of the engine's disk that agents brought there. Beyond it those go that no app is deployed with and no
    /// container is of, the least recently used first.
    pub image_cache: ByteSize,
    /// How long it may take to load an image.
    pub image_timeout: DurationMs,
    /// Starts that are handed to the engine at the same time.
    pub parallel_starts: usize,
    /// Containers of each function that are created, and not started, before they are asked for; 0 means none.
    pub ahead: usize,
    /// The pause between two checks of a running container, and how long its answer may take.
    pub health_interval: DurationMs,
    /// See `health_interval`.
    pub health_timeout: DurationMs,
    /// Failed checks in a row before a container is replaced.
    pub health_failures: u32,
}

impl Default for DockerSettings {
    fn default() -> Self {
        let options = DockerOptions::default();
        let span = |span: std::time::Duration| DurationMs::from_secs(span.as_secs());
        Self {
            enabled: false,
            socket: options.socket,
            scope: options.scope,
            outlive_agent: options.outlive_agent,
            network: options.network,
            trusted: options.trusted,
            cgroups: options.cgroups.unwrap_or_default(),
            tmp: options.tmp,
            log_file: options.log_file,
            engine_timeout: span(options.engine_timeout),
            image_unfolded: options.image_unfolded,
            image_cache: options.image_cache,
            image_timeout: span(options.image_timeout),
            parallel_starts: options.parallel_starts,
            ahead: options.ahead,
            health_interval: span(options.health.interval),
            health_timeout: span(options.health.timeout),
            health_failures: options.health.failures,
        }
    }
}

impl DockerSettings {
    /// Refuses values that cannot work.
    ///
    /// # Errors
    /// Says which key, and what it must be.
    pub fn check(&self) -> Result<(), &'static str> {
        let second = DurationMs::from_secs(1);
        if self.parallel_starts == 0 || self.health_failures == 0 {
            return Err("docker.parallel_starts and docker.health_failures must be at least 1");
        }
        let is_word = |scope: &String| {
            let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            (1..=63).contains(&scope.len()) && scope.chars().all(is_part)
        };
        if self.scope.as_ref().is_some_and(|scope| !is_word(scope)) {
            return Err("docker.scope must be 1 to 63 lower-case letters, digits and hyphens");
        }
        if self.ahead > 64 {
            return Err("docker.ahead must be at most 64");
        }
        if self.engine_timeout < second || self.image_timeout < second {
            return Err("docker.engine_timeout and docker.image_timeout must be at least 1s");
        }
        if self.health_interval.as_millis() < 100 || self.health_timeout.as_millis() < 100 {
            return Err("docker.health_interval and docker.health_timeout must be at least 100ms");
        }
        Ok(())
    }

    /// As the runtime takes them, with a folder for files that containers read.
    #[must_use]
    pub fn options(
        &self,
        folder: PathBuf,
        sink: Arc<dyn LogSink>,
        metrics: Metrics,
    ) -> DockerOptions {
        DockerOptions {
            folder: Some(folder),
            socket: self.socket.clone(),
            scope: self.scope.clone(),
            outlive_agent: self.outlive_agent,
            network: self.network,
            trusted: self.trusted,
            cgroups: Some(self.cgroups.clone()).filter(|path| !path.as_os_str().is_empty()),
            tmp: self.tmp,
            log_file: self.log_file,
            engine_timeout: self.engine_timeout.as_duration(),
            image_unfolded: self.image_unfolded,
            image_cache: self.image_cache,
            image_timeout: self.image_timeout.as_duration(),
            last_lines: DockerOptions::default().last_lines,
            parallel_starts: self.parallel_starts,
            ahead: self.ahead,
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

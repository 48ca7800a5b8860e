//! The Docker engine of a node.

use std::path::PathBuf;
use std::sync::Arc;

use fdn_core::{ByteSize, DurationMs};
use fdn_instances::docker::DockerOptions;
pub use fdn_instances::docker::Network;
use fdn_instances::{HealthChecks, LinkLimits, LogSink, Metrics};
use serde::{Deserialize, Serialize};

/// Whether and how containers are run with Docker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DockerSettings {
    /// Whether this node runs container images. If so, the agent does not start without its engine.
    pub enabled: bool,
    /// The engine's Unix socket.
    pub socket: PathBuf,
    /// A word (lower-case letters, digits and hyphens) that distinguishes the containers of agents with the same cluster and node names on one
    /// engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Whether containers keep running when the agent stops, to be adopted at its next start; otherwise they end with it.
    pub outlive_agent: bool,
    /// The network mode, which decides how containers are reached.
    pub network: Network,
    /// Whether every function that this node is given to run is trusted like the agent itself. If not, only the network `isolated` is permitted:
    /// on the others containers can reach what this node serves, and more.
    pub trusted: bool,
    /// Where control groups are mounted. Idle instances are paused through them, within a millisecond, if the agent may write there and sees the
    /// engine's processes; otherwise, or if this is empty, through the engine.
    pub cgroups: PathBuf,
    /// The size of a container's `/tmp`, which is in memory and counts towards the memory of its function.
    pub tmp: ByteSize,
    /// The maximum size of a container's output on the engine's disk.
    pub log_file: ByteSize,
    /// The timeout for an answer of the engine.
    pub engine_timeout: DurationMs,
    /// The maximum unpacked size of an image, whether uploaded or pulled.
    pub image_unfolded: ByteSize,
    /// The maximum size of images that agents brought to the engine's disk. Beyond it images are removed that no deployed app and no container
    /// uses, the least recently used first.
    pub image_cache: ByteSize,
    /// The timeout for loading an image.
    pub image_timeout: DurationMs,
    /// The most starts that are given to the engine at the same time.
    pub parallel_starts: usize,
    /// How many containers of each function are created, but not started, ahead of need; 0 means none.
    pub ahead: usize,
    /// The pause between two health checks of a running container.
    pub health_interval: DurationMs,
    /// The timeout of a health check.
    pub health_timeout: DurationMs,
    /// The number of failed checks in a row after which a container is replaced.
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
    /// Checks that the values can work.
    ///
    /// # Errors
    /// Names the key, and what it must be.
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

    /// The runtime's options. `folder` is for files that containers read.
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

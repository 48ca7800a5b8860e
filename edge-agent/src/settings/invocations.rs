//! The queue of waiting calls, the instances that serve them, and how their number follows the load.

use fdn_core::{ByteSize, DurationMs};
use serde::{Deserialize, Serialize};

/// In which order waiting calls start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderName {
    /// Smallest expected memory-time first, cold start included.
    Funcsched,
    /// The same, but a call waits for a busy instance of its function where that is free sooner than a new one is started.
    #[default]
    QueueOrCold,
    /// The same, and an idle instance for whose function calls wait serves them before it is evicted.
    UseOrEvict,
    /// First come, first served.
    Fcfs,
    /// Shortest execution first.
    Sjf,
    /// Smallest memory first.
    Srf,
}

/// How long idle instances are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeepAliveName {
    /// For a fixed time; the least recently used goes first where room is needed.
    #[default]
    Fixed,
    /// While there is room; the least recently used goes first.
    Lru,
    /// While there is room; what is cheap to start again for its memory goes first.
    Gdsf,
    /// By a histogram of the function's idle times, started again shortly before the next call is expected.
    Hist,
}

/// The order of calls that wait.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueSettings {
    /// The order.
    pub order: OrderName,
    /// Calls of one function that may wait; one more is refused.
    pub per_function: u32,
    /// Calls that waited for so long go first; 0 means never.
    pub starve_after: DurationMs,
    /// At most this share of the memory-time goes to such calls.
    pub starve_share: f64,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            order: OrderName::default(),
            per_function: 512,
            starve_after: DurationMs::from_millis(500),
            starve_share: 0.5,
        }
    }
}

/// Instances in containers and pods.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InstanceSettings {
    /// Calls that may wait for an instance, of all functions together.
    pub waiting: u32,
    /// How long a call waits for an instance, one that has to be started included.
    pub wait: DurationMs,
    /// How idle instances are kept.
    pub keep_alive: KeepAliveName,
    /// For how long, where the policy keeps for a fixed time.
    pub keep: DurationMs,
    /// Instances that are idle for so long are paused, where their runtime can: they keep their memory, get no CPU and are woken for the
    /// next call. 0 means never.
    pub pause_after: DurationMs,
    /// Instances of each function that are started and paused before anybody calls it, in room that nothing else wants; 0 means none.
    pub standby: u32,
    /// How long it may take to pause or wake one. One that takes longer to wake is replaced.
    pub resume_timeout: DurationMs,
    /// How long a start is expected to take until starts have been measured.
    pub cold_start: DurationMs,
    /// The longest start, waiting for room included.
    pub start_timeout: DurationMs,
    /// How long an instance that is stopped may take to end the calls it runs, and one to end a call whose time is over before it is
    /// replaced.
    pub stop_grace: DurationMs,
    /// How often one call is handed to an instance, the first time included.
    pub attempts: u32,
    /// Request bodies up to this size are kept until the answer's head is there, so that the call can be made again.
    pub replay_body: ByteSize,
    /// The pause before an instance is started again after a failed start; it doubles with each failure.
    pub retry_first: DurationMs,
    /// The longest such pause.
    pub retry_max: DurationMs,
    /// Lines of output kept of each instance, for those who ask why it failed.
    pub log_lines: u32,
}

impl Default for InstanceSettings {
    fn default() -> Self {
        Self {
            waiting: 1024,
            wait: DurationMs::from_secs(30),
            keep_alive: KeepAliveName::default(),
            keep: DurationMs::from_secs(600),
            pause_after: DurationMs::from_millis(0),
            standby: 0,
            resume_timeout: DurationMs::from_secs(2),
            cold_start: DurationMs::from_millis(200),
            start_timeout: DurationMs::from_secs(60),
            stop_grace: DurationMs::from_secs(10),
            attempts: 6,
            replay_body: ByteSize::from_mib(1),
            retry_first: DurationMs::from_millis(200),
            retry_max: DurationMs::from_secs(30),
            log_lines: 100,
        }
    }
}

/// How the number of instances of a function follows its load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScaleSettings {
    /// The window over which the load is averaged; instances that it needed are kept for as long.
    pub stable: DurationMs,
    /// The short window that shows sudden load.
    pub panic: DurationMs,
    /// How often the number is decided on anew.
    pub interval: DurationMs,
    /// How soon after a call has begun to wait.
    pub reaction: DurationMs,
    /// Sudden load is when the short window wants this many times the instances that run.
    pub panic_factor: f64,
    /// Instances beyond the mean load, in units of its square root.
    pub headroom: f64,
    /// The most instances of one function.
    pub max: u32,
}

impl Default for ScaleSettings {
    fn default() -> Self {
        Self {
            stable: DurationMs::from_secs(60),
            panic: DurationMs::from_secs(6),
            interval: DurationMs::from_secs(1),
            reaction: DurationMs::from_millis(5),
            panic_factor: 2.0,
            headroom: 1.0,
            max: 1000,
        }
    }
}

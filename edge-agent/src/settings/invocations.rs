//! Settings of the queue of waiting calls, the instances that serve them, and the scaling of their number.

use fdn_core::{ByteSize, DurationMs};
use serde::{Deserialize, Serialize};

/// The order in which waiting calls are started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderName {
    /// The smallest expected product of memory and time first, cold start included.
    Funcsched,
    /// The same, but a call waits for a busy instance of its function if that is free sooner than a new one is started.
    #[default]
    QueueOrCold,
    /// The same, and an idle instance serves waiting calls of its function before it may be evicted.
    UseOrEvict,
    /// First come, first served.
    Fcfs,
    /// Shortest execution first.
    Sjf,
    /// Smallest memory first.
    Srf,
}

/// The policy for keeping idle instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeepAliveName {
    /// Keep for a fixed time; if room is needed, evict the least recently used.
    #[default]
    Fixed,
    /// Keep while there is room; evict the least recently used.
    Lru,
    /// Keep while there is room; evict what is cheap to start again relative to its memory.
    Gdsf,
    /// Keep by a histogram of the function's idle times; start again shortly before the next call is expected.
    Hist,
}

/// The order of waiting calls.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueSettings {
    /// The order.
    pub order: OrderName,
    /// The most waiting calls of one function; further ones are refused.
    pub per_function: u32,
    /// Calls that have waited this long go first; 0 means never.
    pub starve_after: DurationMs,
    /// The largest share of the product of memory and time that goes to such calls.
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
    /// The most calls that may wait for an instance, of all functions together.
    pub waiting: u32,
    /// How long a call waits for an instance, including its start.
    pub wait: DurationMs,
    /// The policy for keeping idle instances.
    pub keep_alive: KeepAliveName,
    /// How long instances are kept, if the policy keeps them for a fixed time.
    pub keep: DurationMs,
    /// How long instances are idle before they are paused, if their runtime can: they keep their memory, get no CPU and are resumed for the next
    /// call. 0 means never.
    pub pause_after: DurationMs,
    /// How many instances of each function are started and paused before anybody calls it, in room that nothing else needs; 0 means none.
    pub standby: u32,
    /// The timeout for pausing or resuming an instance. One that does not resume in time is replaced.
    pub resume_timeout: DurationMs,
    /// The expected time of a start until starts have been measured.
    pub cold_start: DurationMs,
    /// The timeout of a start, including the wait for room.
    pub start_timeout: DurationMs,
    /// The grace period: how long an instance that is stopped may take to end its running calls, and how long an instance may continue a call
    /// after its deadline before it is replaced.
    pub stop_grace: DurationMs,
    /// The most attempts to hand a call to an instance, including the first.
    pub attempts: u32,
    /// The largest request body that is kept until the answer's head arrives, so that the call can be retried.
    pub replay_body: ByteSize,
    /// The pause before the next start after a failed one; it doubles with each failure.
    pub retry_first: DurationMs,
    /// The longest such pause.
    pub retry_max: DurationMs,
    /// The number of output lines kept for each instance, to explain failures.
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

/// How the number of a function's instances follows its load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScaleSettings {
    /// The window over which the load is averaged; instances are kept for the same time after the load that needed them.
    pub stable: DurationMs,
    /// The short window that detects sudden load.
    pub panic: DurationMs,
    /// The interval of scaling decisions.
    pub interval: DurationMs,
    /// The delay between a call's arrival in the queue and the next scaling decision.
    pub reaction: DurationMs,
    /// The load is sudden if the short window needs this many times the running instances.
    pub panic_factor: f64,
    /// Instances in addition to the mean load, in units of its square root.
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

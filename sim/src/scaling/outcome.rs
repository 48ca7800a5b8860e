//! What a run found, gathered while it runs.

use fdn_core::Millis;
use serde::Serialize;

use super::setup::{Scheduler, Setup};
use crate::report::Summary;

/// Where a task's instance was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// On the node where the task arrived.
    Local,
    /// On a node that answered yes to a probe.
    Probe,
    /// On a node that a hint named.
    Hint,
    /// Where the global scheduler said.
    Global,
    /// Where the committer said.
    Commit,
}

/// Instances started, by who found the place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stages {
    /// On the node where the task arrived.
    pub local: u64,
    /// On a node that answered yes to a probe.
    pub probe: u64,
    /// On a node that a hint named.
    pub hint: u64,
    /// Where the global scheduler said.
    pub global: u64,
    /// Where the committer said.
    pub commit: u64,
}

impl Stages {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.local + self.probe + self.hint + self.global + self.commit
    }
}

/// From a task's arrival to the start of its instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// The mean.
    pub mean_ms: f64,
    /// The median.
    pub p50_ms: f64,
    /// 99 of 100 are at most this.
    pub p99_ms: f64,
    /// The largest.
    pub max_ms: f64,
}

/// The figures of a run. All but `placed`, `refused` and `waiting` leave the warm-up out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Who decided.
    pub scheduler: Scheduler,
    /// How many nodes.
    pub nodes: u32,
    /// Slots per node.
    pub slots: u32,
    /// The share of busy slots aimed at.
    pub utilization: f64,
    /// The share of busy slots that was found.
    pub utilization_measured: f64,
    /// Tasks per second.
    pub rate_per_s: f64,
    /// How many tasks arrived, warm-up included.
    pub tasks: u64,
    /// How many the figures count.
    pub measured: u64,
    /// From arrival to start.
    pub latency: Latency,
    /// By whom instances were started.
    pub stages: Stages,
    /// The share of tasks that found no room where they arrived.
    pub local_failed: f64,
    /// The share of tasks that reached the global scheduler or the committer.
    pub reached_global: f64,
    /// Messages between schedulers per task: neither the arrival itself nor reports that an instance has started count.
    pub messages_per_task: f64,
    /// Instances started.
    pub placed: u64,
    /// Tasks that were refused at a bound.
    pub refused: u64,
    /// Tasks neither started nor refused at the end.
    pub waiting: u64,
    /// Whether p99 is within the limit and every task was placed.
    pub sustained: bool,
}

/// Gathers the figures of a run.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    warm_up: u64,
    latencies: Vec<f64>,
    late: u64,
    late_most: u64,
    limit: Millis,
    stages: Stages,
    local_failed: u64,
    reached_global: u64,
    messages: u64,
    placed: u64,
    refused: u64,
    busy: (f64, f64),
}

impl Recorder {
    /// For a run of this setup.
    #[must_use]
    pub fn new(setup: &Setup) -> Self {
        let warm_up = setup.warm_up_tasks();
        Self {
            warm_up,
            late_most: (setup.tasks - warm_up) / 100,
            limit: setup.limit,
            latencies: Vec::with_capacity((setup.tasks - warm_up) as usize),
            ..Self::default()
        }
    }

    /// Whether the `task`-th arrival comes after the warm-up.
    #[must_use]
    pub const fn counts(&self, task: u64) -> bool {
        task >= self.warm_up
    }

    /// The instance of the `task`-th arrival was started.
    pub fn started(&mut self, task: u64, stage: Stage, latency: Millis) {
        self.placed += 1;
        if !self.counts(task) {
            return;
        }
        self.latencies.push(latency.get());
        self.late += u64::from(latency > self.limit);
        let count = match stage {
            Stage::Local => &mut self.stages.local,
            Stage::Probe => &mut self.stages.probe,
            Stage::Hint => &mut self.stages.hint,
            Stage::Global => &mut self.stages.global,
            Stage::Commit => &mut self.stages.commit,
        };
        *count += 1;
    }

    /// Whether so many tasks were late that p99 is beyond the limit whatever comes.
    #[must_use]
    pub const fn is_beyond_limit(&self) -> bool {
        self.late > self.late_most
    }

    /// The task found no room where it arrived.
    pub const fn local_failed(&mut self, task: u64) {
        self.local_failed += self.counts(task) as u64;
    }

    /// The task reached the global scheduler or the committer.
    pub const fn reached_global(&mut self, task: u64) {
        self.reached_global += self.counts(task) as u64;
    }

    /// A message between schedulers was sent for the task.
    pub const fn message(&mut self, task: u64) {
        self.messages += self.counts(task) as u64;
    }

    /// The task was refused at a bound.
    pub const fn refused(&mut self) {
        self.refused += 1;
    }

    /// So many slots were busy for so long.
    pub fn busy(&mut self, slots: f64, span: Millis) {
        self.busy.0 += slots * span.get();
        self.busy.1 += span.get();
    }

    /// The figures.
    #[must_use]
    pub fn outcome(mut self, setup: &Setup) -> Outcome {
        let summary = Summary::of(&mut self.latencies);
        let measured = setup.tasks - self.warm_up;
        let share = |count: u64| count as f64 / measured.max(1) as f64;
        let waiting = setup.tasks.saturating_sub(self.placed + self.refused);
        Outcome {
            scheduler: setup.scheduler,
            nodes: setup.nodes,
            slots: setup.slots,
            utilization: setup.utilization,
            utilization_measured: self.busy.0 / (self.busy.1 * setup.slots_in_all()).max(1e-300),
            rate_per_s: setup.rate_per_s,
            tasks: setup.tasks,
            measured,
            latency: Latency {
                mean_ms: summary.mean,
                p50_ms: summary.p50,
                p99_ms: summary.p99,
                max_ms: summary.max,
            },
            stages: self.stages,
            local_failed: share(self.local_failed),
            reached_global: share(self.reached_global),
            messages_per_task: share(self.messages),
            placed: self.placed,
            refused: self.refused,
            waiting,
            sustained: Millis::new(summary.p99) <= setup.limit
                && self.refused == 0
                && waiting == 0
                && summary.count > 0,
        }
    }
}

//! What is simulated: the nodes, the tasks that arrive, what a message and a decision cost, and what goes wrong.

use clap::ValueEnum;
use fdn_core::Millis;
use fdn_scheduling::instance::{HINT_SAMPLE_MAX, Spread};
use serde::Serialize;

use crate::Error;
use crate::seed::Seed;

/// Who decides where a task's instance starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// Local check, a probe of two nodes, the global scheduler.
    LocalProbeGlobal,
    /// Local check, then the task itself goes to the best of eight by a snapshot, at most four times; the global scheduler.
    Hints,
    /// Local check, the global scheduler.
    BottomUp,
    /// Local check, then two new nodes again and again until one has room.
    ReProbing,
    /// A place in the queues of two nodes; the first to have room takes the task.
    LateBinding,
    /// The global scheduler alone.
    Central,
    /// Several pre-schedulers on copies of the nodes, and one committer.
    Optimistic,
}

/// A cluster of equal nodes under a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// Who decides.
    pub scheduler: Scheduler,
    /// N: how many nodes.
    pub nodes: u32,
    /// S: how many instances run on a node at once.
    pub slots: u32,
    /// U: which share of all slots is busy in the mean.
    pub utilization: f64,
    /// λ: tasks per second, a Poisson stream, each to a uniformly random node.
    pub rate_per_s: f64,
    /// How many tasks arrive.
    pub tasks: u64,
    /// The share of the tasks, the first ones, that no figure counts.
    pub warm_up: f64,
    /// Whether the slots are all free at first, rather than a share U of them busy.
    pub from_empty: bool,
    /// How long a message is under way.
    pub delay: Millis,
    /// How long a node works on a message.
    pub message_cost: Millis,
    /// How long the global scheduler works on a decision.
    pub decision_cost: Millis,
    /// How many pre-schedulers there are ([`Scheduler::Optimistic`]).
    pub pre_schedulers: u32,
    /// How long a pre-scheduler works on a task.
    pub scoring: Millis,
    /// How long the committer works on a list.
    pub list_cost: Millis,
    /// How long it works on each changed entry of it.
    pub changed_cost: Millis,
    /// The largest age of the snapshot of free slots ([`Scheduler::Hints`]).
    pub snapshot_age: Millis,
    /// Of how many random nodes a hint is the best.
    pub hint_sample: u32,
    /// Which of them, if any.
    pub hint_spread: Spread,
    /// How long a node gathers changes before it tells the global scheduler.
    pub notice_every: Millis,
    /// The probability that a message is lost.
    pub loss: f64,
    /// The probability that a message arrives twice.
    pub duplicate: f64,
    /// How many nodes are lost, at times spread over the run.
    pub lost_nodes: u32,
    /// How often the global scheduler is lost, and another one takes over, at times spread over the run.
    pub lost_heads: u32,
    /// The largest p99 at which the rate counts as sustained.
    pub limit: Millis,
    /// Whether the run ends as soon as its p99 is beyond the limit for certain.
    pub give_up: bool,
    /// The seed.
    pub seed: Seed,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            scheduler: Scheduler::LocalProbeGlobal,
            nodes: 500,
            slots: 20,
            utilization: 0.95,
            rate_per_s: 100_000.0,
            tasks: 300_000,
            warm_up: 0.2,
            from_empty: false,
            delay: Millis::new(0.25),
            message_cost: Millis::new(0.01),
            decision_cost: Millis::new(0.025),
            pre_schedulers: 64,
            scoring: Millis::new(2.0),
            list_cost: Millis::new(0.02),
            changed_cost: Millis::new(0.005),
            snapshot_age: Millis::new(5.0),
            hint_sample: 8,
            hint_spread: Spread::Dealt,
            notice_every: Millis::new(1.0),
            loss: 0.0,
            duplicate: 0.0,
            lost_nodes: 0,
            lost_heads: 0,
            limit: Millis::new(5.0),
            give_up: false,
            seed: Seed(1),
        }
    }
}

impl Setup {
    /// L = U·N·S/λ, the mean time an instance runs, which gives the utilisation.
    #[must_use]
    pub fn lifetime(&self) -> Millis {
        Millis::new(self.utilization * self.slots_in_all() / self.rate_per_s * 1e3)
    }

    /// N·S.
    #[must_use]
    pub fn slots_in_all(&self) -> f64 {
        f64::from(self.nodes) * f64::from(self.slots)
    }

    /// How many tasks no figure counts.
    #[must_use]
    pub fn warm_up_tasks(&self) -> u64 {
        (self.tasks as f64 * self.warm_up) as u64
    }

    /// Whether every message arrives once, and every node and the global scheduler stay.
    #[must_use]
    pub fn is_reliable(&self) -> bool {
        self.loss == 0.0 && self.duplicate == 0.0 && self.lost_nodes + self.lost_heads == 0
    }

    /// Checks every value.
    ///
    /// # Errors
    /// The first value that cannot be used, in words.
    pub fn validate(&self) -> Result<(), Error> {
        let rules: [(bool, &str); 13] = [
            (self.nodes >= 1, "nodes must be at least 1"),
            (self.slots >= 1, "slots must be at least 1"),
            (
                self.utilization > 0.0 && self.utilization <= 1.5,
                "utilization must be above 0 and at most 1.5",
            ),
            (
                self.rate_per_s > 0.0 && self.rate_per_s.is_finite(),
                "rate must be above 0",
            ),
            (
                (1..=HINT_SAMPLE_MAX).contains(&self.hint_sample),
                "hint sample must be from 1 to 32",
            ),
            (
                self.pre_schedulers >= 1,
                "pre-schedulers must be at least 1",
            ),
            (self.tasks >= 1, "tasks must be at least 1"),
            (
                self.tasks <= u64::from(u32::MAX),
                "tasks must be at most 4294967295",
            ),
            (is_share(self.warm_up), "warm-up must be from 0 to below 1"),
            (is_share(self.loss), "loss must be from 0 to below 1"),
            (
                is_share(self.duplicate),
                "duplicate must be from 0 to below 1",
            ),
            (
                self.lost_nodes < self.nodes,
                "at least one node must remain",
            ),
            (
                is_span(self.delay)
                    && is_span(self.message_cost)
                    && is_span(self.decision_cost)
                    && is_span(self.notice_every)
                    && is_span(self.snapshot_age)
                    && is_span(self.scoring)
                    && is_span(self.list_cost)
                    && is_span(self.changed_cost),
                "times must be finite and not below 0",
            ),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, rule)) => Err(Error::Usage((*rule).to_owned())),
        }
    }
}

fn is_share(value: f64) -> bool {
    (0.0..1.0).contains(&value)
}

fn is_span(span: Millis) -> bool {
    span.is_finite() && span >= Millis::ZERO
}

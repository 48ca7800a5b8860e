//! Submits scaling tasks for benchmarks and tests: many at once, or at a rate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fdn_cluster::{Cluster, Outcome, Outcomes, ScalingTask, Settlement};
use fdn_core::{MebiBytes, MilliCpu, Millis, Resources};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::histogram::Histogram;
use crate::synthetic::{Journal, micros, payload};

/// Tasks submitted in one call.
const CHUNK: u64 = 256;
/// How often tasks at a rate are submitted.
const STEP: Duration = Duration::from_millis(1);

/// Many tasks at once.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Burst {
    tasks: u64,
    /// The label of the first task; the others are numbered from there.
    first: u64,
    /// Demands in thousandths of a core and MiB, used in turn.
    sizes: Vec<(u64, u64)>,
    /// The mean lifetime of an instance, exponentially distributed; 0: until the process ends.
    life_ms: f64,
    #[serde(default)]
    idempotent: bool,
}

/// Tasks at a rate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Load {
    per_second: f64,
    seconds: f64,
    sizes: Vec<(u64, u64)>,
    life_ms: f64,
}

/// The result of a burst or load.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Result {
    asked: u64,
    started: u64,
    unresolved: u64,
    /// The number of refused tasks, by reason.
    refused: BTreeMap<String, u64>,
    /// Seconds from the start to the last outcome.
    seconds: f64,
    /// The times from submitting a task to hearing of its start.
    latency: Histogram,
}

struct Maker {
    rng: ChaCha8Rng,
    sizes: Vec<(u64, u64)>,
    life_ms: f64,
    idempotent: bool,
}

impl Maker {
    fn task(&mut self, label: u64) -> ScalingTask {
        let (cpu, memory) = self.sizes[(label % self.sizes.len() as u64) as usize];
        let life = -self.life_ms * (1.0 - self.rng.random::<f64>()).ln();
        ScalingTask {
            label,
            demand: Resources::new(MilliCpu(cpu), MebiBytes(memory)),
            expected: Millis::new(life),
            // At least one microsecond, because 0 means without end.
            payload: payload(
                ((life * 1000.0) as u64).max((self.life_ms > 0.0).into()),
                micros(),
            ),
            idempotent: self.idempotent,
        }
    }
}

fn maker(sizes: Vec<(u64, u64)>, life_ms: f64, idempotent: bool) -> Maker {
    Maker {
        rng: ChaCha8Rng::seed_from_u64(rand::rng().next_u64()),
        sizes: if sizes.is_empty() {
            vec![(1, 1)]
        } else {
            sizes
        },
        life_ms,
        idempotent,
    }
}

pub(crate) async fn burst(cluster: &Cluster, journal: &Arc<Journal>, burst: Burst) -> Result {
    let mut maker = maker(burst.sizes, burst.life_ms, burst.idempotent);
    let (sender, receiver) = mpsc::unbounded_channel();
    let counted = tokio::spawn(count(Outcomes::from(receiver), Arc::clone(journal)));
    let mut label = burst.first;
    let end = burst.first + burst.tasks;
    while label < end {
        let next = (label + CHUNK).min(end);
        let tasks = (label..next).map(|label| maker.task(label)).collect();
        if cluster.scale_into(tasks, sender.clone()).await.is_err() {
            break;
        }
        label = next;
        tokio::task::yield_now().await;
    }
    drop(sender);
    finish(burst.tasks, counted).await
}

pub(crate) async fn load(cluster: &Cluster, journal: &Arc<Journal>, load: Load) -> Result {
    let mut maker = maker(load.sizes, load.life_ms, false);
    let (sender, receiver) = mpsc::unbounded_channel();
    let counted = tokio::spawn(count(Outcomes::from(receiver), Arc::clone(journal)));
    let started = Instant::now();
    let mut steps = interval(STEP);
    steps.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut asked = 0;
    while started.elapsed().as_secs_f64() < load.seconds {
        steps.tick().await;
        let due = (load.per_second * started.elapsed().as_secs_f64().min(load.seconds)) as u64;
        while asked < due {
            let next = (asked + CHUNK).min(due);
            let tasks = (asked..next).map(|label| maker.task(label)).collect();
            if cluster.scale_into(tasks, sender.clone()).await.is_err() {
                break;
            }
            asked = next;
        }
    }
    drop(sender);
    finish(asked, counted).await
}

async fn finish(asked: u64, counted: tokio::task::JoinHandle<Result>) -> Result {
    let counted = counted.await.expect("counting does not fail");
    Result { asked, ..counted }
}

async fn count(mut outcomes: Outcomes, journal: Arc<Journal>) -> Result {
    let started = Instant::now();
    let mut result = Result::default();
    while let Some(outcome) = outcomes.next().await {
        journal.write(|| line(&outcome));
        match outcome.result {
            Settlement::Started { .. } => {
                result.started += 1;
                result.latency.add(outcome.took.as_secs_f64() * 1e6);
            }
            Settlement::Refused(reason) => {
                *result.refused.entry(reason.to_string()).or_default() += 1;
            }
            Settlement::Unresolved => result.unresolved += 1,
        }
    }
    result.seconds = started.elapsed().as_secs_f64();
    result
}

fn line(outcome: &Outcome) -> String {
    let (label, task) = (outcome.label, outcome.task);
    match &outcome.result {
        Settlement::Started { node, trace } => {
            let steps: Vec<&str> = trace.iter().map(|hop| hop.step.as_str()).collect();
            format!("outcome {label} {task} started {node} {}", steps.join(","))
        }
        Settlement::Refused(reason) => format!("outcome {label} {task} refused {reason}"),
        Settlement::Unresolved => format!("outcome {label} {task} unresolved"),
    }
}

//! What a cluster's node counts.

use std::collections::BTreeMap;

use fdn_scheduling::instance::{Commit, Verdict};
use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

use crate::trace::STEPS;

/// From 50 microseconds to 25 seconds.
const SECONDS: [f64; 18] = [
    0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25,
    0.5, 1.0, 2.5, 10.0, 25.0,
];

/// What became of a list of nodes: the place in it of the node that got the task, or why none of them did.
const LISTED: [&str; 10] = [
    "1",
    "2",
    "3",
    "4",
    "5 or more",
    "scanned",
    "returned",
    "waiting",
    "gone",
    "ignored",
];

/// Its place in [`LISTED`].
const fn result(verdict: Verdict) -> usize {
    match verdict {
        Verdict::Listed(place) if place < 4 => place,
        Verdict::Listed(_) => 4,
        Verdict::Scanned => 5,
        Verdict::Returned => 6,
        Verdict::Waiting => 7,
        Verdict::Gone => 8,
        Verdict::Ignored => 9,
    }
}

/// All metrics of a cluster's node; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// How long this node had a task before it passed it on or started it, by what it did with it ([`crate::Step`]).
    pub held: [Histogram; STEPS.len()],
    /// From the moment a task was asked for on this node to the news that it was started, wherever that is.
    pub scheduled: Histogram,
    /// This node's own tasks that were settled, by how.
    pub settled: IntCounterVec,
    /// This node's own tasks that are not settled.
    pub open: IntGauge,
    /// Instances elsewhere and here that this node has asked for.
    pub placed: IntGauge,
    /// Instances that run here.
    pub running: IntGauge,
    /// Instances that were ended here since another runs in their place.
    pub surplus: IntCounter,
    /// Lists asked for, since another node's sum of instances was not this one's.
    pub recounts: IntCounter,
    /// Instances of this node's that had ended unheard of.
    pub missed: IntCounter,
    /// Tasks done once more after the node with their instance was lost.
    pub reruns: IntCounter,
    /// Tasks that wait at the global scheduler, on the head.
    pub waiting: IntGauge,
    /// This node's own tasks that are held back until others have had their answer.
    pub held_back: IntGauge,
    /// Tasks out with pre-schedulers, on the head.
    pub out: IntGauge,
    /// Lists of pre-schedulers, by what became of them: the place in the list of the node that got the task, or why none did.
    pub lists: [IntCounter; LISTED.len()],
    /// Lists whose first node had changed since the pre-scheduler looked.
    pub conflicts: IntCounter,
    /// From handing a task out to its list's commit.
    pub listed: Histogram,
    /// Jobs with pre-schedulers, waiting or at work.
    pub jobs: IntGauge,
    /// Jobs that no thread was there for.
    pub jobs_failed: IntCounter,
    /// Members, by how they stand with this node.
    pub members: IntGaugeVec,
    /// Whether most members grant this node to act.
    pub quorum: IntGauge,
    /// Whether this node is the head.
    pub head: IntGauge,
    /// The number of the head.
    pub epoch: IntGauge,
    /// How often this node was given up by the others and joined anew.
    pub rejoins: IntCounter,
    /// Open streams to other nodes.
    pub streams: IntGauge,
    /// Streams refused, for a name, a certificate, a version, or want of room.
    pub streams_refused: IntCounter,
    /// Frames sent.
    pub frames_out: IntCounter,
    /// Messages sent.
    pub messages_out: IntCounter,
    /// Messages received.
    pub messages_in: IntCounter,
    /// Messages not sent, since too many waited or nobody was connected.
    pub dropped: IntCounter,
    /// Messages that were received and could not be used, by why.
    pub ignored: IntCounterVec,
    /// The largest difference of another node's clock from this one's that the last answers showed.
    pub clock_apart: prometheus::Gauge,
}

fn register<C: Collector + Clone + 'static>(
    registry: &Registry,
    collector: Result<C, prometheus::Error>,
) -> Result<C, prometheus::Error> {
    let collector = collector?;
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

impl Metrics {
    /// How many tasks this node has passed on or started, by what it did with them.
    pub(crate) fn stages(&self) -> BTreeMap<&'static str, u64> {
        let counted = STEPS.iter().zip(&self.held);
        counted
            .map(|(step, held)| (step.as_str(), held.get_sample_count()))
            .collect()
    }

    /// Lists by what became of them.
    pub(crate) fn lists_by_result(&self) -> BTreeMap<&'static str, u64> {
        let counted = LISTED.iter().zip(&self.lists);
        counted
            .map(|(label, count)| (*label, count.get()))
            .collect()
    }

    /// A list was committed.
    pub(crate) fn committed(&self, commit: &Commit) {
        self.lists[result(commit.verdict)].inc();
        self.conflicts.inc_by(commit.conflict.into());
        if commit.verdict != Verdict::Ignored {
            self.listed.observe(commit.took.get().max(0.0) / 1000.0);
        }
    }

    /// Registers all of them.
    ///
    /// # Errors
    /// When a name is taken in this registry.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let name = |name: &str| format!("fdn_cluster_{name}");
        let counter = |id: &str, help: &str| register(registry, IntCounter::new(name(id), help));
        let counters = |id: &str, help: &str, label: &str| {
            register(
                registry,
                IntCounterVec::new(Opts::new(name(id), help), &[label]),
            )
        };
        let gauge = |id: &str, help: &str| register(registry, IntGauge::new(name(id), help));
        let seconds =
            |id: &str, help: &str| HistogramOpts::new(name(id), help).buckets(SECONDS.to_vec());
        let held = register(
            registry,
            HistogramVec::new(
                seconds("held_seconds", "How long this node had a task."),
                &["step"],
            ),
        )?;
        let lists = counters("global_lists_total", "Lists committed here.", "result")?;
        Ok(Self {
            held: STEPS.map(|step| held.with_label_values(&[step.as_str()])),
            scheduled: register(
                registry,
                Histogram::with_opts(seconds(
                    "scheduled_seconds",
                    "From asking for an instance to hearing of its start.",
                )),
            )?,
            settled: counters("settled_total", "Own tasks settled.", "result")?,
            open: gauge("open", "Own tasks that are not settled.")?,
            placed: gauge("placed", "Instances that this node has asked for.")?,
            running: gauge("running", "Instances that run here.")?,
            surplus: counter("surplus_total", "Instances ended, as another runs.")?,
            recounts: counter("recounts_total", "Lists of instances asked for.")?,
            missed: counter("instances_missed_total", "Instances that ended unheard of.")?,
            reruns: counter("reruns_total", "Tasks done again, as their node is lost.")?,
            waiting: gauge("global_waiting", "Tasks at the global scheduler here.")?,
            held_back: gauge("held_back", "Own tasks not sent yet.")?,
            out: gauge("global_out", "Tasks out with pre-schedulers here.")?,
            lists: LISTED.map(|result| lists.with_label_values(&[result])),
            conflicts: counter(
                "global_conflicts_total",
                "Lists whose first node had changed.",
            )?,
            listed: register(
                registry,
                Histogram::with_opts(seconds(
                    "global_list_seconds",
                    "From handing a task out to committing its list.",
                )),
            )?,
            jobs: gauge("global_jobs", "Jobs with pre-schedulers here.")?,
            jobs_failed: counter("global_jobs_failed_total", "Jobs without a thread.")?,
            members: register(
                registry,
                IntGaugeVec::new(Opts::new(name("members"), "Members."), &["status"]),
            )?,
            quorum: gauge("quorum", "Whether most members grant this node to act.")?,
            head: gauge("head", "Whether this node is the head.")?,
            epoch: gauge("epoch", "The number of the head.")?,
            rejoins: counter("rejoins_total", "Given up by the others, joined anew.")?,
            streams: gauge("streams", "Open streams to other nodes.")?,
            streams_refused: counter("streams_refused_total", "Streams refused.")?,
            frames_out: counter("frames_sent_total", "Frames sent.")?,
            messages_out: counter("messages_sent_total", "Messages sent.")?,
            messages_in: counter("messages_received_total", "Messages received.")?,
            dropped: counter("messages_dropped_total", "Messages not sent.")?,
            ignored: counters("messages_ignored_total", "Messages not used.", "reason")?,
            clock_apart: register(
                registry,
                prometheus::Gauge::new(
                    name("clock_apart_seconds"),
                    "The largest difference of another node's clock.",
                ),
            )?,
        })
    }
}

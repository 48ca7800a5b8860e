//! Metrics of a cluster's node.

use std::collections::BTreeMap;

use fdn_scheduling::instance::{Commit, Verdict};
use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

use crate::trace::STEPS;

/// Histogram buckets in seconds, from 50 microseconds to 25 seconds.
const SECONDS: [f64; 18] = [
    0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25,
    0.5, 1.0, 2.5, 10.0, 25.0,
];

/// The results of lists: the position in the list of the node that got the task, or why none of them did.
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

/// The index of a verdict in [`LISTED`].
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
    /// Seconds for which this node had a task before it passed it on or started it, by what it did with it ([`crate::Step`]).
    pub held: [Histogram; STEPS.len()],
    /// Seconds from the request for an instance on this node to the news of its start, wherever that is.
    pub scheduled: Histogram,
    /// Settled tasks of this node, by result.
    pub settled: IntCounterVec,
    /// This node's tasks that are not settled.
    pub open: IntGauge,
    /// Instances that this node requested, here and elsewhere.
    pub placed: IntGauge,
    /// Instances that run here.
    pub running: IntGauge,
    /// Instances ended here because another one runs in their place.
    pub surplus: IntCounter,
    /// Lists requested because another node's sum of instances differed from this one's.
    pub recounts: IntCounter,
    /// Instances of this node whose end was not reported.
    pub missed: IntCounter,
    /// Tasks run again after the node with their instance was lost.
    pub reruns: IntCounter,
    /// Tasks waiting at the global scheduler, on the head.
    pub waiting: IntGauge,
    /// This node's tasks that are held back until others are answered.
    pub held_back: IntGauge,
    /// Tasks handed out to pre-schedulers, on the head.
    pub out: IntGauge,
    /// Lists of pre-schedulers, by result: the position in the list of the node that got the task, or why none did.
    pub lists: [IntCounter; LISTED.len()],
    /// Lists whose first node had changed since the pre-scheduler made them.
    pub conflicts: IntCounter,
    /// Seconds from handing a task out to committing its list.
    pub listed: Histogram,
    /// Jobs given to pre-schedulers and not finished.
    pub jobs: IntGauge,
    /// Jobs for which there was no thread.
    pub jobs_failed: IntCounter,
    /// Members, by status from this node's point of view.
    pub members: IntGaugeVec,
    /// Whether most members grant this node to act, as 0 or 1.
    pub quorum: IntGauge,
    /// Whether this node is the head, as 0 or 1.
    pub head: IntGauge,
    /// The highest epoch of a head that this node has heard of.
    pub epoch: IntGauge,
    /// How often the others gave this node up and it joined again.
    pub rejoins: IntCounter,
    /// Open streams to other nodes.
    pub streams: IntGauge,
    /// Streams refused because of a name, a certificate, a version, or lack of room.
    pub streams_refused: IntCounter,
    /// Frames sent.
    pub frames_out: IntCounter,
    /// Messages sent.
    pub messages_out: IntCounter,
    /// Messages received.
    pub messages_in: IntCounter,
    /// Messages not sent because too many waited or there was no connection.
    pub dropped: IntCounter,
    /// Received messages that were ignored, by reason.
    pub ignored: IntCounterVec,
    /// The largest clock difference to another node in recent answers, in seconds; decays slowly.
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
    /// How many tasks this node has passed on or started, by step.
    pub(crate) fn stages(&self) -> BTreeMap<&'static str, u64> {
        let counted = STEPS.iter().zip(&self.held);
        counted
            .map(|(step, held)| (step.as_str(), held.get_sample_count()))
            .collect()
    }

    /// The number of lists, by result.
    pub(crate) fn lists_by_result(&self) -> BTreeMap<&'static str, u64> {
        let counted = LISTED.iter().zip(&self.lists);
        counted
            .map(|(label, count)| (*label, count.get()))
            .collect()
    }

    /// Counts a committed list.
    pub(crate) fn committed(&self, commit: &Commit) {
        self.lists[result(commit.verdict)].inc();
        self.conflicts.inc_by(commit.conflict.into());
        if commit.verdict != Verdict::Ignored {
            self.listed.observe(commit.took.get().max(0.0) / 1000.0);
        }
    }

    /// Registers all metrics.
    ///
    /// # Errors
    /// When a name is already registered.
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

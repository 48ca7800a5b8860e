//! What a cluster's node counts.

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
    /// Tasks done once more after the node with their instance was lost.
    pub reruns: IntCounter,
    /// Tasks that wait at the global scheduler, on the head.
    pub waiting: IntGauge,
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
            reruns: counter("reruns_total", "Tasks done again, as their node is lost.")?,
            waiting: gauge("global_waiting", "Tasks at the global scheduler here.")?,
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

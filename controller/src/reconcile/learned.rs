//! What nodes measured of functions and stages, brought to a node of speed 1 and put together for the network.

use std::collections::BTreeMap;

use fdn_core::message::NodeStatus;
use fdn_core::{AppName, ByteSize, Millis, StageName};

/// What was measured of a stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Learned {
    /// Run time at speed 1.
    pub(super) work: Millis,
    /// The size of what comes out.
    pub(super) output: ByteSize,
}

/// The time inside each app's function at speed 1: the mean over all nodes, weighted by their calls.
pub(super) fn execution_means(alive: &[&NodeStatus]) -> BTreeMap<AppName, Millis> {
    let mut sums: BTreeMap<&AppName, (f64, f64)> = BTreeMap::new();
    for node in alive {
        let speed = fdn_scheduling::place::Speed::new(node.speed).get();
        for app in node
            .apps
            .iter()
            .filter(|app| app.invocations > 0 && app.execution_mean.is_finite())
        {
            let weight = app.invocations as f64;
            let sum = sums.entry(&app.app).or_default();
            sum.0 += app.execution_mean.max(Millis::ZERO).get() * speed * weight;
            sum.1 += weight;
        }
    }
    sums.into_iter()
        .map(|(app, (time, weight))| (app.clone(), Millis::new(time / weight)))
        .collect()
}

/// What was measured of workflows' stages: means over all nodes, weighted by their runs.
pub(super) fn learned(alive: &[&NodeStatus]) -> BTreeMap<(AppName, StageName), Learned> {
    let mut sums: BTreeMap<(AppName, StageName), [f64; 3]> = BTreeMap::new();
    for node in alive {
        let speed = fdn_scheduling::place::Speed::new(node.speed).get();
        let stages = node
            .apps
            .iter()
            .flat_map(|app| app.stages.iter().map(move |s| (app, s)));
        for (app, stage) in stages {
            if stage.runs == 0 || !stage.execution_mean.is_finite() {
                continue;
            }
            let weight = stage.runs as f64;
            let sum = sums
                .entry((app.app.clone(), stage.stage.clone()))
                .or_default();
            sum[0] += stage.execution_mean.max(Millis::ZERO).get() * speed * weight;
            sum[1] += stage.output_mean.as_bytes() as f64 * weight;
            sum[2] += weight;
        }
    }
    let mean = |(key, [work, output, weight]): (_, [f64; 3])| {
        let work = Millis::new(work / weight);
        let output = ByteSize::from_bytes((output / weight) as u64);
        (key, Learned { work, output })
    };
    sums.into_iter().map(mean).collect()
}

#[cfg(test)]
mod tests {
    use fdn_core::Revision;
    use fdn_core::message::{AppObserved, AppPhase};

    use super::*;
    use crate::fixture;

    #[test]
    fn execution_times_are_weighted_by_calls_and_brought_to_speed_one() {
        let observed = |invocations, mean| AppObserved {
            app: "hello".parse().expect("app"),
            revision: Revision(1),
            phase: AppPhase::Ready,
            invocations,
            errors: 0,
            execution_mean: Millis::new(mean),
            instances: 0,
            degraded: None,
            versions: Vec::new(),
            stages: Vec::new(),
            figures: None,
            serves: None,
            phases: None,
        };
        let node = |name: &str, speed, app| NodeStatus {
            speed,
            apps: vec![app],
            ..fixture::status(name, "eu-west")
        };
        let (a, b) = (
            node("a", 1.0, observed(30, 4.0)),
            node("b", 2.0, observed(10, 4.0)),
        );
        let idle = node("c", 1.0, observed(0, 900.0));
        // (30 * 4 * 1 + 10 * 4 * 2) / 40
        let means = execution_means(&[&a, &b, &idle]);
        assert_eq!(
            means.into_iter().collect::<Vec<_>>(),
            [("hello".parse().expect("app"), Millis::new(5.0))]
        );
    }
}

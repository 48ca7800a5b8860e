//! Nodes' measurements of functions and stages, normalized to speed 1 and aggregated over the network.

use std::collections::BTreeMap;

use fdn_core::message::NodeStatus;
use fdn_core::phases::PhaseTimes;
use fdn_core::workflow::{Stage, Workflow};
use fdn_core::{AppName, ByteSize, Millis, StageName};
use fdn_scheduling::place::Speed;
use fdn_scheduling::workflow::Profile;

use super::actual::{LONGEST, NodeFigure, WEIGHT_MAX, robust_mean, served};

/// The accepted range of the ratio between mean and typical run time.
const RATIOS: std::ops::RangeInclusive<f64> = 0.5..=100.0;

/// The aggregated measurements of functions and stages.
#[derive(Clone, Debug, Default)]
pub(super) struct MeasuredProfiles {
    apps: BTreeMap<AppName, MeasuredProfile>,
    stages: BTreeMap<(AppName, StageName), MeasuredProfile>,
}

/// The measurements of one function or stage.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MeasuredProfile {
    /// The run time at speed 1.
    work: Millis,
    /// The ratio of the mean to the typical run time; `None` if it is not known.
    mean_ratio: Option<f64>,
    /// The size of the output.
    output: ByteSize,
}

/// Sums over nodes, weighted by their calls (at most [`WEIGHT_MAX`] each).
#[derive(Debug, Default)]
struct Sums {
    work: f64,
    output: f64,
    calls: f64,
    ratios: Vec<NodeFigure>,
}

impl Sums {
    fn add(
        &mut self,
        (calls, speed): (u64, f64),
        execution: Millis,
        output: ByteSize,
        phases: Option<&PhaseTimes>,
    ) {
        let weight = calls.min(WEIGHT_MAX) as f64;
        // The typical run time, if the agent reports it: outliers are in the ratio of the mean to it.
        let typical = phases.map(served).filter(|time| *time > Millis::ZERO);
        let execution = typical.unwrap_or(execution).max(Millis::ZERO);
        let work = execution.get() * speed;
        // One node's nonsense (a null in a report reads as infinite) must not make the app impossible to plan.
        if !(0.0..=LONGEST).contains(&work) {
            return;
        }
        self.work += work * weight;
        self.output += output.as_bytes() as f64 * weight;
        self.calls += weight;
        let ratio = phases.and_then(|phases| phases.mean_ratio);
        if let Some(ratio) = ratio.filter(|ratio| RATIOS.contains(ratio)) {
            self.ratios.push(NodeFigure {
                value: ratio,
                calls,
                total: calls,
            });
        }
    }

    /// The means; `None` if no report was accepted.
    fn mean(self) -> Option<MeasuredProfile> {
        (self.calls > 0.0).then(|| MeasuredProfile {
            work: Millis::new(self.work / self.calls),
            mean_ratio: robust_mean(self.ratios).map(|ratio| ratio.value),
            output: ByteSize::from_bytes((self.output / self.calls) as u64),
        })
    }
}

impl MeasuredProfiles {
    /// Aggregates the reports of living nodes.
    pub(super) fn new(alive: &[&NodeStatus]) -> Self {
        let mut apps: BTreeMap<&AppName, Sums> = BTreeMap::new();
        let mut stages: BTreeMap<(&AppName, &StageName), Sums> = BTreeMap::new();
        for node in alive {
            let speed = Speed::new(node.speed).get();
            for app in &node.apps {
                if app.invocations > 0 && app.execution_mean.is_finite() {
                    let (calls, none) = ((app.invocations, speed), ByteSize::default());
                    let sums = apps.entry(&app.app).or_default();
                    sums.add(calls, app.execution_mean, none, app.phases.as_ref());
                }
                for stage in &app.stages {
                    if stage.runs > 0 && stage.execution_mean.is_finite() {
                        let (calls, output) = ((stage.runs, speed), stage.output_mean);
                        let sums = stages.entry((&app.app, &stage.stage)).or_default();
                        sums.add(calls, stage.execution_mean, output, stage.phases.as_ref());
                    }
                }
            }
        }
        let apps = apps.into_iter();
        let stages = stages.into_iter();
        Self {
            apps: apps
                .filter_map(|(app, sums)| Some((app.clone(), sums.mean()?)))
                .collect(),
            stages: stages
                .filter_map(|((app, stage), sums)| {
                    Some(((app.clone(), stage.clone()), sums.mean()?))
                })
                .collect(),
        }
    }

    fn stage(&self, app: &AppName, stage: &StageName) -> Option<&MeasuredProfile> {
        self.stages.get(&(app.clone(), stage.clone()))
    }

    /// The measured output size of a stage; `None` if it has not run.
    pub(super) fn output(&self, app: &AppName, stage: &StageName) -> Option<ByteSize> {
        self.stage(app, stage).map(|of| of.output)
    }

    /// The profile of a stage: measured if there were calls, otherwise `expected`.
    pub(super) fn profile(
        &self,
        app: &AppName,
        workflow: &Workflow,
        stage: &Stage,
        expected: Profile,
    ) -> Profile {
        // Calls are measured for the app as a whole, which describes a stage only if it is the only one.
        let is_single = workflow.stages().len() == 1;
        let whole = || self.apps.get(app).filter(|_| is_single);
        let Some(measured) = self.stage(app, &stage.name).or_else(whole) else {
            return expected;
        };
        Profile {
            work: measured.work,
            mean_ratio: measured.mean_ratio.unwrap_or(expected.mean_ratio),
            ..expected
        }
    }
}

#[cfg(test)]
mod tests {

    use fdn_core::message::AppObserved;

    use super::*;
    use crate::fixture;

    fn observed(invocations: u64, mean: f64) -> AppObserved {
        AppObserved {
            invocations,
            execution_mean: Millis::new(mean),
            ..fixture::observed("hello")
        }
    }

    #[test]
    fn execution_times_are_weighted_by_calls_and_brought_to_speed_one() {
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
        let learned = MeasuredProfiles::new(&[&a, &b, &idle]);
        let of: Vec<_> = learned.apps.values().collect();
        assert_eq!((of.len(), of[0].work), (1, Millis::new(5.0)));
        assert_eq!(
            of[0].mean_ratio, None,
            "older agents know nothing of the mean"
        );
    }

    #[test]
    fn work_is_what_is_typical_and_outliers_are_in_the_ratio() {
        let phases = PhaseTimes {
            start: Millis::new(1.0),
            execution: Millis::new(9.0),
            mean_ratio: Some(4.0),
            ..PhaseTimes::default()
        };
        let app = AppObserved {
            phases: Some(phases),
            ..observed(50, 70.0)
        };
        let node = NodeStatus {
            apps: vec![app],
            ..fixture::status("a", "eu-west")
        };
        let learned = MeasuredProfiles::new(&[&node]);
        let of: Vec<_> = learned.apps.values().collect();
        let expected = (Millis::new(10.0 * node.speed), Some(4.0));
        assert_eq!((of[0].work, of[0].mean_ratio), expected);
    }

    #[test]
    fn a_node_that_reports_nonsense_leaves_profiles_finite() {
        let node = |name: &str, calls, start: f64, execution: f64| {
            let phases = PhaseTimes {
                start: Millis::new(start),
                execution: Millis::new(execution),
                ..PhaseTimes::default()
            };
            let app = AppObserved {
                phases: Some(phases),
                ..observed(calls, 4.0)
            };
            NodeStatus {
                speed: 1.0,
                apps: vec![app],
                ..fixture::status(name, "eu-west")
            }
        };
        let work = |nodes: &[NodeStatus]| -> Vec<f64> {
            let alive: Vec<&NodeStatus> = nodes.iter().collect();
            let learned = MeasuredProfiles::new(&alive);
            learned.apps.values().map(|of| of.work.get()).collect()
        };
        for wrong in [f64::INFINITY, 1e308, LONGEST * 2.0] {
            let bad = node("b", u64::MAX, 0.0, wrong);
            assert_eq!(work(&[node("a", 50, 0.0, 6.0), bad.clone()]), [6.0]);
            assert_eq!(work(&[bad]), [0.0; 0], "nothing is known");
        }
        for (start, execution) in [(f64::NAN, 6.0), (0.0, f64::NAN)] {
            let learned = work(&[node("b", 50, start, execution)]);
            assert!(learned.iter().all(|work| work.is_finite()), "{learned:?}");
        }
        // A node that counts wrongly does not outweigh the others.
        let counts = node("b", u64::MAX, 0.0, 12.0);
        assert_eq!(work(&[node("a", 100, 0.0, 6.0), counts]), [9.0]);
    }

    #[test]
    fn means_beside_typical_times_are_believed_within_bounds() {
        let node = |name: &str, calls, ratio| {
            let phases = PhaseTimes {
                mean_ratio: Some(ratio),
                ..PhaseTimes::default()
            };
            let app = AppObserved {
                phases: Some(phases),
                ..observed(calls, 4.0)
            };
            NodeStatus {
                apps: vec![app],
                ..fixture::status(name, "eu-west")
            }
        };
        let ratio = |nodes: &[NodeStatus]| {
            let alive: Vec<&NodeStatus> = nodes.iter().collect();
            MeasuredProfiles::new(&alive)
                .apps
                .values()
                .next()
                .and_then(|of| of.mean_ratio)
        };
        assert_eq!(
            ratio(&[node("a", 50, 2.0), node("b", 50, 4.0)]),
            Some(3.0),
            "by calls"
        );
        // What is no ratio is passed over, and one node that counts wrong says little beside many.
        for wrong in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e9] {
            assert_eq!(
                ratio(&[node("a", 50, 2.0), node("b", 1_000_000, wrong)]),
                Some(2.0)
            );
        }
        let many = [
            node("a", 100, 2.0),
            node("b", 100, 2.0),
            node("c", 9_999, 100.0),
        ];
        assert!(ratio(&many).expect("known") < 2.0 * std::f64::consts::E);
    }
}

//! Changes of runs to be reported to the controllers: the present state of each changed run, until a report takes it.
//!
//! A run is noted at every step and reported at most once per report, so that a busy gateway reports less often and never waits. Runs beyond the
//! capacity are not reported: the history is for information only, and the counters count all runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fdn_core::runs::{AttemptOutcome, RunInfo, RunStage, RunStatus};
use fdn_core::{ClusterId, NodeId, RunId, Timestamp};
use fdn_scheduling::run::{Failure, FailureKind};
use prometheus::IntCounter;

use super::{Caller, Workflows};
use crate::apps::Staged;
use crate::gateway::routes::Route;

/// Runs that changed since the last report.
#[derive(Debug)]
pub struct RunChanges {
    changed: Mutex<BTreeMap<RunId, RunInfo>>,
    capacity: usize,
    dropped: IntCounter,
}

impl RunChanges {
    /// An empty collection with room for `capacity` runs.
    #[must_use]
    pub fn new(capacity: usize, dropped: IntCounter) -> Self {
        Self {
            changed: Mutex::default(),
            capacity,
            dropped,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RunId, RunInfo>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the present state of a run.
    fn note(&self, run: &RunInfo) {
        let mut changed = self.lock();
        if changed.contains_key(&run.run) || changed.len() < self.capacity {
            changed.insert(run.run, run.clone());
        } else if run.status != RunStatus::Running {
            self.dropped.inc();
        }
    }

    /// Takes all changed runs.
    #[must_use]
    pub fn take(&self) -> Vec<RunInfo> {
        std::mem::take(&mut *self.lock()).into_values().collect()
    }

    /// Puts back runs whose report failed, except those that have a newer state.
    pub fn put_back(&self, runs: Vec<RunInfo>) {
        let mut changed = self.lock();
        for run in runs {
            if changed.len() >= self.capacity && !changed.contains_key(&run.run) {
                self.dropped.inc();
                continue;
            }
            changed.entry(run.run).or_insert(run);
        }
    }
}

/// The initial state of a run.
pub(super) fn begun(
    workflows: &Workflows,
    caller: &Caller<'_>,
    route: &Route,
    staged: &Staged,
) -> RunInfo {
    let stages = staged.stages.iter().map(|stage| RunStage {
        stage: stage.name.clone(),
        attempts: Vec::new(),
    });
    let age = u64::try_from(caller.arrived.elapsed().as_millis()).unwrap_or(0);
    RunInfo {
        run: RunId::from_uuid(uuid::Uuid::now_v7()),
        request: String::from_utf8_lossy(&caller.ids.request).into_owned(),
        app: staged.app.clone(),
        revision: route.revision,
        node: workflows.node.clone(),
        cluster: workflows.cluster.clone(),
        started_at: Timestamp(fdn_service::now().get().saturating_sub(age)),
        ended_at: None,
        status: RunStatus::Running,
        stages: stages.collect(),
        changes: 0,
    }
}

/// A run whose every change is recorded for the next report.
pub(super) struct RecordedRun {
    info: RunInfo,
    run_changes: Arc<RunChanges>,
}

impl RecordedRun {
    pub(super) fn new(info: RunInfo, run_changes: &Arc<RunChanges>) -> Self {
        let run_changes = Arc::clone(run_changes);
        run_changes.note(&info);
        Self { info, run_changes }
    }

    fn change(&mut self, change: impl FnOnce(&mut RunInfo)) {
        change(&mut self.info);
        self.info.changes = self.info.changes.saturating_add(1);
        self.run_changes.note(&self.info);
    }

    /// Records that an attempt was sent to a cluster.
    pub(super) fn begun(&mut self, stage: usize, attempt: u32, cluster: ClusterId) {
        self.change(|run| run.begin(stage, attempt, cluster, fdn_service::now()));
    }

    /// Records that an attempt returned an output.
    pub(super) fn done(&mut self, stage: usize, attempt: u32, bytes: usize, node: Option<NodeId>) {
        self.change(|run| {
            if let Some(one) = run.attempt_mut(stage, attempt) {
                one.end(AttemptOutcome::Done, fdn_service::now());
                one.output_bytes = Some(bytes as u64);
                one.node = node;
            }
        });
    }

    /// Records that an attempt failed.
    pub(super) fn failed(&mut self, stage: usize, attempt: u32, failure: &Failure) {
        let outcome = match failure.kind {
            FailureKind::NotStarted => AttemptOutcome::NotStarted,
            FailureKind::Lost => AttemptOutcome::Lost,
            FailureKind::Answered => AttemptOutcome::Answered,
            FailureKind::Refused => AttemptOutcome::Refused,
        };
        self.change(|run| {
            if let Some(one) = run.attempt_mut(stage, attempt) {
                one.fail(outcome, &failure.reason, fdn_service::now());
            }
        });
    }

    /// Records that an attempt was cancelled.
    pub(super) fn cancelled(&mut self, stage: usize, attempt: u32) {
        self.change(|run| {
            if let Some(one) = run.attempt_mut(stage, attempt) {
                one.end(AttemptOutcome::Cancelled, fdn_service::now());
            }
        });
    }

    /// The present state of the run.
    pub(super) fn run(&self) -> RunInfo {
        self.info.clone()
    }

    /// Records the end of the run.
    pub(super) fn ended(&mut self, outcome: &str) {
        let status = match outcome {
            "answered" => RunStatus::Answered,
            "failed" => RunStatus::Failed,
            "late" => RunStatus::Late,
            _ => RunStatus::Abandoned,
        };
        self.change(|run| run.end(status, fdn_service::now()));
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::Revision;

    use super::*;

    fn run(n: u128) -> RunInfo {
        RunInfo {
            run: RunId::from_uuid(uuid::Uuid::from_u128(n)),
            request: "r".to_owned(),
            app: "shop".parse().expect("app"),
            revision: Revision(1),
            node: "eu-1".parse().expect("node"),
            cluster: "eu".parse().expect("cluster"),
            started_at: Timestamp(1),
            ended_at: None,
            status: RunStatus::Running,
            stages: vec![RunStage {
                stage: "a".parse().expect("stage"),
                attempts: Vec::new(),
            }],
            changes: 0,
        }
    }

    fn run_changes(capacity: usize) -> Arc<RunChanges> {
        let dropped = IntCounter::new("dropped", "dropped").expect("a counter");
        Arc::new(RunChanges::new(capacity, dropped))
    }

    #[test]
    fn a_run_is_told_as_it_is_now_and_again_when_it_changes() {
        let run_changes = run_changes(10);
        let mut recorded = RecordedRun::new(run(1), &run_changes);
        recorded.begun(0, 1, "us".parse().expect("cluster"));
        let told = run_changes.take();
        assert_eq!((told.len(), told[0].stages[0].attempts.len()), (1, 1));
        assert!(run_changes.take().is_empty(), "nothing is new");
        recorded.failed(0, 1, &Failure::new(FailureKind::Lost, "gone"));
        recorded.begun(0, 2, "eu".parse().expect("cluster"));
        recorded.done(0, 2, 9, Some("eu-2".parse().expect("node")));
        recorded.ended("answered");
        let last = run_changes.take().remove(0);
        assert!(last.changes > told[0].changes);
        assert_eq!(last.status, RunStatus::Answered);
        let outcomes: Vec<AttemptOutcome> =
            last.stages[0].attempts.iter().map(|a| a.outcome).collect();
        assert_eq!(outcomes, [AttemptOutcome::Lost, AttemptOutcome::Done]);
        assert_eq!(last.stages[0].attempts[0].reason.as_deref(), Some("gone"));
    }

    #[test]
    fn there_is_room_for_so_many_and_what_failed_to_go_goes_again_unless_it_is_old() {
        let run_changes = run_changes(2);
        let mut first = RecordedRun::new(run(1), &run_changes);
        let _second = RecordedRun::new(run(2), &run_changes);
        let mut third = RecordedRun::new(run(3), &run_changes);
        third.ended("failed");
        assert_eq!(run_changes.dropped.get(), 1);
        let told = run_changes.take();
        assert_eq!(told.len(), 2);
        first.ended("late");
        run_changes.put_back(told);
        let told = run_changes.take();
        assert_eq!(
            (told.len(), told[0].status, told[1].status),
            (2, RunStatus::Late, RunStatus::Running)
        );
    }
}

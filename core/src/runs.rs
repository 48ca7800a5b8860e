//! Runs of workflows: bodies of `/v1/apps/{app}/runs`, and what gateways that lead runs report to the controllers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::{AppName, ClusterId, NodeId, RunId, StageName};
use crate::unit::{Revision, Timestamp};

/// The state of a run of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// The run is in progress.
    Running,
    /// The caller got the outputs of the exit stages.
    Answered,
    /// A failure of a stage that no other stage handles ended the run.
    Failed,
    /// The run exceeded its time limit.
    Late,
    /// The caller disconnected.
    Abandoned,
    /// The gateway that led it is gone and has not reported its end.
    Lost,
}

/// The outcome of an attempt at a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// It is in progress.
    Running,
    /// It succeeded, and its output was accepted.
    Done,
    /// It certainly did not begin.
    NotStarted,
    /// It was lost: nobody knows how far it got.
    Lost,
    /// The function answered with a failure that may be transient.
    Answered,
    /// The function answered with a failure that is permanent.
    Refused,
    /// It was cancelled because its result was no longer needed.
    Cancelled,
}

/// A run of a workflow: the processing of one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunInfo {
    /// The run's id; later runs have greater ones.
    pub run: RunId,
    /// The request id of the call, which its log lines have too.
    pub request: String,
    /// The app's name.
    pub app: AppName,
    /// The revision of the app's desired state that was run.
    pub revision: Revision,
    /// The gateway that led the run.
    pub node: NodeId,
    /// The cluster of that gateway.
    pub cluster: ClusterId,
    /// When the call arrived.
    pub started_at: Timestamp,
    /// When the run ended; absent while it is in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// The state of the run.
    pub status: RunStatus,
    /// All stages, in the order of the workflow.
    pub stages: Vec<RunStage>,
    /// The number of changes before this state: of two records of a run, the one with more is newer.
    #[serde(default)]
    pub changes: u32,
}

/// A stage of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunStage {
    /// The stage's name.
    pub stage: StageName,
    /// The attempts at the stage, in the order in which they began; empty if it was not begun.
    pub attempts: Vec<RunAttempt>,
}

/// An attempt at a stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunAttempt {
    /// The number of the attempt, from 1 up.
    pub attempt: u32,
    /// The cluster to which it was sent.
    pub cluster: ClusterId,
    /// The node on which it ran; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// When it was sent.
    pub started_at: Timestamp,
    /// When it ended; absent while it is in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// The outcome of the attempt.
    pub outcome: AttemptOutcome,
    /// Why it failed, in words; absent if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The size of its output, in bytes; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
}

/// The progress of runs, reported by the gateway that leads them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// Their present state, one entry per run id.
    pub runs: Vec<RunInfo>,
}

/// The most bytes kept of an attempt's failure reason.
pub const REASON_MAX: usize = 500;

impl RunInfo {
    /// Records the beginning of an attempt at a stage.
    pub fn begin(&mut self, stage: usize, attempt: u32, cluster: ClusterId, now: Timestamp) {
        if let Some(stage) = self.stages.get_mut(stage) {
            stage.attempts.push(RunAttempt {
                attempt,
                cluster,
                node: None,
                started_at: now,
                ended_at: None,
                outcome: AttemptOutcome::Running,
                reason: None,
                output_bytes: None,
            });
        }
    }

    /// A recorded attempt, to be completed; `None` if there is none with this number.
    pub fn attempt_mut(&mut self, stage: usize, attempt: u32) -> Option<&mut RunAttempt> {
        let attempts = &mut self.stages.get_mut(stage)?.attempts;
        attempts.iter_mut().find(|one| one.attempt == attempt)
    }

    /// Records the end of the run; attempts still in progress become cancelled.
    pub fn end(&mut self, status: RunStatus, now: Timestamp) {
        self.status = status;
        self.ended_at = Some(now);
        let attempts = self.stages.iter_mut().flat_map(|stage| &mut stage.attempts);
        for attempt in attempts.filter(|attempt| attempt.outcome == AttemptOutcome::Running) {
            attempt.end(AttemptOutcome::Cancelled, now);
        }
    }
}

impl RunAttempt {
    /// Records the end of the attempt.
    pub fn end(&mut self, outcome: AttemptOutcome, now: Timestamp) {
        self.outcome = outcome;
        self.ended_at = Some(now);
    }

    /// Records the failure of the attempt, with its reason truncated to [`REASON_MAX`].
    pub fn fail(&mut self, outcome: AttemptOutcome, reason: &str, now: Timestamp) {
        self.end(outcome, now);
        let end = (0..=REASON_MAX.min(reason.len()))
            .rev()
            .find(|at| reason.is_char_boundary(*at));
        self.reason = Some(reason[..end.unwrap_or(0)].to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> RunInfo {
        RunInfo {
            run: RunId::from_uuid(uuid::Uuid::from_u128(7)),
            request: "r-1".to_owned(),
            app: "shop".parse().expect("app"),
            revision: Revision(3),
            node: "eu-1".parse().expect("node"),
            cluster: "eu".parse().expect("cluster"),
            started_at: Timestamp(10),
            ended_at: None,
            status: RunStatus::Running,
            stages: vec![RunStage {
                stage: "resize".parse().expect("stage"),
                attempts: Vec::new(),
            }],
            changes: 0,
        }
    }

    #[test]
    fn what_still_ran_when_the_run_ended_was_cancelled() {
        let mut run = run();
        run.begin(0, 1, "us".parse().expect("cluster"), Timestamp(11));
        run.begin(0, 2, "eu".parse().expect("cluster"), Timestamp(12));
        run.begin(9, 1, "eu".parse().expect("cluster"), Timestamp(12));
        let reason = "ü".repeat(REASON_MAX);
        let first = run.attempt_mut(0, 1).expect("began");
        first.fail(AttemptOutcome::Lost, &reason, Timestamp(13));
        run.end(RunStatus::Late, Timestamp(14));
        let attempts = &run.stages[0].attempts;
        assert_eq!(attempts[0].outcome, AttemptOutcome::Lost);
        assert_eq!(attempts[0].reason.as_ref().expect("told").len(), REASON_MAX);
        assert_eq!(
            (attempts[1].outcome, attempts[1].ended_at),
            (AttemptOutcome::Cancelled, Some(Timestamp(14)))
        );
        let json = serde_json::to_string(&run).expect("JSON");
        assert_eq!(
            serde_json::from_str::<RunInfo>(&json).expect("own JSON"),
            run
        );
    }
}

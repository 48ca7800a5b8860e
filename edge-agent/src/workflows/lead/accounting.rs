//! What is counted and recorded of a run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;

use crate::metrics::{AppMetrics, Outcome, WorkflowMetrics};
use crate::traces::RunSpans;
use crate::workflows::run_changes::RecordedRun;

/// Counts a run exactly once, when dropped, however it ends.
pub(super) struct RunAccounting {
    pub(super) app: Arc<AppMetrics>,
    pub(super) metrics: WorkflowMetrics,
    pub(super) arrived: Instant,
    pub(super) outcome: (Outcome, &'static str),
    pub(super) kept: i64,
    pub(super) run: RecordedRun,
    /// The run's spans, if they are exported.
    pub(super) spans: Option<Box<RunSpans>>,
    pub(super) _permit: OwnedSemaphorePermit,
}

impl RunAccounting {
    /// Records how many bytes the run keeps now.
    pub(super) fn keep(&mut self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.metrics.kept.add(bytes - self.kept);
        self.kept = bytes;
    }

    /// Records the end of an attempt.
    pub(super) fn attempted(&mut self, stage: usize, attempt: u32) {
        if let Some(spans) = &mut self.spans {
            spans.ended(stage, attempt);
        }
    }
}

impl Drop for RunAccounting {
    fn drop(&mut self) {
        let took = self.arrived.elapsed();
        self.run.ended(self.outcome.1);
        if let Some(spans) = self.spans.take() {
            spans.submit(self.run.run(), self.arrived);
        }
        self.app.ended(self.outcome.0, took);
        if matches!(self.outcome.1, "answered") {
            self.app.ran(Duration::ZERO, Duration::ZERO, took);
        }
        self.metrics.runs.with_label_values(&[self.outcome.1]).inc();
        self.metrics.running.dec();
        self.metrics.kept.sub(self.kept);
    }
}

//! Pausing and resuming idle instances, as the pool orders, with a timeout.

use std::sync::Arc;

use fdn_instances::{Instance, InstanceState};
use fdn_scheduling::invocation::ContainerId;
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::Inner;

impl Inner {
    /// Pauses an idle instance.
    pub(super) async fn pause_one(
        self: Arc<Self>,
        container: ContainerId,
        instance: Arc<dyn Instance>,
    ) {
        let limit = self.settings.resume_timeout.as_duration();
        let was_paused = match timeout(limit, instance.pause()).await {
            Ok(Ok(())) => true,
            Ok(Err(failure)) => {
                debug!(id = %instance.id(), %failure, "an instance was not paused");
                false
            }
            Err(_) => false,
        };
        let result = if was_paused { "paused" } else { "not_paused" };
        self.metrics.pauses.with_label_values(&[result]).inc();
        // After a failure, the instance's state says whether it can serve calls without being resumed. After a success it may not say so yet:
        // news of an instance on another node takes another way than the answer to the order.
        let is_paused = was_paused || *instance.state().borrow() == InstanceState::Paused;
        self.with(|state, now| state.pool.paused(now, container, is_paused));
    }

    /// Resumes an instance for waiting calls. One that does not resume in time is replaced, and the calls go elsewhere.
    pub(super) async fn resume_one(
        self: Arc<Self>,
        container: ContainerId,
        instance: Arc<dyn Instance>,
    ) {
        let limit = self.settings.resume_timeout.as_duration();
        let began = Instant::now();
        let reason = match timeout(limit, instance.resume()).await {
            Ok(Ok(())) => {
                self.metrics.pauses.with_label_values(&["resumed"]).inc();
                self.metrics.resume.observe(began.elapsed().as_secs_f64());
                return self.with(|state, now| state.pool.resumed(now, container));
            }
            Ok(Err(failure)) => format!("it did not wake from its pause: {failure}"),
            Err(_) => format!("it did not wake from its pause within {limit:?}"),
        };
        self.metrics
            .pauses
            .with_label_values(&["not_resumed"])
            .inc();
        self.lose(container, "resume", &reason);
    }
}

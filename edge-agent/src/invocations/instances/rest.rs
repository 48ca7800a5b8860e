//! Idle instances at rest: the orders of the pool, bounded in time.

use std::sync::Arc;

use fdn_instances::{Instance, InstanceState};
use fdn_scheduling::invocation::ContainerId;
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::Inner;

impl Inner {
    /// Pauses an instance that nobody calls.
    pub(super) async fn pause_one(
        self: Arc<Self>,
        container: ContainerId,
        instance: Arc<dyn Instance>,
    ) {
        let limit = self.settings.resume_timeout.as_duration();
        let result = match timeout(limit, instance.pause()).await {
            Ok(Ok(())) => "paused",
            Ok(Err(failure)) => {
                debug!(id = %instance.id(), %failure, "an instance was not paused");
                "not_paused"
            }
            Err(_) => "not_paused",
        };
        self.metrics.pauses.with_label_values(&[result]).inc();
        // However that ended, its state says whether calls can be handed to it as it is.
        let is_paused = *instance.state().borrow() == InstanceState::Paused;
        self.with(|state, now| state.pool.paused(now, container, is_paused));
    }

    /// Wakes an instance for calls that wait. One that does not wake in time is replaced, and they go elsewhere.
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

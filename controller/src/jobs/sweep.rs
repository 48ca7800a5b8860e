//! Sweeps: what no ticket announces: expired leases, expired jobs, broken submissions, jobs whose time of keeping is over, schedules that are
//! due.
//!
//! Every controller sweeps; each step is written on condition of what was read, so it does not matter how many do the same.

use std::sync::Arc;
use std::time::Duration;

use fdn_core::job::{Event, JobState};
use fdn_core::{JobId, Timestamp};
use fdn_service::CancellationToken;
use tracing::{info, warn};

use super::change::{EventDetails, step};
use crate::Error;
use crate::app::job::delete_submission;
use crate::app::schedule;
use crate::error::chain;
use crate::state::State;
use crate::store::in_transaction;
use crate::store::job::{job_delete, job_get, job_give_up};
use crate::store::job_queries::{abandoned_jobs, expired_jobs, job_counts, overdue_jobs};

/// How often jobs are counted for the metrics: that reads every job that is kept.
const COUNT_INTERVAL: Duration = Duration::from_secs(60);

/// Sweeps until `stop` is cancelled.
pub(crate) async fn run(state: Arc<State>, stop: CancellationToken) {
    let mut timer = tokio::time::interval(state.settings.jobs.interval.as_duration());
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut counts = tokio::time::interval(COUNT_INTERVAL);
    counts.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        let done = tokio::select! {
            () = stop.cancelled() => return,
            _ = timer.tick() => round(&state, fdn_service::now()).await,
            _ = counts.tick() => count_states(&state).await,
        };
        match done {
            Ok(()) => failing = false,
            Err(error) => {
                state.metrics.jobs.failures.inc();
                if !std::mem::replace(&mut failing, true) {
                    warn!(
                        error = chain(&error),
                        "a sweep over jobs failed; the next one goes on"
                    );
                }
            }
        }
    }
}

/// Runs one sweep. A part that fails does not affect the others.
///
/// # Errors
/// With the first failure; what was done stays.
pub async fn round(state: &State, now: Timestamp) -> Result<(), Error> {
    let parts = [
        expire_overdue(state, now).await,
        discard_abandoned(state, now).await,
        schedule::submit_due(state, now).await,
        delete_expired(state, now).await,
    ];
    parts.into_iter().collect()
}

/// Updates the numbers of jobs by state.
async fn count_states(state: &State) -> Result<(), Error> {
    let counts = job_counts(&mut *state.store.read().await?).await?;
    for known in JobState::ALL {
        let count = counts.iter().find(|(state, _)| state == known);
        let count = count.map_or(0, |(_, n)| i64::try_from(*n).unwrap_or(i64::MAX));
        let states = &state.metrics.jobs.states;
        states.with_label_values(&[known.as_str()]).set(count);
    }
    Ok(())
}

async fn expire_overdue(state: &State, now: Timestamp) -> Result<(), Error> {
    let batch = state.settings.jobs.batch;
    let found = overdue_jobs(&mut *state.store.read().await?, now, batch).await?;
    for job in found {
        let row = job_get(&mut *state.store.read().await?, job).await?;
        let Some(row) = row else { continue };
        let event = match row.progress.state {
            JobState::Running => Event::LeaseLost {
                attempt: row.progress.attempt,
            },
            _ => Event::Tick,
        };
        if let Some(row) = step(state, job, event, &EventDetails::default()).await? {
            info!(%job, app = %row.app, state = %row.progress.state, "a job went on without its dispatcher");
        }
    }
    Ok(())
}

async fn discard_abandoned(state: &State, now: Timestamp) -> Result<(), Error> {
    let settings = &state.settings.jobs;
    let before = now.get().saturating_sub(settings.accept_within.as_millis());
    let mut connection = state.store.read().await?;
    let found = abandoned_jobs(&mut connection, Timestamp(before), settings.batch).await?;
    drop(connection);
    for job in found {
        if delete_submission(state, job).await? {
            info!(%job, "a submission that was never accepted was swept away");
        }
    }
    Ok(())
}

async fn delete_expired(state: &State, now: Timestamp) -> Result<(), Error> {
    let batch = state.settings.jobs.batch;
    let found = expired_jobs(&mut *state.store.read().await?, now, batch).await?;
    let mut failed = None;
    for job in found {
        // One whose objects cannot be deleted does not affect others.
        if let Err(error) = delete_job(state, job, now).await {
            failed.get_or_insert(error);
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Deletes a job, unless it was redriven since it was found: objects first, so that an interrupted deletion leaves a row that the next sweep finds.
async fn delete_job(state: &State, job: JobId, now: Timestamp) -> Result<(), Error> {
    let over: bool = in_transaction!(state.store, tx => {
        Ok::<_, Error>(job_give_up(&mut tx, job, now).await?)
    })?;
    if !over {
        return Ok(());
    }
    state.artifacts.objects_delete(job).await?;
    in_transaction!(state.store, tx => Ok::<_, Error>(job_delete(&mut tx, job).await?))
}

//! Sweeps: what no ticket announces: expired leases, expired jobs, broken submissions, jobs whose time of keeping is over, schedules that are
//! due.
//!
//! Every controller sweeps; each step is written on condition of what was read, so it does not matter how many do the same.
//!
//! The end of a lease is a time of the dispatcher's clock, and clocks differ, jump, and stand still while a machine is suspended. So it says only
//! which jobs to watch: one is lost if its row has not changed for half a lease by the sweeper's own steady clock, since a living dispatcher
//! extends its leases every third of one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdn_core::job::{Event, JobState};
use fdn_core::{JobId, Timestamp};
use fdn_service::CancellationToken;
use tracing::{info, warn};

use super::change::{EventDetails, step};
use crate::Error;
use crate::app::job::{delete_given_up, delete_submission};
use crate::app::schedule;
use crate::error::chain;
use crate::state::State;
use crate::store::in_transaction;
use crate::store::job::{job_get, job_give_up};
use crate::store::job_queries::{
    abandoned_jobs, expired_jobs, job_counts, overdue_jobs, overdue_leases,
};

/// How often jobs are counted for the metrics: that reads every job that is kept.
const COUNT_INTERVAL: Duration = Duration::from_secs(60);
/// The most jobs with ended leases that are watched. To a clock that is ahead all that runs looks overdue; what is really lost comes first then,
/// since its lease is not extended any more.
const WATCHED_MAX: u32 = 10_000;

/// The running jobs whose leases have ended by the clock: the generation of each one's row, and since when it has been seen with that.
#[derive(Debug, Default)]
pub struct OverdueLeases {
    seen: BTreeMap<JobId, (u64, Instant)>,
}

impl OverdueLeases {
    /// Those of the jobs with ended leases, given with the generations of their rows, whose dispatchers are lost. Jobs that are not given any more
    /// are forgotten.
    fn lost(&mut self, ended: &[(JobId, u64)], at: Instant, lease: Duration) -> Vec<(JobId, u64)> {
        let before = std::mem::take(&mut self.seen);
        let mut lost = Vec::new();
        for &(job, generation) in ended {
            let since = match before.get(&job) {
                Some((known, since)) if *known == generation => *since,
                _ => at,
            };
            if at.saturating_duration_since(since) >= lease / 2 {
                lost.push((job, generation));
            }
            self.seen.insert(job, (generation, since));
        }
        lost
    }
}

/// Sweeps until `stop` is cancelled.
pub(crate) async fn run(state: Arc<State>, stop: CancellationToken) {
    let mut timer = tokio::time::interval(state.settings.jobs.interval.as_duration());
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut counts = tokio::time::interval(COUNT_INTERVAL);
    counts.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut failing = false;
    let mut leases = OverdueLeases::default();
    loop {
        let done = tokio::select! {
            () = stop.cancelled() => return,
            _ = timer.tick() => round(&state, &mut leases, (fdn_service::now(), Instant::now())).await,
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

/// Runs one sweep at a time of the wall clock and of the steady one; `leases` is what earlier sweeps have seen. A part that fails does not affect the
/// others.
///
/// # Errors
/// With the first failure; what was done stays.
pub async fn round(
    state: &State,
    leases: &mut OverdueLeases,
    (now, at): (Timestamp, Instant),
) -> Result<(), Error> {
    let parts = [
        end_lost(state, leases, (now, at)).await,
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

/// Ends the attempts whose dispatchers are lost.
async fn end_lost(
    state: &State,
    leases: &mut OverdueLeases,
    (now, at): (Timestamp, Instant),
) -> Result<(), Error> {
    let settings = &state.settings.jobs;
    let ended = async { overdue_leases(&mut *state.store.read().await?, now, WATCHED_MAX).await };
    let ended = ended.await.inspect_err(|_| {
        // While the database is away no dispatcher can extend anything.
        *leases = OverdueLeases::default();
    })?;
    let lost = leases.lost(&ended, at, settings.lease.as_duration());
    for (job, generation) in lost.into_iter().take(settings.batch as usize) {
        let row = job_get(&mut *state.store.read().await?, job).await?;
        // Its dispatcher may have extended the lease just now.
        let row = row.filter(|row| row.progress.state == JobState::Running);
        let Some(row) = row.filter(|row| row.generation == generation) else {
            continue;
        };
        let attempt = row.progress.attempt;
        go_on(state, job, Event::LeaseLost { attempt }).await?;
    }
    Ok(())
}

async fn expire_overdue(state: &State, now: Timestamp) -> Result<(), Error> {
    let batch = state.settings.jobs.batch;
    let found = overdue_jobs(&mut *state.store.read().await?, now, batch).await?;
    for job in found {
        go_on(state, job, Event::Tick).await?;
    }
    Ok(())
}

async fn go_on(state: &State, job: JobId, event: Event) -> Result<(), Error> {
    if let Some(row) = step(state, job, event, &EventDetails::default()).await? {
        info!(%job, app = %row.app, state = %row.progress.state, "a job went on without its dispatcher");
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

/// Deletes a job, unless it was redriven since it was found.
async fn delete_job(state: &State, job: JobId, now: Timestamp) -> Result<(), Error> {
    let over: bool = in_transaction!(state.store, tx => {
        Ok::<_, Error>(job_give_up(&mut tx, job, now).await?)
    })?;
    if !over {
        return Ok(());
    }
    delete_given_up(state, job).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_lost_only_if_its_row_stays_the_same_for_half_a_lease() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let lease = Duration::from_secs(30);
        let [one, two] = [1, 2].map(|id| JobId::from_uuid(uuid::Uuid::from_u128(id)));
        let mut leases = OverdueLeases::default();
        // To a clock that is ahead both are always overdue. `one` is extended every ten seconds, `two` is not.
        for seconds in 0..15 {
            let ended = [(one, 1 + seconds / 10), (two, 1)];
            assert_eq!(leases.lost(&ended, at(seconds), lease), []);
        }
        assert_eq!(
            leases.lost(&[(one, 2), (two, 1)], at(15), lease),
            [(two, 1)]
        );
        assert_eq!(leases.lost(&[(one, 3)], at(24), lease), []);
        assert_eq!(leases.seen.len(), 1, "what is not overdue is forgotten");
        assert_eq!(leases.lost(&[(one, 3), (two, 1)], at(38), lease), []);
        assert_eq!(leases.lost(&[(one, 3)], at(39), lease), [(one, 3)]);
    }
}

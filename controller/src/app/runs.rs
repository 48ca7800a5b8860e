//! Runs of workflows, as reported by the gateways that lead them: received, written periodically, and shown.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::runs::{RunInfo, RunStatus};
use fdn_core::{AppName, RunId, TenantId, Timestamp};
use fdn_service::CancellationToken;
use tokio::time::MissedTickBehavior;
use tracing::warn;

use crate::Error;
use crate::error::chain;
use crate::state::{State, lock};
use crate::store::app::app_get;
use crate::store::billing::owner::owner_list;
use crate::store::run::{run_get, run_page, run_trim, run_upsert};
use crate::store::{StoreError, in_transaction};

/// How often pending runs are written.
const EVERY: Duration = Duration::from_millis(500);
/// The longest time a run can take: one that seems to take longer was led by a gateway that has restarted.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Reported runs that are not written yet.
#[derive(Debug, Default)]
pub struct RunBuffer {
    runs: BTreeMap<(AppName, RunId), RunInfo>,
}

impl RunBuffer {
    /// Adds a record, unless a newer one of the run is there. Returns how many runs were dropped to make room: the oldest are.
    pub fn add(&mut self, run: RunInfo, max: usize) -> u64 {
        let key = (run.app.clone(), run.run);
        match self.runs.get(&key) {
            Some(known) if known.changes >= run.changes => return 0,
            _ => self.runs.insert(key, run),
        };
        if self.runs.len() <= max {
            return 0;
        }
        let oldest = self.runs.keys().min_by_key(|(_, run)| *run).cloned();
        oldest.map_or(0, |key| u64::from(self.runs.remove(&key).is_some()))
    }

    /// Takes out everything, by app: only the `keep` newest of each, since others would not be kept.
    fn take(&mut self, keep: u32) -> BTreeMap<AppName, Vec<RunInfo>> {
        let mut of: BTreeMap<AppName, Vec<RunInfo>> = BTreeMap::new();
        for ((app, _), run) in std::mem::take(&mut self.runs) {
            of.entry(app).or_default().push(run);
        }
        for runs in of.values_mut() {
            let old = runs.len().saturating_sub(keep as usize);
            runs.drain(..old);
        }
        of
    }
}

/// Receives the reports of a gateway.
pub fn receive(state: &State, runs: &[RunInfo]) {
    let max = state.settings.console.runs_pending;
    let mut pending = lock(&state.runs);
    let gone: u64 = runs.iter().map(|run| pending.add(run.clone(), max)).sum();
    state.metrics.console.runs_dropped.inc_by(gone);
}

/// Writes reported runs until shutdown: with little delay, since somebody may be watching.
pub async fn run(state: Arc<State>, shutdown: CancellationToken) {
    let mut timer = tokio::time::interval(EVERY);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = timer.tick() => {}
        }
        match write(&state).await {
            Ok(()) => failing = false,
            Err(error) if !std::mem::replace(&mut failing, true) => {
                warn!(
                    error = chain(&error),
                    "runs cannot be written; trying again until it works"
                );
            }
            Err(_) => {}
        }
    }
}

/// Writes the runs reported since the last time; those that cannot be written are tried again with the next ones.
async fn write(state: &State) -> Result<(), Error> {
    let (keep, max) = (
        state.settings.console.runs_per_app,
        state.settings.console.runs_pending,
    );
    let runs = lock(&state.runs).take(keep);
    if runs.is_empty() {
        return Ok(());
    }
    let written: Result<(), StoreError> = in_transaction!(state.store, tx => {
        for (app, runs) in &runs {
            for run in runs {
                run_upsert(&mut tx, run).await?;
            }
            run_trim(&mut tx, app, keep).await?;
        }
        Ok(())
    });
    let all = runs.into_values().flatten();
    if written.is_err() {
        let mut pending = lock(&state.runs);
        let gone: u64 = all.map(|run| pending.add(run, max)).sum();
        state.metrics.console.runs_dropped.inc_by(gone);
    } else {
        state
            .metrics
            .console
            .runs_written
            .inc_by(all.count() as u64);
    }
    Ok(written?)
}

/// At most `limit` runs of an app older than `before`, newest first; only those of one call, if `request` names it. Runs of another tenant's app that
/// had the name before, which gateways may report late, are left out.
///
/// # Errors
/// When there is no such app, or the store fails.
pub async fn list(
    state: &State,
    (tenant, app): (TenantId, &AppName),
    request: Option<&str>,
    before: &str,
    limit: u32,
) -> Result<Vec<RunInfo>, Error> {
    let mut connection = state.store.read().await?;
    let found = app_get(&mut connection, app).await?;
    found
        .filter(|row| row.tenant == tenant)
        .ok_or_else(|| Error::no_app(app))?;
    let runs = run_page(&mut connection, app, request, before, limit).await?;
    let owners = owner_list(&mut connection, [app]).await?;
    drop(connection);
    let now = fdn_service::now();
    Ok(runs
        .into_iter()
        .filter(|run| owners.is_present(app, run.started_at))
        .map(|run| shown(state, run, now))
        .collect())
}

/// One run of an app.
///
/// # Errors
/// When there is no such app or run, or the store fails.
pub async fn get(
    state: &State,
    (tenant, app): (TenantId, &AppName),
    run: RunId,
) -> Result<RunInfo, Error> {
    let mut connection = state.store.read().await?;
    let found = app_get(&mut connection, app).await?;
    found
        .filter(|row| row.tenant == tenant)
        .ok_or_else(|| Error::no_app(app))?;
    let owners = owner_list(&mut connection, [app]).await?;
    let found = run_get(&mut connection, app, run)
        .await?
        .filter(|run| owners.is_present(app, run.started_at))
        .ok_or_else(|| Error::NotFound {
            what: format!("run {run} of {app}"),
            hint: "the newest runs of an app are kept (console.runs_per_app)",
        })?;
    drop(connection);
    Ok(shown(state, found, fdn_service::now()))
}

/// The run as it is shown: one whose gateway is gone is lost, since nobody will report its end.
fn shown(state: &State, mut run: RunInfo, now: Timestamp) -> RunInfo {
    if run.status == RunStatus::Running {
        let leads =
            lock(&state.live).is_alive(&run.node, now) && now.since(run.started_at) < LONGEST;
        if !leads {
            run.status = RunStatus::Lost;
        }
    }
    run
}

#[cfg(test)]
mod tests {
    use fdn_core::Revision;

    use super::*;

    fn run(app: &str, n: u128, changes: u32) -> RunInfo {
        RunInfo {
            run: RunId::from_uuid(uuid::Uuid::from_u128(n)),
            request: "r".to_owned(),
            app: app.parse().expect("app"),
            revision: Revision(1),
            node: "eu-1".parse().expect("node"),
            cluster: "eu".parse().expect("cluster"),
            started_at: Timestamp(1),
            ended_at: None,
            status: RunStatus::Running,
            stages: Vec::new(),
            changes,
        }
    }

    #[test]
    fn the_newest_record_counts_and_the_oldest_run_makes_room() {
        let mut pending = RunBuffer::default();
        assert_eq!(pending.add(run("a", 2, 5), 2), 0);
        assert_eq!(pending.add(run("a", 2, 4), 2), 0, "it came late");
        assert_eq!(pending.add(run("b", 1, 0), 2), 0);
        assert_eq!(pending.add(run("b", 3, 0), 2), 1);
        let of = pending.take(10);
        let all: Vec<(&str, u32)> = of
            .values()
            .flatten()
            .map(|run| (run.app.as_str(), run.changes))
            .collect();
        assert_eq!(all, [("a", 5), ("b", 0)]);
        assert!(pending.take(10).is_empty());
    }

    #[test]
    fn what_would_not_be_kept_is_not_written() {
        let mut pending = RunBuffer::default();
        for n in 1..=5 {
            pending.add(run("a", n, 0), 100);
        }
        let of = pending.take(2);
        let kept: Vec<u128> = of
            .values()
            .flatten()
            .map(|run| run.run.uuid().as_u128())
            .collect();
        assert_eq!(kept, [4, 5]);
    }
}

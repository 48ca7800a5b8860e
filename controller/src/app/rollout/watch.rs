//! The loop that measures new versions against their objectives: adds up the nodes' counts, lets `fdn_scheduling::rollout` evaluate them, and carries out
//! the verdict.
//!
//! It runs on the controller with the planner's lease. The counts are stored, so that another controller continues in the same window. A verdict
//! is carried out in one transaction that checks that the same version is still watched: changes that people made meanwhile stand.

use std::collections::BTreeMap;
use std::sync::Arc;

use fdn_core::rollout::{CallCounts, RolloutState, VersionRejection};
use fdn_core::{DurationMs, Timestamp, VersionNumber};
use fdn_scheduling::rollout::{Verdict, evaluate, rolled_back};
use fdn_service::CancellationToken;
use sqlx::AnyConnection;
use tracing::{info, warn};

use crate::Error;
use crate::app::actor::Actor;
use crate::app::policy::{audit, push};
use crate::app::workflow::version_of;
use crate::error::chain;
use crate::singleton::Work;
use crate::state::{State, lock};
use crate::store::app::{AppRow, app_get};
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::in_transaction;
use crate::store::revision::revision_next;
use crate::store::rollout::{
    Boot, BootCounts, ReportedCounts, RolloutRow, bad_version_mark, counts_list, counts_upsert,
    objective_get, rollout_get, rollout_list_watching, rollout_upsert,
};
use crate::store::traffic::{TrafficRow, traffic_delete, traffic_get, traffic_upsert};

/// Runs rounds until `stop` is cancelled.
pub(crate) async fn run(state: Arc<State>, stop: CancellationToken) {
    let interval = state.settings.rollouts.interval.as_duration();
    let mut timer = tokio::time::interval(interval);
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = timer.tick() => {}
        }
        if !state.singletons.has(Work::Planner) {
            continue;
        }
        if let Err(error) = round(&state, fdn_service::now()).await {
            warn!(
                error = chain(&error),
                "new versions cannot be held to their objectives now"
            );
        }
    }
}

/// Judges every watched version. A failure for one does not affect the others.
///
/// # Errors
/// With the first failure; what was decided stands.
pub async fn round(state: &State, now: Timestamp) -> Result<(), Error> {
    let mut connection = state.store.read().await?;
    let watched = rollout_list_watching(&mut connection).await?;
    drop(connection);
    let gauge = i64::try_from(watched.len()).unwrap_or(i64::MAX);
    state.metrics.apps.rollouts.set(gauge);
    let mut failed = None;
    for row in watched {
        if let Err(error) = check_rollout(state, &row, now).await {
            failed.get_or_insert(error);
        }
    }
    failed.map_or(Ok(()), Err)
}

/// The counts of a version since each node's start, as the nodes report them.
fn reported(state: &State, row: &RolloutRow) -> BTreeMap<Boot, ReportedCounts> {
    let live = lock(&state.live);
    let mut all = BTreeMap::new();
    for seen in live.nodes() {
        let status = &seen.status;
        let app = status.apps.iter().find(|app| app.app == row.app);
        let version = app.and_then(|app| app.versions.iter().find(|v| v.version == row.candidate));
        if let Some(version) = version {
            let boot = (status.node.clone(), status.boot);
            let counts = ReportedCounts {
                counts: version.counts.clone(),
                sequence: status.sequence,
            };
            all.insert(boot, counts);
        }
    }
    all
}

/// Merges the reported counts into the known ones, and returns their sum. A start of a node that is not known yet is counted from its present
/// counts on, or from zero if the version is `fresh` and had no calls before. Reports that are not newer than the known one change nothing: a
/// controller that takes over may have heard less than the one before it stored.
fn count(
    known: &mut BTreeMap<Boot, BootCounts>,
    reported: BTreeMap<Boot, ReportedCounts>,
    fresh: bool,
) -> CallCounts {
    for (boot, latest) in reported {
        let first = if fresh {
            CallCounts::default()
        } else {
            latest.counts.clone()
        };
        let counted = known.entry(boot).or_insert_with(|| BootCounts {
            base: first,
            latest: latest.clone(),
        });
        if latest.sequence <= counted.latest.sequence {
            continue;
        }
        if !latest.counts.continues(&counted.latest.counts) {
            // The node forgot the version and counts from zero again.
            counted.base = CallCounts::default();
        }
        counted.latest = latest;
    }
    let each = known
        .values()
        .map(|counted| counted.latest.counts.since(&counted.base));
    each.fold(CallCounts::default(), |sum, counts| sum.plus(&counts))
}

async fn check_rollout(state: &State, row: &RolloutRow, now: Timestamp) -> Result<(), Error> {
    let reported = reported(state, row);
    let _alone = state.changes.lock().await;
    let decided: Result<Option<RolloutRow>, Error> = in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        let present = rollout_get(&mut tx, &row.app).await?;
        if present.is_none_or(|present| present.id != row.id || present.state != RolloutState::Watching) {
            return Ok(None);
        }
        let (Some(app), Some(objective)) = (app_get(&mut tx, &row.app).await?, objective_get(&mut tx, &row.app).await?) else {
            return Ok(None);
        };
        let mut known = counts_list(&mut tx, &row.app).await?;
        let counts = count(&mut known, reported.clone(), row.fresh);
        let elapsed = DurationMs::from_millis(now.get().saturating_sub(row.since.get()));
        let verdict = evaluate(&objective.objective, &counts, elapsed);
        let mut next = RolloutRow { calls: counts.calls, failures: counts.failures, ..row.clone() };
        match &verdict {
            Verdict::TooFew { missing } => next.reason = format!("waits for {missing} more calls"),
            Verdict::Watching => "is watched until its window is over".clone_into(&mut next.reason),
            Verdict::Held => {
                next.state = RolloutState::Held;
                next.reason = format!("kept to its objective for {}", objective.objective.window);
                if row.by_deploy {
                    traffic_delete(&mut tx, &row.app).await?;
                    push(&mut tx, app.clone(), revision, now).await?;
                }
                let entry = entry(&app, "rollout.held", row.candidate, &next.reason, now);
                audit_insert(&mut tx, &entry).await?;
            }
            Verdict::Broken(breach) => {
                next.state = RolloutState::Broken;
                next.reason = breach.to_string();
                roll_back(&mut tx, app, &next, (revision, now)).await?;
            }
        }
        for (boot, counted) in &known {
            counts_upsert(&mut tx, &row.app, boot, counted).await?;
        }
        rollout_upsert(&mut tx, &next).await?;
        Ok(Some(next))
    });
    let Some(next) = decided? else { return Ok(()) };
    match next.state {
        RolloutState::Watching => {}
        RolloutState::Held => {
            state
                .metrics
                .apps
                .rollouts_ended
                .with_label_values(&["held"])
                .inc();
            state.outbox_wake.notify_one();
            info!(app = %next.app, version = %next.candidate, "a version kept to its objective");
        }
        RolloutState::Broken => {
            state
                .metrics
                .apps
                .rollouts_ended
                .with_label_values(&["broken"])
                .inc();
            state.outbox_wake.notify_one();
            state.planner_wake.notify_one();
            warn!(app = %next.app, version = %next.candidate, back_to = %next.baseline, reason = %next.reason, "a version broke its objective");
        }
    }
    Ok(())
}

fn entry(
    app: &AppRow,
    action: &'static str,
    version: VersionNumber,
    reason: &str,
    now: Timestamp,
) -> AuditEntry {
    AuditEntry {
        before: Some(serde_json::json!({ "version": version }).to_string()),
        after: Some(serde_json::json!({ "version": app.version, "reason": reason }).to_string()),
        ..audit(&Actor::network(), app.tenant, action, &app.name, now)
    }
}

/// Moves all calls of a version to its baseline in one step, and marks the version as bad.
async fn roll_back(
    connection: &mut AnyConnection,
    app: AppRow,
    row: &RolloutRow,
    (revision, now): (fdn_core::Revision, Timestamp),
) -> Result<(), Error> {
    let name = app.name.clone();
    let mut app = app;
    if app.version == row.candidate {
        let (workflow, definition) =
            version_of(&mut *connection, app.tenant, &name, row.baseline).await?;
        app = AppRow {
            workflow,
            definition,
            version: row.baseline,
            previous: Some(row.candidate),
            deployed_at: now,
            ..app
        };
    }
    if let Some(split) = traffic_get(&mut *connection, &name).await? {
        let after = rolled_back(&split.traffic, row.candidate, row.baseline);
        let alone = after.split.len() == 1 && after.split[0].version == app.version;
        if row.by_deploy || alone || after.check().is_err() {
            traffic_delete(&mut *connection, &name).await?;
        } else {
            let row = TrafficRow {
                traffic: after,
                revision,
                updated_at: now,
                updated_by: Actor::network().to_string(),
                ..split
            };
            traffic_upsert(&mut *connection, app.tenant, &row).await?;
        }
    }
    let function = name.into();
    let mark = VersionRejection {
        reason: row.reason.clone(),
        at: now,
    };
    let which = (app.tenant, &function, row.candidate);
    bad_version_mark(&mut *connection, which, &mark).await?;
    let entry = entry(&app, "rollback.automatic", row.candidate, &row.reason, now);
    push(&mut *connection, app, revision, now).await?;
    Ok(audit_insert(connection, &entry).await?)
}

#[cfg(test)]
mod tests {
    use fdn_core::MessageId;

    use super::*;

    fn boot(node: &str, n: u128) -> Boot {
        (
            node.parse().expect("node"),
            MessageId::from_uuid(uuid::Uuid::from_u128(n)),
        )
    }

    fn counts(calls: u64, failures: u64) -> CallCounts {
        CallCounts {
            calls,
            failures,
            latency: vec![(8, calls)],
        }
    }

    fn report(sequence: u64, counts: CallCounts) -> ReportedCounts {
        ReportedCounts { counts, sequence }
    }

    #[test]
    fn starts_of_nodes_are_added_up_and_none_is_counted_twice() {
        let mut known = BTreeMap::new();
        let one = |sequence, n| BTreeMap::from([(boot("a", 1), report(sequence, n))]);
        // A version without earlier calls is counted from zero.
        assert_eq!(count(&mut known, one(1, counts(5, 1)), true), counts(5, 1));
        assert_eq!(count(&mut known, one(2, counts(5, 1)), true), counts(5, 1));
        // The node restarts, and another one appears.
        let next = BTreeMap::from([
            (boot("a", 2), report(0, counts(3, 0))),
            (boot("b", 9), report(7, counts(2, 2))),
        ]);
        assert_eq!(count(&mut known, next, true), counts(10, 3));
        // The node forgot the version without restarting.
        let next = BTreeMap::from([(boot("b", 9), report(8, counts(1, 0)))]);
        assert_eq!(count(&mut known, next, true), counts(9, 1));
    }

    #[test]
    fn calls_from_before_a_split_are_not_the_splits() {
        let mut known = BTreeMap::new();
        let one = |sequence, n| BTreeMap::from([(boot("a", 1), report(sequence, n))]);
        assert_eq!(
            count(&mut known, one(1, counts(500, 400)), false),
            CallCounts::default()
        );
        assert_eq!(
            count(&mut known, one(2, counts(510, 401)), false),
            counts(10, 1)
        );
    }

    #[test]
    fn a_report_older_than_the_counted_one_is_not_a_node_that_forgot() {
        let mut known = BTreeMap::new();
        let one = |sequence, n| BTreeMap::from([(boot("a", 1), report(sequence, n))]);
        count(&mut known, one(1, counts(500, 400)), false);
        let ten = counts(10, 1);
        assert_eq!(count(&mut known, one(3, counts(510, 401)), false), ten);
        // Another controller takes over, which knows the report before that one; then it hears the next.
        assert_eq!(count(&mut known, one(2, counts(505, 401)), false), ten);
        let twelve = counts(12, 1);
        assert_eq!(count(&mut known, one(4, counts(512, 401)), false), twelve);
    }
}

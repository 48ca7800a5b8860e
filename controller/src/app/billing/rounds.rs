//! The periodic work of billing: books usage records that controllers of earlier releases have stored, closes months, issues statements, raises
//! budget alerts and enqueues their webhooks.
//!
//! Every step is idempotent: any number of controllers may run this loop at the same time.

use std::sync::Arc;

use fdn_core::billing::{BudgetAlert, Month};
use fdn_core::{MessageId, TenantId, Timestamp};
use fdn_service::CancellationToken;
use tracing::{info, warn};

use super::bill::{Terms, compute};
use crate::Error;
use crate::app::actor::Actor;
use crate::error::chain;
use crate::state::State;
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::billing::budget::{alert_insert, budget_list_before, budget_tenants};
use crate::store::billing::clock::{
    clock_begin, clock_close, clock_get, clock_issued, clock_to_issue, usage_oldest,
};
use crate::store::billing::owner::NOBODY;
use crate::store::billing::statement::{statement_insert, statement_missing};
use crate::store::billing::sums::{GroupBy, Span, sums_list};
use crate::store::in_transaction;
use crate::store::usage::usage_book;
use crate::store::webhook::{Origin, WebhookRow, webhook_insert};

/// The most records booked in one transaction.
const BOOK: u32 = 500;
/// The most transactions per round and kind of step; what is left waits for the next round.
const STEPS: u32 = 100;

/// Runs rounds until `stop` is cancelled.
pub(crate) async fn run(state: Arc<State>, stop: CancellationToken) {
    let mut timer = tokio::time::interval(state.settings.billing.interval.as_duration());
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = timer.tick() => {}
        }
        if let Err(failure) = round(&state, fdn_service::now()).await {
            state.metrics.billing.failures.inc();
            warn!(
                error = chain(&failure),
                "a round of the billing centre failed; the next one goes on"
            );
        }
    }
}

/// Runs one round. What fails for one tenant keeps no other from a statement or an alert of the same month; later months wait until all have theirs.
///
/// # Errors
/// When the store fails; what was done until then is kept.
pub async fn round(state: &State, now: Timestamp) -> Result<(), Error> {
    if book(state, now).await? {
        close(state, now).await?;
    }
    let issued = issue(state, now).await;
    alert(state, now).await?;
    unowned(state).await?;
    issued
}

/// Books records that are not booked yet. Returns whether none are left.
async fn book(state: &State, now: Timestamp) -> Result<bool, Error> {
    for _ in 0..STEPS {
        let booked: Result<u64, Error> = in_transaction!(state.store, tx => {
            Ok(usage_book(&mut tx, BOOK, now).await?)
        });
        let booked = booked?;
        if booked == 0 {
            return Ok(true);
        }
        info!(booked, "records of before were booked");
    }
    Ok(false)
}

/// Closes months that ended at least `billing.close_after` ago.
async fn close(state: &State, now: Timestamp) -> Result<(), Error> {
    let grace = state.settings.billing.close_after.as_millis();
    for _ in 0..STEPS {
        let open = clock_get(&mut *state.store.read().await?).await?;
        let Some(open) = open else {
            begin(state, now).await?;
            continue;
        };
        if open.end().get().saturating_add(grace) > now.get() {
            return Ok(());
        }
        let closed: Result<bool, Error> = in_transaction!(state.store, tx => {
            Ok(clock_close(&mut tx, open).await?)
        });
        if closed? {
            info!(month = %open, "the month is closed");
        }
    }
    Ok(())
}

/// Opens the first month: that of the oldest usage.
async fn begin(state: &State, now: Timestamp) -> Result<(), Error> {
    in_transaction!(state.store, tx => {
        let oldest = usage_oldest(&mut tx).await?;
        let first = Month::of(oldest.map_or(now, |oldest| oldest.min(now)));
        Ok::<_, Error>(clock_begin(&mut tx, first).await?)
    })
}

/// Issues the statements of closed months and raises their last alerts. Their sums never change, so it does not matter when, or by which controller:
/// what one that stopped has left undone, the next one does.
async fn issue(state: &State, now: Timestamp) -> Result<(), Error> {
    for _ in 0..STEPS {
        let mut connection = state.store.read().await?;
        let Some(month) = clock_to_issue(&mut connection).await? else {
            return Ok(());
        };
        let missing = statement_missing(&mut connection, month).await?;
        drop(connection);
        let mut failed = None;
        for tenant in missing {
            if let Err(failure) = issue_statement(state, tenant, month, now).await {
                warn!(%tenant, %month, error = chain(&failure), "a statement cannot be issued");
                failed = Some(failure);
            }
        }
        // Usage came until the month was closed: this is the first look at all of it.
        let alerted = alert_month(state, month, now).await?;
        // The next round tries again: the month is not done before all have their statements and alerts.
        if let Some(failure) = failed {
            return Err(failure);
        }
        if !alerted {
            return Ok(());
        }
        in_transaction!(state.store, tx => Ok::<_, Error>(clock_issued(&mut tx, month).await?))?;
    }
    Ok(())
}

async fn issue_statement(
    state: &State,
    tenant: TenantId,
    month: Month,
    now: Timestamp,
) -> Result<(), Error> {
    let terms = Terms {
        now,
        ..Terms::of(state)
    };
    let new: bool = in_transaction!(state.store, tx => {
        let statement = compute(&mut tx, tenant, month, terms).await?;
        Ok::<_, Error>(statement_insert(&mut tx, &statement).await?)
    })?;
    if new {
        state.metrics.billing.statements.inc();
        info!(%tenant, %month, "a statement was issued");
    }
    Ok(())
}

/// Raises the alerts of the running month, and of the month before while that is open: usage of the last minutes of a month comes when the next one
/// has begun. Before the first month is opened, the month before waits for a later round. Closed months get theirs with their statements ([`issue`]).
async fn alert(state: &State, now: Timestamp) -> Result<(), Error> {
    let open = clock_get(&mut *state.store.read().await?).await?;
    let running = Month::of(now);
    let before = Some(running.previous()).filter(|month| open.is_some_and(|open| *month >= open));
    for month in before.into_iter().chain([running]) {
        alert_month(state, month, now).await?;
    }
    Ok(())
}

/// Raises the alerts of budgets whose thresholds the statement of this month has reached, each once. Returns whether the budgets of all tenants could
/// be checked.
async fn alert_month(state: &State, month: Month, now: Timestamp) -> Result<bool, Error> {
    let mut all = true;
    for tenant in budget_tenants(&mut *state.store.read().await?).await? {
        if let Err(failure) = alert_tenant(state, tenant, month, now).await {
            all = false;
            state.metrics.billing.failures.inc();
            warn!(
                %tenant,
                %month,
                error = chain(&failure),
                "the budgets of a tenant cannot be checked; those of others are"
            );
        }
    }
    Ok(all)
}

async fn alert_tenant(
    state: &State,
    tenant: TenantId,
    month: Month,
    now: Timestamp,
) -> Result<(), Error> {
    let terms = Terms {
        now,
        ..Terms::of(state)
    };
    let mut snapshot = state.store.snapshot().await?;
    // A budget that was set or changed after a month says nothing of that month.
    let budgets = budget_list_before(&mut snapshot, tenant, month.end()).await?;
    if budgets.is_empty() {
        return Ok(());
    }
    let spent = compute(&mut snapshot, tenant, month, terms).await?.total;
    drop(snapshot);
    for budget in budgets {
        for threshold in budget.reached(spent) {
            let webhook = budget.webhook.as_ref();
            let (budget, limit) = (budget.name.clone(), budget.limit);
            let alert = BudgetAlert {
                budget,
                month,
                threshold,
                spent,
                limit,
                at: now,
            };
            let new: bool = in_transaction!(state.store, tx => {
                let new = alert_insert(&mut tx, tenant, &alert).await?;
                if new {
                    // Each entry of the audit log becomes an event, which subscribers of events receive.
                    audit_insert(&mut tx, &audit_entry(tenant, &alert)).await?;
                    if let Some(url) = webhook {
                        webhook_insert(&mut tx, &request(tenant, &alert, url)).await?;
                    }
                }
                Ok::<_, Error>(new)
            })?;
            if new {
                state.metrics.billing.alerts.inc();
                state.webhook_wake.notify_one();
                warn!(%tenant, budget = %alert.budget, %month, threshold, %spent, limit = %alert.limit, "a budget's threshold was reached");
            }
        }
    }
    Ok(())
}

/// The webhook request that an alert sends to the budget's URL.
fn request(tenant: TenantId, alert: &BudgetAlert, url: &str) -> WebhookRow {
    let id = MessageId::from_uuid(uuid::Uuid::now_v7());
    let body =
        serde_json::json!({ "id": id, "event": "budget.alert", "tenant": tenant, "alert": alert });
    WebhookRow {
        id,
        origin: Origin::Budget(alert.budget.clone()),
        tenant,
        url: url.to_owned(),
        body: body.to_string(),
        due_at: alert.at,
        failures: 0,
    }
}

fn audit_entry(tenant: TenantId, alert: &BudgetAlert) -> AuditEntry {
    AuditEntry {
        at: alert.at,
        actor: Actor::network(),
        tenant: Some(tenant),
        action: "budget.alert",
        subject: format!("budget/{}", alert.budget),
        before: None,
        after: serde_json::to_string(alert).ok(),
    }
}

/// Sets the metric of calls of apps that have no known owner.
async fn unowned(state: &State) -> Result<(), Error> {
    let mut connection = state.store.read().await?;
    let (first, last) = (Month::of(Timestamp(0)), Month::of(Timestamp(u64::MAX)));
    let span = Span {
        tenant: NOBODY,
        first,
        last,
        from: Timestamp(0),
        to: last.end(),
    };
    let sums = sums_list(&mut connection, span, GroupBy::All).await?;
    let calls: i128 = sums
        .iter()
        .map(|sum| {
            sum.used
                .quantities
                .get(fdn_core::billing::Meter::Invocations)
        })
        .sum();
    state
        .metrics
        .billing
        .unowned
        .set(i64::try_from(calls).unwrap_or(i64::MAX));
    Ok(())
}

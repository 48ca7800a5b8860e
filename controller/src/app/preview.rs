//! Preview of a plan: where an app would run before it is deployed, and what it would cost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::billing::{Day, Meter, Money, Month, Prices, Quantities, Segment, cost};
use fdn_core::manifest::Manifest;
use fdn_core::preview::{
    CLIENTS_MAX, PlanPreview, PlanRequest, PlannedGroup, PlannedPrice, RATE_MAX, WhatIfOutcome,
};
use fdn_core::usage::{UsageOutcome, UsageRecord};
use fdn_core::what_if::CHANGES_MAX;
use fdn_core::workflow::{Stage, Workflow};
use fdn_core::{
    AppName, ClientPrefix, InvocationId, Millis, StageName, TenantId, Timestamp, VersionNumber,
};
use fdn_scheduling::workflow::Profile;

use super::workflow;
use crate::Error;
use crate::reconcile::forms::variants;
use crate::reconcile::place::AppPlacement;
use crate::reconcile::preview::{Preview, PreviewRequest, PreviewRows, preview};
use crate::reconcile::profile_of;
use crate::reconcile::world::Profiles;
use crate::state::State;
use crate::store::app::app_get;
use crate::store::billing::price::price_list_all;

/// The most plans computed at the same time: each takes a processor for as long as a pass of the planner, or several.
pub const PREVIEWS_MAX: usize = 4;
/// The number of calls that a price is given for.
const MILLION: i128 = 1_000_000;
/// Thirty days, in seconds.
const MONTH_S: f64 = 30.0 * 86_400.0;

/// Computes the plan and the price of a request.
///
/// # Errors
/// When the request is not valid, names something that does not exist, too many plans are being computed, or the store fails.
pub async fn plan(
    state: &Arc<State>,
    tenant: TenantId,
    request: &PlanRequest,
    now: Timestamp,
) -> Result<PlanPreview, Error> {
    check(request)?;
    let permit = Arc::clone(&state.previews)
        .try_acquire_owned()
        .map_err(|_| Error::TooMany {
            what: "too many plans are being computed",
            after: Duration::from_secs(1),
        })?;
    let manifest = match &request.manifest {
        Some(text) => Some(Manifest::from_toml(text, &state.settings.bounds)?),
        None => None,
    };
    let (app, workflow) = load_workflow(state, tenant, request, manifest.is_some()).await?;
    let rows = PreviewRows::read(state).await?;
    let (shared, wish, flow) = (Arc::clone(state), request.clone(), workflow.clone());
    // Not on the threads that answer requests.
    let computed = tokio::task::spawn_blocking(move || {
        // It is computed to its end even if the caller disconnects.
        let _permit = permit;
        compute(&shared, &rows, (app.as_ref(), flow, manifest), &wish, now)
    });
    let Preview {
        placed,
        rate,
        profiles,
        times,
        changed,
        forms,
    } = computed
        .await
        .map_err(|e| Error::Internal(format!("a preview broke: {e}")))??;
    let prices = price_list_all(
        &mut *state.store.read().await?,
        state.settings.billing.currency,
    )
    .await?;
    Ok(PlanPreview {
        app: request.app.clone(),
        rate,
        price: price(
            &prices,
            quantities_per_call(&profiles, &times, request)?,
            (rate, now),
        )?,
        unplaced: placed.unplaced.clone(),
        what_if: changed.map(|changed| WhatIfOutcome {
            before: groups(&workflow, changed.before),
            others_moved: changed.others_moved as u64,
            others_unplaced: changed.others_unplaced as u64,
        }),
        groups: groups(&workflow, placed),
        forms,
    })
}

/// Places the app, if it exists under a name, with the workflow and the manifest of the request.
fn compute(
    state: &State,
    rows: &PreviewRows,
    (app, workflow, manifest): (Option<&AppName>, Workflow, Option<Manifest>),
    request: &PlanRequest,
    now: Timestamp,
) -> Result<Preview, Error> {
    let (manifest, forms) = match manifest.map(Manifest::split_forms) {
        Some((manifest, forms)) => (Some(manifest), forms),
        None => (None, Vec::new()),
    };
    let expected = |_: &Stage| manifest.as_ref().map(|own| profile_of(own, &forms));
    let variants = manifest.as_ref().map(|manifest| {
        let all = variants(manifest, &forms);
        let several = (!all.is_empty()).then(|| (workflow.entry().name.clone(), all));
        several.into_iter().collect()
    });
    let preview_request = PreviewRequest {
        app,
        workflow,
        replaces: request.manifest.is_some() || request.workflow.is_some(),
        expected: &expected,
        variants,
        over: &|profile| with_overrides(request, profile),
        clients: request.clients.clone(),
        rate: request.rate,
        what_if: &request.what_if,
    };
    preview(state, rows, &preview_request, now)
}

fn check(request: &PlanRequest) -> Result<(), Error> {
    let bad = |text: String| Err(Error::BadRequest(text));
    if request.clients.len() > CLIENTS_MAX {
        let count = request.clients.len();
        return bad(format!("clients: at most {CLIENTS_MAX}, not {count}"));
    }
    if let Some(rate) = request.rate
        && !(0.0..=RATE_MAX).contains(&rate)
    {
        return bad(format!(
            "rate: from 0 to {RATE_MAX} calls per second, not {rate}"
        ));
    }
    if request.what_if.len() > CHANGES_MAX {
        let count = request.what_if.len();
        return bad(format!(
            "what_if: at most {CHANGES_MAX} changes, not {count}"
        ));
    }
    if request.manifest.is_some() && request.workflow.is_some() {
        return bad("manifest is of a function, workflow of several; send one of them".to_owned());
    }
    Ok(())
}

/// The app, if it exists, so that its history is taken into account, and the workflow to be planned.
async fn load_workflow(
    state: &State,
    tenant: TenantId,
    request: &PlanRequest,
    function: bool,
) -> Result<(Option<AppName>, Workflow), Error> {
    let mut connection = state.store.read().await?;
    let row = match &request.app {
        Some(app) => app_get(&mut connection, app).await?,
        None => None,
    };
    let row = row.filter(|row| row.tenant == tenant);
    let app = row.as_ref().map(|row| row.name.clone());
    if let Some(declared) = &request.workflow {
        let definition = workflow::resolve(&mut connection, tenant, declared).await?;
        return Ok((app, definition.workflow));
    }
    match (row, function, &request.app) {
        (Some(row), false, _) => Ok((app, row.workflow)),
        (_, true, named) => {
            let name = match named {
                Some(name) => name.clone(),
                None => "function".parse()?,
            };
            let workflow = Workflow::single(name.into(), VersionNumber::FIRST);
            Ok((app, workflow))
        }
        (None, false, Some(named)) => Err(Error::no_app(named)),
        (None, false, None) => Err(Error::BadRequest(
            "name an app, or send the manifest of a function or a workflow".to_owned(),
        )),
    }
}

/// The profile with the duration and memory of the request, where they are given.
fn with_overrides(request: &PlanRequest, mut profile: Profile) -> Profile {
    if let Some(duration) = request.duration {
        profile.work = Millis::from(duration.as_duration());
    }
    if let Some(memory) = request.memory {
        profile.demand.memory_mib = memory.to_mebibytes();
    }
    profile
}

fn groups(workflow: &Workflow, placed: AppPlacement) -> Vec<PlannedGroup> {
    let mut clients: BTreeMap<&str, Vec<ClientPrefix>> = BTreeMap::new();
    for (prefix, (_, group)) in &placed.bindings {
        clients.entry(group).or_default().push(*prefix);
    }
    let entry: &StageName = &workflow.entry().name;
    let group = |(name, plan): (&String, &crate::reconcile::place::GroupPlan)| {
        let cluster = plan.stages.get(entry)?.clone();
        let said = plan.explanation.clone();
        let (reason, candidates) =
            said.map_or_else(Default::default, |said| (said.reason, said.candidates));
        Some(PlannedGroup {
            clients: clients.get(name.as_str()).cloned().unwrap_or_default(),
            latency: plan.latency.filter(|latency| latency.is_finite()),
            stages: plan.stages.clone(),
            cluster,
            reason,
            candidates,
        })
    };
    placed.plans.iter().filter_map(group).collect()
}

/// The billed quantities of one call, as the records of its stages will have them: the time of each stage where it runs.
fn quantities_per_call(
    profiles: &Profiles,
    times: &BTreeMap<StageName, Millis>,
    request: &PlanRequest,
) -> Result<Quantities, Error> {
    let mut sum = Quantities::default();
    for (stage, profile) in profiles {
        let time = times.get(stage).copied().unwrap_or(profile.work);
        let micros = (time.get() * 1e3).round().clamp(0.0, 1e15) as u64;
        let record = UsageRecord {
            invocation: InvocationId::from_uuid(uuid::Uuid::nil()),
            app: "a".parse()?,
            function: "a".parse()?,
            version: VersionNumber::FIRST,
            started_at: Timestamp(0),
            duration_us: micros,
            cpu_us: micros,
            memory_mib: profile.demand.memory_mib,
            gpu_memory_mib: profile.demand.gpu_memory_mib,
            egress_bytes: 0,
            outcome: UsageOutcome::Ok,
        };
        sum.add(&Quantities::of(&record)?)?;
    }
    let answer = request.answer.map_or(0, |size| size.as_bytes());
    sum.add(&Quantities::one(Meter::EgressGib, i128::from(answer)))?;
    Ok(sum)
}

/// The price of calls at today's price list.
fn price(
    prices: &Prices,
    one: Quantities,
    (rate, now): (f64, Timestamp),
) -> Result<PlannedPrice, Error> {
    let today = Day::of(now);
    let segments = prices.segments(Month::of(now));
    let segment = segments
        .iter()
        .find(|part| part.from <= today && today < part.to);
    let money = |calls: i128| -> Result<Money, Error> {
        let micros = match segment {
            Some(segment) => micros(segment, &one, calls)?,
            None => 0,
        };
        Ok(Money::new(micros, prices.currency()))
    };
    let month = (rate * MONTH_S).round().clamp(0.0, 1e16);
    let list = segment.and_then(|segment| segment.list);
    Ok(PlannedPrice {
        price_list: list.map(|list| list.name.clone()),
        million: money(MILLION)?,
        month: money(month as i128)?,
    })
}

fn micros(segment: &Segment<'_>, one: &Quantities, calls: i128) -> Result<i64, Error> {
    let mut all = Quantities::default();
    for meter in Meter::ALL {
        let quantity = one.get(meter).checked_mul(calls);
        let quantity = quantity.ok_or(fdn_core::billing::BillingError::Overflow("usage"))?;
        all.add(&Quantities::one(meter, quantity))?;
    }
    Ok(cost(segment, &all)?)
}

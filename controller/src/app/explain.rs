//! Why a client's calls go where they go: computes the placement now, for exactly this client, with the terms of every cluster.

use std::net::IpAddr;

use fdn_core::api::{Explanation, StagePlace, StoredPlan};
use fdn_core::workflow::{Stage, Workflow};
use fdn_core::{AppName, ClientPrefix, ClusterId, StageName, TenantId, Timestamp};

use super::describe::binding_info;
use crate::Error;
use crate::reconcile::actual::Factors;
use crate::reconcile::compared::{AppContext, compared};
use crate::reconcile::desired::versions_of;
use crate::reconcile::forms::{FormDecisions, FormInput, Variants, decide, mark_announced};
use crate::reconcile::place::{PlanExplanation, PreviousPlans};
use crate::reconcile::world::{Presence, Profiles, World};
use crate::reconcile::{expected, variants_of};
use crate::state::{State, lock};
use crate::store::StoreError;
use crate::store::app::{AppRow, app_get};
use crate::store::billing::price::price_list_at;
use crate::store::binding::{BindingRow, binding_list};
use crate::store::plan::{PlanRow, plan_explanation, plan_list_of};

/// Explains an app's placement for `client`.
///
/// # Errors
/// When there is no such app or the store fails. If no cluster can take the app, that is the explanation and not an error.
pub async fn explain(
    state: &State,
    tenant: TenantId,
    name: &AppName,
    client: ClientPrefix,
) -> Result<Explanation, Error> {
    let mut tx = state.store.snapshot().await?;
    let app = app_get(&mut tx, name)
        .await?
        .filter(|app| app.tenant == tenant)
        .ok_or_else(|| Error::no_app(name))?;
    let versions = versions_of(&mut tx, &app).await?;
    let bindings = binding_list(&mut tx, name).await?;
    let plans = plan_list_of(&mut tx, name).await?;
    let bound = longest(&bindings, client);
    let plan = match bound.and_then(|bound| plans.iter().find(|plan| plan.group == bound.group)) {
        Some(row) => stored(row, plan_explanation(&mut tx, name, &row.group).await?)?,
        None => None,
    };
    let now = fdn_service::now();
    let prices = price_list_at(&mut tx, state.settings.billing.currency, now).await?;
    tx.commit().await.map_err(StoreError::from)?;

    let world = state.world(now).with_prices(prices);
    let rate = lock(&state.live).rate(name, now);
    let is_called = rate > 0.0;
    let profiles = world.profiles(name, &app.workflow, |stage| expected(stage, &versions));
    let previous = bound.and_then(|binding| {
        PreviousPlans::new(&plans, &bindings).stages(&app.workflow, binding.prefix)
    });
    let view = world.view(client).estimates;
    let workflow = world.learned(name, &app.workflow);
    let runs = |stage: &StageName, cluster: &ClusterId| {
        let mut plans = plans.iter();
        plans.any(|plan| plan.stages.get(stage) == Some(cluster))
    };
    let of = (&workflow, &profiles);
    let variants = variants_of(&workflow, &versions);
    let (forms, factors) = learnt(state, &world, (&app, of), (&variants, rate), now);
    let serving = world.serving_in(Some(name), of, &forms);
    let mut of_forms = forms.terms(&world, &workflow);
    mark_announced(&mut of_forms, &app.forms);
    let presence = Presence {
        runs: &runs,
        is_called,
        serving: &serving,
        factors: &factors,
    };
    let steered = world.steer(&workflow, &profiles, &view, previous.as_deref(), &presence);
    let places = previous.clone().or_else(|| {
        steered
            .as_ref()
            .ok()
            .map(|steering| steering.stages.clone())
    });
    let actual = places.map_or_else(Vec::new, |places| {
        let learner = lock(&state.learner);
        let known = AppContext {
            app: name,
            workflow: &workflow,
            profiles: &profiles,
            factors: &factors,
            forms: &forms,
        };
        compared(&world, &known, &learner, (&view, &places))
    });
    let explanation = |chosen, reason, candidates, stages| Explanation {
        app: name.clone(),
        client,
        chosen,
        reason,
        bound: bound.map(binding_info),
        candidates,
        stages,
        plan: plan.clone(),
        actual: actual.clone(),
        forms: of_forms.clone(),
    };
    match steered {
        Ok(steering) => Ok(explanation(
            Some(steering.entry),
            steering.reason,
            steering.candidates,
            app.definition
                .as_ref()
                .map(|_| stage_places(&workflow, &steering.stages))
                .unwrap_or_default(),
        )),
        Err(fdn_scheduling::Error::Infeasible(why)) => {
            let rows = world.excluded_rows(&view, &serving, &why);
            Ok(explanation(None, why.to_string(), rows, Vec::new()))
        }
        Err(error) => Err(error.into()),
    }
}

/// The forms that clusters serve of an app, and the factors by which its measured run times differ from work over speed.
fn learnt(
    state: &State,
    world: &World,
    (app, of): (&AppRow, (&Workflow, &Profiles)),
    (variants, rate): (&Variants, f64),
    now: Timestamp,
) -> (FormDecisions, Factors) {
    let learner = lock(&state.learner);
    let input = FormInput {
        app: Some(&app.name),
        workflow: of.0,
        variants,
        current: &app.forms,
        revision: app.revision,
        rate: rate / app.primaries.len().max(1) as f64,
    };
    let forms = decide(world, &learner, &input, now);
    let factors = learner.of(world, &app.name).factors(world, of, now);
    let factors = forms.factors(world, of, &factors);
    (forms, factors)
}

/// A stored plan with the explanation written when it was made; `None` if there is no explanation.
fn stored(
    row: &PlanRow,
    kept: Option<(String, Timestamp)>,
) -> Result<Option<StoredPlan>, StoreError> {
    let Some((text, _)) = kept else {
        return Ok(None);
    };
    let said: PlanExplanation =
        serde_json::from_str(&text).map_err(|e| StoreError::corrupt("plans.explanation", e))?;
    Ok(Some(StoredPlan {
        group: row.group.clone(),
        revision: row.revision,
        planned_at: row.planned_at,
        reason: said.reason,
        candidates: said.candidates,
        stages: row.stages.clone(),
    }))
}

/// The cluster of each stage.
fn stage_places(workflow: &Workflow, clusters: &[ClusterId]) -> Vec<StagePlace> {
    let stages = workflow.stages().iter().zip(clusters);
    let place = |(stage, cluster): (&Stage, &ClusterId)| StagePlace {
        stage: stage.name.clone(),
        function: stage.function.clone(),
        version: stage.version,
        cluster: cluster.clone(),
    };
    stages.map(place).collect()
}

/// The binding that applies to a client: the one with the longest matching prefix.
fn longest(bindings: &[BindingRow], client: ClientPrefix) -> Option<&BindingRow> {
    let covers = |binding: &&BindingRow| {
        binding.prefix.len() <= client.len() && binding.prefix.contains(client.addr())
    };
    bindings
        .iter()
        .filter(covers)
        .max_by_key(|binding| binding.prefix.len())
}

/// The client of a request: the one given, or the caller's own address.
///
/// # Errors
/// When the text is no address or prefix, or there is neither.
pub fn client(given: Option<&str>, peer: Option<IpAddr>) -> Result<ClientPrefix, Error> {
    match (given, peer) {
        (Some(text), _) => Ok(text.parse()?),
        (None, Some(peer)) => Ok(ClientPrefix::host(peer)),
        (None, None) => Err(Error::BadRequest(
            "name a client: ?client=203.0.113.7".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::Revision;

    use super::*;

    #[test]
    fn the_longest_prefix_that_holds_the_whole_client_binds() {
        let binding = |prefix: &str| BindingRow {
            app: "a".parse().expect("app"),
            prefix: prefix.parse().expect("prefix"),
            cluster: "eu".parse().expect("cluster"),
            group: String::new(),
            revision: Revision(1),
        };
        let bindings = [
            binding("10.0.0.0/8"),
            binding("10.1.0.0/16"),
            binding("10.1.2.0/24"),
        ];
        let found = |client: &str| {
            longest(&bindings, client.parse().expect("client")).map(|b| b.prefix.to_string())
        };
        assert_eq!(found("10.1.2.3").as_deref(), Some("10.1.2.0/24"));
        assert_eq!(found("10.1.0.0/20").as_deref(), Some("10.1.0.0/16"));
        assert_eq!(found("10.9.9.9").as_deref(), Some("10.0.0.0/8"));
        assert_eq!(found("192.0.2.1"), None);
    }

    #[test]
    fn without_a_client_the_caller_is_meant() {
        let peer = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(
            client(None, Some(peer)).expect("the caller").to_string(),
            "192.0.2.1/32"
        );
        assert_eq!(
            client(Some("203.0.113.0/24"), Some(peer))
                .expect("given")
                .to_string(),
            "203.0.113.0/24"
        );
        assert!(client(Some("nowhere"), None).is_err() && client(None, None).is_err());
    }
}

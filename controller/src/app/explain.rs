//! Why a client's calls go where they go: placement is computed now, for exactly this client, with every cluster's terms.

use std::net::IpAddr;

use fdn_core::api::Explanation;
use fdn_core::{AppName, ClientPrefix};

use super::describe::binding_info;
use crate::Error;
use crate::reconcile::desired::versions_of;
use crate::reconcile::expected;
use crate::reconcile::place::Before;
use crate::state::State;
use crate::store::StoreError;
use crate::store::app::app_get;
use crate::store::binding::{BindingRow, binding_list};
use crate::store::plan::plan_list;

/// Explains an app's placement for `client`.
///
/// # Errors
/// When there is no such app or the store fails. That no cluster can take the app is no error but the explanation.
pub async fn explain(
    state: &State,
    name: &AppName,
    client: ClientPrefix,
) -> Result<Explanation, Error> {
    let mut tx = state.store.snapshot().await?;
    let app = app_get(&mut tx, name)
        .await?
        .ok_or_else(|| Error::no_app(name))?;
    let versions = versions_of(&mut tx, &app).await?;
    let bindings = binding_list(&mut tx, name).await?;
    let plans: Vec<_> = plan_list(&mut tx)
        .await?
        .into_iter()
        .filter(|plan| plan.app == *name)
        .collect();
    tx.commit().await.map_err(StoreError::from)?;

    let world = state.world(fdn_service::now());
    let profiles = world.profiles(name, &app.workflow, |stage| expected(stage, &versions));
    let bound = longest(&bindings, client);
    let previous = bound
        .and_then(|binding| Before::new(&plans, &bindings).stages(&app.workflow, binding.prefix));
    let view = world.view(client).estimates;
    let explanation = |chosen, reason, candidates| Explanation {
        app: name.clone(),
        client,
        chosen,
        reason,
        bound: bound.map(binding_info),
        candidates,
    };
    match world.steer(&app.workflow, &profiles, &view, previous.as_deref()) {
        Ok(steering) => Ok(explanation(
            Some(steering.entry),
            steering.reason,
            steering.candidates,
        )),
        Err(fdn_scheduling::Error::Infeasible(why)) => {
            let rows = world.excluded_rows(&view, &why);
            Ok(explanation(None, why.to_string(), rows))
        }
        Err(error) => Err(error.into()),
    }
}

/// The binding that holds for a client: the one with the longest prefix.
fn longest(bindings: &[BindingRow], client: ClientPrefix) -> Option<&BindingRow> {
    let covers = |binding: &&BindingRow| {
        binding.prefix.len() <= client.len() && binding.prefix.contains(client.addr())
    };
    bindings
        .iter()
        .filter(covers)
        .max_by_key(|binding| binding.prefix.len())
}

/// The client that a request means: the address given, or the caller's own.
///
/// # Errors
/// When the text is no address or prefix.
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

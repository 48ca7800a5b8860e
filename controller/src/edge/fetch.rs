//! Which artifacts a node may fetch: those of what its cluster is told to serve, in all forms and in every version with a share of calls.
//!
//! The change log knows that at once. Whoever it does not let on is looked for in the database, which knows more: what this controller has not heard of yet and
//! another one told the node, and the older versions of apps, which a controller forgets when it stops. What is left is none of the node's business.

use fdn_core::enrol::Machine;
use fdn_core::{AppName, ClusterId, Digest};
use sqlx::AnyConnection;

use super::change_log::Fetch;
use super::judge::{self, Refusal};
use super::requests::refused;
use crate::Error;
use crate::reconcile::desired::versions_served;
use crate::state::{State, lock};
use crate::store::StoreError;
use crate::store::app::{app_get, app_list_with_digest};
use crate::store::policy::gateway_get;

/// Apps with one artifact that are looked at. A component that more apps have is fetched again when the change log has heard of the app that it is wanted for.
const APPS: u32 = 32;

/// Lets a node on to an artifact.
///
/// # Errors
/// When no app that its cluster holds has it, with a note if it never had anything to do with it; or when the store fails.
pub(super) async fn may(
    state: &State,
    machine: &Machine,
    what: &'static str,
    digest: &Digest,
) -> Result<(), Error> {
    judge::node(machine, what).map_err(|why| refused(state, machine, why))?;
    let known = lock(&state.edge.change_log).may_fetch(digest, &machine.cluster);
    let may = match known {
        Fetch::Yes => Fetch::Yes,
        no => stored(state, &machine.cluster, digest, no).await?,
    };
    match may {
        Fetch::Yes => Ok(()),
        // It may have begun while it was to serve this.
        Fetch::Gone => Err(Error::NotFound {
            what: format!("artifact {digest}"),
            hint: "no app that the cluster holds has it any more",
        }),
        Fetch::Foreign => Err(refused(
            state,
            machine,
            Refusal {
                what,
                right: "fetch artifacts that its cluster does not serve",
            },
        )),
    }
}

/// The database's word on what the change log does not let a cluster have.
async fn stored(
    state: &State,
    cluster: &ClusterId,
    digest: &Digest,
    known: Fetch,
) -> Result<Fetch, Error> {
    let mut tx = state.store.snapshot().await?;
    let had = app_list_with_digest(&mut tx, digest, cluster, APPS).await?;
    let mut may = if had.is_empty() { known } else { Fetch::Gone };
    for (app, revision) in had {
        // Of what it has heard the change log has judged.
        let unheard = lock(&state.edge.change_log).revision_of(&app) < revision;
        if unheard && serves(&mut tx, &app, cluster, digest).await? {
            may = Fetch::Yes;
            break;
        }
    }
    tx.commit().await.map_err(StoreError::from)?;
    Ok(may)
}

/// Whether a cluster is to serve this artifact for an app.
async fn serves(
    connection: &mut AnyConnection,
    app: &AppName,
    cluster: &ClusterId,
    digest: &Digest,
) -> Result<bool, StoreError> {
    let found = app_get(connection, app).await?;
    let Some(app) = found.filter(|app| app.holders.has(cluster)) else {
        return Ok(false);
    };
    let traffic = gateway_get(connection, &app.name).await?.traffic;
    let versions = versions_served(connection, &app, &traffic).await?;
    let mut artifacts = versions.iter().flat_map(|version| version.artifacts());
    Ok(artifacts.any(|(artifact, _)| artifact == *digest))
}

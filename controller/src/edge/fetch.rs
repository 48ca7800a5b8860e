//! Which artifacts a node may fetch: those of the apps that its cluster holds, in all forms, of every version with a share of calls.
//!
//! The change log decides most requests at once. Those that it does not permit are looked up in the database, which knows more: changes that another
//! controller told the node and this one has not received yet, and former versions of apps, which a controller forgets when it stops. The rest is
//! refused.

use fdn_core::enrol::Machine;
use fdn_core::{AppName, ClusterId, Digest};
use sqlx::AnyConnection;

use super::authorize::{self, Refusal};
use super::change_log::FetchPermission;
use super::requests::refused;
use crate::Error;
use crate::reconcile::desired::versions_served;
use crate::state::{State, lock};
use crate::store::StoreError;
use crate::store::app::{app_get, app_list_with_digest};
use crate::store::policy::gateway_get;

/// The most apps with one artifact that are looked at. If more apps have it, the node's next try succeeds once the change log has received the app.
const APPS: u32 = 32;

/// Permits a node to fetch an artifact.
///
/// # Errors
/// When no app that its cluster holds has it (logged, if its cluster was never told of any such app), or when the store fails.
pub(super) async fn may(
    state: &State,
    machine: &Machine,
    what: &'static str,
    digest: &Digest,
) -> Result<(), Error> {
    authorize::node(machine, what).map_err(|why| refused(state, machine, why))?;
    let known = lock(&state.edge.change_log).may_fetch(digest, &machine.cluster);
    let may = match known {
        FetchPermission::Yes => FetchPermission::Yes,
        no => stored(state, &machine.cluster, digest, no).await?,
    };
    match may {
        FetchPermission::Yes => Ok(()),
        // The node may have begun the fetch while its cluster held the app.
        FetchPermission::Gone => Err(Error::NotFound {
            what: format!("artifact {digest}"),
            hint: "no app that the cluster holds has it any more",
        }),
        FetchPermission::Foreign => Err(refused(
            state,
            machine,
            Refusal {
                what,
                right: "fetch artifacts that its cluster does not serve",
            },
        )),
    }
}

/// The database's answer where the change log does not permit a fetch.
async fn stored(
    state: &State,
    cluster: &ClusterId,
    digest: &Digest,
    known: FetchPermission,
) -> Result<FetchPermission, Error> {
    let mut tx = state.store.snapshot().await?;
    let had = app_list_with_digest(&mut tx, digest, cluster, APPS).await?;
    let mut may = if had.is_empty() {
        known
    } else {
        FetchPermission::Gone
    };
    for (app, revision) in had {
        // The change log has judged those that it has received.
        let unheard = lock(&state.edge.change_log).revision_of(&app) < revision;
        if unheard && serves(&mut tx, &app, cluster, digest).await? {
            may = FetchPermission::Yes;
            break;
        }
    }
    tx.commit().await.map_err(StoreError::from)?;
    Ok(may)
}

/// Whether a cluster holds the app, with this artifact in a version that is served.
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

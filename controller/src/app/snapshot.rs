//! Snapshots of desired state, for machines that may have missed something. What is read in one transaction is complete up to its revision.

use fdn_core::AppName;
use fdn_core::api::{AppsSnapshot, DnsSnapshot};
use sqlx::AnyConnection;

use super::authority::fleet_desired;
use super::secrets;
use crate::Error;
use crate::reconcile::desired::{app_desired, bindings_desired, placement_of, versions_served};
use crate::reconcile::network;
use crate::state::State;
use crate::store::app::app_list;
use crate::store::binding::{BindingRow, binding_list_all};
use crate::store::network::network_get;
use crate::store::policy::{gateway_list, quota_used};
use crate::store::revision::revision_current;
use crate::store::txt::{TxtRow, txt_list_all};

/// Everything that nodes are told, in the transaction of `tx`.
///
/// # Errors
/// When the store fails.
pub async fn apps(state: &State, tx: &mut AnyConnection) -> Result<AppsSnapshot, Error> {
    let revision = revision_current(tx).await?;
    let mut apps = Vec::new();
    let mut gateways = gateway_list(tx).await?;
    for app in app_list(tx).await? {
        let gateway = gateways.remove(&app.name).unwrap_or_default();
        let versions = versions_served(tx, &app, &gateway.traffic).await?;
        let placement = placement_of(tx, &app).await?;
        let mut desired = app_desired(&app, &versions, placement, gateway);
        secrets::fill(state, tx, &mut desired).await?;
        apps.push(desired);
    }
    let fleet = fleet_desired(tx, revision, fdn_service::now()).await?;
    let used = quota_used(tx, fdn_service::now()).await?;
    Ok(AppsSnapshot {
        revision,
        apps,
        fleet: Some(fleet),
        used,
    })
}

/// Everything that DNS servers are told, in the transaction of `tx`.
///
/// # Errors
/// When the store fails.
pub async fn dns(state: &State, tx: &mut AnyConnection) -> Result<DnsSnapshot, Error> {
    let revision = revision_current(tx).await?;
    let network = network_get(tx)
        .await?
        .unwrap_or_else(|| network::unknown(state.geo.locations()));
    let apps = app_list(tx).await?;
    let bindings = binding_list_all(tx).await?;
    let txt = txt_list_all(tx, fdn_service::now()).await?;
    let ttl = state.ttl_s();
    let apps = apps
        .iter()
        .map(|app| bindings_desired(app, of(&bindings, &app.name), ttl))
        .collect();
    Ok(DnsSnapshot {
        revision,
        network,
        apps,
        txt: Some(txt.iter().map(TxtRow::desired).collect()),
    })
}

/// The bindings of one app among those of all, which stand together by app.
fn of<'a>(bindings: &'a [BindingRow], app: &AppName) -> &'a [BindingRow] {
    let start = bindings
        .iter()
        .position(|binding| binding.app == *app)
        .unwrap_or(bindings.len());
    let len = bindings[start..]
        .iter()
        .take_while(|binding| binding.app == *app)
        .count();
    &bindings[start..start + len]
}

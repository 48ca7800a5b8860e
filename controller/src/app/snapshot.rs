//! Snapshots of desired state, for machines that may have missed changes. What is read in one transaction is complete up to its revision.

use fdn_core::api::{AppsSnapshot, DnsSnapshot};
use fdn_core::{AppName, Revision};
use sqlx::AnyConnection;

use super::authority::fleet_desired;
use super::secrets;
use crate::Error;
use crate::reconcile::desired::{app_desired, bindings_desired, node_plan_of, versions_served};
use crate::reconcile::network;
use crate::state::State;
use crate::store::app::app_list_after;
use crate::store::binding::{BindingRow, binding_list, binding_list_all};
use crate::store::network::network_get;
use crate::store::policy::{gateway_get, gateway_list, quota_used};
use crate::store::revision::revision_current;
use crate::store::txt::{TxtRow, txt_list_all};

/// The complete desired state for nodes, read in transaction `tx`; of apps only those that are newer than `after`.
///
/// # Errors
/// When the store fails.
pub async fn apps(
    state: &State,
    tx: &mut AnyConnection,
    after: Revision,
) -> Result<AppsSnapshot, Error> {
    let revision = revision_current(tx).await?;
    let mut apps = Vec::new();
    let mut gateways = match after {
        Revision::NONE => Some(gateway_list(tx).await?),
        _ => None,
    };
    for app in app_list_after(tx, after).await? {
        if app.revision <= after {
            continue;
        }
        let gateway = match &mut gateways {
            Some(all) => all.remove(&app.name).unwrap_or_default(),
            None => gateway_get(tx, &app.name).await?,
        };
        let versions = versions_served(tx, &app, &gateway.traffic).await?;
        let planned = node_plan_of(tx, &app).await?;
        let mut desired = app_desired(&app, &versions, planned, gateway);
        secrets::fill(state, tx, &mut desired).await?;
        apps.push(desired);
    }
    let fleet = fleet_desired(state, tx, revision, fdn_service::now()).await?;
    let used = quota_used(tx, fdn_service::now()).await?;
    Ok(AppsSnapshot {
        revision,
        apps,
        fleet: Some(fleet),
        used,
    })
}

/// The complete desired state for DNS servers, read in transaction `tx`; of apps only those whose bindings are newer than `after`.
///
/// # Errors
/// When the store fails.
pub async fn dns(
    state: &State,
    tx: &mut AnyConnection,
    after: Revision,
) -> Result<DnsSnapshot, Error> {
    let revision = revision_current(tx).await?;
    let network = network_get(tx)
        .await?
        .unwrap_or_else(|| network::unknown(state.geo.locations()));
    let mut newer = app_list_after(tx, after).await?;
    newer.retain(|app| app.bindings_revision > after);
    let txt = txt_list_all(tx, fdn_service::now()).await?;
    let ttl = state.ttl_s();
    let mut apps = Vec::new();
    if after == Revision::NONE {
        let bindings = binding_list_all(tx).await?;
        let all = newer.iter();
        apps.extend(all.map(|app| bindings_desired(app, of(&bindings, &app.name), ttl)));
    } else {
        for app in &newer {
            let bindings = binding_list(tx, &app.name).await?;
            apps.push(bindings_desired(app, &bindings, ttl));
        }
    }
    Ok(DnsSnapshot {
        revision,
        network,
        apps,
        txt: Some(txt.iter().map(TxtRow::desired).collect()),
    })
}

/// The bindings of one app in a list that is grouped by app.
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

//! Devices that a node has taken out of service, and how an operator puts them back.

use fdn_core::fleet::NodeDetail;
use fdn_core::{DeviceId, NodeId, Timestamp};
use tracing::info;

use super::actor::Actor;
use super::authority::push_fleet;
use super::enrol::audit;
use super::fleet::node_detail;
use crate::Error;
use crate::state::State;
use crate::store::device::device_restore_put;
use crate::store::in_transaction;
use crate::store::revision::{revision_lock, revision_next};

/// Asks a node to put a device back into service. Does nothing if the device is in service.
///
/// # Errors
/// When there is no such node, it has reported no such device, or the store fails.
pub async fn restore(
    state: &State,
    actor: &Actor,
    node: &NodeId,
    device: &DeviceId,
    now: Timestamp,
) -> Result<NodeDetail, Error> {
    let detail = node_detail(state, node, now).await?;
    let mut devices = detail.status.iter().flat_map(|status| &status.devices);
    let found = devices.find(|found| found.id == *device);
    let Some(is_in_service) = found.map(|found| found.state.is_in_service()) else {
        return Err(Error::NotFound {
            what: format!("device {device} of node {node}"),
            hint: "`fdn node describe NODE` shows its devices",
        });
    };
    if is_in_service {
        return Ok(detail);
    }
    in_transaction!(state.store, tx => {
        revision_lock(&mut tx).await?;
        let revision = revision_next(&mut tx).await?;
        device_restore_put(&mut tx, node, device, revision, &actor.name, now).await?;
        push_fleet(state, &mut tx, revision, now).await?;
        let state_of = |restored: bool| Some(serde_json::json!({ "device": device, "restored": restored }));
        let states = (state_of(false), state_of(true));
        audit(&mut tx, actor, "node.restore-device", node, states, now).await?;
        Ok::<_, Error>(())
    })?;
    state.outbox_wake.notify_one();
    info!(%node, %device, %actor, "a device is to be put back into service");
    Ok(detail)
}

//! The lease of a cluster's head, the node that runs its global scheduler.

use fdn_core::enrol::{LeaseRequest, LeaseResponse};
use fdn_core::{ClusterId, Timestamp};
use tracing::info;

use super::authority::later;
use crate::Error;
use crate::state::State;
use crate::store::enrolment::enrolment_lock;
use crate::store::in_transaction;
use crate::store::lease::{LeaseClaim, LeaseRow, lease_acquire};

/// Grants or extends the lease, or returns its present holder.
///
/// # Errors
/// When the request is not valid, the node was removed, or the store fails. The caller has checked who may ask for which cluster.
pub async fn acquire(
    state: &State,
    cluster: &ClusterId,
    request: &LeaseRequest,
    now: Timestamp,
) -> Result<LeaseResponse, Error> {
    if request.ttl_ms == 0 || request.epoch == Some(0) {
        return Err(Error::BadRequest(
            "ttl_ms and epoch count from 1; leave epoch out to begin one".to_owned(),
        ));
    }
    let ttl = request
        .ttl_ms
        .min(state.settings.enrolment.lease_max.as_millis());
    let claim = LeaseClaim {
        node: &request.node,
        epoch: request.epoch,
        until: later(now, ttl),
    };
    let row: LeaseRow = in_transaction!(state.store, tx => {
        if enrolment_lock(&mut tx, &request.node).await?.is_some() {
            return Err(Error::Forbidden {
                who: format!("node {}", request.node),
                right: "be in the network: it was removed",
            });
        }
        let granted = lease_acquire(&mut tx, cluster, &claim, now).await;
        granted.map_err(Error::from)
    })?;
    if row.holder == request.node && request.epoch != Some(row.epoch) {
        info!(%cluster, node = %row.holder, epoch = row.epoch, "a head began");
    }
    Ok(LeaseResponse {
        expires_ms: row.expires_at.get().saturating_sub(now.get()),
        holder: row.holder,
        epoch: row.epoch,
    })
}

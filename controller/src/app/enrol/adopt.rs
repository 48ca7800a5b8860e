//! Certificates that the network's authority signed and the store does not know: after a restore, those that were made since the backup.
//!
//! A machine shows one in a handshake, so it holds the key and the authority vouched for it. If the store has a machine of this name, role and cluster that was
//! not removed, the certificate is taken in: it opens nothing that an earlier one of that machine does not open, and only what is in the store can be renewed,
//! and is cut when the machine is removed. Who is not in the store could be neither seen nor removed there, so it has to join again.

use fdn_core::Timestamp;
use fdn_core::enrol::Machine;
use tracing::info;

use super::{action, audit};
use crate::Error;
use crate::app::actor::Actor;
use crate::state::State;
use crate::store::enrolment::{
    CertificateRow, certificate_get, certificate_insert, enrolment_get, enrolment_hold,
};
use crate::store::in_transaction;

/// Takes in a certificate that a machine showed, unless it is known; whether the machine is one of the network.
///
/// # Errors
/// When the store fails.
pub async fn adopt(
    state: &State,
    machine: &Machine,
    shown: &CertificateRow,
    now: Timestamp,
) -> Result<bool, Error> {
    let known = certificate_get(&mut *state.store.read().await?, &shown.serial).await?;
    if known.is_some() {
        return Ok(true);
    }
    let (ours, new): (bool, bool) = in_transaction!(state.store, tx => {
        let removed = enrolment_hold(&mut tx, &machine.name).await?.is_some();
        let enrolment = enrolment_get(&mut tx, &machine.name).await?;
        if removed || enrolment.is_none_or(|row| row.machine() != *machine) {
            return Ok((false, false));
        }
        let new = certificate_insert(&mut tx, shown).await?;
        if new {
            let after = serde_json::json!({ "serial": shown.serial });
            let action = action(machine.role, "node.adopt", "dns.adopt");
            audit(&mut tx, &Actor::network(), action, &machine.name, (None, Some(after)), now).await?;
        }
        Ok::<_, Error>((true, new))
    })?;
    if new {
        info!(%machine, serial = shown.serial, "a certificate of a known machine was taken in that the store did not have: it was made after the backup that was restored");
    }
    Ok(ours)
}

//! Adoption of certificates that the network's authority signed but the store does not have: after a restore, those issued since the backup.
//!
//! A machine presents its certificate in a TLS handshake, so it holds the key, and the authority has signed the certificate. If the store has a
//! machine of this name, role and cluster that was not removed, the certificate is stored: it allows nothing that an earlier one of that machine
//! does not, and only a stored certificate can be renewed, and revoked when the machine is removed. A machine that is not in the store could not
//! be seen or removed there, so it has to join again.

use fdn_core::Timestamp;
use fdn_core::enrol::Machine;
use tracing::info;

use super::{action, audit};
use crate::Error;
use crate::app::actor::Actor;
use crate::state::State;
use crate::store::enrolment::{
    CertificateRow, certificate_get, certificate_insert, enrolment_get, enrolment_lock,
};
use crate::store::in_transaction;

/// Stores a certificate that a machine presented, unless it is known. Returns whether the machine belongs to the network.
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
        let removed = enrolment_lock(&mut tx, &machine.name).await?.is_some();
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

//! Whether the store knows the machine behind a good certificate. All are known but after a restore.

use std::time::Duration;

use fdn_core::enrol::Machine;
use fdn_service::now;
use fdn_service::pki::{Facts, PublicKey};
use tokio::time::timeout;
use tracing::debug;

use super::judge::Refusal;
use crate::app::enrol::adopt;
use crate::error::chain;
use crate::state::State;
use crate::store::enrolment::CertificateRow;

/// How long a machine waits for the store. One that is away keeps nobody out: who was removed is known without it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why a machine is answered nothing that the store does not know.
pub(super) const STRANGER: Refusal = Refusal {
    what: "unknown",
    right: "be in the network, which knows no such machine, as when a backup of before it joined was restored; join it again",
};

/// Whether a machine is one of the network, as far as it can be known now. A certificate that is new to the store is taken in there.
pub(super) async fn is_known(state: &State, facts: &Facts<Machine>, key: &PublicKey) -> bool {
    let shown = CertificateRow {
        serial: facts.serial.clone(),
        node: facts.identity.name.clone(),
        public_key: key.to_text(),
        issued_at: facts.issued_at,
        expires_at: facts.expires_at,
        revoked_at: None,
    };
    let machine = &facts.identity;
    match timeout(PATIENCE, adopt(state, machine, &shown, now())).await {
        Ok(Ok(known)) => known,
        Ok(Err(error)) => {
            debug!(%machine, error = chain(&error), "the store was not asked about a machine");
            true
        }
        Err(_) => {
            debug!(%machine, "the store does not answer about a machine in time");
            true
        }
    }
}

//! Checks whether the store knows a machine with a valid certificate. It knows all of them, except after a restore of a backup.
//!
//! A store that does not answer keeps no machine out: removed machines are known without it. A machine admitted like that is checked again as long
//! as its connection lasts, and the connection is closed if the store turns out not to know it.

use std::time::Duration;

use fdn_core::enrol::Machine;
use fdn_service::now;
use fdn_service::pki::{Facts, PublicKey};
use rand::RngExt as _;
use tokio::time::{sleep, timeout};
use tracing::{debug, info};

use super::authorize::Refusal;
use super::machines::GaugeGuard;
use super::server::Peer;
use crate::app::enrol::adopt;
use crate::error::chain;
use crate::state::State;
use crate::store::enrolment::CertificateRow;

/// The timeout of the store's answer for a machine that connects.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest timeout of a later try, and the longest pause before it: once the store is back, a machine is judged within that, plus its wait for
/// a turn.
const PATIENCE_MAX: Duration = Duration::from_secs(10);
/// The number of machines checked again at the same time. Thousands may wait for a store that comes back, and it has other things to do.
pub(super) const RECHECKS_MAX: usize = 4;

/// The refusal for a machine that the store does not know.
pub(super) const UNKNOWN_MACHINE: Refusal = Refusal {
    what: "unknown",
    right: "be in the network, which knows no such machine, as when a backup of before it joined was restored; join it again",
};

/// The certificate that a machine presented, as a row of the store.
pub(super) fn presented(facts: &Facts<Machine>, key: &PublicKey) -> CertificateRow {
    CertificateRow {
        serial: facts.serial.clone(),
        node: facts.identity.name.clone(),
        public_key: key.to_text(),
        issued_at: facts.issued_at,
        expires_at: facts.expires_at,
        revoked_at: None,
    }
}

/// Whether a connecting machine is in the network; `None` if the store does not answer in time. A certificate unknown to the store is added to it.
pub(super) async fn is_known(
    state: &State,
    machine: &Machine,
    certificate: &CertificateRow,
) -> Option<bool> {
    check_store(state, machine, certificate, PATIENCE).await
}

async fn check_store(
    state: &State,
    machine: &Machine,
    certificate: &CertificateRow,
    patience: Duration,
) -> Option<bool> {
    match timeout(patience, adopt(state, machine, certificate, now())).await {
        Ok(Ok(known)) => Some(known),
        Ok(Err(error)) => {
            debug!(%machine, error = chain(&error), "the store was not asked about a machine");
            None
        }
        Err(_) => {
            debug!(%machine, "the store does not answer about a machine in time");
            None
        }
    }
}

/// Completes once the store turns out not to know a machine that was admitted without its answer; never completes for a known one.
pub(super) async fn turns_out_unknown(state: &State, peer: &Peer) {
    if peer.known.is_none() && !recheck(state, peer).await {
        return;
    }
    std::future::pending().await
}

/// Asks until the store answers; returns whether it knows the machine.
async fn recheck(state: &State, peer: &Peer) -> bool {
    let _counted = GaugeGuard::unverified(&state.metrics, peer.machine.role);
    let mut patience = PATIENCE;
    loop {
        // Jittered, since all machines came back from the same failure.
        let pause = patience.mul_f64(rand::rng().random_range(0.5..1.0));
        sleep(pause).await;
        // The semaphore is never closed.
        let permit = state.edge.rechecks.acquire().await;
        if let Some(known) = check_store(state, &peer.machine, &peer.certificate, patience).await {
            info!(machine = %peer.machine, known, "a machine was judged that was let in while the store did not answer");
            return known;
        }
        drop(permit);
        patience = (patience * 2).min(PATIENCE_MAX);
    }
}

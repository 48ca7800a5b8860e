//! Whether the store knows the machine behind a good certificate. All are known but after a restore.
//!
//! A store that does not answer keeps nobody out: who was removed is known without it. A machine that is let in like that is asked about again for as long as
//! its connection lasts, and the connection ends when the store turns out not to know it.

use std::time::Duration;

use fdn_core::enrol::Machine;
use fdn_service::now;
use fdn_service::pki::{Facts, PublicKey};
use rand::RngExt as _;
use tokio::time::{sleep, timeout};
use tracing::{debug, info};

use super::judge::Refusal;
use super::machines::Counted;
use super::server::Peer;
use crate::app::enrol::adopt;
use crate::error::chain;
use crate::state::State;
use crate::store::enrolment::CertificateRow;

/// How long a machine that connects waits for the store.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a later try takes, and the pause before it, at most: the store is back for that long at most before a machine is judged, but for those before it.
const PATIENCE_MAX: Duration = Duration::from_secs(10);
/// Machines that are asked about again at the same time. Thousands may wait for a store that comes back, and it has other things to do.
pub(super) const AGAIN: usize = 4;

/// Why a machine is answered nothing that the store does not know.
pub(super) const STRANGER: Refusal = Refusal {
    what: "unknown",
    right: "be in the network, which knows no such machine, as when a backup of before it joined was restored; join it again",
};

/// The certificate that a machine showed, as the store would have it.
pub(super) fn shown(facts: &Facts<Machine>, key: &PublicKey) -> CertificateRow {
    CertificateRow {
        serial: facts.serial.clone(),
        node: facts.identity.name.clone(),
        public_key: key.to_text(),
        issued_at: facts.issued_at,
        expires_at: facts.expires_at,
        revoked_at: None,
    }
}

/// Whether a machine that connects is one of the network; nothing when the store does not answer in time. A certificate that is new to it is taken in there.
pub(super) async fn is_known(
    state: &State,
    machine: &Machine,
    shown: &CertificateRow,
) -> Option<bool> {
    ask(state, machine, shown, PATIENCE).await
}

async fn ask(
    state: &State,
    machine: &Machine,
    shown: &CertificateRow,
    patience: Duration,
) -> Option<bool> {
    match timeout(patience, adopt(state, machine, shown, now())).await {
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

/// Ends once it is known that the store does not know a machine that was let in without its word. Whoever is known may go on: it ends never then.
pub(super) async fn turns_out_unknown(state: &State, peer: &Peer) {
    if peer.known.is_none() && !judged(state, peer).await {
        return;
    }
    std::future::pending().await
}

/// Asks until the store answers; whether it knows the machine.
async fn judged(state: &State, peer: &Peer) -> bool {
    let _counted = Counted::unjudged(&state.metrics, peer.machine.role);
    let mut patience = PATIENCE;
    loop {
        // In no wave: they all came back from the same failure.
        let pause = patience.mul_f64(rand::rng().random_range(0.5..1.0));
        sleep(pause).await;
        // Never closed.
        let turn = state.edge.again.acquire().await;
        if let Some(known) = ask(state, &peer.machine, &peer.shown, patience).await {
            info!(machine = %peer.machine, known, "a machine was judged that was let in while the store did not answer");
            return known;
        }
        drop(turn);
        patience = (patience * 2).min(PATIENCE_MAX);
    }
}

//! The network's certificate authority: created at the first start, kept in the store with its key sealed, and replaced in time by its successor.
//!
//! A new authority is first announced to all nodes and signs only after `enrolment.authority_settle`, so that no node meets a certificate that it
//! cannot verify. The old one stays in the bundle until it expires, and the last certificates it signed expire with it.

use fdn_core::Timestamp;
use fdn_core::enrol::{ControllerIdentity, IssuedCertificate, Machine, NodeAddresses};
use fdn_core::fleet::FleetDesired;
use fdn_core::message::Message;
use fdn_core::{NodeId, Revision};
use fdn_service::pki::{Authority, Bearer, NodeKey, PublicKey, Subject};
use fdn_service::secret::Secret;
use sqlx::AnyConnection;
use tracing::info;

use crate::Error;
use crate::settings::EnrolmentSettings;
use crate::state::State;
use crate::store::authority::{AuthorityRow, authority_insert, authority_list, authority_trim};
use crate::store::device::device_restore_list;
use crate::store::enrolment::{
    CertificateRow, certificate_insert, certificate_list_revoked, cordon_list, enrolment_trim,
};
use crate::store::join_token::join_token_trim;
use crate::store::outbox::outbox_push;
use crate::store::revision::{revision_lock, revision_next};
use crate::store::{StoreError, in_transaction};

/// How long expired join tokens are still shown: 7 days.
const TOKENS_SHOWN_MS: u64 = 7 * 24 * 3_600_000;

/// The authority that signs at `now`: the newest one that all nodes have had time to learn of, else the oldest one that has not expired.
fn signer<'a>(
    rows: &'a [AuthorityRow],
    settings: &EnrolmentSettings,
    now: Timestamp,
) -> Option<&'a AuthorityRow> {
    let settle = settings.authority_settle.as_duration();
    let mut counting = rows.iter().filter(|row| now < row.expires_at);
    let settled = counting
        .clone()
        .rfind(|row| now.since(row.created_at) >= settle);
    settled.or_else(|| counting.next())
}

/// Whether the next authority must be created: no present one is valid for two more lifetimes of a certificate and the settle time.
fn is_due(rows: &[AuthorityRow], settings: &EnrolmentSettings, now: Timestamp) -> bool {
    let needed =
        settings.certificate_lifetime.as_millis() * 2 + settings.authority_settle.as_millis();
    let left = |row: &AuthorityRow| row.expires_at.get().saturating_sub(now.get());
    rows.iter().map(left).max().unwrap_or(0) < needed
}

fn context(id: &str) -> String {
    format!("authority/{id}")
}

/// Creates an authority if one is due.
///
/// # Errors
/// When the store fails or the operating system gives no randomness.
pub async fn ensure(state: &State, now: Timestamp) -> Result<(), Error> {
    let settings = &state.settings.enrolment;
    let rows = authority_list(&mut *state.store.read().await?).await?;
    if !is_due(&rows, settings, now) {
        return Ok(());
    }
    let expires_at = later(now, settings.authority_lifetime.as_millis());
    let authority = Authority::create(now, expires_at)?;
    let id = uuid::Uuid::now_v7().simple().to_string();
    let row = AuthorityRow {
        certificate: authority.certificate().to_owned(),
        sealed_key: state.key.seal(&context(&id), authority.key().expose())?,
        id,
        created_at: now,
        expires_at,
    };
    let made: bool = in_transaction!(state.store, tx => {
        // Another controller may have been faster: look again under the lock.
        revision_lock(&mut tx).await?;
        let present = authority_list(&mut tx).await?;
        if !is_due(&present, settings, now) {
            return Ok(false);
        }
        authority_insert(&mut tx, &row).await?;
        // Nodes learn of the first authority when they join.
        if !present.is_empty() {
            let revision = revision_next(&mut tx).await?;
            push_fleet(state, &mut tx, revision, now).await?;
        }
        Ok::<_, Error>(true)
    })?;
    if made {
        state.outbox_wake.notify_one();
        info!(%expires_at, "a certificate authority was made");
    }
    Ok(())
}

/// Creates the next authority in time and deletes expired authorities, certificates and join tokens.
///
/// # Errors
/// When the store fails.
pub async fn keep(state: &State, now: Timestamp) -> Result<(), Error> {
    ensure(state, now).await?;
    let grace = state.settings.enrolment.renew_grace.as_millis();
    let certificates = Timestamp(now.get().saturating_sub(grace));
    let tokens = Timestamp(now.get().saturating_sub(TOKENS_SHOWN_MS));
    in_transaction!(state.store, tx => {
        authority_trim(&mut tx, now).await?;
        enrolment_trim(&mut tx, certificates).await?;
        join_token_trim(&mut tx, tokens).await
    })
    .map_err(Error::from)
}

/// The desired state of the fleet as nodes get it: stage call statuses, cordoned nodes, revoked certificates, authorities and restored devices.
///
/// # Errors
/// When the store fails.
pub async fn fleet_desired(
    state: &State,
    connection: &mut AnyConnection,
    revision: Revision,
    now: Timestamp,
) -> Result<FleetDesired, StoreError> {
    let stage_calls = state.read_statuses(connection).await?;
    Ok(FleetDesired {
        revision,
        stage_calls,
        cordoned: cordon_list(connection).await?,
        revoked: certificate_list_revoked(connection, now).await?,
        authorities: bundle(&authority_list(connection).await?, now),
        restored: device_restore_list(connection).await?,
    })
}

/// Puts the desired state of the fleet into the outbox.
///
/// # Errors
/// When the store fails.
pub async fn push_fleet(
    state: &State,
    connection: &mut AnyConnection,
    revision: Revision,
    now: Timestamp,
) -> Result<(), StoreError> {
    let fleet = fleet_desired(state, connection, revision, now).await?;
    outbox_push(connection, revision, Message::FleetDesired(fleet), now).await
}

/// The authority's signature of a text; nodes verify it with the authorities they know.
///
/// # Errors
/// When there is no authority or the store fails.
pub async fn sign(state: &State, text: &str, now: Timestamp) -> Result<String, Error> {
    let rows = authority_list(&mut *state.store.read().await?).await?;
    Ok(Signing::now(state, &rows, now)?.authority.sign(text)?)
}

/// Whether a valid authority has signed a text.
///
/// # Errors
/// When the store fails.
pub async fn verifies(
    state: &State,
    text: &str,
    signature: &str,
    now: Timestamp,
) -> Result<bool, Error> {
    let rows = authority_list(&mut *state.store.read().await?).await?;
    let keys = bundle(&rows, now);
    let mut keys = keys
        .iter()
        .filter_map(|pem| PublicKey::of_authority(pem, now).ok());
    Ok(keys.any(|key| key.verifies(text, signature)))
}

fn bundle(rows: &[AuthorityRow], now: Timestamp) -> Vec<String> {
    rows.iter()
        .filter(|row| now < row.expires_at)
        .map(|row| row.certificate.clone())
        .collect()
}

/// The authority that signs now, and the validity period of what it signs.
struct Signing {
    authority: Authority,
    issued_at: Timestamp,
    expires_at: Timestamp,
}

impl Signing {
    fn now(state: &State, rows: &[AuthorityRow], now: Timestamp) -> Result<Self, Error> {
        let settings = &state.settings.enrolment;
        let row = signer(rows, settings, now)
            .ok_or_else(|| Error::Internal("there is no certificate authority".to_owned()))?;
        let sealed = state.key.open(&context(&row.id), &row.sealed_key)?;
        // Certificates have whole seconds.
        let whole = |at: Timestamp| Timestamp(at.get() / 1000 * 1000);
        let end = later(now, settings.certificate_lifetime.as_millis());
        Ok(Self {
            authority: Authority::load(&row.certificate, &Secret::new(sealed))?,
            issued_at: whole(now),
            expires_at: whole(end.min(row.expires_at)),
        })
    }
}

/// A certificate of this controller, with the authorities that the network trusts. Its key is generated here and is kept in memory only.
pub(crate) struct OwnCertificate {
    /// The certificate (PEM).
    pub(crate) certificate: String,
    /// The certificate's key (PEM).
    pub(crate) key: Secret,
    /// The authorities' certificates (PEM) that machines are verified against.
    pub(crate) authorities: Vec<String>,
}

/// Issues a certificate by which machines at the edge recognize this controller.
///
/// # Errors
/// When there is no authority, or the store fails.
pub(crate) async fn own_certificate(
    state: &State,
    name: &NodeId,
    now: Timestamp,
) -> Result<OwnCertificate, Error> {
    let rows = authority_list(&mut *state.store.read().await?).await?;
    let signing = Signing::now(state, &rows, now)?;
    let key = NodeKey::fresh()?;
    let subject = Subject {
        bearer: Bearer::Controller(ControllerIdentity { name: name.clone() }),
        addresses: Vec::new(),
        names: Vec::new(),
    };
    let issued = signing.authority.issue(
        &subject,
        &key.public(),
        signing.issued_at,
        signing.expires_at,
    )?;
    Ok(OwnCertificate {
        certificate: issued.certificate,
        key: key.to_pem(),
        authorities: bundle(&rows, now),
    })
}

/// Issues a certificate for a machine's key and stores it.
///
/// # Errors
/// When there is no authority or the store fails.
pub async fn issue(
    state: &State,
    connection: &mut AnyConnection,
    machine: Machine,
    addresses: &NodeAddresses,
    key: &PublicKey,
    now: Timestamp,
) -> Result<IssuedCertificate, Error> {
    let rows = authority_list(connection).await?;
    let signing = Signing::now(state, &rows, now)?;
    let node: NodeId = machine.name.clone();
    let all = [
        Some(addresses.gateway),
        Some(addresses.admin),
        addresses.peer,
    ];
    let subject = Subject {
        bearer: Bearer::Machine(machine),
        addresses: all.iter().flatten().map(std::net::SocketAddr::ip).collect(),
        names: addresses.names.clone(),
    };
    let Signing {
        authority,
        issued_at,
        expires_at,
    } = signing;
    let issued = authority.issue(&subject, key, issued_at, expires_at)?;
    let kept = CertificateRow {
        serial: issued.serial.clone(),
        node,
        public_key: key.to_text(),
        // With milliseconds, unlike in the certificate itself: the newest row is found by this time.
        issued_at: now,
        expires_at,
        revoked_at: None,
    };
    if !certificate_insert(connection, &kept).await? {
        let serial = kept.serial;
        return Err(Error::Internal(format!(
            "a certificate of the serial number {serial} is there already"
        )));
    }
    Ok(IssuedCertificate {
        certificate: issued.certificate,
        serial: issued.serial,
        issued_at,
        expires_at,
        authorities: bundle(&rows, now),
    })
}

pub(crate) fn later(now: Timestamp, millis: u64) -> Timestamp {
    Timestamp(now.get().saturating_add(millis))
}

#[cfg(test)]
mod tests {
    use fdn_core::DurationMs;
    use fdn_core::message::Sealed;

    use super::*;

    fn row(id: &str, created_at: u64, expires_at: u64) -> AuthorityRow {
        AuthorityRow {
            id: id.to_owned(),
            certificate: id.to_owned(),
            sealed_key: Sealed(String::new()),
            created_at: Timestamp(created_at),
            expires_at: Timestamp(expires_at),
        }
    }

    fn settings() -> EnrolmentSettings {
        EnrolmentSettings {
            certificate_lifetime: DurationMs::from_millis(100),
            authority_settle: DurationMs::from_millis(10),
            ..EnrolmentSettings::default()
        }
    }

    #[test]
    fn a_new_authority_signs_once_everybody_knows_it() {
        let rows = [row("old", 0, 1000), row("new", 800, 2000)];
        let signs = |rows: &[AuthorityRow], now| {
            signer(rows, &settings(), Timestamp(now)).map(|row| row.id.clone())
        };
        assert_eq!(signs(&rows, 809).as_deref(), Some("old"));
        assert_eq!(signs(&rows, 810).as_deref(), Some("new"));
        assert_eq!(
            signs(&rows[..1], 1).as_deref(),
            Some("old"),
            "the first signs at once"
        );
        assert_eq!(signs(&rows[..1], 1000), None);
        assert_eq!(bundle(&rows, Timestamp(999)), ["old", "new"]);
        assert_eq!(bundle(&rows, Timestamp(1000)), ["new"]);
    }

    #[test]
    fn the_next_authority_is_made_while_the_last_can_still_sign() {
        let due = |rows: &[AuthorityRow], now| is_due(rows, &settings(), Timestamp(now));
        let rows = [row("old", 0, 1000)];
        assert!(due(&[], 0) && !due(&rows, 790) && due(&rows, 791));
        assert!(!due(&[row("old", 0, 1000), row("new", 791, 1791)], 900));
    }
}

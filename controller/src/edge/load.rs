//! Builds changes for machines, from the database in one transaction, and from the messages of controllers.

use std::collections::BTreeMap;
use std::sync::Arc;

use fdn_core::feed::{FeedError, Plain};
use fdn_core::message::{AppDesired, Message};
use fdn_core::policy::quota::AppQuotaUsage;
use fdn_core::{Revision, SecretName};

use super::change::{AppEntry, BindingsEntry, Change, FleetEntry};
use super::change_log::StoredState;
use super::view;
use crate::Error;
use crate::app::secrets;
use crate::app::snapshot;
use crate::state::State;
use crate::store::StoreError;
use crate::store::app::{app_informed_list, app_names};
use crate::store::outbox::outbox_waits;
use crate::store::policy::quota_used;
use crate::store::revision::revision_current;

/// Reads the state for machines: of apps and bindings only what is newer than `after`, and the names of all apps.
///
/// # Errors
/// When the store fails, or a master key is missing.
pub(super) async fn newer(state: &Arc<State>, after: Revision) -> Result<StoredState, Error> {
    let mut tx = state.store.snapshot().await?;
    let nodes = snapshot::apps(state, &mut tx, after).await?;
    let dns = snapshot::dns(state, &mut tx, after).await?;
    let informed = app_informed_list(&mut tx, after).await?;
    let there = app_names(&mut tx).await?;
    tx.commit().await.map_err(StoreError::from)?;
    let (all, answers, opener) = (nodes.apps, dns.apps, Arc::clone(state));
    // Opening secrets and encoding frames takes long if there are many.
    let made = tokio::task::spawn_blocking(move || {
        let apps = all.into_iter().map(|desired| entry(&opener, desired));
        let apps = apps.collect::<Result<Vec<AppEntry>, Error>>()?;
        let bindings = answers.into_iter().map(BindingsEntry::from);
        Ok::<_, Error>((apps, bindings.collect::<Vec<BindingsEntry>>()))
    });
    let (apps, bindings) = made
        .await
        .map_err(|e| Error::Internal(format!("what machines are told: {e}")))??;
    Ok(StoredState {
        revision: nodes.revision,
        there,
        apps,
        fleet: nodes.fleet.unwrap_or_default(),
        bindings,
        network: Some(dns.network),
        texts: dns.txt.unwrap_or_default(),
        informed,
    })
}

/// The revision of the database, and whether messages about changes after `complete` wait to be sent.
///
/// # Errors
/// When the store fails.
pub(super) async fn present(state: &State, complete: Revision) -> Result<(Revision, bool), Error> {
    let mut tx = state.store.snapshot().await?;
    let revision = revision_current(&mut tx).await?;
    let waits = outbox_waits(&mut tx, complete).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok((revision, waits))
}

/// The revision of the change in a message; `None` if it is not a change.
#[must_use]
pub(super) const fn revision_of(message: &Message) -> Option<Revision> {
    Some(match message {
        Message::AppDesired(desired) => desired.revision,
        Message::FleetDesired(fleet) => fleet.revision,
        Message::BindingsDesired(one) => one.revision,
        Message::BindingsChanged(one) => one.revision,
        Message::NetworkDesired(network) => network.revision,
        Message::TxtDesired(text) => text.revision,
        Message::NodeStatus(_)
        | Message::DemandReport(_)
        | Message::RttReport(_)
        | Message::RunReport(_)
        | Message::JobTicket(_) => return None,
    })
}

/// The calls counted towards quotas.
///
/// # Errors
/// When the store fails.
pub(super) async fn used(state: &State) -> Result<Vec<AppQuotaUsage>, Error> {
    let mut connection = state.store.read().await?;
    Ok(quota_used(&mut connection, fdn_service::now()).await?)
}

/// The change in a message; `None` if it is not for machines.
///
/// # Errors
/// When a secret in it cannot be opened.
pub(super) fn change(state: &State, message: Message) -> Result<Option<Change>, Error> {
    Ok(Some(match message {
        Message::AppDesired(desired) => Change::App(Arc::new(entry(state, desired)?)),
        Message::FleetDesired(fleet) => Change::Fleet(Arc::new(FleetEntry::new(fleet))),
        Message::BindingsDesired(one) => Change::Bindings(Arc::new(one.into())),
        Message::BindingsChanged(one) => Change::BindingsChanged(Arc::new(one)),
        Message::NetworkDesired(network) => Change::Network(Arc::new(network)),
        Message::TxtDesired(text) => Change::Txt(Arc::new(text)),
        Message::NodeStatus(_)
        | Message::DemandReport(_)
        | Message::RttReport(_)
        | Message::RunReport(_)
        | Message::JobTicket(_) => return Ok(None),
    }))
}

/// An app with its secrets opened: from here on, only TLS protects them.
fn entry(state: &State, mut desired: AppDesired) -> Result<AppEntry, Error> {
    let mut values = Vec::new();
    for function in desired.spec.iter_mut().flat_map(|spec| &mut spec.functions) {
        let mut opened: BTreeMap<SecretName, Plain> = BTreeMap::new();
        for (name, sealed) in std::mem::take(&mut function.secrets) {
            let context = secrets::context(&function.function, &name);
            opened.insert(name, Plain(state.key.open(&context, &sealed)?));
        }
        values.push(opened);
    }
    if values.iter().all(BTreeMap::is_empty) {
        values.clear();
    }
    view::app(desired, values).map_err(encoding_error)
}

/// The error of a frame that cannot be serialized, which is a bug.
pub(super) fn encoding_error(error: FeedError) -> Error {
    Error::Internal(format!("a frame of the feed: {error}"))
}

//! Rotation of the vault's master keys by an operator at the machine: `fdn-controller keys`.
//!
//! A rotation has three steps that may be days apart: a new key is put first in the ring, every data key is rewrapped under it, and the old key
//! is dropped. In between everything can be decrypted. Rewrapping handles one data key per transaction, and only those that are not under the new
//! key yet: if interrupted, it is simply run again.

use fdn_service::master::MasterKeyId;

use crate::Error;
use crate::app::actor::Actor;
use crate::settings::Settings;
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::secret::{data_key_counts, data_key_list_not_under, data_key_rewrap};
use crate::store::{Store, in_transaction};
use crate::vault::{Source, Vault};

/// The number of data keys read at a time.
const BATCH: u32 = 200;

/// A master key and the number of data keys that it wraps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// The key's id.
    pub id: MasterKeyId,
    /// Whether it is in the ring. A key that is not, and wraps something, is lost.
    pub known: bool,
    /// Whether it wraps new data keys.
    pub current: bool,
    /// The number of data keys that it wraps.
    pub data_keys: u64,
}

/// The master keys of an installation.
pub struct Keys {
    source: Source,
    store: Store,
}

impl Keys {
    /// Opens the key ring and the database, and migrates the database.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub async fn open(settings: &Settings) -> Result<Self, Error> {
        let store = Store::connect(&settings.database).await?;
        store.migrate().await?;
        Ok(Self {
            source: Source::of(settings),
            store,
        })
    }

    /// All master keys, those of the ring first, in its order.
    ///
    /// # Errors
    /// When the ring or the database cannot be read.
    pub async fn list(&self) -> Result<Vec<KeyUse>, Error> {
        let ring = self.source.keys()?;
        let mut connection = self.store.read().await?;
        let mut counts = data_key_counts(&mut connection).await?;
        let mut all = Vec::new();
        for id in ring.ids() {
            let at = counts.iter().position(|(master, _)| master == id);
            all.push(KeyUse {
                id: id.clone(),
                known: true,
                current: id == ring.current(),
                data_keys: at.map_or(0, |at| counts.swap_remove(at).1),
            });
        }
        let lost = counts.into_iter().map(|(id, data_keys)| KeyUse {
            id,
            known: false,
            current: false,
            data_keys,
        });
        all.extend(lost);
        Ok(all)
    }

    /// Puts a new key first in the ring.
    ///
    /// # Errors
    /// When the ring or the audit log cannot be written.
    pub async fn add(&self) -> Result<MasterKeyId, Error> {
        let id = self.source.add()?.current().clone();
        self.note("master-key.add", &id, None).await?;
        Ok(id)
    }

    /// Rewraps every data key under the first key of the ring. Returns how many were rewrapped.
    ///
    /// # Errors
    /// When a key of the ring is missing or the database fails; what was done stays done.
    pub async fn rewrap(&self, settings: &Settings) -> Result<u64, Error> {
        let vault = Vault::open(settings)?;
        let target = vault.masters().current().clone();
        let (mut after, mut done) = (String::new(), 0);
        loop {
            let mut connection = self.store.read().await?;
            let rows = data_key_list_not_under(&mut connection, &target, &after, BATCH).await?;
            drop(connection);
            let Some(last) = rows.last() else { break };
            after = last.id.to_string();
            for row in &rows {
                let fresh = vault.rewrap(row)?;
                let now = fdn_service::now();
                let changed: Result<bool, Error> = in_transaction!(self.store, tx => {
                    Ok(data_key_rewrap(&mut tx, row, &fresh, now).await?)
                });
                done += u64::from(changed?);
            }
        }
        if done > 0 {
            self.note("master-key.rewrap", &target, Some(done)).await?;
        }
        Ok(done)
    }

    /// Removes a key that wraps nothing from the ring.
    ///
    /// # Errors
    /// When it wraps something, is not in the ring, or is the only one.
    pub async fn drop_key(&self, id: &MasterKeyId) -> Result<(), Error> {
        let uses = self.list().await?;
        if let Some(used) = uses
            .iter()
            .find(|used| used.id == *id && used.data_keys > 0)
        {
            return Err(Error::Conflict(format!(
                "master key {id} wraps {} data keys; run `fdn-controller keys rewrap` first",
                used.data_keys
            )));
        }
        self.source.drop_key(id)?;
        self.note("master-key.drop", id, None).await
    }

    async fn note(
        &self,
        action: &'static str,
        id: &MasterKeyId,
        data_keys: Option<u64>,
    ) -> Result<(), Error> {
        let entry = AuditEntry {
            at: fdn_service::now(),
            actor: Actor::network(),
            tenant: None,
            action,
            subject: format!("master-key/{id}"),
            before: None,
            after: data_keys.map(|n| serde_json::json!({ "data_keys": n }).to_string()),
        };
        let noted: Result<(), Error> =
            in_transaction!(self.store, tx => Ok(audit_insert(&mut tx, &entry).await?));
        noted
    }
}

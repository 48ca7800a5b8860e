//! The vault: envelope encryption of secrets at rest, and the master keys that unwrap them.
//!
//! Each tenant has a data key; its secrets are sealed under it, each for exactly one function and name. The data key is in the database, wrapped
//! under a master key ([`fdn_service::master`]), which is read from a file or an environment variable. If a master key is unknown, the vault
//! reads its source again before it fails, so that a key that an operator adds reaches running controllers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use fdn_core::message::Sealed;
use fdn_core::{DataKeyId, FunctionName, SecretName, TenantId, Timestamp};
use fdn_service::master::{MasterKeyId, MasterKeys};
use fdn_service::seal::SealKey;
use fdn_service::secret::{self, Secret};
use sqlx::AnyConnection;

use crate::Error;
use crate::settings::Settings;
use crate::state::lock;
use crate::store::secret::{DataKeyRow, SecretRow, data_key_counts, data_key_get, data_key_insert};

/// The most unwrapped data keys kept in memory.
const OPEN_MAX: usize = 1024;

/// The source of master keys.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file with one key per line.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
}

impl Source {
    /// The source according to the settings.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let secrets = &settings.secrets;
        match (&secrets.master_key_variable, &secrets.master_key_file) {
            (Some(variable), _) => Self::Variable(variable.clone()),
            (None, Some(file)) => Self::File(file.clone()),
            (None, None) => Self::File(settings.network.key_file.with_file_name("master.key")),
        }
    }

    fn text(&self) -> Result<Secret, Error> {
        match self {
            Self::File(path) => Ok(secret::read_or_create(path)?),
            Self::Variable(name) => std::env::var(name).map(Secret::new).map_err(|_| {
                Error::config(format!(
                    "secrets.master_key_variable names {name}, which is not set in the environment"
                ))
            }),
        }
    }

    /// Reads the keys; a missing file is created with a new key.
    ///
    /// # Errors
    /// When they cannot be read or parsed.
    pub fn keys(&self) -> Result<MasterKeys, Error> {
        Ok(MasterKeys::parse(&self.text()?)?)
    }

    /// Adds a new key in front, so that it wraps from now on.
    ///
    /// # Errors
    /// When the keys are not in a file, or the file cannot be written.
    pub fn add(&self) -> Result<MasterKeys, Error> {
        let text = format!(
            "{}\n{}\n",
            Secret::random()?.expose(),
            self.text()?.expose()
        );
        self.replace(&Secret::new(text))
    }

    /// Removes a key.
    ///
    /// # Errors
    /// When the keys are not in a file, the key is not among them or is the only one, or the file cannot be written.
    pub fn drop_key(&self, gone: &MasterKeyId) -> Result<MasterKeys, Error> {
        let text = self.text()?;
        let lines = text.expose().split_whitespace();
        let kept: Vec<&str> = lines
            .clone()
            .filter(|line| MasterKeyId::of(&Secret::new(line.to_ascii_lowercase())) != *gone)
            .collect();
        if kept.len() == lines.count() {
            return Err(Error::NotFound {
                what: format!("master key {gone}"),
                hint: "`fdn-controller keys list` shows what there is",
            });
        }
        self.replace(&Secret::new(format!("{}\n", kept.join("\n"))))
    }

    fn replace(&self, text: &Secret) -> Result<MasterKeys, Error> {
        let Self::File(path) = self else {
            return Err(Error::config(
                "the master keys come from a variable, which this command cannot change; put the new key in front of the others yourself",
            ));
        };
        let keys = MasterKeys::parse(text)?;
        secret::write(path, text)?;
        Ok(keys)
    }
}

/// Seals and opens secrets in the database.
pub struct Vault {
    source: Source,
    masters: Mutex<Arc<MasterKeys>>,
    open: Mutex<BTreeMap<DataKeyId, Arc<SealKey>>>,
}

impl Vault {
    /// Reads the master keys that the settings name.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn open(settings: &Settings) -> Result<Self, Error> {
        let source = Source::of(settings);
        Ok(Self {
            masters: Mutex::new(Arc::new(source.keys()?)),
            open: Mutex::default(),
            source,
        })
    }

    /// Checks that all master keys are known that something is wrapped under. A missing one is another controller's, or was lost.
    ///
    /// # Errors
    /// [`Error::MasterKey`] with the missing key's id, or when the store fails.
    pub async fn check(&self, connection: &mut AnyConnection) -> Result<(), Error> {
        let masters = Arc::clone(&lock(&self.masters));
        for (master, _) in data_key_counts(connection).await? {
            if !masters.ids().any(|id| *id == master) {
                return Err(Error::MasterKey { id: master });
            }
        }
        Ok(())
    }

    /// Unwraps a data key.
    fn data_secret(&self, row: &DataKeyRow) -> Result<Secret, Error> {
        let context = wrapping(row.tenant, row.id);
        let masters = Arc::clone(&lock(&self.masters));
        if let Some(key) = masters.unwrap_key(&row.master, &context, &row.wrapped)? {
            return Ok(key);
        }
        let key = self
            .reload()?
            .unwrap_key(&row.master, &context, &row.wrapped)?;
        key.ok_or_else(|| Error::MasterKey {
            id: row.master.clone(),
        })
    }

    /// Reads the master keys again.
    fn reload(&self) -> Result<Arc<MasterKeys>, Error> {
        let masters = Arc::new(self.source.keys()?);
        *lock(&self.masters) = Arc::clone(&masters);
        Ok(masters)
    }

    fn data_key(&self, row: &DataKeyRow) -> Result<Arc<SealKey>, Error> {
        if let Some(key) = lock(&self.open).get(&row.id) {
            return Ok(Arc::clone(key));
        }
        let key = Arc::new(SealKey::from_secret(&self.data_secret(row)?)?);
        let mut open = lock(&self.open);
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        open.insert(row.id, Arc::clone(&key));
        Ok(key)
    }

    /// The tenant's data key; created if it has none.
    ///
    /// # Errors
    /// When the store fails, or the master keys cannot be read.
    pub async fn key_of(
        &self,
        connection: &mut AnyConnection,
        tenant: TenantId,
        now: Timestamp,
    ) -> Result<DataKeyRow, Error> {
        if let Some(row) = data_key_get(&mut *connection, tenant).await? {
            return Ok(row);
        }
        let id = DataKeyId::from_uuid(uuid::Uuid::now_v7());
        // A new data key must not be wrapped under a master key that an operator has dropped meanwhile.
        let masters = self.reload()?;
        let (master, wrapped) = masters.wrap(&wrapping(tenant, id), &Secret::random()?)?;
        let row = DataKeyRow {
            id,
            tenant,
            master,
            wrapped,
        };
        data_key_insert(&mut *connection, &row, now).await?;
        // Another controller may have been faster.
        let there = data_key_get(connection, tenant).await?;
        there.ok_or_else(|| Error::Internal(format!("the data key of tenant {tenant} is gone")))
    }

    /// Seals a value under a data key.
    ///
    /// # Errors
    /// When its master key is unknown.
    pub fn seal(
        &self,
        key: &DataKeyRow,
        (function, name): (&FunctionName, &SecretName),
        value: &Secret,
    ) -> Result<Sealed, Error> {
        let context = sealing(key.tenant, function, name);
        Ok(self.data_key(key)?.seal(&context, value.expose())?)
    }

    /// Decrypts a value.
    ///
    /// # Errors
    /// When its master key is unknown, or the row was tampered with.
    pub fn open_value(&self, row: &SecretRow) -> Result<Secret, Error> {
        let context = sealing(row.key.tenant, &row.function, &row.name);
        let value = self.data_key(&row.key)?.open(&context, &row.sealed)?;
        Ok(Secret::new(value))
    }

    /// Rewraps a data key under the first master key.
    ///
    /// # Errors
    /// When its present master key is unknown.
    pub fn rewrap(&self, row: &DataKeyRow) -> Result<(MasterKeyId, Sealed), Error> {
        let secret = self.data_secret(row)?;
        let masters = Arc::clone(&lock(&self.masters));
        Ok(masters.wrap(&wrapping(row.tenant, row.id), &secret)?)
    }

    /// The known master keys; the first one wraps.
    #[must_use]
    pub fn masters(&self) -> Arc<MasterKeys> {
        Arc::clone(&lock(&self.masters))
    }
}

/// The context that a data key is wrapped for, so that another tenant's row cannot be substituted.
fn wrapping(tenant: TenantId, id: DataKeyId) -> String {
    format!("data-key/{tenant}/{id}")
}

/// The context that a value is sealed for.
fn sealing(tenant: TenantId, function: &FunctionName, name: &SecretName) -> String {
    format!("secret/{tenant}/{function}/{name}")
}

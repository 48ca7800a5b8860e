//! The vault: values at rest, sealed in envelopes, and the master keys that open them.
//!
//! Each tenant has a data key; its secrets are sealed under it, each for exactly one function and name. The data key lies in the database
//! wrapped under a master key ([`fdn_service::master`]), which is read from a file or a variable. A master key that is not known makes
//! the vault read its source anew before it gives up, so that a key that an operator adds reaches running controllers.

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

/// Data keys that are kept open.
const OPEN_MAX: usize = 1024;

/// Where master keys come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file, one key a line.
    File(PathBuf),
    /// A variable of the environment.
    Variable(String),
}

impl Source {
    /// What the settings say.
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

    /// Reads the keys; a file that does not exist is made with one.
    ///
    /// # Errors
    /// When they cannot be read or are no keys.
    pub fn keys(&self) -> Result<MasterKeys, Error> {
        Ok(MasterKeys::parse(&self.text()?)?)
    }

    /// Adds a new key in front, so that it wraps from now on.
    ///
    /// # Errors
    /// When the keys are not in a file, or it cannot be written.
    pub fn add(&self) -> Result<MasterKeys, Error> {
        let text = format!(
            "{}\n{}\n",
            Secret::random()?.expose(),
            self.text()?.expose()
        );
        self.replace(&Secret::new(text))
    }

    /// Takes a key out.
    ///
    /// # Errors
    /// When the keys are not in a file, it is not among them, it is the only one, or the file cannot be written.
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

/// Seals and opens what lies in the database.
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

    /// Refuses to begin without a master key that something is wrapped under: another controller's, or one that was lost.
    ///
    /// # Errors
    /// [`Error::MasterKey`] with its id.
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

    /// Reads the master keys anew.
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

    /// The tenant's data key; made if it has none.
    ///
    /// # Errors
    /// When the store fails.
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
        // What is new must not be wrapped under a key that an operator has dropped meanwhile.
        let masters = self.reload()?;
        let (master, wrapped) = masters.wrap(&wrapping(tenant, id), &Secret::random()?)?;
        let row = DataKeyRow {
            id,
            tenant,
            master,
            wrapped,
        };
        data_key_insert(&mut *connection, &row, now).await?;
        // Another controller may have been first.
        let there = data_key_get(connection, tenant).await?;
        there.ok_or_else(|| Error::Internal(format!("the data key of tenant {tenant} is gone")))
    }

    /// Seals a value under a data key.
    ///
    /// # Errors
    /// When its master key is not known.
    pub fn seal(
        &self,
        key: &DataKeyRow,
        (function, name): (&FunctionName, &SecretName),
        value: &Secret,
    ) -> Result<Sealed, Error> {
        let context = sealing(key.tenant, function, name);
        Ok(self.data_key(key)?.seal(&context, value.expose())?)
    }

    /// Opens a value.
    ///
    /// # Errors
    /// When its master key is not known, or the row was changed.
    pub fn open_value(&self, row: &SecretRow) -> Result<Secret, Error> {
        let context = sealing(row.key.tenant, &row.function, &row.name);
        let value = self.data_key(&row.key)?.open(&context, &row.sealed)?;
        Ok(Secret::new(value))
    }

    /// Wraps a data key anew, under the first master key.
    ///
    /// # Errors
    /// When the master key that it is under is not known.
    pub fn rewrap(&self, row: &DataKeyRow) -> Result<(MasterKeyId, Sealed), Error> {
        let secret = self.data_secret(row)?;
        let masters = Arc::clone(&lock(&self.masters));
        Ok(masters.wrap(&wrapping(row.tenant, row.id), &secret)?)
    }

    /// The master keys that are known, the one that wraps first.
    #[must_use]
    pub fn masters(&self) -> Arc<MasterKeys> {
        Arc::clone(&lock(&self.masters))
    }
}

/// What a data key is wrapped for: another tenant's row cannot be put in its place.
fn wrapping(tenant: TenantId, id: DataKeyId) -> String {
    format!("data-key/{tenant}/{id}")
}

/// What a value is sealed for.
fn sealing(tenant: TenantId, function: &FunctionName, name: &SecretName) -> String {
    format!("secret/{tenant}/{function}/{name}")
}

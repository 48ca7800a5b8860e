//! The key files of an installation: included in a backup on request, and never overwritten by a restore.

use std::path::{Path, PathBuf};

use fdn_core::Digest;
use fdn_service::master::MasterKeyId;
use fdn_service::secret::{self, Secret};

use super::KeyPolicy;
use super::error::BackupError;
use super::manifest::{ExternalKey, KeyPart, Manifest, Part};
use crate::Error;
use crate::settings::Settings;
use crate::vault::Source;

/// The key that seals the authority's keys.
const NETWORK_KEY: &str = "network.key";
const NETWORK_TOKEN: &str = "network.token";
const MASTER_KEY: &str = "master.key";
/// The first user's password: nothing is sealed with it, but scripts of an installation may read it.
const PASSWORD: &str = "admin.password";

/// The largest size of a key file, in bytes.
pub(super) const KEY_MAX: u64 = 64 << 10;

/// A key of an installation.
struct Key {
    name: &'static str,
    /// The key's file; `None` if it comes from an environment variable.
    path: Option<PathBuf>,
    place: String,
}

fn all(settings: &Settings) -> Vec<Key> {
    let file = |name, path: &Path| Key {
        name,
        path: Some(path.to_owned()),
        place: path.display().to_string(),
    };
    let mut keys = vec![
        file(NETWORK_KEY, &settings.network.key_file),
        file(NETWORK_TOKEN, &settings.network.token_file),
        match Source::of(settings) {
            Source::File(path) => file(MASTER_KEY, &path),
            Source::Variable(name) => Key {
                name: MASTER_KEY,
                path: None,
                place: format!("the variable {name}"),
            },
        },
    ];
    let password = settings.accounts.initial_password_file.as_deref();
    keys.extend(password.map(|path| file(PASSWORD, path)));
    keys
}

/// An id by which the sealing key is compared. Tokens have none: a short one that an operator chose could be guessed from it.
fn id(name: &str, text: &Secret) -> Option<String> {
    (name == NETWORK_KEY).then(|| MasterKeyId::of(text).to_string())
}

/// The keys of a backup: those included, with their text, and those that are not.
pub(super) struct CollectedKeys {
    pub(super) inside: Vec<(KeyPart, Secret)>,
    pub(super) external: Vec<ExternalKey>,
}

/// Reads the keys.
pub(super) fn collect(settings: &Settings, wanted: KeyPolicy) -> Result<CollectedKeys, Error> {
    let mut collected = CollectedKeys {
        inside: Vec::new(),
        external: Vec::new(),
    };
    for key in all(settings) {
        let text = match &key.path {
            Some(path) if path.exists() => Some(secret::read(path)?),
            _ => None,
        };
        match text {
            Some(text) if wanted == KeyPolicy::With => {
                let bytes = text.expose().as_bytes();
                let part = Part {
                    size: bytes.len() as u64,
                    sha256: Digest::of(bytes),
                };
                let name = key.name.to_owned();
                collected.inside.push((KeyPart { name, part }, text));
            }
            _ if key.name == PASSWORD => {}
            text => collected.external.push(ExternalKey {
                name: key.name.to_owned(),
                place: key.place,
                id: text.as_ref().and_then(|text| id(key.name, text)),
            }),
        }
    }
    Ok(collected)
}

/// Checks that the keys that an archive needs and does not contain are where the settings say.
pub(super) fn check(
    settings: &Settings,
    manifest: &Manifest,
    wanted: KeyPolicy,
) -> Result<(), Error> {
    if wanted == KeyPolicy::Lost {
        return Ok(());
    }
    for external in &manifest.keys_apart {
        let Some(key) = all(settings)
            .into_iter()
            .find(|key| key.name == external.name)
        else {
            continue;
        };
        let there = match &key.path {
            Some(path) => path.exists(),
            // Whether the variable is set is checked when it is read.
            None => true,
        };
        if !there {
            return Err(BackupError::Keys(format!(
                "{} is not in the archive, and {} does not exist: put the file there that was {} (--keys-lost restores without it: secrets of functions are forgotten, and all machines have to join again)",
                key.name, key.place, external.place
            ))
            .into());
        }
        if let (Some(expected), Some(path)) = (&external.id, &key.path)
            && id(key.name, &secret::read(path)?).as_ref() != Some(expected)
        {
            return Err(another(key.name, path).into());
        }
    }
    Ok(())
}

fn another(name: &str, path: &Path) -> BackupError {
    BackupError::Keys(format!(
        "{} holds another {name} than the network of the archive: move it away, or put the right one there",
        path.display()
    ))
}

/// Writes a key of an archive to its configured file, and returns the path if the file is new. An existing file must have the same key, unless it
/// is the password.
pub(super) fn install(
    settings: &Settings,
    name: &str,
    text: &Secret,
) -> Result<Option<PathBuf>, Error> {
    let Some(key) = all(settings).into_iter().find(|key| key.name == name) else {
        if name == PASSWORD {
            return Ok(None);
        }
        return Err(BackupError::Damaged(format!("nobody knows a key {name}")).into());
    };
    let Some(path) = key.path else {
        return Err(BackupError::Keys(format!(
            "the archive holds {name}, and the settings read it from {}: set secrets.master_key_file for the restore",
            key.place
        ))
        .into());
    };
    if secret::write_new(&path, text)? {
        return Ok(Some(path));
    }
    if name == PASSWORD || secret::read(&path)?.matches(text.expose()) {
        Ok(None)
    } else {
        Err(another(name, &path).into())
    }
}

/// Checks that the master keys that wrap data keys of the archive are available.
pub(super) fn check_master_keys(
    settings: &Settings,
    used: &[(MasterKeyId, u64)],
) -> Result<(), Error> {
    if used.is_empty() {
        return Ok(());
    }
    let known = Source::of(settings).keys()?;
    for (master, _) in used {
        if !known.ids().any(|id| id == master) {
            return Err(BackupError::Keys(format!(
                "secrets of the archive are sealed under master key {master}, which is not in the ring of these settings: add its line to the file \
                 (--keys-lost restores without it: secrets of functions are forgotten, and all machines have to join again)"
            ))
            .into());
        }
    }
    Ok(())
}

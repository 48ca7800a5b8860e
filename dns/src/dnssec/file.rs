//! Storage of a zone's keys: one JSON file, which all servers of the zone share. Each private key is sealed under a master key
//! ([`fdn_service::master`]: AES-256-GCM, bound to this zone and this public key), which comes from a file or an environment variable and is
//! never stored with it. Times are in ms since 1970; [`super::rollover`] derives each key's stage from them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fdn_core::message::Sealed;
use fdn_core::{Coded, ErrorCode, HostName, Timestamp};
use fdn_service::ServiceError;
use fdn_service::master::{MasterKeyId, MasterKeys};
use fdn_service::secret::{self, Secret};
use serde::{Deserialize, Serialize};

use super::key::ZoneKey;
use super::ring::TimedKey;
use super::rollover::{KeyTimes, Stage, Timing, key_stages};

/// The most keys of a file: in practice one signs, one may be on its way, and the others are retired.
const KEYS_MAX: usize = 16;
/// How many keys are generated at most until one has an unused tag.
const ATTEMPTS: u32 = 100;

/// Errors of the zone's keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key file or the master key cannot be used.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The key file already exists.
    #[error("{0} has keys already; `fdn-dns keys roll` adds one")]
    Exists(PathBuf),
    /// The file does not hold keys of this zone.
    #[error("{path} holds no keys of {zone}: {reason}")]
    Format {
        /// The file.
        path: PathBuf,
        /// The zone that keys were expected for.
        zone: HostName,
        /// What is wrong.
        reason: String,
    },
    /// The master key that a key is sealed under is missing.
    #[error(
        "the key {tag} is sealed under the master key {master}, which is not among those given"
    )]
    MasterKey {
        /// The key's tag.
        tag: u16,
        /// The id of the missing master key.
        master: MasterKeyId,
    },
    /// A roll-over is in progress.
    #[error("a roll-over is under way: the key {0} is not active yet")]
    UnderWay(u16),
    /// No key with this tag waits for its DS record to be seen at the parent.
    #[error("no key {0} waits for its DS record to be seen at the parent")]
    NotReady(u16),
    /// No key could be generated.
    #[error(
        "no key could be made: the operating system gave no random numbers, or the file is full"
    )]
    NotMade,
    /// No source of the master key is configured.
    #[error("zone.dnssec needs master_key_file or master_key_variable")]
    NoMaster,
}

impl Coded for KeyError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Service(cause) => cause.code(),
            Self::NotMade => ErrorCode::Internal,
            Self::Exists(_)
            | Self::Format { .. }
            | Self::MasterKey { .. }
            | Self::UnderWay(_)
            | Self::NotReady(_)
            | Self::NoMaster => ErrorCode::ConfigInvalid,
        }
    }
}

/// One key as stored in the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredKey {
    /// The key tag that DS records contain.
    pub tag: u16,
    /// When it was created.
    pub created: Timestamp,
    /// When the operator saw its DS record at the parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Timestamp>,
    /// The public key, in hexadecimal.
    pub public: String,
    /// The id of the master key that the private key is sealed under.
    pub master: String,
    /// The sealed private key (PKCS#8 in hexadecimal).
    pub private: Sealed,
}

/// All keys of a zone, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyFile {
    /// The zone.
    pub zone: HostName,
    /// The keys.
    pub keys: Vec<StoredKey>,
}

/// The source of the master keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterSource {
    /// A file with one key per line.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
}

impl MasterSource {
    /// Reads the master keys; with `create`, a missing file is created with a new key.
    ///
    /// # Errors
    /// When they cannot be read or parsed.
    pub fn keys(&self, create: bool) -> Result<MasterKeys, KeyError> {
        let text = match self {
            Self::File(path) if create => secret::read_or_create(path)?,
            Self::File(path) => secret::read(path)?,
            Self::Variable(name) => std::env::var(name).map(Secret::new).map_err(|_| {
                ServiceError::Config(format!(
                    "zone.dnssec.master_key_variable names {name}, which is not set in the environment"
                ))
            })?,
        };
        Ok(MasterKeys::parse(&text)?)
    }
}

fn context(zone: &HostName, public: &str) -> String {
    format!("fdn dnssec key of {zone}: {public}")
}

impl KeyFile {
    /// A file without keys.
    #[must_use]
    pub const fn empty(zone: HostName) -> Self {
        Self {
            zone,
            keys: Vec::new(),
        }
    }

    /// Reads the key file of a zone.
    ///
    /// # Errors
    /// When it cannot be read, or holds anything else than keys of this zone.
    pub fn read(path: &Path, zone: &HostName) -> Result<Self, KeyError> {
        let wrong = |reason: String| KeyError::Format {
            path: path.to_owned(),
            zone: zone.clone(),
            reason,
        };
        let text = secret::read(path)?;
        let file: Self =
            serde_json::from_str(text.expose()).map_err(|cause| wrong(cause.to_string()))?;
        if file.zone != *zone {
            return Err(wrong(format!("they are of {}", file.zone)));
        }
        if file.keys.is_empty() || file.keys.len() > KEYS_MAX {
            return Err(wrong(format!("there must be 1 to {KEYS_MAX}")));
        }
        Ok(file)
    }

    /// Writes the file atomically, readable by its owner only.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), KeyError> {
        secret::write(path, &self.text()?)?;
        Ok(())
    }

    /// Writes the file, which must not exist yet.
    ///
    /// # Errors
    /// When it already exists, or cannot be written.
    pub fn write_new(&self, path: &Path) -> Result<(), KeyError> {
        if secret::write_new(path, &self.text()?)? {
            Ok(())
        } else {
            Err(KeyError::Exists(path.to_owned()))
        }
    }

    fn text(&self) -> Result<Secret, KeyError> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|cause| ServiceError::Config(cause.to_string()))?;
        Ok(Secret::new(format!("{text}\n")))
    }

    /// Adds a new key with a tag that no other key has. Returns the tag.
    ///
    /// # Errors
    /// When the operating system provides no random numbers, or the file is full.
    pub fn add(&mut self, masters: &MasterKeys, now: Timestamp) -> Result<u16, KeyError> {
        if self.keys.len() >= KEYS_MAX {
            return Err(KeyError::NotMade);
        }
        for _ in 0..ATTEMPTS {
            let pkcs8 = ZoneKey::generate().ok_or(KeyError::NotMade)?;
            let key = ZoneKey::new(&self.zone, &pkcs8).ok_or(KeyError::NotMade)?;
            // Key tags need not be unique (RFC 4034, section 8); with unique ones, a signature identifies one key.
            if self.keys.iter().any(|other| other.tag == key.tag()) {
                continue;
            }
            let public = hex::encode(key.public());
            let private = Secret::new(hex::encode(pkcs8));
            let (master, private) = masters.wrap(&context(&self.zone, &public), &private)?;
            self.keys.push(StoredKey {
                tag: key.tag(),
                created: now,
                seen: None,
                public,
                master: master.to_string(),
                private,
            });
            return Ok(key.tag());
        }
        Err(KeyError::NotMade)
    }

    fn stages(&self, now: Timestamp, timing: &Timing) -> Vec<Stage> {
        let times: Vec<KeyTimes> = self.keys.iter().map(StoredKey::times).collect();
        let key_stages = key_stages(&times, now, timing);
        key_stages.iter().map(|key_stage| key_stage.stage).collect()
    }

    /// Starts a roll-over: adds a key that will replace the active one. Returns its tag.
    ///
    /// # Errors
    /// When one is already in progress, or no key can be generated.
    pub fn roll(
        &mut self,
        masters: &MasterKeys,
        now: Timestamp,
        timing: &Timing,
    ) -> Result<u16, KeyError> {
        let stages = self.stages(now, timing);
        let coming = stages.iter().position(|stage| stage.is_coming());
        if let Some(key) = coming.and_then(|at| self.keys.get(at)) {
            return Err(KeyError::UnderWay(key.tag));
        }
        self.prune(now, timing);
        self.add(masters, now)
    }

    /// Records that the operator saw a key's DS record at the parent.
    ///
    /// # Errors
    /// When the key is not in the stage [`Stage::Ready`].
    pub fn seen(&mut self, tag: u16, now: Timestamp, timing: &Timing) -> Result<(), KeyError> {
        let stages = self.stages(now, timing);
        let mut keys = self.keys.iter_mut().zip(stages);
        let (key, _) = keys
            .find(|(key, stage)| key.tag == tag && *stage == Stage::Ready)
            .ok_or(KeyError::NotReady(tag))?;
        key.seen = Some(now);
        Ok(())
    }

    /// Removes keys that are no longer part of the zone. Returns their number.
    pub fn prune(&mut self, now: Timestamp, timing: &Timing) -> usize {
        let stages = self.stages(now, timing);
        let mut stages = stages.iter();
        let before = self.keys.len();
        self.keys
            .retain(|_| stages.next().is_none_or(|stage| *stage != Stage::Removed));
        before - self.keys.len()
    }

    /// Reseals every key under the first master key. Returns the number of keys that changed.
    ///
    /// # Errors
    /// When a master key is missing or a key was tampered with.
    pub fn rewrap(&mut self, masters: &MasterKeys) -> Result<usize, KeyError> {
        let mut changed = 0;
        for key in &mut self.keys {
            if key.master == masters.current().as_str() {
                continue;
            }
            let private = key.open(&self.zone, masters)?;
            let (master, sealed) = masters.wrap(&context(&self.zone, &key.public), &private)?;
            key.master = master.to_string();
            key.private = sealed;
            changed += 1;
        }
        Ok(changed)
    }

    /// Unseals the keys.
    ///
    /// # Errors
    /// When a master key is missing, or a key was tampered with.
    pub fn open(&self, masters: &MasterKeys) -> Result<Vec<TimedKey>, KeyError> {
        let mut keys = Vec::with_capacity(self.keys.len());
        for stored in &self.keys {
            let private = stored.open(&self.zone, masters)?;
            let pkcs8 = hex::decode(private.expose()).map_err(|_| ServiceError::Sealed)?;
            let key = ZoneKey::new(&self.zone, &pkcs8).ok_or(ServiceError::Sealed)?;
            if key.tag() != stored.tag || hex::encode(key.public()) != stored.public {
                return Err(ServiceError::Sealed.into());
            }
            keys.push(TimedKey {
                key: Arc::new(key),
                times: stored.times(),
            });
        }
        Ok(keys)
    }
}

impl StoredKey {
    /// The times that determine its stage.
    #[must_use]
    pub const fn times(&self) -> KeyTimes {
        KeyTimes {
            created: self.created,
            seen: self.seen,
        }
    }

    fn open(&self, zone: &HostName, masters: &MasterKeys) -> Result<Secret, KeyError> {
        let master: MasterKeyId = self
            .master
            .parse()
            .map_err(|cause: fdn_core::ParseError| ServiceError::Config(cause.to_string()))?;
        masters
            .unwrap_key(&master, &context(zone, &self.public), &self.private)?
            .ok_or(KeyError::MasterKey {
                tag: self.tag,
                master,
            })
    }
}

/// Whether a file exists.
///
/// # Errors
/// When that cannot be determined.
pub fn exists(path: &Path) -> Result<bool, KeyError> {
    match std::fs::metadata(path) {
        Ok(_) => Ok(true),
        Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(ServiceError::File {
            path: path.to_owned(),
            reason: cause.to_string(),
        }
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: Timing = Timing {
        key_ttl: 10,
        propagation: 0,
        parent_ttl: 100,
        drain: 50,
    };

    fn zone() -> HostName {
        "fn.test".parse().expect("zone")
    }

    fn masters(keys: &[char]) -> MasterKeys {
        let lines: Vec<String> = keys.iter().map(|c| c.to_string().repeat(64)).collect();
        MasterKeys::parse(&Secret::new(lines.join("\n"))).expect("keys")
    }

    #[test]
    fn keys_are_sealed_and_come_back() {
        let dir = tempfile::tempdir().expect("folder");
        let path = dir.path().join("dnssec.keys");
        let mut file = KeyFile::empty(zone());
        let tag = file.add(&masters(&['a']), Timestamp(5)).expect("made");
        file.write_new(&path).expect("written");
        assert!(matches!(file.write_new(&path), Err(KeyError::Exists(_))));
        let read = KeyFile::read(&path, &zone()).expect("read");
        assert_eq!(read, file);
        let keys = read.open(&masters(&['b', 'a'])).expect("opened");
        assert_eq!(
            (keys[0].key.tag(), keys[0].times.created),
            (tag, Timestamp(5))
        );
        // The key opens only with the right master key, for the right zone and the right public key.
        let other = "other.test".parse().expect("zone");
        assert!(matches!(
            KeyFile::read(&path, &other),
            Err(KeyError::Format { .. })
        ));
        assert!(matches!(
            read.open(&masters(&['b'])),
            Err(KeyError::MasterKey { .. })
        ));
        let mut moved = read.clone();
        moved.zone = other;
        assert!(moved.open(&masters(&['a'])).is_err());
        let mut changed = read.clone();
        changed.keys[0].tag ^= 1;
        assert!(changed.open(&masters(&['a'])).is_err());
        let mut rewrapped = read;
        assert_eq!(
            rewrapped
                .rewrap(&masters(&['b', 'a']))
                .expect("sealed anew"),
            1
        );
        assert_eq!(
            rewrapped.rewrap(&masters(&['b', 'a'])).expect("as it is"),
            0
        );
        assert_eq!(
            rewrapped.open(&masters(&['b'])).expect("opened")[0]
                .key
                .tag(),
            tag
        );
    }

    #[test]
    fn a_roll_over_goes_step_by_step() {
        let masters = masters(&['a']);
        let mut file = KeyFile::empty(zone());
        let first = file.add(&masters, Timestamp(0)).expect("made");
        let second = file
            .roll(&masters, Timestamp(1000), &TIMING)
            .expect("begun");
        let again = file.roll(&masters, Timestamp(1001), &TIMING);
        assert!(matches!(again, Err(KeyError::UnderWay(tag)) if tag == second));
        // Not before every resolver can know the key, and not the key that is already active.
        assert!(file.seen(second, Timestamp(1009), &TIMING).is_err());
        assert!(file.seen(first, Timestamp(1010), &TIMING).is_err());
        file.seen(second, Timestamp(1010), &TIMING).expect("seen");
        assert!(file.seen(second, Timestamp(1011), &TIMING).is_err(), "once");
        assert_eq!(file.prune(Timestamp(1159), &TIMING), 0);
        assert_eq!(file.prune(Timestamp(1160), &TIMING), 1);
        assert_eq!(file.stages(Timestamp(1160), &TIMING), [Stage::Active]);
        assert_eq!(file.keys[0].tag, second);
        file.roll(&masters, Timestamp(2000), &TIMING)
            .expect("another");
    }

    #[test]
    fn what_is_no_key_file_is_refused() {
        let dir = tempfile::tempdir().expect("folder");
        let path = dir.path().join("dnssec.keys");
        for text in [
            "",
            "{",
            "[]",
            r#"{"zone":"fn.test","keys":[]}"#,
            r#"{"zone":"fn.test"}"#,
        ] {
            std::fs::write(&path, text).expect("written");
            assert!(KeyFile::read(&path, &zone()).is_err(), "{text}");
        }
        assert!(exists(&path).expect("known"));
        assert!(!exists(&dir.path().join("other")).expect("known"));
    }
}

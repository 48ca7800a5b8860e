//! The configuration file of the command line: the known networks ("contexts"), and which one is current.
//!
//! `config.toml` holds no secrets. The token of a context is in a separate file with mode 0600 in `tokens/` beside it, so that the
//! configuration can be shown and copied. [`crate::target`] decides which context a command uses.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use fdn_core::{ErrorCode, HostName};
use fdn_service::secret::{self, Secret};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::environment::Environment;
use crate::error::CliError;

/// The context that `fdn up` writes.
pub const LOCAL_CONTEXT: &str = "local";

/// One network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// The URL of its controller.
    pub controller: Url,
    /// The user who is logged in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The zone of its apps' host names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<HostName>,
    /// Its DNS server; if absent, that of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<SocketAddr>,
    /// The port of its gateways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_port: Option<u16>,
    /// The file of the authorities that its certificate is checked against; if absent, the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The data directory of the `fdn up` that wrote this context. Only such a context is overwritten by `fdn up`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_dir: Option<PathBuf>,
}

/// The content of the configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The context that commands use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// All contexts by name.
    pub contexts: BTreeMap<String, Context>,
}

/// The configuration folder.
#[derive(Clone, Debug)]
pub struct ConfigStore {
    folder: PathBuf,
}

impl ConfigStore {
    /// Opens the store in the folder that the environment determines.
    ///
    /// # Errors
    /// When neither XDG_CONFIG_HOME nor HOME is set.
    pub fn open(env: &Environment) -> Result<Self, CliError> {
        let folder = env.config_folder().ok_or_else(|| {
            CliError::Config(
                "there is no place for the configuration: set HOME or XDG_CONFIG_HOME".to_owned(),
            )
        })?;
        Ok(Self { folder })
    }

    /// The configuration file.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.folder.join("config.toml")
    }

    /// The token file of a context.
    #[must_use]
    pub fn token_file(&self, context: &str) -> PathBuf {
        self.folder.join("tokens").join(context)
    }

    /// Reads the file; an empty configuration if there is none.
    ///
    /// # Errors
    /// When it cannot be read or is not valid; the message names line and key.
    pub fn load(&self) -> Result<Config, CliError> {
        let path = self.file();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Config::default()),
            Err(e) => return Err(CliError::Config(format!("{}: {e}", path.display()))),
        };
        let config: Config = toml::from_str(&text).map_err(|e| {
            CliError::Config(format!("{}: {}", path.display(), e.to_string().trim()))
        })?;
        for name in config.contexts.keys().chain(&config.current) {
            check_name(name).map_err(|e| CliError::Config(format!("{}: {e}", path.display())))?;
        }
        Ok(config)
    }

    /// Writes the file atomically: a reader sees the old or the new content.
    ///
    /// # Errors
    /// When the folder or the file cannot be written.
    pub fn save(&self, config: &Config) -> Result<(), CliError> {
        let path = self.file();
        let failed = |reason: String| CliError::File {
            path: path.clone(),
            reason,
            code: ErrorCode::DataDirectory,
        };
        let text = toml::to_string_pretty(config).map_err(|e| failed(e.to_string()))?;
        std::fs::create_dir_all(&self.folder).map_err(|e| failed(e.to_string()))?;
        let mut file =
            tempfile::NamedTempFile::new_in(&self.folder).map_err(|e| failed(e.to_string()))?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.as_file().sync_all())
            .map_err(|e| failed(e.to_string()))?;
        file.persist(&path).map_err(|e| failed(e.to_string()))?;
        Ok(())
    }

    /// Writes a context's token, readable by its owner only.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save_token(&self, context: &str, token: &Secret) -> Result<(), CliError> {
        Ok(secret::write(&self.token_file(context), token)?)
    }

    /// Saves the configuration and the token of one of its contexts. Wherever this ends early, the token of one controller never stands beside
    /// the URL of another.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn save_login(
        &self,
        config: &Config,
        context: &str,
        token: &Secret,
    ) -> Result<(), CliError> {
        let controller =
            |config: &Config| config.contexts.get(context).map(|c| c.controller.clone());
        if controller(&self.load()?) == controller(config) {
            // A context without a token is worse than a token without a context.
            self.save_token(context, token)?;
            return self.save(config);
        }
        let path = self.token_file(context);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(CliError::File {
                    path,
                    reason: e.to_string(),
                    code: ErrorCode::DataDirectory,
                });
            }
            _ => {}
        }
        self.save(config)?;
        self.save_token(context, token)
    }

    /// A context's token, if it has one.
    ///
    /// # Errors
    /// When the file exists but cannot be read.
    pub fn token(&self, context: &str) -> Result<Option<Secret>, CliError> {
        let path = self.token_file(context);
        if path.try_exists().unwrap_or(false) {
            Ok(Some(secret::read(&path)?))
        } else {
            Ok(None)
        }
    }
}

/// Rejects names that could lead out of the folder of token files.
///
/// # Errors
/// When the name contains anything but letters, digits, dots, hyphens and underscores, or begins with a dot.
pub fn check_name(name: &str) -> Result<(), CliError> {
    let plain = name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    if plain && !name.starts_with('.') && (1..=64).contains(&name.len()) {
        return Ok(());
    }
    Err(CliError::Config(format!(
        "context name {name:?}: expected 1 to 64 letters, digits, dots, hyphens or underscores, not beginning with a dot"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Config {
        let context = Context {
            controller: url.parse().expect("a URL"),
            user: None,
            zone: None,
            dns: None,
            gateway_port: None,
            ca_file: None,
            data_dir: None,
        };
        Config {
            current: Some("x".to_owned()),
            contexts: [("x".to_owned(), context)].into(),
        }
    }

    #[test]
    fn a_token_never_stands_beside_another_controller() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = ConfigStore {
            folder: folder.path().to_owned(),
        };
        let token = |text: &str| Secret::new(text);
        let (one, other) = (config("https://a.example"), config("https://b.example"));
        store.save_login(&one, "x", &token("a")).expect("saved");
        assert_eq!(store.token("x").expect("read"), Some(token("a")));
        // The token cannot be written: a folder is in its way, made once the old one is gone.
        let tokens = folder.path().join("tokens");
        std::fs::remove_dir_all(&tokens).expect("removed");
        std::fs::write(&tokens, "no folder").expect("written");
        store
            .save_login(&one, "x", &token("a2"))
            .expect_err("it cannot");
        std::fs::remove_file(&tokens).expect("removed");
        store.save_login(&one, "x", &token("a")).expect("saved");
        std::fs::remove_file(store.file()).expect("removed");
        std::fs::create_dir(store.file()).expect("made");
        // The configuration cannot be written: the token that was there is no other controller's.
        store
            .save_login(&other, "x", &token("b"))
            .expect_err("it cannot");
        assert_ne!(store.token("x").expect("read"), Some(token("b")));
        std::fs::remove_dir(store.file()).expect("removed");
        store.save_login(&other, "x", &token("b")).expect("saved");
        assert_eq!(store.token("x").expect("read"), Some(token("b")));
        assert_eq!(store.load().expect("read"), other);
    }
}

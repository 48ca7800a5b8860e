//! Settings: built-in defaults, then a TOML file, then `FDN_SECTION__KEY` environment variables, then flags.
//!
//! The settings type itself rejects unknown keys (`#[serde(deny_unknown_fields)]`) and validates values; the result needs no further checks here.

use std::path::Path;

use figment::Figment;
use figment::providers::{Env, Format, Serialized, Toml};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ServiceError;

/// The prefix of environment variables that override settings.
pub const ENV_PREFIX: &str = "FDN_";

/// Reads settings of type `T`. `overrides` holds dotted keys and values from flags, such as `("listen", "127.0.0.1:1")`.
///
/// # Errors
/// When the file cannot be read, is not TOML, or has an unknown key or an invalid value; the message names the file, the key
/// and what was expected.
pub fn load<T>(file: Option<&Path>, overrides: &[(&str, String)]) -> Result<T, ServiceError>
where
    T: Default + Serialize + DeserializeOwned,
{
    let mut figment = Figment::from(Serialized::defaults(T::default()));
    if let Some(path) = file {
        let text = std::fs::read_to_string(path)
            .map_err(|e| ServiceError::Config(format!("{} cannot be read: {e}", path.display())))?;
        // Parsed separately first, because this parser's error messages contain line and column.
        toml::from_str::<toml::Table>(&text).map_err(|e| {
            ServiceError::Config(format!("{}: {}", path.display(), e.to_string().trim()))
        })?;
        figment = figment.merge(Toml::string(&text));
    }
    figment = figment.merge(
        Env::prefixed(ENV_PREFIX)
            .filter(|key| key.as_str().contains("__"))
            .split("__"),
    );
    for (key, value) in overrides {
        figment = figment.merge((*key, value));
    }
    figment.extract().map_err(|e| {
        let place = file
            .map(|p| format!("{}: ", p.display()))
            .unwrap_or_default();
        let all: Vec<String> = e.into_iter().map(|one| one.to_string()).collect();
        ServiceError::Config(format!("{place}{}", all.join("; ")))
    })
}

/// The settings as TOML, for `--print-config`. Settings hold the paths of secret files, never secrets.
///
/// # Errors
/// When a value cannot be written as TOML.
pub fn print<T: Serialize>(settings: &T) -> Result<String, ServiceError> {
    toml::to_string_pretty(settings).map_err(|e| ServiceError::Config(e.to_string()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Settings {
        listen: String,
        limit: fdn_core::ByteSize,
        store: Store,
    }

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Store {
        url: String,
    }

    impl Default for Settings {
        fn default() -> Self {
            Self {
                listen: "a".into(),
                limit: fdn_core::ByteSize::from_mib(1),
                store: Store::default(),
            }
        }
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("temporary file");
        file.write_all(text.as_bytes()).expect("write");
        file
    }

    #[test]
    fn later_sources_win() {
        let file = file("limit = \"2MiB\"\n[store]\nurl = \"x\"\n");
        let settings: Settings =
            load(Some(file.path()), &[("store.url", "y".into())]).expect("valid");
        assert_eq!(settings.listen, "a");
        assert_eq!(settings.limit, fdn_core::ByteSize::from_mib(2));
        assert_eq!(settings.store.url, "y");
        let again = file_of(&settings);
        assert_eq!(
            load::<Settings>(Some(again.path()), &[]).expect("own text"),
            settings
        );
    }

    fn file_of(settings: &Settings) -> tempfile::NamedTempFile {
        file(&print(settings).expect("toml"))
    }

    #[test]
    fn mistakes_name_file_and_key() {
        for (text, expected) in [
            ("lisen = \"x\"", "lisen"),
            ("limit = \"2 parsecs\"", "size"),
            ("limit = ", "line 1"),
            ("[store]\nx = 1", "store"),
        ] {
            let file = file(text);
            let error = load::<Settings>(Some(file.path()), &[])
                .expect_err(text)
                .to_string();
            assert!(error.contains(expected), "{error}");
            assert!(
                error.contains(&file.path().display().to_string()),
                "{error}"
            );
        }
        let error =
            load::<Settings>(Some(Path::new("/nonexistent.toml")), &[]).expect_err("no file");
        assert!(error.to_string().contains("/nonexistent.toml"));
    }
}

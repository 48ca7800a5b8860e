//! The environment variables of a command, and the folders that they determine (XDG Base Directory Specification 0.8).
//!
//! They are passed in rather than read where they are needed, so that tests can set them without changing the process.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Environment variables by name.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// The variables of this process; those that are not UTF-8 are left out.
    #[must_use]
    pub fn of_process() -> Self {
        Self(
            std::env::vars_os()
                .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
                .collect(),
        )
    }

    /// Uses the given variables.
    #[must_use]
    pub fn of<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> Self {
        Self(pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
    }

    /// The value of a variable; an empty one counts as unset.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|v| !v.is_empty())
    }

    /// `$XDG_CONFIG_HOME/fdn`, or else `~/.config/fdn`; `None` without a home directory.
    #[must_use]
    pub fn config_folder(&self) -> Option<PathBuf> {
        self.folder("XDG_CONFIG_HOME", ".config")
    }

    /// `$XDG_DATA_HOME/fdn`, or else `~/.local/share/fdn`; `None` without a home directory.
    #[must_use]
    pub fn data_folder(&self) -> Option<PathBuf> {
        self.folder("XDG_DATA_HOME", ".local/share")
    }

    /// `$XDG_CACHE_HOME/fdn`, or else `~/.cache/fdn`; `None` without a home directory.
    #[must_use]
    pub fn cache_folder(&self) -> Option<PathBuf> {
        self.folder("XDG_CACHE_HOME", ".cache")
    }

    fn folder(&self, variable: &str, under_home: &str) -> Option<PathBuf> {
        // According to the specification, a relative path in these variables is invalid and must be ignored.
        let own = self
            .get(variable)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute());
        let base = own.or_else(|| {
            self.get("HOME")
                .map(|home| PathBuf::from(home).join(under_home))
        })?;
        Some(base.join("fdn"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_follow_the_specification() {
        let env = Environment::of([("HOME", "/home/u".to_owned())]);
        assert_eq!(env.config_folder(), Some("/home/u/.config/fdn".into()));
        assert_eq!(env.data_folder(), Some("/home/u/.local/share/fdn".into()));
        assert_eq!(env.cache_folder(), Some("/home/u/.cache/fdn".into()));
        let env = Environment::of([
            ("HOME", "/home/u".to_owned()),
            ("XDG_CONFIG_HOME", "/c".to_owned()),
        ]);
        assert_eq!(env.config_folder(), Some("/c/fdn".into()));
        let env = Environment::of([
            ("HOME", "/home/u".to_owned()),
            ("XDG_CONFIG_HOME", "c".to_owned()),
        ]);
        assert_eq!(
            env.config_folder(),
            Some("/home/u/.config/fdn".into()),
            "a relative path is ignored"
        );
        assert_eq!(Environment::default().config_folder(), None);
    }
}

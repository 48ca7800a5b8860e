//! Determines the network of a command: a flag overrides a variable, a variable the configuration file, and the file the built-in
//! default. A token is only ever sent to the controller that issued it.

use std::path::{Path, PathBuf};

use fdn_service::secret::{self, Secret};
use url::Url;

use crate::config::{Config, ConfigStore, Context};
use crate::environment::Environment;
use crate::error::CliError;

/// The default controller: where `fdn up` runs it.
pub const DEFAULT_CONTROLLER: &str = "http://127.0.0.1:8600";

/// Parses a controller's URL; `127.0.0.1:8600` means `http://127.0.0.1:8600`.
///
/// # Errors
/// When it is not an http or https URL that consists of a host only.
pub fn parse_controller(text: &str) -> Result<Url, CliError> {
    let error = |reason: &str| {
        CliError::Config(format!(
            "controller {text:?}: {reason}; expected a URL such as {DEFAULT_CONTROLLER}"
        ))
    };
    let full = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let url: Url = full
        .parse()
        .map_err(|e: url::ParseError| error(&e.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(error("it is not an http or https URL"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(error(
            "credentials do not belong into a URL, where others can see them",
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(error("it must not have a query or a fragment"));
    }
    Ok(url)
}

/// The flags that choose the network.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// `--controller`.
    pub controller: Option<String>,
    /// `--context`.
    pub context: Option<String>,
    /// `--ca-file`.
    pub ca_file: Option<PathBuf>,
}

impl Choice {
    /// The file of authorities named by the flag or the variable.
    #[must_use]
    pub fn ca_file(&self, env: &Environment) -> Option<PathBuf> {
        let variable = || env.get("FDN_CA_FILE").map(PathBuf::from);
        self.ca_file.clone().or_else(variable)
    }
}

/// The network of a command.
#[derive(Clone, Debug)]
pub struct Target {
    /// The controller's URL.
    pub controller: Url,
    /// The token for this controller, if there is one.
    pub token: Option<Secret>,
    /// The file of the authorities that its certificate is checked against; if absent, the public ones.
    pub ca_file: Option<PathBuf>,
    /// The name of the context, if there is one.
    pub name: Option<String>,
    /// The content of the context.
    pub context: Option<Context>,
}

impl Target {
    /// A controller without a context.
    #[must_use]
    pub const fn of(controller: Url, token: Option<Secret>, ca_file: Option<PathBuf>) -> Self {
        Self {
            controller,
            token,
            ca_file,
            name: None,
            context: None,
        }
    }

    /// Decides by flags, variables (`FDN_CONTROLLER`, `FDN_CONTEXT`, `FDN_TOKEN_FILE`, `FDN_CA_FILE`), file and default, in this order.
    ///
    /// # Errors
    /// When a source cannot be read, a URL is not valid or the named context does not exist.
    pub fn decide(
        choice: &Choice,
        env: &Environment,
        store: &ConfigStore,
    ) -> Result<Self, CliError> {
        let config = store.load()?;
        let named = choice.context.as_deref().or_else(|| {
            // A controller on the command line is more specific than a context in a variable.
            choice
                .controller
                .is_none()
                .then(|| env.get("FDN_CONTEXT"))
                .flatten()
        });
        let url = choice.controller.as_deref().or_else(|| {
            choice
                .context
                .is_none()
                .then(|| env.get("FDN_CONTROLLER"))
                .flatten()
        });
        let selected = match (named, url) {
            (Some(name), _) => Some((name, find(&config, name, store)?)),
            (None, Some(_)) => None,
            (None, None) => match config.current.as_deref() {
                Some(name) => Some((name, find(&config, name, store)?)),
                None => None,
            },
        };
        let controller = match (url, selected) {
            (Some(text), _) => parse_controller(text)?,
            (None, Some((_, context))) => context.controller.clone(),
            (None, None) => parse_controller(DEFAULT_CONTROLLER)?,
        };
        // A context is used only for the controller that it belongs to: its token must not be sent to another one.
        let matching = selected
            .filter(|(_, c)| c.controller == controller)
            .or_else(|| by_url(&config, &controller));
        let token = match env.get("FDN_TOKEN_FILE") {
            Some(path) => Some(secret::read(Path::new(path))?),
            None => match matching {
                Some((name, _)) => store.token(name)?,
                None => None,
            },
        };
        Ok(Self {
            controller,
            token,
            ca_file: choice
                .ca_file(env)
                .or_else(|| matching.and_then(|(_, context)| context.ca_file.clone())),
            name: matching.map(|(name, _)| name.to_owned()),
            context: matching.map(|(_, context)| context.clone()),
        })
    }
}

fn find<'a>(config: &'a Config, name: &str, store: &ConfigStore) -> Result<&'a Context, CliError> {
    config.contexts.get(name).ok_or_else(|| {
        let known: Vec<&str> = config.contexts.keys().map(String::as_str).collect();
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        CliError::Config(format!(
            "there is no context {name:?} in {} (known: {known})",
            store.file().display()
        ))
    })
}

fn by_url<'a>(config: &'a Config, controller: &Url) -> Option<(&'a str, &'a Context)> {
    config
        .contexts
        .iter()
        .find(|(_, c)| c.controller == *controller)
        .map(|(name, c)| (name.as_str(), c))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    struct Fixture {
        folder: tempfile::TempDir,
        store: ConfigStore,
    }

    fn fixture() -> Fixture {
        let folder = tempfile::tempdir().expect("folder");
        let env = Environment::of([("XDG_CONFIG_HOME", folder.path().display().to_string())]);
        let store = ConfigStore::open(&env).expect("store");
        let context = |url: &str| Context {
            controller: url.parse().expect("url"),
            user: None,
            zone: Some("fn.test".parse().expect("zone")),
            dns: Some(SocketAddr::from(([127, 0, 0, 1], 5300))),
            gateway_port: Some(8080),
            ca_file: url.starts_with("https").then(|| "/etc/b.pem".into()),
            data_dir: None,
        };
        let contexts = [
            ("a".to_owned(), context("http://a.test:1")),
            ("b".to_owned(), context("https://b.test")),
        ];
        store
            .save(&Config {
                current: Some("a".into()),
                contexts: contexts.into(),
            })
            .expect("saved");
        store
            .save_token("a", &Secret::new("token-a"))
            .expect("saved");
        store
            .save_token("b", &Secret::new("token-b"))
            .expect("saved");
        Fixture { folder, store }
    }

    fn decide(
        f: &Fixture,
        choice: (Option<&str>, Option<&str>),
        vars: &[(&str, &str)],
    ) -> Result<Target, CliError> {
        let env = Environment::of(vars.iter().map(|(k, v)| (*k, (*v).to_owned())));
        let choice = Choice {
            controller: choice.0.map(Into::into),
            context: choice.1.map(Into::into),
            ca_file: None,
        };
        Target::decide(&choice, &env, &f.store)
    }

    fn token(target: &Target) -> Option<&str> {
        target.token.as_ref().map(Secret::expose)
    }

    #[test]
    fn a_flag_wins_over_a_variable_and_that_over_the_file() {
        let f = fixture();
        let current = decide(&f, (None, None), &[]).expect("current");
        assert_eq!(
            (current.controller.as_str(), token(&current)),
            ("http://a.test:1/", Some("token-a"))
        );
        let variable = decide(&f, (None, None), &[("FDN_CONTEXT", "b")]).expect("variable");
        assert_eq!(
            (variable.controller.as_str(), token(&variable)),
            ("https://b.test/", Some("token-b"))
        );
        let flag = decide(
            &f,
            (None, Some("a")),
            &[("FDN_CONTEXT", "b"), ("FDN_CONTROLLER", "http://c.test")],
        )
        .expect("flag");
        assert_eq!(flag.controller.as_str(), "http://a.test:1/");
        let url = decide(
            &f,
            (Some("http://d.test"), None),
            &[("FDN_CONTROLLER", "http://c.test")],
        )
        .expect("url");
        assert_eq!(url.controller.as_str(), "http://d.test/");
    }

    #[test]
    fn a_token_never_goes_to_another_controller() {
        let f = fixture();
        let other =
            decide(&f, (None, None), &[("FDN_CONTROLLER", "http://evil.test")]).expect("other");
        assert_eq!(token(&other), None);
        assert!(other.context.is_none());
        let both = decide(&f, (Some("http://evil.test"), Some("a")), &[]).expect("both");
        assert_eq!(
            (both.controller.as_str(), token(&both)),
            ("http://evil.test/", None)
        );
        let known =
            decide(&f, (None, None), &[("FDN_CONTROLLER", "https://b.test/")]).expect("known");
        assert_eq!(
            (known.name.as_deref(), token(&known)),
            (Some("b"), Some("token-b"))
        );
    }

    #[test]
    fn authorities_are_a_flags_before_a_variables_before_the_contexts() {
        let f = fixture();
        let file = |target: &Target| target.ca_file.clone().map(|f| f.display().to_string());
        let none = decide(&f, (None, None), &[]).expect("current");
        assert_eq!(file(&none), None);
        let own = decide(&f, (None, Some("b")), &[]).expect("its own");
        assert_eq!(file(&own).as_deref(), Some("/etc/b.pem"));
        let known = decide(&f, (Some("https://b.test"), None), &[]).expect("known");
        assert_eq!(file(&known).as_deref(), Some("/etc/b.pem"));
        let named = [("FDN_CA_FILE", "/etc/c.pem")];
        let variable = decide(&f, (None, Some("b")), &named).expect("variable");
        assert_eq!(file(&variable).as_deref(), Some("/etc/c.pem"));
        let choice = Choice {
            ca_file: Some("d.pem".into()),
            ..Choice::default()
        };
        let env = Environment::of(named.map(|(key, value)| (key, value.to_owned())));
        let flag = Target::decide(&choice, &env, &f.store).expect("flag");
        assert_eq!(file(&flag).as_deref(), Some("d.pem"));
    }

    #[test]
    fn a_token_file_in_the_environment_wins() {
        let f = fixture();
        let path = f.folder.path().join("own");
        std::fs::write(&path, "token-own\n").expect("write");
        let path = path.display().to_string();
        let target = decide(&f, (None, None), &[("FDN_TOKEN_FILE", &path)]).expect("own");
        assert_eq!(token(&target), Some("token-own"));
        let missing = decide(
            &f,
            (None, None),
            &[("FDN_TOKEN_FILE", "/nonexistent/token")],
        )
        .expect_err("missing");
        assert!(
            missing.to_string().contains("/nonexistent/token"),
            "{missing}"
        );
    }

    #[test]
    fn mistakes_are_named() {
        let f = fixture();
        let error = decide(&f, (None, Some("c")), &[])
            .expect_err("unknown")
            .to_string();
        assert!(
            error.contains("\"c\"") && error.contains("known: a, b"),
            "{error}"
        );
        for (bad, expected) in [
            ("ftp://x", "http or https"),
            ("http://u:p@x", "credentials do not belong"),
            ("http://x?y", "query"),
            ("http://", "empty host"),
        ] {
            let error = decide(&f, (Some(bad), None), &[])
                .expect_err(bad)
                .to_string();
            assert!(error.contains(expected), "{bad}: {error}");
        }
        std::fs::write(f.store.file(), "curent = \"a\"\n").expect("write");
        let error = decide(&f, (None, None), &[])
            .expect_err("unknown key")
            .to_string();
        assert!(
            error.contains("curent") && error.contains("config.toml"),
            "{error}"
        );
        std::fs::write(f.store.file(), "current = \"../x\"\n").expect("write");
        assert!(
            decide(&f, (None, None), &[]).is_err(),
            "a name cannot leave the folder"
        );
    }

    #[test]
    fn without_anything_configured_the_local_network_is_meant() {
        let folder = tempfile::tempdir().expect("folder");
        let env = Environment::of([("HOME", folder.path().display().to_string())]);
        let store = ConfigStore::open(&env).expect("store");
        let target = Target::decide(&Choice::default(), &env, &store).expect("default");
        assert_eq!(target.controller.as_str(), "http://127.0.0.1:8600/");
        assert!(target.token.is_none());
    }

    #[test]
    fn a_bare_address_is_a_controller_too() {
        assert_eq!(
            parse_controller("127.0.0.1:9000").expect("url").as_str(),
            "http://127.0.0.1:9000/"
        );
    }
}

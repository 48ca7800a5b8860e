//! The command line's context for the embedded network, so that `fdn deploy` works after `fdn up` without a login.
//!
//! A context that `fdn up` did not write belongs to the user and is not changed, and the current context is only set if there is
//! none: if it is a production network, `fdn deploy` must continue to use that.

use std::path::Path;

use fdn_core::api::LoginRequest;
use fdn_service::secret::{self, Secret};
use url::Url;

use super::plan::Plan;
use crate::client::Client;
use crate::config::{ConfigStore, Context, check_name};
use crate::error::CliError;
use crate::target::Target;

/// The result of writing the context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContextStatus {
    /// It is the current context.
    Current,
    /// It was written, but another one is current.
    Beside {
        /// The current context.
        current: String,
    },
    /// A context of this name exists that `fdn up` did not write.
    Foreign,
    /// It could not be written, or there is no token because the password was changed since the first start.
    Failed {
        /// The reason.
        reason: String,
    },
}

/// The URL of the embedded controller, from this machine.
///
/// # Errors
/// Never in practice: every address results in a URL.
pub fn controller_url(plan: &Plan) -> Result<Url, CliError> {
    let mut address = plan.listen;
    if address.ip().is_unspecified() {
        let loopback = if address.is_ipv4() {
            [127, 0, 0, 1].into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        };
        address.set_ip(loopback);
    }
    crate::target::parse_controller(&format!("http://{address}"))
}

/// A token that the controller accepts: the saved one, or a new one obtained with the password in the data directory.
///
/// # Errors
/// When the controller accepts neither.
pub async fn token(
    saved: Option<Secret>,
    controller: &Url,
    user: &str,
    password_file: &Path,
) -> Result<Secret, CliError> {
    let target = |token| Target::of(controller.clone(), token, None);
    if let Some(saved) = saved
        && Client::new(&target(Some(saved.clone())))?
            .network()
            .await
            .is_ok()
    {
        return Ok(saved);
    }
    let password = secret::read(password_file)?;
    let request = LoginRequest {
        user: user.to_owned(),
        password: password.expose().to_owned(),
    };
    let session = Client::new(&target(None))?.login(&request).await?;
    Ok(Secret::new(session.token))
}

/// Whether `fdn up` may write this context: it is new, or an earlier `fdn up` wrote it.
///
/// # Errors
/// When the configuration cannot be read or the name is not valid.
pub fn may_write(store: &ConfigStore, name: &str) -> Result<bool, CliError> {
    check_name(name)?;
    Ok(store
        .load()?
        .contexts
        .get(name)
        .is_none_or(|context| context.data_dir.is_some()))
}

/// Writes the context and its token.
///
/// # Errors
/// When the configuration cannot be read or written.
pub fn write(
    store: &ConfigStore,
    name: &str,
    plan: &Plan,
    data_dir: &Path,
    user: &str,
    token: &Secret,
) -> Result<ContextStatus, CliError> {
    let mut config = store.load()?;
    let context = Context {
        controller: controller_url(plan)?,
        user: Some(user.to_owned()),
        zone: Some(plan.zone.clone()),
        dns: Some(plan.dns),
        gateway_port: Some(plan.gateway_port),
        ca_file: None,
        data_dir: Some(data_dir.to_owned()),
    };
    config.contexts.insert(name.to_owned(), context);
    let current = config
        .current
        .get_or_insert_with(|| name.to_owned())
        .clone();
    store.save_login(&config, name, token)?;
    Ok(if current == name {
        ContextStatus::Current
    } else {
        ContextStatus::Beside { current }
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};
    use crate::config::Config;
    use crate::environment::Environment;

    fn plan() -> Plan {
        let Command::Up(args) = Cli::try_parse_from(["fdn", "up", "--listen", "0.0.0.0:8600"])
            .expect("arguments")
            .command
        else {
            panic!("another command")
        };
        Plan::of(&args).expect("plan")
    }

    fn store(folder: &Path) -> ConfigStore {
        ConfigStore::open(&Environment::of([(
            "XDG_CONFIG_HOME",
            folder.display().to_string(),
        )]))
        .expect("store")
    }

    #[test]
    fn the_first_network_becomes_current_and_a_second_start_renews_it() {
        let folder = tempfile::tempdir().expect("folder");
        let store = store(folder.path());
        for token in ["one", "two"] {
            assert!(may_write(&store, "local").expect("config"));
            let token = Secret::new(token);
            let written =
                write(&store, "local", &plan(), Path::new("/d"), "admin", &token).expect("written");
            assert_eq!(written, ContextStatus::Current);
            assert_eq!(
                secret::read(&store.token_file("local")).expect("token"),
                token
            );
        }
        let context = store.load().expect("config").contexts["local"].clone();
        assert_eq!(
            context.controller.as_str(),
            "http://127.0.0.1:8600/",
            "an address one can connect to"
        );
    }

    #[test]
    fn somebodys_own_context_is_neither_overwritten_nor_left_behind() {
        let folder = tempfile::tempdir().expect("folder");
        let store = store(folder.path());
        let own = Context {
            controller: "https://prod.test".parse().expect("url"),
            user: None,
            zone: None,
            dns: None,
            gateway_port: None,
            ca_file: None,
            data_dir: None,
        };
        let contexts = [("local".to_owned(), own.clone()), ("prod".to_owned(), own)];
        store
            .save(&Config {
                current: Some("prod".into()),
                contexts: contexts.into(),
            })
            .expect("saved");
        assert!(
            !may_write(&store, "local").expect("config"),
            "a context without a data directory is somebody's own"
        );
        assert!(may_write(&store, "other").expect("config"));
        let written = write(
            &store,
            "other",
            &plan(),
            Path::new("/d"),
            "admin",
            &Secret::new("t"),
        )
        .expect("written");
        assert_eq!(
            written,
            ContextStatus::Beside {
                current: "prod".into()
            }
        );
        assert_eq!(
            store.load().expect("config").current.as_deref(),
            Some("prod")
        );
    }
}

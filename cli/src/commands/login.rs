//! `fdn login`: gets a token for a controller, and saves it with what clients need to know about the network.

use std::path::PathBuf;

use fdn_core::Timestamp;
use fdn_core::account::SessionKind;
use fdn_core::api::LoginRequest;
use fdn_core::invitation::{AcceptInvitation, Invitation};
use fdn_service::secret::{self, Secret};
use url::Url;

use crate::args::LoginArgs;
use crate::client::Client;
use crate::config::{ConfigStore, Context, check_name};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::input;
use crate::output::time;
use crate::target::{Choice, Target, parse_controller};

/// Runs the command.
///
/// # Errors
/// When the controller refuses or cannot be reached, or the configuration cannot be written.
pub async fn run(
    args: &LoginArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let store = ConfigStore::open(env)?;
    let (name, controller) = context_and_controller(args, env, &store)?;
    let ca_file = ca_file(args, env, &store, &controller)?;
    let client = Client::new(&Target::of(controller.clone(), None, ca_file.clone()))?;
    let Session {
        user,
        token,
        expires_at,
    } = session(args, &client).await?;
    let target = Target::of(controller.clone(), Some(token.clone()), ca_file.clone());
    let network = Client::new(&target)?.network().await?;
    let mut config = store.load()?;
    let data_dir = config
        .contexts
        .get(&name)
        .filter(|c| c.controller == controller)
        .and_then(|c| c.data_dir.clone());
    let context = Context {
        controller,
        user: Some(user.clone()),
        zone: Some(network.zone),
        dns: network.dns,
        gateway_port: Some(network.gateway_port),
        ca_file,
        data_dir,
    };
    config.contexts.insert(name.clone(), context);
    config.current = Some(name.clone());
    store.save_login(&config, &name, &token)?;
    console.line(&format!(
        "logged in to {} as {user} until {}; context {name} is now the current one",
        client.place(),
        time(expires_at)
    ))
}

/// A new session.
struct Session {
    user: String,
    token: Secret,
    expires_at: Timestamp,
}

/// Starts a session with a password, or with an invitation and a newly chosen password.
async fn session(args: &LoginArgs, client: &Client) -> Result<Session, CliError> {
    let (password_file, place) = (args.password_file.as_deref(), client.place());
    let Some(file) = &args.invitation_file else {
        let password = input::password(password_file, &args.user, &place)?;
        let request = LoginRequest {
            user: args.user.clone(),
            password: password.expose().to_owned(),
        };
        let begun = client.login(&request).await?;
        return Ok(Session {
            user: request.user,
            token: Secret::new(begun.token),
            expires_at: begun.expires_at,
        });
    };
    let invitation: Invitation = secret::read(file)?.expose().parse()?;
    let user = invitation.user().as_str();
    let password = input::chosen_password(password_file, user, &place)?;
    let request = AcceptInvitation {
        token: invitation.expose(),
        password: password.expose().to_owned(),
        kind: SessionKind::Bearer,
    };
    let accepted = client.accept_invitation(&request).await?;
    let token = accepted.token.ok_or_else(|| CliError::Answer {
        url: place,
        reason: "it holds no token".to_owned(),
    })?;
    Ok(Session {
        user: accepted.user.to_string(),
        token: Secret::new(token),
        expires_at: accepted.expires_at,
    })
}

/// The name of the context, and its controller.
fn context_and_controller(
    args: &LoginArgs,
    env: &Environment,
    store: &ConfigStore,
) -> Result<(String, Url), CliError> {
    let config = store.load()?;
    let controller = match (&args.url, &args.context) {
        (Some(url), _) => parse_controller(url)?,
        (None, Some(name)) if config.contexts.contains_key(name) => {
            config.contexts[name].controller.clone()
        }
        (None, _) => Target::decide(&Choice::default(), env, store)?.controller,
    };
    let known = config
        .contexts
        .iter()
        .find(|(_, c)| c.controller == controller)
        .map(|(name, _)| name.clone());
    let name = args
        .context
        .clone()
        .or(known)
        .unwrap_or_else(|| name_of(&controller));
    check_name(&name)?;
    Ok((name, controller))
}

/// The file of the controller's authorities: from the flag or the variable, as an absolute path, or else the one saved for this
/// controller; none if that is requested.
fn ca_file(
    args: &LoginArgs,
    env: &Environment,
    store: &ConfigStore,
    controller: &Url,
) -> Result<Option<PathBuf>, CliError> {
    if args.no_ca_file {
        return Ok(None);
    }
    let named = Choice {
        ca_file: args.ca_file.clone(),
        ..Choice::default()
    };
    if let Some(file) = named.ca_file(env) {
        let whole = std::path::absolute(&file);
        let whole = whole.map_err(|e| CliError::Config(format!("{}: {e}", file.display())))?;
        return Ok(Some(whole));
    }
    let mut contexts = store.load()?.contexts.into_iter();
    let known = contexts.find(|(name, context)| {
        context.controller == *controller && args.context.as_ref().is_none_or(|one| one == name)
    });
    Ok(known.and_then(|(_, context)| context.ca_file))
}

/// A name for an unnamed controller: its host, and its port if that is not the scheme's default.
fn name_of(controller: &Url) -> String {
    let host = controller
        .host_str()
        .unwrap_or("controller")
        .trim_matches(['[', ']'])
        .replace(':', "-");
    match controller.port() {
        Some(port) => format!("{host}-{port}"),
        None => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_gets_a_name_that_can_be_a_file() {
        for (url, name) in [
            ("https://fdn.example.com", "fdn.example.com"),
            ("http://127.0.0.1:8600", "127.0.0.1-8600"),
            ("http://[2001:db8::1]:1", "2001-db8--1-1"),
        ] {
            let name_made = name_of(&url.parse().expect("url"));
            assert_eq!(name_made, name);
            check_name(&name_made).expect("a valid name");
        }
    }
}

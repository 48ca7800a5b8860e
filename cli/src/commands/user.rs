//! `fdn user`: manages users. Passwords come from a file, the terminal or standard input, never from the command line.

use fdn_core::account::{ChangePassword, CreateUser, SetPassword, UpdateUser, UserInfo};
use fdn_core::invitation::{CreatedInvitation, Invitation, InviteUser};
use fdn_core::{NetworkRole, Timestamp, UserName};
use serde::Serialize;

use super::tenant::{done, list};
use super::{client, target};
use crate::args::{
    ConnectArgs, CreateUserArgs, InviteUserArgs, OutputArgs, PasswordArgs, UserCommand,
};
use crate::client::Client;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::input;
use crate::output::{Format, Report, Row, age};

/// Runs the command.
///
/// # Errors
/// When the controller refuses or cannot be reached, or there is no password.
pub async fn run(
    command: &UserCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        UserCommand::Create(args) => create(args, env, console).await,
        UserCommand::Invite(args) => invite(args, env, console).await,
        UserCommand::List(args) => {
            let rows = client(&args.connect, env)?.users().await?;
            list(args.output, &rows, "there is no user", console)
        }
        UserCommand::Role(args) => {
            let request = UpdateUser {
                network_role: Some(args.role.into()),
                disabled: None,
            };
            let how = (args.output, &args.connect);
            change(&args.name, &request, how, env, console).await
        }
        UserCommand::Disable(args) => {
            let how = (args.output, &args.connect);
            change(&args.name, &disabled(true), how, env, console).await
        }
        UserCommand::Enable(args) => {
            let how = (args.output, &args.connect);
            change(&args.name, &disabled(false), how, env, console).await
        }
        UserCommand::Delete(args) => {
            let client = client(&args.connect, env)?;
            if !args.yes {
                let question = format!("delete user {} at {}?", args.name, client.place());
                input::confirm(console, &question)?;
            }
            client.delete_user(&args.name).await?;
            console.line(&format!("deleted user {}", args.name))
        }
        UserCommand::Password(args) => password(args, env, console).await,
    }
}

const fn disabled(disabled: bool) -> UpdateUser {
    UpdateUser {
        disabled: Some(disabled),
        network_role: None,
    }
}

async fn create(
    args: &CreateUserArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    let file = args.password_file.as_deref();
    let password = match args.oidc {
        true => String::new(),
        false => {
            let typed = input::password(file, args.name.as_str(), &client.place())?;
            typed.expose().to_owned()
        }
    };
    let request = CreateUser {
        name: args.name.clone(),
        password,
        oidc: args.oidc,
        network_role: fdn_core::account::NewNetworkRole::from(args.network_role).role(),
    };
    let made = client.create_user(&request).await?;
    let said = format!("made user {}", made.name);
    done(args.output, made, &said, console)
}

async fn invite(
    args: &InviteUserArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let target = target(&args.connect, env)?;
    let client = Client::new(&target)?;
    let request = InviteUser {
        name: args.name.clone(),
        network_role: fdn_core::account::NewNetworkRole::from(args.network_role).role(),
        ttl: args.ttl,
    };
    let made = client.invite_user(&request).await?;
    let invited = InvitationReport {
        made: &made,
        place: &client.place(),
    };
    // Only the link goes to standard output, so that it can be redirected to a file.
    console.report(args.output.output, &invited)?;
    if args.output.output == Format::Table {
        let trusting = target.ca_file.map_or("", |_| " --ca-file FILE");
        console.note(&format!(
            "{} chooses a password there, once, within {}; the link is not shown again\n\
             without a browser: fdn login {} --invitation-file FILE{trusting}",
            args.name,
            args.ttl,
            client.place()
        ));
    }
    Ok(())
}

/// A created invitation.
#[derive(Serialize)]
#[serde(transparent)]
pub struct InvitationReport<'a> {
    /// The API's answer.
    pub made: &'a CreatedInvitation,
    /// The URL of the controller, which serves the console.
    #[serde(skip)]
    pub place: &'a str,
}

impl Report for InvitationReport<'_> {
    fn text(&self, _: bool) -> String {
        format!("{}{}#{}\n", self.place, Invitation::PAGE, self.made.token)
    }

    fn names(&self) -> Vec<String> {
        vec![self.made.info.user.to_string()]
    }
}

async fn change(
    user: &UserName,
    request: &UpdateUser,
    (output, connect): (OutputArgs, &ConnectArgs),
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let info = client(connect, env)?.update_user(user, request).await?;
    let role = info.network_role.map_or("none", NetworkRole::as_str);
    let state = state(&info, fdn_service::now());
    let said = format!("{}: {state}, network role {role}", info.name);
    done(output, info, &said, console)
}

async fn password(
    args: &PasswordArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    let (file, place) = (args.password_file.as_deref(), client.place());
    if let Some(user) = &args.name {
        let password = input::password(file, user.as_str(), &place)?;
        let request = SetPassword {
            password: password.expose().to_owned(),
        };
        client.set_password(user, &request).await?;
        return console.line(&format!("set the password of {user}"));
    }
    let who = client.who().await?.user;
    let current = input::password(args.current_file.as_deref(), who.as_str(), &place)?;
    let fresh = input::password(file, &format!("{who}, the new one,"), &place)?;
    let request = ChangePassword {
        current: current.expose().to_owned(),
        password: fresh.expose().to_owned(),
    };
    client.change_password(&request).await?;
    console.line("changed your password; your other sessions have ended")
}

fn state(info: &UserInfo, now: Timestamp) -> &'static str {
    match (info.disabled_at, info.invited_until) {
        (Some(_), _) => "disabled",
        (None, None) => "active",
        (None, Some(until)) if now < until => "invited",
        (None, Some(_)) => "invitation over",
    }
}

impl Row for UserInfo {
    const COLUMNS: &'static [&'static str] =
        &["NAME", "STATE", "NETWORK ROLE", "AGE", "PASSWORD AGE"];
    const NARROW: usize = 4;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.name.to_string(),
            state(self, now).to_owned(),
            self.network_role
                .map_or("-", NetworkRole::as_str)
                .to_owned(),
            age(self.created_at, now),
            match self.invited_until {
                // No password was chosen yet.
                Some(_) => "-".to_owned(),
                None => age(self.password_changed_at, now),
            },
        ]
    }

    fn name(&self) -> String {
        self.name.to_string()
    }
}

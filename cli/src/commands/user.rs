//! `fdn user`: passwords come from a file, the terminal or standard input, never from the command line.

use fdn_core::account::{ChangePassword, CreateUser, SetPassword, UpdateUser, UserInfo};
use fdn_core::{NetworkRole, Timestamp, UserName};

use super::client;
use super::tenant::{done, list};
use crate::args::{ConnectArgs, CreateUserArgs, OutputArgs, PasswordArgs, UserCommand};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::input;
use crate::output::{Row, age};

/// Runs the command.
///
/// # Errors
/// When the controller refuses or cannot be asked, or there is no password.
pub async fn run(
    command: &UserCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        UserCommand::Create(args) => create(args, env, console).await,
        UserCommand::List(args) => {
            let rows = client(&args.connect, env)?.users().await?;
            list(args.output, &rows, "there is no user", console)
        }
        UserCommand::Role(args) => {
            let wish = UpdateUser {
                network_role: Some(args.role.into()),
                disabled: None,
            };
            let how = (args.output, &args.connect);
            change(&args.name, &wish, how, env, console).await
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
    let wish = CreateUser {
        name: args.name.clone(),
        password,
        oidc: args.oidc,
        network_role: fdn_core::account::NewNetworkRole::from(args.network_role).role(),
    };
    let made = client.create_user(&wish).await?;
    let said = format!("made user {}", made.name);
    done(args.output, made, &said, console)
}

async fn change(
    user: &UserName,
    wish: &UpdateUser,
    (output, connect): (OutputArgs, &ConnectArgs),
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let info = client(connect, env)?.update_user(user, wish).await?;
    let role = info.network_role.map_or("none", NetworkRole::as_str);
    let said = format!("{}: {}, network role {role}", info.name, state(&info));
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
        let wish = SetPassword {
            password: password.expose().to_owned(),
        };
        client.set_password(user, &wish).await?;
        return console.line(&format!("set the password of {user}"));
    }
    let who = client.who().await?.user;
    let current = input::password(args.current_file.as_deref(), who.as_str(), &place)?;
    let fresh = input::password(file, &format!("{who}, the new one,"), &place)?;
    let wish = ChangePassword {
        current: current.expose().to_owned(),
        password: fresh.expose().to_owned(),
    };
    client.change_password(&wish).await?;
    console.line("changed your password; your other sessions have ended")
}

fn state(info: &UserInfo) -> &'static str {
    match info.disabled_at {
        Some(_) => "disabled",
        None => "active",
    }
}

impl Row for UserInfo {
    const COLUMNS: &'static [&'static str] =
        &["NAME", "STATE", "NETWORK ROLE", "AGE", "PASSWORD AGE"];
    const NARROW: usize = 4;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.name.to_string(),
            state(self).to_owned(),
            self.network_role
                .map_or("-", NetworkRole::as_str)
                .to_owned(),
            age(self.created_at, now),
            age(self.password_changed_at, now),
        ]
    }

    fn name(&self) -> String {
        self.name.to_string()
    }
}

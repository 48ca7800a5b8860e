//! The commands: one module with a function `run` for each.

pub mod apply;
pub mod audit;
mod bar;
pub mod bill;
pub mod budget;
pub mod calls;
pub mod catalogue;
pub mod cluster;
pub mod completions;
pub mod delete;
pub mod deploy;
pub mod describe;
pub mod dev;
pub mod dns;
pub mod doctor;
pub mod domain;
pub mod env;
pub mod events;
pub mod explain;
pub mod invoke;
pub mod job;
pub mod key;
pub mod label;
pub mod list;
pub mod login;
pub mod logs;
pub mod new;
pub mod node;
pub mod objective;
pub mod open;
mod owner;
mod page;
pub mod plan;
pub mod policy;
pub mod price;
pub mod rollback;
pub mod secret;
pub mod signing_key;
pub mod sim;
pub mod tenant;
pub mod test;
pub mod token;
pub mod top;
pub mod trace;
pub mod traffic;
pub mod txt;
pub mod user;
pub mod version;
mod wait;
pub mod workflow;

use crate::args::ConnectArgs;
use crate::client::Client;
use crate::config::ConfigStore;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::target::Target;

/// The network of a command.
fn target(connect: &ConnectArgs, env: &Environment) -> Result<Target, CliError> {
    Target::decide(&connect.into(), env, &ConfigStore::open(env)?)
}

/// A client of the controller of that network.
fn client(connect: &ConnectArgs, env: &Environment) -> Result<Client, CliError> {
    Client::new(&target(connect, env)?)
}

/// Changes each of these things and prints what `change` says of it, until a change fails.
///
/// A reader of standard output who leaves keeps no change from being made: the program would end with success, as it does for all readers who leave.
/// The first failure to print is returned when all changes are made.
async fn each<T>(
    things: &[T],
    console: &mut Console,
    change: impl AsyncFn(&T) -> Result<String, CliError>,
) -> Result<(), CliError> {
    let mut printed = Ok(());
    for thing in things {
        let done = change(thing).await?;
        printed = printed.and(console.line(&done));
    }
    printed
}

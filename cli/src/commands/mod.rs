//! The commands: one module each, one function `run` in each.

pub mod cluster;
pub mod completions;
pub mod delete;
pub mod deploy;
pub mod describe;
pub mod doctor;
pub mod explain;
pub mod invoke;
pub mod list;
pub mod login;
pub mod logs;
pub mod new;
pub mod node;
pub mod rollback;
pub mod sim;
pub mod version;
mod wait;

use crate::args::ConnectArgs;
use crate::client::Client;
use crate::config::ConfigStore;
use crate::environment::Environment;
use crate::error::CliError;
use crate::target::Target;

/// The network that a command was told to work on.
fn target(connect: &ConnectArgs, env: &Environment) -> Result<Target, CliError> {
    Target::decide(&connect.into(), env, &ConfigStore::open(env)?)
}

/// A client of that network's controller.
fn client(connect: &ConnectArgs, env: &Environment) -> Result<Client, CliError> {
    Client::new(&target(connect, env)?)
}

//! `fdn`, the command line of the function delivery network.
//!
//! Every command is a function of its arguments, the environment variables and the output streams, so that tests can run it
//! without a process. [`run`] dispatches the command; [`main_with`] adds what a process needs: the exit code and the error message.
//!
//! - [`args`] parses the command line; [`target`], [`config`] and [`environment`] determine the network; [`client`] talks to its controller.
//! - [`resolver`] queries the network's own DNS, as `fdn invoke` needs it.
//! - [`function`] is a function's folder, [`cases`] holds its test requests with the expected answers, [`dev`] decides about the reaction to
//!   changes.
//! - [`output`] and [`console`] print; [`exit`] and [`error`] report the result and what to do next.
//! - [`up`] runs a whole network in one process; [`commands`] holds all other commands.

pub mod apply;
pub mod args;
pub mod artifact;
mod billing;
pub mod cases;
pub mod client;
pub mod commands;
pub mod config;
pub mod console;
pub mod dev;
pub mod environment;
pub mod error;
pub mod exit;
pub mod function;
pub mod input;
pub mod output;
mod progress;
pub mod resolver;
pub mod target;
pub mod templates;
pub mod up;

use args::{Cli, Command};
use console::Console;
use environment::Environment;
use error::CliError;
use exit::Exit;

/// Runs a command.
///
/// # Errors
/// Any error of the command.
pub async fn run(
    command: &Command,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        Command::Up(args) => up::run(args, env, console).await,
        Command::Login(args) => commands::login::run(args, env, console).await,
        Command::Deploy(args) => commands::deploy::run(args, env, console).await,
        Command::Apply(args) => commands::apply::run(args, env, console).await,
        Command::List(args) => commands::list::apps(args, env, console).await,
        Command::Describe(args) => commands::describe::run(args, env, console).await,
        Command::Invoke(args) => commands::invoke::run(args, env, console).await,
        Command::Calls(args) => commands::calls::run(args, env, console).await,
        Command::Trace(args) => commands::trace::run(args, env, console).await,
        Command::Logs(args) => commands::logs::run(args, env, console).await,
        Command::Rollback(args) => commands::rollback::run(args, env, console).await,
        Command::Delete(args) => commands::delete::run(args, env, console).await,
        Command::Explain(args) => commands::explain::run(args, env, console).await,
        Command::Dns(args) => commands::dns::run(&args.command, env, console).await,
        Command::Plan(args) => commands::plan::run(args, env, console).await,
        Command::Workflow(args) => commands::workflow::run(&args.command, env, console).await,
        Command::Job(args) => commands::job::run(&args.command, env, console).await,
        Command::Schedule(args) => commands::job::schedules(&args.command, env, console).await,
        Command::Policy(args) => commands::policy::run(&args.command, env, console).await,
        Command::Key(args) => commands::key::run(&args.command, env, console).await,
        Command::Traffic(args) => commands::traffic::run(&args.command, env, console).await,
        Command::Objective(args) => commands::objective::run(&args.command, env, console).await,
        Command::Domain(args) => commands::domain::run(&args.command, env, console).await,
        Command::Secret(args) => commands::secret::run(&args.command, env, console).await,
        Command::Env(args) => commands::env::run(&args.command, env, console).await,
        Command::Label(args) => commands::label::run(args, env, console).await,
        Command::SigningKey(args) => commands::signing_key::run(&args.command, env, console).await,
        Command::Catalogue(args) => commands::catalogue::run(&args.command, env, console).await,
        Command::Cluster(args) => commands::cluster::run(&args.command, env, console).await,
        Command::Node(args) => commands::node::run(&args.command, env, console).await,
        Command::Bill(args) => commands::bill::run(args, env, console).await,
        Command::Price(args) => commands::price::run(&args.command, env, console).await,
        Command::Budget(args) => commands::budget::run(&args.command, env, console).await,
        Command::Tenant(args) => commands::tenant::run(&args.command, env, console).await,
        Command::Member(args) => commands::tenant::members(&args.command, env, console).await,
        Command::User(args) => commands::user::run(&args.command, env, console).await,
        Command::Token(args) => commands::token::run(&args.command, env, console).await,
        Command::Audit(args) => commands::audit::run(args, env, console).await,
        Command::Events(args) => commands::events::run(args, env, console).await,
        Command::Top(args) => commands::top::run(args, env, console).await,
        Command::New(args) => commands::new::run(args, console),
        Command::Dev(args) => commands::dev::run(args, env, console).await,
        Command::Test(args) => commands::test::run(args, env, console).await,
        Command::Open(args) => commands::open::run(args, env, console).await,
        Command::Doctor(args) => commands::doctor::run(args, env, console).await,
        Command::Sim(args) => commands::sim::run(args, console),
        Command::Version(args) => commands::version::run(args, env, console).await,
        Command::Completions(args) => commands::completions::run(args, console),
    }
}

/// Runs a command line and returns the result. Errors are printed.
pub async fn main_with(cli: &Cli, env: &Environment, console: &mut Console) -> Exit {
    match Box::pin(run(&cli.command, env, console)).await {
        Ok(()) => Exit::Ok,
        Err(error) => {
            let exit = error.exit();
            if exit != Exit::Ok {
                console.note(error::render(&error).trim_end());
            }
            exit
        }
    }
}

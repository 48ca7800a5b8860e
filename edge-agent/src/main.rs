//! `fdn-edge-agent`: the process that runs one node of the network.
//!
//! Exit codes: 0 after an orderly stop, 2 when the configuration is not valid, 1 for anything else.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand};
use fdn_core::{Coded, ErrorCode, NodeId};
use fdn_edge_agent::join::{JoinArgs, Joined, join};
use fdn_edge_agent::{Agent, Error, Settings};
use fdn_service::version::Build;
use fdn_service::{config, logs, probe, signal};
use tracing::info;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

static VERSION: LazyLock<String> = LazyLock::new(|| Build::of(Vec::new()).text());

/// One node of the function delivery network: gateway and function instances.
#[derive(Debug, Parser)]
#[command(
    name = "fdn-edge-agent",
    version,
    long_version = VERSION.as_str(),
    args_conflicts_with_subcommands = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the node (also what happens without a command).
    Run(RunArguments),
    /// Makes this machine a node of a network, with a join token.
    Join(Box<JoinArgs>),
}

/// How the node is run.
#[derive(Debug, Args)]
struct RunArguments {
    /// The configuration file (TOML); `FDN_SECTION__KEY` variables override it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The node's name, instead of the configuration's: for nodes that share one.
    #[arg(long, value_name = "NAME")]
    node: Option<NodeId>,
    /// Checks the configuration and ends.
    #[arg(long)]
    check_config: bool,
    /// Prints the configuration as it takes effect and ends.
    #[arg(long)]
    print_config: bool,
    /// Asks the node that runs with this configuration whether it is healthy and ends.
    #[arg(long)]
    check_health: bool,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments
        .next()
        .is_some_and(|first| first == fdn_runtime::COMPILE_WORKER_ARG)
    {
        return fdn_runtime::compile_worker_main(arguments);
    }
    let arguments = Arguments::parse();
    let done = match &arguments.command {
        Some(Command::Join(args)) => join_network(args),
        Some(Command::Run(args)) => run(args),
        None => run(&arguments.run),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            match error.code() {
                ErrorCode::ConfigInvalid => ExitCode::from(2),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

#[allow(
    clippy::print_stderr,
    reason = "the last words of a process that cannot start, which may come before its log"
)]
fn report(error: &Error) {
    eprintln!("fdn-edge-agent: {}: {error}", error.code());
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        eprintln!("  caused by: {inner}");
        cause = inner.source();
    }
}

#[allow(
    clippy::print_stdout,
    reason = "what was asked for with --check-config, --print-config and --check-health"
)]
fn run(arguments: &RunArguments) -> Result<(), Error> {
    let settings = settings(arguments)?;
    if arguments.print_config {
        print!("{}", config::print(&settings)?);
        return Ok(());
    }
    if arguments.check_config {
        println!("the configuration is valid");
        return Ok(());
    }
    if arguments.check_health {
        probe::check(settings.admin.listen, false)?;
        println!("healthy");
        return Ok(());
    }
    logs::init(&settings.log);
    runtime()?.block_on(serve(settings))
}

/// Loads the settings from the configuration file, the environment and the flags, and checks them.
fn settings(arguments: &RunArguments) -> Result<Settings, Error> {
    let node = arguments
        .node
        .as_ref()
        .map(|node| ("node", node.to_string()));
    let settings: Settings = config::load(arguments.config.as_deref(), node.as_slice())?;
    settings.check()?;
    Ok(settings)
}

fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|source| Error::Listener {
            what: "runtime's",
            source,
        })
}

#[allow(
    clippy::print_stdout,
    reason = "the answer to a person who joins a machine"
)]
fn join_network(args: &JoinArgs) -> Result<(), Error> {
    let (summary, before) = match runtime()?.block_on(join(args, fdn_service::now()))? {
        Joined::New(summary) => (summary, false),
        Joined::Before(summary) => (summary, true),
    };
    let identity = &summary.facts.identity;
    let has = if before { "had joined" } else { "has joined" };
    println!("node {} {has} cluster {}", identity.name, identity.cluster);
    if let Some(file) = &summary.unnamed {
        println!(
            "{} does not name the authorities of the controllers' API that were given; set this there:\n[controller]\nca_file = {:?}",
            summary.config.display(),
            file.display().to_string()
        );
    }
    println!(
        "start it: fdn-edge-agent run --config {}",
        summary.config.display()
    );
    Ok(())
}

async fn serve(settings: Settings) -> Result<(), Error> {
    let agent = Agent::start(settings).await?;
    let name = signal::stop().await.map_err(|source| Error::Listener {
        what: "signal",
        source,
    })?;
    info!(signal = name, "stopping");
    agent.stop().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_share_a_configuration_are_named_by_a_flag() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("edge-agent.toml");
        std::fs::write(&file, "node = \"shared\"\n").expect("written");
        let path = file.display().to_string();
        for (more, expected) in [(&[][..], "shared"), (&["--node", "n-1"], "n-1")] {
            let words = ["fdn-edge-agent", "run", "--config", &path];
            let arguments = Arguments::try_parse_from(words.iter().chain(more));
            let Some(Command::Run(run)) = arguments.expect("known flags").command else {
                panic!("it is to run");
            };
            assert_eq!(settings(&run).expect("valid").node.as_str(), expected);
        }
        let wrong = ["fdn-edge-agent", "run", "--node", "n.1"];
        assert!(Arguments::try_parse_from(wrong).is_err());
    }
}

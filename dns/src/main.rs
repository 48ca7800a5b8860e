//! `fdn-dns`: the DNS server as a separate process.

mod commands;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{Parser, Subcommand};
use fdn_core::{Coded, ErrorCode};
use fdn_dns::member::{JoinArgs, join};
use fdn_dns::{Dns, Error, Listeners, Settings, privileges};
use fdn_service::version::Build;
use fdn_service::{config, logs, probe, signal};
use tracing::{error, info};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

static VERSION: LazyLock<String> = LazyLock::new(|| Build::of(Vec::new()).text());

/// Authoritative Smart DNS of the function delivery network.
#[derive(Parser)]
#[command(name = "fdn-dns", version, long_version = VERSION.as_str())]
struct Arguments {
    /// The configuration file; without it the defaults count.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// The server's name, instead of the configuration's: for servers that share one.
    #[arg(long, value_name = "NAME", global = true)]
    server: Option<String>,
    /// Check the configuration and end.
    #[arg(long)]
    check_config: bool,
    /// Print the configuration as it counts, and end.
    #[arg(long)]
    print_config: bool,
    /// Ask the process that runs with this configuration whether it is healthy, and end.
    #[arg(long)]
    check_health: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

/// What to do instead of serving.
#[derive(Subcommand)]
enum Command {
    /// Make, show and roll over the zone's DNSSEC keys
    Keys {
        #[command(subcommand)]
        command: commands::KeysCommand,
    },
    /// Make this machine a DNS server of a network, with a join token
    Join(Box<JoinArgs>),
}

/// The exit code for an invalid configuration.
const BAD_CONFIG: u8 = 2;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let settings = match read(&arguments) {
        Ok(settings) => settings,
        Err(cause) => return report(&cause),
    };
    if arguments.print_config || arguments.check_config || arguments.check_health {
        return finish(&arguments, &settings);
    }
    let done = match &arguments.command {
        Some(Command::Keys { command }) => Some(commands::run(&settings, command)),
        Some(Command::Join(args)) => Some(join_network(args, &settings)),
        None => None,
    };
    match done {
        Some(Ok(())) => return ExitCode::SUCCESS,
        Some(Err(cause)) => return report(&cause),
        None => {}
    }
    logs::init(&settings.log);
    let listeners = match Listeners::bind(&settings) {
        Ok(listeners) => listeners,
        Err(cause) => return report(&cause),
    };
    // The runtime's threads inherit the capabilities of this thread, so they are dropped first.
    privileges::give_up();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(cause) => {
            error!(%cause, "the runtime cannot start");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(settings, listeners)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => report(&cause),
    }
}

#[allow(
    clippy::print_stdout,
    reason = "the answer to a person who joins a machine"
)]
fn join_network(args: &JoinArgs, settings: &Settings) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::Socket)?;
    let (facts, before) = runtime.block_on(join(args, settings, fdn_service::now()))?;
    let has = if before { "had joined" } else { "has joined" };
    let machine = &facts.identity;
    println!(
        "DNS server {} {has}, in cluster {}",
        machine.name, machine.cluster
    );
    Ok(())
}

fn read(arguments: &Arguments) -> Result<Settings, Error> {
    let server = arguments.server.as_ref();
    let server = server.map(|server| ("server", server.clone()));
    let settings: Settings = config::load(arguments.config.as_deref(), server.as_slice())?;
    settings.validate()?;
    Ok(settings)
}

#[allow(
    clippy::print_stdout,
    reason = "what was asked for on the command line goes to standard output"
)]
fn finish(arguments: &Arguments, settings: &Settings) -> ExitCode {
    let said = if arguments.print_config {
        config::print(settings)
    } else if arguments.check_config {
        Ok("the configuration is valid\n".to_owned())
    } else {
        probe::check(settings.admin, false).map(|()| "healthy\n".to_owned())
    };
    match said {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(cause) => report(&cause.into()),
    }
}

#[allow(
    clippy::print_stderr,
    reason = "why the process ends must be seen even if logs are filtered"
)]
fn report(cause: &Error) -> ExitCode {
    eprintln!("fdn-dns: {} {cause}", cause.code());
    let mut source = std::error::Error::source(cause);
    while let Some(next) = source {
        eprintln!("  because: {next}");
        source = next.source();
    }
    if cause.code() == ErrorCode::ConfigInvalid {
        ExitCode::from(BAD_CONFIG)
    } else {
        ExitCode::FAILURE
    }
}

async fn run(settings: Settings, listeners: Listeners) -> Result<(), Error> {
    let dns = Dns::start_on(listeners, settings, None).await?;
    let signal = signal::stop().await.map_err(Error::Socket)?;
    info!(signal, "stopping");
    dns.stop().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_share_a_configuration_are_named_by_a_flag() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("dns.toml");
        std::fs::write(&file, "server = \"shared\"\n").expect("written");
        let path = file.display().to_string();
        let join = ["join", "https://c.example.org", "--token-file", "-"];
        for (more, expected) in [(&[][..], "shared"), (&["--server", "dns-1"], "dns-1")] {
            for command in [&[][..], &join] {
                let words = ["fdn-dns", "--config", &path];
                let words = words.iter().chain(command).chain(more);
                let arguments = Arguments::try_parse_from(words).expect("known flags");
                assert_eq!(read(&arguments).expect("valid").server, expected);
            }
        }
    }
}

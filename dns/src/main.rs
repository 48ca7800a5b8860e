//! `fdn-dns`: the DNS server as a process of its own.

mod commands;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use fdn_bus::{AmqpBroker, AmqpOptions, Limits};
use fdn_core::{Coded, ErrorCode};
use fdn_dns::{Dns, Error, Listeners, Settings, privileges};
use fdn_service::{config, logs, signal};
use tracing::{error, info};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Authoritative Smart DNS of the function delivery network.
#[derive(Parser)]
#[command(name = "fdn-dns", version)]
struct Arguments {
    /// The configuration file; without it the defaults count.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Check the configuration and end.
    #[arg(long)]
    check_config: bool,
    /// Print the configuration as it counts, and end.
    #[arg(long)]
    print_config: bool,
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
}

/// The exit code for a configuration that is not valid.
const BAD_CONFIG: u8 = 2;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let settings = match read(&arguments) {
        Ok(settings) => settings,
        Err(cause) => return report(&cause),
    };
    if arguments.print_config || arguments.check_config {
        return finish(&arguments, &settings);
    }
    if let Some(Command::Keys { command }) = &arguments.command {
        return match commands::run(&settings, command) {
            Ok(()) => ExitCode::SUCCESS,
            Err(cause) => report(&cause),
        };
    }
    logs::init(&settings.log);
    let listeners = match Listeners::bind(&settings) {
        Ok(listeners) => listeners,
        Err(cause) => return report(&cause),
    };
    // The runtime's threads begin with what this one has.
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

fn read(arguments: &Arguments) -> Result<Settings, Error> {
    let settings: Settings = config::load(arguments.config.as_deref(), &[])?;
    settings.validate()?;
    Ok(settings)
}

#[allow(
    clippy::print_stdout,
    reason = "what was asked for on the command line goes to standard output"
)]
fn finish(arguments: &Arguments, settings: &Settings) -> ExitCode {
    if !arguments.print_config {
        println!("the configuration is valid");
        return ExitCode::SUCCESS;
    }
    match config::print(settings) {
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
    let broker = AmqpBroker::connect(AmqpOptions {
        url: settings.broker.url.clone(),
        password_file: settings.broker.password_file.clone(),
        namespace: settings.broker.namespace.clone(),
        name: settings.server.clone(),
        limits: Limits::default(),
    })?;
    let dns = Dns::start_on(listeners, settings, Arc::new(broker)).await?;
    let signal = signal::stop().await.map_err(Error::Socket)?;
    info!(signal, "stopping");
    dns.stop().await;
    Ok(())
}

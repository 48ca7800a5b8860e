//! `fdn-controller`: the controller as a process of its own, on PostgreSQL and RabbitMQ (or whatever its settings say).

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use fdn_bus::{AmqpBroker, AmqpOptions, Limits};
use fdn_controller::{Controller, Error, Settings};
use fdn_core::{Coded, ErrorCode};

/// Exit code for a configuration that is not valid.
const BAD_CONFIG: u8 = 2;

/// The controller of a function delivery network.
#[derive(Parser)]
#[command(name = "fdn-controller", version)]
struct Arguments {
    /// The settings file; see deploy/config/controller.toml.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the settings and exit.
    #[arg(long)]
    check_config: bool,
    /// Print the settings that would be used and exit. They name files with secrets, they hold none.
    #[arg(long)]
    print_config: bool,
}

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == fdn_runtime::COMPILE_WORKER_ARG)
    {
        return fdn_runtime::compile_worker_main(std::env::args_os().skip(2));
    }
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&error);
            match error.code() {
                ErrorCode::ConfigInvalid => ExitCode::from(BAD_CONFIG),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// Says on standard error why the program ends, with all causes.
#[allow(
    clippy::print_stderr,
    reason = "the last words of a program, whether or not logs are on"
)]
fn tell(error: &Error) {
    eprintln!("fdn-controller: {}: {error}", error.code());
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        eprintln!("  because: {next}");
        cause = next.source();
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let settings: Settings = fdn_service::config::load(arguments.config.as_deref(), &[])?;
    settings.check()?;
    if arguments.print_config {
        print(&fdn_service::config::print(&settings)?);
        return Ok(());
    }
    if arguments.check_config {
        print("the configuration is valid\n");
        return Ok(());
    }
    fdn_service::logs::init(&settings.log);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::Internal(format!("the runtime cannot be started: {e}")))?;
    runtime.block_on(serve(settings))
}

#[allow(
    clippy::print_stdout,
    reason = "what was asked for on the command line"
)]
fn print(text: &str) {
    print!("{text}");
}

async fn serve(settings: Settings) -> Result<(), Error> {
    let options = AmqpOptions {
        url: settings.broker.url.clone(),
        password_file: settings.broker.password_file.clone(),
        namespace: settings.broker.namespace.clone(),
        limits: Limits::default(),
        name: "fdn-controller".to_owned(),
    };
    let broker = Arc::new(AmqpBroker::connect(options)?);
    let controller = Controller::start(settings, broker).await?;
    if let Some(password) = controller.initial_password() {
        print(&format!(
            "the first user's password, shown once: {}\n",
            password.expose()
        ));
    }
    let signal = fdn_service::signal::stop()
        .await
        .map_err(|e| Error::Internal(format!("no signal handlers: {e}")))?;
    tracing::info!(signal, "stopping");
    controller.stop().await;
    Ok(())
}

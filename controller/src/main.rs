//! `fdn-controller`: the controller as a process of its own, on PostgreSQL and RabbitMQ (or whatever its settings say).

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, LazyLock};

use clap::{Parser, Subcommand};
use fdn_bus::{AmqpBroker, AmqpOptions, Limits};
use fdn_controller::backup::{self, ArchiveLocation, KeyPolicy, Manifest};
use fdn_controller::keys::Keys;
use fdn_controller::store::Store;
use fdn_controller::{Controller, Error, Settings};
use fdn_core::{Coded, ErrorCode};
use fdn_service::master::MasterKeyId;
use fdn_service::probe;
use fdn_service::version::Build;

/// Exit code for a configuration that is not valid.
const BAD_CONFIG: u8 = 2;

static VERSION: LazyLock<String> = LazyLock::new(|| Build::of(fdn_controller::built_in()).text());

/// The controller of a function delivery network.
#[derive(Parser)]
#[command(name = "fdn-controller", version, long_version = VERSION.as_str())]
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
    /// Ask the process that runs with these settings whether it is healthy, and exit.
    #[arg(long)]
    check_health: bool,
    /// What to do instead of serving.
    #[command(subcommand)]
    command: Option<Command>,
}

/// What to do instead of serving.
#[derive(Subcommand)]
enum Command {
    /// List, add, wrap anew under and drop the master keys that secrets are sealed under
    Keys {
        /// What to do.
        #[command(subcommand)]
        command: KeysCommand,
    },
    /// Write everything that cannot be made anew into one archive; controllers may go on
    Backup {
        /// The archive, `-` for standard output
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Take the network's key and token and the master keys in as well: then the archive opens what it holds
        #[arg(long)]
        with_keys: bool,
    },
    /// Write an archive into an empty database and an empty artifact store
    Restore {
        /// The archive, `-` for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Go on without keys that are not there: secrets of functions are forgotten, and all machines have to join again
        #[arg(long)]
        keys_lost: bool,
    },
    /// Bring the database to this release's schema, as a start does
    Migrate {
        /// Say what would be applied, try it in a transaction, and take it back
        #[arg(long)]
        dry_run: bool,
    },
}

/// What to do with master keys.
#[derive(Subcommand)]
enum KeysCommand {
    /// Show the master keys and how many data keys each wraps
    List,
    /// Put a new key in front of the file: it wraps from now on, the others still unwrap
    Add,
    /// Wrap every data key under the first master key; run again if it was interrupted
    Rewrap,
    /// Add and rewrap in one go, where all controllers read the same file
    Rotate,
    /// Take a key that wraps nothing out of the file
    Drop {
        /// The key's id, as `list` shows it
        #[arg(value_name = "ID")]
        id: MasterKeyId,
    },
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

/// Prints on standard error why the program ends, with all causes.
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
    if arguments.check_health {
        probe::check(settings.listen, !settings.api.tls.certificates.is_empty())?;
        print("healthy\n");
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::Internal(format!("the runtime cannot be started: {e}")))?;
    let Some(command) = &arguments.command else {
        fdn_service::logs::init(&settings.log);
        return runtime.block_on(serve(settings));
    };
    runtime.block_on(async {
        match command {
            Command::Keys { command } => keys(&settings, command).await,
            Command::Backup { file, with_keys } => {
                let wanted = if *with_keys {
                    KeyPolicy::With
                } else {
                    KeyPolicy::Needed
                };
                let made =
                    backup::backup(&settings, &ArchiveLocation::from(file.clone()), wanted).await?;
                summary("backed up", &made);
                Ok(())
            }
            Command::Restore { file, keys_lost } => {
                let wanted = if *keys_lost {
                    KeyPolicy::Lost
                } else {
                    KeyPolicy::Needed
                };
                let place = ArchiveLocation::from(file.clone());
                let restored = backup::restore(&settings, &place, wanted).await?;
                summary("restored", &restored);
                Ok(())
            }
            Command::Migrate { dry_run } => migrate(&settings, *dry_run).await,
        }
    })
}

/// Prints what was done on standard error, since standard output may be the archive.
#[allow(
    clippy::print_stderr,
    reason = "what was asked for on the command line"
)]
fn summary(done: &str, manifest: &Manifest) {
    let rows: u64 = manifest.tables.iter().map(|table| table.rows).sum();
    eprintln!(
        "{done}: {rows} rows of {} tables, {} objects of {} bytes; schema {}, release {}",
        manifest.tables.len(),
        manifest.objects.count,
        manifest.objects.bytes,
        manifest.schema,
        manifest.product
    );
    for key in &manifest.keys {
        eprintln!("in the archive: {}", key.name);
    }
    for key in &manifest.keys_apart {
        eprintln!(
            "not in the archive, keep it apart: {} ({})",
            key.name, key.place
        );
    }
}

async fn migrate(settings: &Settings, dry_run: bool) -> Result<(), Error> {
    let store = Store::connect(&settings.database).await?;
    let pending = store.pending().await?;
    if dry_run {
        store.rehearse().await?;
    } else {
        store.migrate().await?;
    }
    let done = if dry_run {
        "would be applied"
    } else {
        "applied"
    };
    for migration in &pending {
        print(&format!(
            "{}  {}\n",
            migration.version, migration.description
        ));
    }
    print(&format!("{} migrations {done}\n", pending.len()));
    store.close().await;
    Ok(())
}

async fn keys(settings: &Settings, command: &KeysCommand) -> Result<(), Error> {
    let keys = Keys::open(settings).await?;
    match command {
        KeysCommand::List => {}
        KeysCommand::Add => {
            keys.add().await?;
        }
        KeysCommand::Rewrap => wrapped(keys.rewrap(settings).await?),
        KeysCommand::Rotate => {
            keys.add().await?;
            wrapped(keys.rewrap(settings).await?);
        }
        KeysCommand::Drop { id } => keys.drop_key(id).await?,
    }
    for key in keys.list().await? {
        let state = match (key.known, key.current) {
            (true, true) => "wraps",
            (true, false) => "unwraps only",
            (false, _) => "missing",
        };
        print(&format!(
            "{}  {state:<12}  {} data keys\n",
            key.id, key.data_keys
        ));
    }
    Ok(())
}

fn wrapped(data_keys: u64) {
    print(&format!("{data_keys} data keys were wrapped anew\n"));
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
    let file = settings.accounts.initial_password_file.clone();
    let controller = Controller::start(settings, broker).await?;
    if let Some(password) = controller.initial_password() {
        // If it is in a file, readers of the log must not see it.
        print(&match file {
            Some(path) => format!("the first user's password is in {}\n", path.display()),
            None => format!(
                "the first user's password, shown once: {}\n",
                password.expose()
            ),
        });
    }
    let signal = fdn_service::signal::stop()
        .await
        .map_err(|e| Error::Internal(format!("no signal handlers: {e}")))?;
    tracing::info!(signal, "stopping");
    controller.stop().await;
    Ok(())
}

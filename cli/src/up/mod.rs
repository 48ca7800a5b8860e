//! `fdn up`: the whole network in this process, with embedded defaults and nothing to install.
//!
//! In order: [`plan`] determines the addresses; [`lock`] locks the data directory; [`preflight`] checks that all ports are free;
//! [`engine`] checks whether container images can be run; [`network`] starts the controller, lets DNS and nodes join it (`join`), and starts them:
//! each has its own identity and its connection over loopback, as in production; [`ready`] waits until they know each other; [`context`] lets
//! the other commands use the network; [`banner`] prints the addresses. Then it runs until SIGTERM or Ctrl-C.

pub mod args;
pub mod banner;
pub mod context;
pub mod engine;
mod join;
pub mod lock;
pub mod network;
pub mod plan;
pub mod preflight;
pub mod ready;
pub mod settings;

use std::path::Path;
use std::time::{Duration, Instant};

use fdn_service::logs::{LogFormat, LogSettings};
use fdn_service::secret::{self, Secret};
use fdn_service::signal;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use args::UpArgs;
use banner::Banner;
use context::ContextStatus;
use engine::Engine;
use lock::DataDir;
use network::Network;
use plan::Plan;
use settings::{ADMIN, Layout};

use crate::config::ConfigStore;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::progress;

/// How long stopping may take before the process exits anyway.
const STOP: Duration = Duration::from_secs(10);
/// The most open files that are useful to this process.
const OPEN_FILES: u64 = 1 << 20;

/// Runs the command until a signal ends it.
///
/// # Errors
/// When the network cannot start.
pub async fn run(args: &UpArgs, env: &Environment, console: &mut Console) -> Result<(), CliError> {
    let began = Instant::now();
    // Info messages of the components would hide the banner; warnings are still shown.
    fdn_service::logs::init(&LogSettings {
        format: LogFormat::Text,
        filter: "warn".to_owned(),
    });
    let plan = Plan::of(args)?;
    let slot = ContextSlot::of(&args.context, env)?;
    let data = DataDir::open(args.data_dir.as_deref(), env)?;
    preflight::check(&plan)?;
    raise_open_files();
    let layout = Layout::of(data.path());
    layout.prepare()?;
    let first = !layout.admin_password().exists();
    let spinner = progress::spinner(console, "starting controller, DNS and nodes");
    let engine = if args.no_docker {
        None
    } else {
        engine::find(env).await
    };
    let network = Box::pin(Network::start(&plan, &layout, engine.as_ref())).await?;
    let announcement = announce(&plan, &slot, &layout, data.path()).await;
    spinner.finish_and_clear();
    let shown = announcement.and_then(|announcement| {
        print(&plan, &layout, engine.as_ref(), first, console)?;
        print_notes(&plan, &slot.name, &announcement, env, console);
        console.note(&format!(
            "ready in {} ms; Ctrl-C stops",
            began.elapsed().as_millis()
        ));
        Ok(())
    });
    let ended = match shown {
        Ok(()) => signal::stop().await.map_err(CliError::Output),
        Err(error) => Err(error),
    };
    if let Ok(name) = &ended {
        console.note(&format!("{name}: stopping"));
    }
    stop(network, console).await;
    drop(data);
    ended.map(drop)
}

/// The context in the configuration.
struct ContextSlot {
    name: String,
    /// `None` if there is no folder for a configuration.
    store: Option<ConfigStore>,
    /// Whether the context is new or was written by an earlier `fdn up`.
    writable: bool,
}

impl ContextSlot {
    fn of(name: &str, env: &Environment) -> Result<Self, CliError> {
        let store = ConfigStore::open(env).ok();
        let writable = match &store {
            Some(store) => context::may_write(store, name)?,
            None => false,
        };
        Ok(Self {
            name: name.to_owned(),
            store,
            writable,
        })
    }

    /// The token of the context; that of a context of the user is not even read.
    fn saved_token(&self) -> Option<Secret> {
        let store = self.store.as_ref().filter(|_| self.writable)?;
        secret::read(&store.token_file(&self.name)).ok()
    }
}

/// The results of waiting for the network.
struct Announcement {
    context: ContextStatus,
    missing: Vec<String>,
}

/// Waits until the network is ready, and writes the context for the other commands.
async fn announce(
    plan: &Plan,
    slot: &ContextSlot,
    layout: &Layout,
    data: &Path,
) -> Result<Announcement, CliError> {
    let url = context::controller_url(plan)?;
    let token = context::token(slot.saved_token(), &url, ADMIN, &layout.admin_password()).await;
    let missing = ready::wait(plan, &url, token.as_ref().ok()).await?;
    let failed = |error: CliError| ContextStatus::Failed {
        reason: error.to_string(),
    };
    let context = match (token, &slot.store) {
        (Err(error), _) => failed(error),
        (Ok(_), None) => ContextStatus::Failed {
            reason: "neither HOME nor XDG_CONFIG_HOME is set".to_owned(),
        },
        (Ok(_), Some(_)) if !slot.writable => ContextStatus::Foreign,
        (Ok(token), Some(store)) => {
            context::write(store, &slot.name, plan, data, ADMIN, &token).unwrap_or_else(failed)
        }
    };
    Ok(Announcement { context, missing })
}

/// Prints the banner.
fn print(
    plan: &Plan,
    layout: &Layout,
    engine: Option<&Engine>,
    first: bool,
    console: &mut Console,
) -> Result<(), CliError> {
    let password = if first {
        secret::read(&layout.admin_password()).ok()
    } else {
        None
    };
    let password_file = layout.admin_password().display().to_string();
    let password = password.as_ref().map(Secret::expose);
    console.line(
        &Banner {
            plan,
            engine,
            admin: ADMIN,
            password,
            password_file: &password_file,
        }
        .text(),
    )
}

/// Prints notes about anything unexpected.
fn print_notes(
    plan: &Plan,
    name: &str,
    announcement: &Announcement,
    env: &Environment,
    console: &mut Console,
) {
    for missing in &announcement.missing {
        console.note(&format!("note: {missing}"));
    }
    if let Some(folder) = folder_off_path(env) {
        console.note(&format!(
            "note: the shell does not find fdn yet: export PATH=\"{folder}:$PATH\""
        ));
    }
    match &announcement.context {
        ContextStatus::Current => {}
        ContextStatus::Beside { current } => console.note(&format!(
            "note: commands go on to use context {current}, which is current; for this network: export FDN_CONTEXT={name}"
        )),
        ContextStatus::Foreign => console.note(&format!(
            "note: context {name} belongs to another network and was left alone; give this one its own with --context"
        )),
        ContextStatus::Failed { reason } => console.note(&format!(
            "note: no context for the other commands ({reason}); run fdn login http://{}",
            plan.listen
        )),
    }
}

/// The folder of this program, if the shell would not find the program by its name.
fn folder_off_path(env: &Environment) -> Option<String> {
    let program = std::env::current_exe().ok()?.canonicalize().ok()?;
    let folder = program.parent()?.to_owned();
    let found = std::env::split_paths(env.get("PATH").unwrap_or_default()).any(|place| {
        place
            .join("fdn")
            .canonicalize()
            .is_ok_and(|found| found == program)
    });
    (!found).then(|| folder.display().to_string())
}

/// Stops the network; a second signal, or a timeout, ends the wait.
async fn stop(network: Network, console: &mut Console) {
    tokio::select! {
        () = network.stop() => console.note("stopped"),
        _ = signal::stop() => console.note("stopped at once; what was running is lost"),
        () = tokio::time::sleep(STOP) => console.note("stopping took too long; ended"),
    }
}

/// Raises the limit of open files: hundreds are open at once, and the default limit is often 1024.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(OPEN_FILES).min(OPEN_FILES);
    if limit.current.is_some_and(|current| current < wanted) {
        // If it cannot be raised, the old limit stays, and fdn doctor reports it.
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(wanted),
                maximum: limit.maximum,
            },
        );
    }
}

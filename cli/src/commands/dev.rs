//! `fdn dev`: builds and deploys a function whenever its folder changes, and shows what it writes.
//!
//! What leads to what is decided in [`crate::dev`]; here are the watcher, the clock, the build, the deploy and the log stream around it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdn_core::api::DeployResponse;
use fdn_core::{AppName, DurationMs, ErrorCode, SecretName};
use fdn_service::signal;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use indicatif::ProgressBar;
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use reqwest::multipart::Form;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::deploy::{self, Deployed};
use super::logs::{Heard, Lines, format_line};
use super::{target, wait};
use crate::args::{ConnectArgs, DevArgs};
use crate::artifact::Artifact;
use crate::client::{Client, LOG_IDLE};
use crate::config::ConfigStore;
use crate::console::Console;
use crate::dev::build::{self, Built};
use crate::dev::sources::{self, Sources};
use crate::dev::{Action, Event, Machine};
use crate::environment::Environment;
use crate::error::{CliError, render};
use crate::function::{FunctionFolder, MANIFEST};
use crate::target::Target;

/// How long a deploy may take until every node is ready.
const DEPLOY: DurationMs = DurationMs::from_secs(120);
/// Pieces of the log stream that wait to be printed.
const PIECES: usize = 64;

/// Runs the command until a signal ends it.
///
/// # Errors
/// When the folder is not a function's, nothing says how it is built, no network is there, or the folder cannot be watched.
pub async fn run(args: &DevArgs, env: &Environment, console: &mut Console) -> Result<(), CliError> {
    let folder = FunctionFolder::open(&args.dir)?;
    let app = match &args.app {
        Some(app) => app.clone(),
        None => folder.name()?.parse()?,
    };
    if args.build.is_none() {
        folder.build()?;
    }
    let target = target(&network(&args.connect, env)?, env)?;
    let function = Arc::new(Function {
        path: args.dir.clone(),
        build: args.build.clone(),
        component: args.component.clone(),
        secrets: deploy::secrets(&args.secrets)?,
        client: Client::new(&target)?,
        colors: console.colors(),
        app,
    });
    let mut dev = Dev::new(function, target)?;
    dev.run(console).await
}

/// The network on this machine, unless another one is named: what is half done must not reach users by accident.
fn network(connect: &ConnectArgs, env: &Environment) -> Result<ConnectArgs, CliError> {
    let named = connect.controller.is_some()
        || connect.context.is_some()
        || env.get("FDN_CONTROLLER").is_some()
        || env.get("FDN_CONTEXT").is_some();
    if named {
        return Ok(connect.clone());
    }
    let config = ConfigStore::open(env)?.load()?;
    let local = |name: &&String| {
        let context = config.contexts.get(*name);
        context.is_some_and(|context| context.data_dir.is_some())
    };
    let current = config.current.as_ref().filter(local);
    let found = current.or_else(|| config.contexts.keys().find(local));
    match found {
        Some(name) => Ok(ConnectArgs {
            context: Some(name.clone()),
            controller: None,
        }),
        None => Err(CliError::Config(
            "there is no network on this machine: start one with fdn up, or name another with --context"
                .to_owned(),
        )),
    }
}

/// What is built and where it goes.
struct Function {
    path: PathBuf,
    build: Option<String>,
    component: Option<PathBuf>,
    secrets: BTreeMap<SecretName, String>,
    client: Client,
    colors: bool,
    app: AppName,
}

/// How something that takes time ended.
enum Done {
    Read(std::io::Result<Sources>),
    Built(Result<Built, CliError>),
    Deployed(Result<DeployResponse, CliError>, Duration),
}

impl Function {
    async fn read(self: Arc<Self>) -> Done {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || sources::read(&path)).await;
        Done::Read(read.unwrap_or_else(|error| Err(std::io::Error::other(error))))
    }

    async fn build(self: Arc<Self>) -> Done {
        let command = match &self.build {
            Some(command) => Ok(command.clone()),
            // Asked each time: how it is built may be what has changed.
            None => FunctionFolder::open(&self.path).and_then(|folder| folder.build()),
        };
        Done::Built(match command {
            Ok(command) => build::run(&command, &self.path, self.colors)
                .await
                .map_err(|error| self.failed(&error.to_string())),
            Err(error) => Err(error),
        })
    }

    async fn deploy(self: Arc<Self>, notes: mpsc::Sender<String>) -> Done {
        let began = Instant::now();
        let answer = self.deployed(&notes).await;
        Done::Deployed(answer, began.elapsed())
    }

    async fn deployed(&self, notes: &mpsc::Sender<String>) -> Result<DeployResponse, CliError> {
        let folder = FunctionFolder::open(&self.path)?;
        let component = match &self.component {
            Some(file) => file.clone(),
            None => folder.component()?,
        };
        let artifact = Artifact::of(&component)?;
        let manifest = Some(self.path.join(MANIFEST)).filter(|path| path.is_file());
        let manifest = deploy::manifest(manifest.as_deref(), &artifact)?;
        let bar = ProgressBar::hidden();
        let form = deploy::form(Form::new(), manifest, self.secrets.clone(), artifact, &bar)?;
        let answer = self.client.deploy(&self.app, None, form).await?;
        // A note that finds no room is one of many that say the same.
        let told = |text: String| drop(notes.try_send(text));
        let (app, revision) = (&answer.app, answer.revision);
        wait::follow(&self.client, app, revision, DEPLOY, told, |_, _| {}).await?;
        Ok(answer)
    }

    fn failed(&self, reason: &str) -> CliError {
        CliError::File {
            path: self.path.clone(),
            reason: reason.to_owned(),
            code: ErrorCode::BadRequest,
        }
    }
}

/// The command at work.
struct Dev {
    function: Arc<Function>,
    target: Target,
    machine: Machine,
    began: Instant,
    wake: Option<Duration>,
    work: FuturesUnordered<BoxFuture<'static, Done>>,
    watcher: RecommendedWatcher,
    watched: Vec<PathBuf>,
    touched: mpsc::Receiver<()>,
    notes: (mpsc::Sender<String>, mpsc::Receiver<String>),
    lines: (mpsc::Sender<Heard>, mpsc::Receiver<Heard>),
    /// The task that reads the log stream, once something is deployed.
    follower: Option<JoinHandle<()>>,
    deployed: Option<DeployResponse>,
    /// One for the whole time: a signal between two of them would be lost.
    stop: BoxFuture<'static, std::io::Result<&'static str>>,
}

impl Dev {
    fn new(function: Arc<Function>, target: Target) -> Result<Self, CliError> {
        // One message says as much as many: the folder is read whole.
        let (tell, touched) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading a file is an event as well, and reading is what a change leads to.
            if !matches!(&event, Ok(event) if matches!(event.kind, EventKind::Access(_))) {
                let _ = tell.try_send(());
            }
        })
        .map_err(|error| function.failed(&format!("it cannot be watched: {error}")))?;
        Ok(Self {
            function,
            target,
            machine: Machine::default(),
            began: Instant::now(),
            wake: None,
            work: FuturesUnordered::new(),
            watcher,
            watched: Vec::new(),
            touched,
            notes: mpsc::channel(PIECES),
            lines: mpsc::channel(PIECES),
            follower: None,
            deployed: None,
            stop: Box::pin(signal::stop()),
        })
    }

    async fn run(&mut self, console: &mut Console) -> Result<(), CliError> {
        let folder = self.function.path.clone();
        // Before the first reading, so that no change is missed.
        self.watch(std::slice::from_ref(&folder))?;
        console.note(&format!(
            "{} becomes {} at {}; Ctrl-C ends this",
            folder.display(),
            self.function.app,
            self.function.client.place()
        ));
        let mut event = Some(Event::Started);
        loop {
            if let Some(happened) = event.take()
                && let Some(action) = self.machine.apply(happened)
                && self.act(action, console)
            {
                break;
            }
            event = self.next(console).await?;
        }
        let app = &self.function.app;
        match &self.deployed {
            Some(deployed) => console.note(&format!(
                "ended; {app} {} stays deployed (fdn delete {app})",
                deployed.version
            )),
            None => console.note("ended; nothing was deployed"),
        }
        Ok(())
    }

    /// Does what the machine says. Returns whether that is the end.
    fn act(&mut self, action: Action, console: &mut Console) -> bool {
        let function = Arc::clone(&self.function);
        match action {
            Action::Wake(at) => self.wake = Some(at),
            Action::Read => self.work.push(Box::pin(function.read())),
            Action::Build => {
                console.note("building");
                self.work.push(Box::pin(function.build()));
            }
            Action::Deploy => {
                let notes = self.notes.0.clone();
                self.work.push(Box::pin(function.deploy(notes)));
            }
            Action::End => {
                // A build that runs is ended with what it started.
                self.work.clear();
                if let Some(follower) = self.follower.take() {
                    follower.abort();
                }
                return true;
            }
        }
        false
    }

    /// Waits for the next event, and prints what comes meanwhile.
    async fn next(&mut self, console: &mut Console) -> Result<Option<Event>, CliError> {
        let wake = self.wake.map(|at| self.began + at);
        let quiet = async {
            match wake {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            stopped = &mut self.stop => {
                stopped?;
                Ok(Some(Event::Stopped))
            }
            Some(done) = self.work.next(), if !self.work.is_empty() => self.ended(done, console),
            Some(()) = self.touched.recv() => Ok(Some(Event::Touched(self.began.elapsed()))),
            () = quiet => {
                self.wake = None;
                Ok(Some(Event::Quiet))
            }
            Some(note) = self.notes.1.recv() => {
                console.note(&note);
                Ok(None)
            }
            Some(heard) = self.lines.1.recv() => {
                self.heard(&heard, console)?;
                Ok(None)
            }
        }
    }

    fn ended(&mut self, done: Done, console: &mut Console) -> Result<Option<Event>, CliError> {
        Ok(match done {
            Done::Read(Ok(sources)) => {
                self.watch(&sources.folders)?;
                Some(Event::Read(sources.digest))
            }
            Done::Read(Err(error)) => return Err(self.function.failed(&error.to_string())),
            Done::Built(built) => Some(Event::Built(self.built(built, console))),
            Done::Deployed(answer, took) => {
                let ok = answer.is_ok();
                self.told(answer, took, console);
                Some(Event::Deployed(ok))
            }
        })
    }

    /// Tells how a build ended: its words, as they were written, if it failed.
    fn built(&self, built: Result<Built, CliError>, console: &mut Console) -> bool {
        let stays = self.deployed.as_ref().map_or_else(
            || "nothing is deployed yet".to_owned(),
            |deployed| format!("{} stays deployed", deployed.version),
        );
        match built {
            Ok(built) => {
                let took = seconds(built.took);
                let Some(failed) = built.failed else {
                    console.note(&format!("built in {took}"));
                    return true;
                };
                console.note(built.output.trim_end());
                let text = format!("the build failed after {took} ({failed}); {stays}");
                console.note(&console.paint("31", &text));
            }
            Err(error) => {
                console.note(render(&error).trim_end());
                console.note(&stays);
            }
        }
        false
    }

    fn told(
        &mut self,
        answer: Result<DeployResponse, CliError>,
        took: Duration,
        console: &mut Console,
    ) {
        match answer {
            Ok(answer) => {
                let port = self.target.context.as_ref().and_then(|c| c.gateway_port);
                let what = if answer.unchanged {
                    "unchanged"
                } else {
                    "deployed"
                };
                console.note(&format!(
                    "{what} {} {} in {}: {}",
                    answer.app,
                    answer.version,
                    seconds(took),
                    Deployed::new(&answer, port).url()
                ));
                self.follow(&answer.app);
                self.deployed = Some(answer);
            }
            Err(error) => console.note(render(&error).trim_end()),
        }
    }

    /// Reads the log stream from now on, unless that is done already.
    fn follow(&mut self, app: &AppName) {
        if self
            .follower
            .as_ref()
            .is_some_and(|task| !task.is_finished())
        {
            return;
        }
        let (target, app) = (&self.target, app.clone());
        let (lines, notes) = (self.lines.0.clone(), self.notes.0.clone());
        let client = Client::with_idle(&target.controller, target.token.clone(), LOG_IDLE);
        self.follower = Some(tokio::spawn(async move {
            let ended = match client {
                Ok(client) => forward(client, &app, &lines).await,
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                // The next deploy begins again.
                drop(notes.try_send(render(&error)));
            }
        }));
    }

    fn heard(&self, heard: &Heard, console: &mut Console) -> Result<(), CliError> {
        match heard {
            Heard::Lines(lines) => {
                let text: String = lines
                    .iter()
                    .map(|line| format_line(&line.line, console))
                    .collect();
                console.print(&text)
            }
            Heard::Broke(reason) => {
                console.note(&format!(
                    "fdn: the stream of lines broke off ({reason}); connecting again"
                ));
                Ok(())
            }
            Heard::Ended => Ok(()),
        }
    }

    /// Watches exactly these folders.
    fn watch(&mut self, folders: &[PathBuf]) -> Result<(), CliError> {
        for gone in self.watched.iter().filter(|path| !folders.contains(path)) {
            // It may be gone from the disk as well.
            drop(self.watcher.unwatch(gone));
        }
        for new in folders.iter().filter(|path| !self.watched.contains(path)) {
            match self.watcher.watch(new, RecursiveMode::NonRecursive) {
                Ok(()) => {}
                // It went meanwhile, which its parent tells.
                Err(_) if !new.exists() => {}
                Err(error) => {
                    let reason = format!("{} cannot be watched: {error}", new.display());
                    return Err(self.function.failed(&reason));
                }
            }
        }
        self.watched = folders.to_vec();
        Ok(())
    }
}

/// Hands the lines of an app on, until nobody listens any more.
async fn forward(
    client: Client,
    app: &AppName,
    lines: &mpsc::Sender<Heard>,
) -> Result<(), CliError> {
    let mut stream = Lines::open(client, app, true, 0).await?;
    while lines.send(stream.next().await?).await.is_ok() {}
    Ok(())
}

fn seconds(took: Duration) -> String {
    format!("{:.2} s", took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> (tempfile::TempDir, Environment) {
        let home = tempfile::tempdir().expect("folder");
        let folder = home.path().join("fdn");
        std::fs::create_dir(&folder).expect("made");
        std::fs::write(folder.join("config.toml"), text).expect("written");
        let env = Environment::of([("XDG_CONFIG_HOME", home.path().display().to_string())]);
        (home, env)
    }

    const PRODUCTION: &str = "[contexts.production]\ncontroller = \"https://fdn.example.org\"\n";
    const LOCAL: &str =
        "[contexts.here]\ncontroller = \"http://127.0.0.1:8600\"\ndata_dir = \"/data\"\n";

    #[test]
    fn what_is_half_done_goes_to_the_network_of_this_machine() {
        let chosen = |text: &str, connect: &ConnectArgs| {
            let (_home, env) = config(text);
            network(connect, &env).map(|connect| connect.context)
        };
        let text = format!("current = \"production\"\n{PRODUCTION}{LOCAL}");
        let unnamed = ConnectArgs::default();
        assert_eq!(chosen(&text, &unnamed).expect("here"), Some("here".into()));
        let named = ConnectArgs {
            context: Some("production".into()),
            controller: None,
        };
        assert_eq!(
            chosen(&text, &named).expect("named"),
            Some("production".into())
        );
        let error = chosen(PRODUCTION, &unnamed).expect_err("none here");
        assert!(error.to_string().contains("fdn up"), "{error}");
    }
}

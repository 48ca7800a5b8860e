//! `fdn dev`: builds and deploys a function whenever its folder changes, and shows its output.
//!
//! [`crate::dev`] decides what to do; this module adds the watcher, the clock, the build, the deployment and the log stream.

mod function;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdn_core::AppName;
use fdn_core::api::{DeployResponse, LogLine};
use fdn_service::signal;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::signal::unix::{SignalKind, signal as listen};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::deploy::{self, DeployReport};
use super::logs::{LogReader, StreamEvent, format_line};
use super::target;
use crate::args::{ConnectArgs, DevArgs};
use crate::client::{Client, LOG_IDLE};
use crate::config::ConfigStore;
use crate::console::Console;
use crate::dev::build::Built;
use crate::dev::places;
use crate::dev::sources::{Sources, Texts};
use crate::dev::watch::Watch;
use crate::dev::{Action, Event, FED_MAX, Machine};
use crate::environment::Environment;
use crate::error::{CliError, render};
use crate::function::FunctionFolder;
use crate::target::Target;
use function::{Completion, Function};

/// The most pieces of the log stream that wait to be printed.
const PIECES: usize = 64;
/// How long to wait for a terminated build; its processes are killed before that.
const END: Duration = Duration::from_secs(5);
/// The most changed files that are named.
const NAMED: usize = 3;

/// Runs the command until a signal ends it.
///
/// # Errors
/// When the folder is not a function's, its build command is unknown, the network does not exist, or the folder cannot be watched.
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
        tenant: args.tenant.clone(),
    });
    let mut dev = Dev::new(function, target)?;
    dev.run(console).await
}

/// The network on this machine, unless another one is named: unfinished work must not reach users by accident.
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
            ca_file: connect.ca_file.clone(),
        }),
        None => Err(CliError::Config(
            "there is no network on this machine: start one with fdn up, or name another with --context"
                .to_owned(),
        )),
    }
}

/// The state of the running command.
struct Dev {
    function: Arc<Function>,
    target: Target,
    machine: Machine,
    began: Instant,
    wake: Option<Duration>,
    work: FuturesUnordered<BoxFuture<'static, Completion>>,
    watch: Watch,
    touched: mpsc::Receiver<()>,
    /// The sources that were read last, and those that were built last.
    sources: Option<Sources>,
    built: Option<Sources>,
    /// The current problem with the folder, so that it is reported only once.
    trouble: String,
    /// Terminates the running build, if there is one.
    ending: CancellationToken,
    building: bool,
    /// Whether the controller's answer is pending.
    sending: bool,
    /// When the last deployment began.
    deploying: Instant,
    notes: (mpsc::Sender<String>, mpsc::Receiver<String>),
    lines: (mpsc::Sender<StreamEvent>, mpsc::Receiver<StreamEvent>),
    /// The task that reads the log stream, once something is deployed.
    follower: Option<JoinHandle<()>>,
    deployed: Option<DeployResponse>,
    /// The sources of what is deployed.
    deployed_sources: Option<Sources>,
    /// The sources that the output pointed at.
    texts: Texts,
    /// A single future for the whole time: a signal between two futures would be lost.
    stop: BoxFuture<'static, std::io::Result<&'static str>>,
}

impl Dev {
    fn new(function: Arc<Function>, target: Target) -> Result<Self, CliError> {
        let (watch, touched) = Watch::new()
            .map_err(|error| function.failed(&format!("it cannot be watched: {error}")))?;
        Ok(Self {
            function,
            target,
            machine: Machine::default(),
            began: Instant::now(),
            wake: None,
            work: FuturesUnordered::new(),
            watch,
            touched,
            sources: None,
            built: None,
            trouble: String::new(),
            ending: CancellationToken::new(),
            building: false,
            sending: false,
            deploying: Instant::now(),
            notes: mpsc::channel(PIECES),
            lines: mpsc::channel(PIECES),
            follower: None,
            deployed: None,
            deployed_sources: None,
            texts: Texts::default(),
            stop: Box::pin(stop()),
        })
    }

    async fn run(&mut self, console: &mut Console) -> Result<(), CliError> {
        let folder = self.function.path.clone();
        // Before the first read, so that no change is missed.
        self.watch
            .set(std::slice::from_ref(&folder))
            .map_err(|failed| self.function.failed(&unwatched(&failed)))?;
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
        self.end().await;
        let app = &self.function.app;
        console.note(&match &self.deployed {
            _ if self.sending => {
                format!(
                    "ended while a version was sent: fdn describe {app} tells whether it arrived"
                )
            }
            Some(deployed) => format!(
                "ended; {app} {} stays deployed (fdn delete {app})",
                deployed.version
            ),
            None => "ended; nothing was deployed".to_owned(),
        });
        Ok(())
    }

    /// Terminates what runs, including a build and everything that it started.
    async fn end(&mut self) {
        if let Some(follower) = self.follower.take() {
            follower.abort();
        }
        self.ending.cancel();
        let ended = async {
            while self.building
                && let Some(done) = self.work.next().await
            {
                self.building = !matches!(done, Completion::Built(_));
            }
        };
        drop(tokio::time::timeout(END, ended).await);
        self.work.clear();
    }

    /// Executes an action. Returns whether it is the end.
    fn act(&mut self, action: Action, console: &mut Console) -> bool {
        let function = Arc::clone(&self.function);
        match action {
            Action::Wake(at) => self.wake = Some(at),
            Action::Read => self.work.push(Box::pin(function.read())),
            Action::Build => {
                console.note("building");
                self.trouble.clear();
                self.building = true;
                self.built.clone_from(&self.sources);
                let (ending, notes) = (self.ending.clone(), self.notes.0.clone());
                self.work.push(Box::pin(function.build(ending, notes)));
            }
            Action::Hold => {
                let files = self.changed();
                let text = format!(
                    "not built: {files} changed during each of {FED_MAX} builds in a row. If the build writes it, name it in .gitignore; if not, save it again"
                );
                self.warn(text, console);
            }
            Action::Deploy => {
                self.sending = true;
                self.deploying = Instant::now();
                self.work.push(Box::pin(function.send()));
            }
            Action::End => return true,
        }
        false
    }

    /// The files that differ from those of the last build.
    fn changed(&self) -> String {
        let (Some(now), Some(built)) = (&self.sources, &self.built) else {
            return "something".to_owned();
        };
        let files = now.changed_files(built);
        let named: Vec<String> = files
            .iter()
            .take(NAMED)
            .map(|path| path.display().to_string())
            .collect();
        let more = match files.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{}{more}", named.join(", "))
    }

    /// Reports a problem, unless it was the last one reported.
    fn warn(&mut self, text: String, console: &mut Console) {
        if self.trouble != text {
            console.note(&console.paint("31", &text));
            self.trouble = text;
        }
    }

    /// Waits for the next event, and prints output in the meantime.
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
            Some(done) = self.work.next(), if !self.work.is_empty() => Ok(self.ended(done, console)),
            Some(()) = self.touched.recv() => Ok(Some(Event::Touched(self.began.elapsed()))),
            () = quiet => {
                self.wake = None;
                Ok(Some(Event::Quiet))
            }
            Some(note) = self.notes.1.recv() => {
                console.note(&note);
                Ok(None)
            }
            Some(event) = self.lines.1.recv() => {
                self.show_logs(&event, console)?;
                Ok(None)
            }
        }
    }

    fn ended(&mut self, done: Completion, console: &mut Console) -> Option<Event> {
        match done {
            Completion::Read(Ok(sources)) => Some(self.read(sources, console)),
            Completion::Read(Err(error)) => {
                // The folder may soon exist again or be readable.
                let text = self.function.failed(&error.to_string());
                self.warn(render(&text).trim_end().to_owned(), console);
                Some(Event::Unread(self.began.elapsed()))
            }
            Completion::Built(built) => {
                self.building = false;
                let ok = self.built(built, console);
                Some(Event::Built(ok, self.began.elapsed()))
            }
            Completion::Sent(Ok(answer)) => {
                self.sending = false;
                self.follow(&answer.app);
                self.deployed = Some(answer.clone());
                self.deployed_sources.clone_from(&self.built);
                let (function, notes) = (Arc::clone(&self.function), self.notes.0.clone());
                self.work.push(Box::pin(function.ready(answer, notes)));
                None
            }
            Completion::Sent(Err(error)) => {
                self.sending = false;
                let mut text = render(&error);
                // The reason may be what the function wrote when it was probed.
                if let Some(built) = &self.built {
                    let (folder, texts) = (&self.function.path, &mut self.texts);
                    text = places::with_source_lines(&text, folder, built, texts);
                }
                console.note(text.trim_end());
                Some(Event::Deployed(false))
            }
            Completion::Ready(Ok(())) => {
                self.show_state(console);
                Some(Event::Deployed(true))
            }
            Completion::Ready(Err(error)) => {
                console.note(render(&error).trim_end());
                Some(Event::Deployed(false))
            }
        }
    }

    fn read(&mut self, sources: Sources, console: &mut Console) -> Event {
        match self.watch.set(&sources.folders) {
            // Changes between the read and the start of the watch were not reported, so read again.
            Ok(true) => self.work.push(Box::pin(Arc::clone(&self.function).read())),
            Ok(false) => {}
            Err(failed) => self.warn(unwatched(&failed), console),
        }
        let digest = sources.digest;
        self.sources = Some(sources);
        Event::Read(digest)
    }

    /// Reports the result of a build, with its output if it failed. Returns whether it succeeded.
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

    /// Reports what is deployed, and its URL.
    fn show_state(&self, console: &mut Console) {
        let Some(answer) = &self.deployed else { return };
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
            seconds(self.deploying.elapsed()),
            DeployReport::new(answer, port).url()
        ));
    }

    /// Starts to read the log stream, unless that is done already.
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
        let client = Client::with_idle(target, LOG_IDLE);
        self.follower = Some(tokio::spawn(async move {
            let ended = match client {
                Ok(client) => forward(client, &app, &lines).await,
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                // The next deployment starts it again.
                drop(notes.try_send(render(&error)));
            }
        }));
    }

    /// A line of the log, and below it the source line that it points at.
    fn log_line(&mut self, line: &LogLine, console: &Console) -> String {
        let text = format_line(line, console);
        let deployed = self.deployed.as_ref();
        let (folder, texts) = (&self.function.path, &mut self.texts);
        let source = deployed
            .filter(|deployed| deployed.version == line.version)
            .zip(self.deployed_sources.as_ref())
            .and_then(|(_, sources)| places::source_line(&line.text, folder, sources, texts));
        match source {
            Some(source) => format!("{text}    {}\n", console.paint("2", &source)),
            None => text,
        }
    }

    fn show_logs(&mut self, event: &StreamEvent, console: &mut Console) -> Result<(), CliError> {
        match event {
            StreamEvent::Lines(lines) => {
                let text: String = lines
                    .iter()
                    .map(|line| self.log_line(&line.line, console))
                    .collect();
                console.print(&text)
            }
            StreamEvent::Disconnected(reason) => {
                console.note(&format!(
                    "fdn: the stream of lines broke off ({reason}); connecting again"
                ));
                Ok(())
            }
            StreamEvent::Ended => Ok(()),
        }
    }
}

fn unwatched((folder, error): &(PathBuf, notify::Error)) -> String {
    format!("{} cannot be watched: {error}", folder.display())
}

/// Waits for a signal to stop, or for the terminal to close.
async fn stop() -> std::io::Result<&'static str> {
    let mut hangup = listen(SignalKind::hangup())?;
    tokio::select! {
        stopped = signal::stop() => stopped,
        _ = hangup.recv() => Ok("SIGHUP"),
    }
}

/// Forwards the log lines of an app until the receiver is gone.
async fn forward(
    client: Client,
    app: &AppName,
    lines: &mpsc::Sender<StreamEvent>,
) -> Result<(), CliError> {
    let mut stream = LogReader::open(client, app, true, 0).await?;
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
            ..ConnectArgs::default()
        };
        assert_eq!(
            chosen(&text, &named).expect("named"),
            Some("production".into())
        );
        let error = chosen(PRODUCTION, &unnamed).expect_err("none here");
        assert!(error.to_string().contains("fdn up"), "{error}");
    }
}

//! Child processes that never outlive the test process.
//!
//! Every child runs under `setpriv --pdeathsig KILL` and is started from one thread that lives as long as the process (the kernel sends
//! that signal when the starting *thread* ends, and test threads end early). Only processes started here are ever killed.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal};

use crate::wait;

/// How many times a server is started before its failure counts. A port that was free when it was chosen can be taken a moment later.
pub(crate) const STARTS: u32 = 3;
/// The interval of polling a server that does not answer yet.
const POLL: Duration = Duration::from_millis(20);

type Request = (Command, mpsc::Sender<std::io::Result<Child>>);

/// Starts a command on the thread that never ends.
pub(crate) fn spawn(command: Command) -> std::io::Result<Child> {
    static STARTER: OnceLock<Mutex<mpsc::Sender<Request>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (sender, receiver) = mpsc::channel::<Request>();
        thread::spawn(move || {
            for (mut command, reply) in receiver {
                drop(reply.send(command.spawn()));
            }
        });
        Mutex::new(sender)
    });
    let (reply, answer) = mpsc::channel();
    let gone = || std::io::Error::other("the starter thread is gone");
    starter
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .send((command, reply))
        .map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

/// A program to run.
#[derive(Clone, Debug)]
pub struct Program {
    /// The executable.
    pub exe: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Environment variables in addition to those of this process.
    pub env: Vec<(String, OsString)>,
    /// The user to run as, if different.
    pub user: Option<String>,
}

impl Program {
    /// A program with arguments.
    #[must_use]
    pub fn new(
        exe: impl Into<OsString>,
        args: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        Self {
            exe: exe.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            user: None,
        }
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Starts it with both output streams appended to `log`.
    ///
    /// # Errors
    /// When `setpriv`, the log or the program cannot be used.
    pub fn start(&self, log: &Path) -> Result<Process> {
        let output = || {
            std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(log)
        };
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(user) = &self.user {
            command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
        }
        command
            .arg("--")
            .arg(&self.exe)
            .args(&self.args)
            .envs(self.env.iter().map(|(k, v)| (k, v)));
        command
            .stdin(Stdio::null())
            .stdout(output()?)
            .stderr(output()?);
        let child = spawn(command).with_context(|| format!("starting {:?}", self.exe))?;
        Ok(Process {
            child,
            name: self.exe.to_string_lossy().into_owned(),
            log: log.to_owned(),
        })
    }
}

/// A running child; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    log: std::path::PathBuf,
}

impl Process {
    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its output so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.id())?).context("a child has a process id")?;
        rustix::process::kill_process(pid, signal)
            .with_context(|| format!("signalling {}", self.name))
    }

    /// Kills it, like `kill -9`, and waits for its end.
    pub fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// Sends SIGTERM and waits for the end.
    ///
    /// # Errors
    /// When the process has already ended, or does not end in time; the message contains its log.
    pub fn stop(&mut self, within: std::time::Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let deadline = std::time::Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            anyhow::ensure!(
                std::time::Instant::now() < deadline,
                "{} did not stop within {within:?}; its log:\n{}",
                self.name,
                self.log()
            );
            thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Polls until it answers, and gives up at once when the process has ended. `ask` must verify that this process answers: another
    /// one may have the port.
    ///
    /// # Errors
    /// When it ends, or after [`wait::PATIENCE`]; the message contains its log.
    pub(crate) async fn ready(&mut self, mut ask: impl AsyncFnMut() -> Result<()>) -> Result<()> {
        let deadline = Instant::now() + wait::PATIENCE;
        loop {
            let Err(reason) = ask().await else {
                return Ok(());
            };
            if let Some(status) = self.ended() {
                bail!(
                    "{} ended with {status} before it answered; its log:\n{}",
                    self.name,
                    self.log()
                );
            }
            ensure!(
                Instant::now() < deadline,
                "{} did not answer within {:?}: {reason:#}; its log:\n{}",
                self.name,
                wait::PATIENCE,
                self.log()
            );
            tokio::time::sleep(POLL).await;
        }
    }

    /// The exit status, if it has ended by itself.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

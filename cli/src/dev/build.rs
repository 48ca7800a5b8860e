//! Runs the build of a function and captures its output.

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::time::{interval_at, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// The most bytes of output that are kept: the first ones, because the first error matters most.
const OUTPUT_MAX: usize = 1 << 20;
/// The least number of bytes that are kept of the end of the output while the build runs.
const TAIL: usize = 4 << 10;
/// The number of its last lines that are reported.
const TAIL_LINES: usize = 3;
/// How long the output is still read after the build has ended.
const LINGER: Duration = Duration::from_millis(500);
/// How often to check whether all terminated processes have ended.
const LOOK: Duration = Duration::from_millis(20);

/// The parameters of a build.
#[derive(Clone, Debug)]
pub struct Build<'a> {
    /// The command, run by `sh`.
    pub command: &'a str,
    /// The working folder.
    pub folder: &'a Path,
    /// Whether the build should write in colours.
    pub colors: bool,
    /// How often it is reported that the build still runs.
    pub still: Duration,
    /// How long its processes may take to end after SIGTERM, before they are killed.
    pub grace: Duration,
}

/// The result of a build.
#[derive(Clone, Debug)]
pub struct Built {
    /// Why it failed: `exit status: 1`; `None` if it succeeded.
    pub failed: Option<String>,
    /// Its standard output and standard error, in the order of arrival.
    pub output: String,
    /// The duration.
    pub took: Duration,
}

impl<'a> Build<'a> {
    /// A build with the times of `fdn dev`.
    #[must_use]
    pub const fn new(command: &'a str, folder: &'a Path, colors: bool) -> Self {
        Self {
            command,
            folder,
            colors,
            still: Duration::from_secs(10),
            grace: Duration::from_secs(2),
        }
    }

    /// Runs the build, and terminates it with everything that it started when `stop` is cancelled. Dropping the future kills it. `tell` is called
    /// now
    /// and then while it runs, with its last lines of output.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn run(&self, stop: &CancellationToken, tell: impl Fn(String)) -> io::Result<Built> {
        let began = Instant::now();
        let mut child = self.shell().spawn()?;
        let group = Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
        let output = Output::default();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut reading = std::pin::pin!(async {
            tokio::join!(collect(stdout, &output), collect(stderr, &output));
        });
        let mut read = false;
        let mut still = interval_at(tokio::time::Instant::now() + self.still, self.still);
        let status = loop {
            tokio::select! {
                status = child.wait() => break status?,
                () = &mut reading, if !read => read = true,
                () = stop.cancelled() => break group.end(&mut child, self.grace).await?,
                _ = still.tick() => {
                    let lines = output.last_lines();
                    let took = began.elapsed().as_secs();
                    tell(format!("still building after {took} s{lines}"));
                }
            }
        };
        if !read {
            // After that, only a process that the build left behind keeps the pipes open.
            drop(timeout(LINGER, &mut reading).await);
        }
        // Processes left behind in its group keep running: a build may start a daemon of its tools.
        group.ended();
        Ok(Built {
            failed: (!status.success()).then(|| status.to_string()),
            output: output.text(),
            took: began.elapsed(),
        })
    }

    fn shell(&self) -> Command {
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(self.command)
            .current_dir(self.folder)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // Function names show where a trap occurred; a template's build strips them to save space.
        if std::env::var_os("CARGO_PROFILE_RELEASE_STRIP").is_none() {
            shell.env("CARGO_PROFILE_RELEASE_STRIP", "none");
        }
        if self.colors {
            shell
                .env("CARGO_TERM_COLOR", "always")
                .env("CLICOLOR_FORCE", "1")
                .env("FORCE_COLOR", "1");
        }
        shell
    }
}

/// The captured output of a build: its beginning, and its current end.
#[derive(Debug, Default)]
struct Output(Mutex<CapturedOutput>);

#[derive(Debug, Default)]
struct CapturedOutput {
    first: Vec<u8>,
    last: Vec<u8>,
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, CapturedOutput> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, piece: &[u8]) {
        let mut written = self.lock();
        let room = OUTPUT_MAX.saturating_sub(written.first.len());
        written
            .first
            .extend_from_slice(&piece[..piece.len().min(room)]);
        written.last.extend_from_slice(piece);
        let old = written.last.len().saturating_sub(TAIL);
        if old > TAIL {
            written.last.drain(..old);
        }
    }

    /// The last lines, each on a new line after a colon; empty if there are none.
    fn last_lines(&self) -> String {
        let written = self.lock();
        let text = String::from_utf8_lossy(&written.last);
        let lines: Vec<&str> = text.lines().collect();
        if lines.is_empty() {
            return String::new();
        }
        let first = lines.len().saturating_sub(TAIL_LINES);
        format!(":\n{}", lines[first..].join("\n"))
    }

    fn text(&self) -> String {
        let written = self.lock();
        let mut text = String::from_utf8_lossy(&written.first).into_owned();
        if written.first.len() >= OUTPUT_MAX {
            text.push_str("\n… what came after is left out\n");
        }
        text
    }
}

async fn collect(pipe: Option<impl AsyncRead + Unpin>, output: &Output) {
    let Some(mut pipe) = pipe else { return };
    let mut piece = vec![0; 8 << 10];
    // A broken pipe ends the output.
    while let Ok(length @ 1..) = pipe.read(&mut piece).await {
        output.add(&piece[..length]);
    }
}

/// The process group of a build, killed on drop.
struct Group(Option<Pid>);

impl Group {
    /// Terminates all processes, and kills those that do not end.
    async fn end(&self, child: &mut Child, grace: Duration) -> io::Result<ExitStatus> {
        self.signal(Signal::TERM);
        // A stopped process must continue before it receives the signal.
        self.signal(Signal::CONT);
        let gone = timeout(grace, async {
            let status = child.wait().await;
            while self.lives() {
                sleep(LOOK).await;
            }
            status
        });
        match gone.await {
            Ok(status) => status,
            Err(_) => {
                self.signal(Signal::KILL);
                child.wait().await
            }
        }
    }

    fn lives(&self) -> bool {
        self.0
            .is_some_and(|pid| test_kill_process_group(pid).is_ok())
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.0 {
            let _ = kill_process_group(pid, signal);
        }
    }

    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use fdn_testkit::wait;

    use super::*;

    async fn ran(command: &str) -> Built {
        let folder = tempfile::tempdir().expect("folder");
        let build = Build::new(command, folder.path(), false);
        let never = CancellationToken::new();
        build.run(&never, drop).await.expect("started")
    }

    /// Waits until a process has ended.
    async fn gone(pid: &str) {
        let stat = format!("/proc/{}/stat", pid.trim());
        wait::until("the process to end", async || {
            match std::fs::read_to_string(&stat) {
                // A zombie has ended, even if it was not reaped yet.
                Ok(stat) if !stat.contains(") Z ") => Err(stat),
                _ => Ok(()),
            }
        })
        .await;
    }

    /// Starts a build that writes the id of a process into `pid`, waits for that, and terminates the build. Returns the id and the result.
    async fn ended(command: &'static str, grace: Duration) -> (String, Built) {
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("pid");
        let stop = CancellationToken::new();
        let building = tokio::spawn({
            let (folder, stop) = (folder.path().to_owned(), stop.clone());
            async move {
                let mut build = Build::new(command, &folder, false);
                build.grace = grace;
                build.run(&stop, drop).await
            }
        });
        let pid = wait::until("the build to run", async || std::fs::read_to_string(&file)).await;
        stop.cancel();
        let built = building.await.expect("joined").expect("started");
        (pid, built)
    }

    #[tokio::test]
    async fn a_build_that_is_ended_may_tidy_up() {
        let command = "trap 'echo tidied; exit 9' TERM; echo $$ >pid.new; mv pid.new pid; while :; do sleep 0.02; done";
        let (pid, built) = ended(command, Duration::from_secs(60)).await;
        assert_eq!(built.failed.as_deref(), Some("exit status: 9"));
        // The shell may also report the end of its child process.
        assert!(built.output.contains("tidied\n"), "{}", built.output);
        gone(&pid).await;
    }

    #[tokio::test]
    async fn a_build_that_does_not_want_to_end_is_killed_with_what_it_started() {
        let deaf =
            "trap '' TERM; (while :; do sleep 0.02; done) & echo $! >pid.new; mv pid.new pid; wait";
        let (pid, built) = ended(deaf, Duration::from_millis(100)).await;
        assert!(built.failed.is_some_and(|why| why.contains("signal: 9")));
        gone(&pid).await;
        // A stopped process is terminated before the grace period is over.
        let stopped = "echo $$ >pid.new; mv pid.new pid; kill -STOP $$";
        let (pid, built) = ended(stopped, Duration::from_secs(60)).await;
        assert!(built.failed.is_some_and(|why| why.contains("signal: 15")));
        gone(&pid).await;
    }

    #[tokio::test]
    async fn a_build_that_takes_long_is_told_with_its_last_lines() {
        let folder = tempfile::tempdir().expect("folder");
        let command = "seq 5; until [ -e go ]; do sleep 0.02; done";
        let mut build = Build::new(command, folder.path(), false);
        build.still = Duration::from_millis(20);
        let never = CancellationToken::new();
        let heard = Mutex::new(Vec::new());
        let tell = |text: String| {
            if text.ends_with("5") {
                std::fs::write(folder.path().join("go"), "").expect("written");
            }
            heard.lock().expect("one thread").push(text);
        };
        let built = build.run(&never, tell).await.expect("started");
        assert_eq!(built.failed, None);
        let heard = heard.into_inner().expect("one thread");
        let last = heard.last().map(String::as_str).unwrap_or_default();
        assert!(
            last.starts_with("still building after ") && last.ends_with(" s:\n3\n4\n5"),
            "{last}"
        );
    }

    #[test]
    fn only_the_end_of_what_goes_on_is_kept() {
        let output = Output::default();
        for n in 0..10_000 {
            output.add(format!("line {n}\n").as_bytes());
        }
        assert!(output.lock().last.len() <= 3 * TAIL);
        assert_eq!(output.last_lines(), ":\nline 9997\nline 9998\nline 9999");
        assert_eq!(Output::default().last_lines(), "");
    }

    #[tokio::test]
    async fn what_a_build_writes_is_kept_in_its_order() {
        let built = ran("echo one; echo two >&2; echo three").await;
        assert_eq!(built.failed, None);
        let mut lines: Vec<&str> = built.output.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["one", "three", "two"], "nothing is lost");
        let built = ran("echo 'error: no' >&2; exit 3").await;
        assert_eq!(built.failed.as_deref(), Some("exit status: 3"));
        assert_eq!(built.output, "error: no\n");
    }

    #[tokio::test]
    async fn a_build_that_does_not_stop_writing_fills_no_memory() {
        let built = ran("head -c 3000000 /dev/zero | tr '\\0' x").await;
        assert!(
            built.output.len() < OUTPUT_MAX + 100,
            "{}",
            built.output.len()
        );
        assert!(built.output.ends_with("left out\n"));
    }

    #[tokio::test]
    async fn dropping_a_build_kills_what_it_started() {
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("pid");
        let command = "trap '' TERM; sleep 1000 & echo $! >pid.new; mv pid.new pid; wait";
        let building = tokio::spawn({
            let folder = folder.path().to_owned();
            async move {
                let never = CancellationToken::new();
                Build::new(command, &folder, false).run(&never, drop).await
            }
        });
        let pid = wait::until("the build to run", async || std::fs::read_to_string(&file)).await;
        building.abort();
        assert!(building.await.is_err(), "aborted");
        gone(&pid).await;
    }
}

//! One run of a function's own build, with what it wrote.

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

/// How many bytes of what a build writes are kept: the first ones, because the first error is the one that counts.
const OUTPUT_MAX: usize = 1 << 20;
/// How many bytes at the end of what it wrote are kept while it runs, at least.
const TAIL: usize = 4 << 10;
/// How many lines of them are told.
const TAIL_LINES: usize = 3;
/// How long what it wrote is read when the build itself has ended.
const LINGER: Duration = Duration::from_millis(500);
/// How often is looked whether all processes have ended that were asked to.
const LOOK: Duration = Duration::from_millis(20);

/// A build.
#[derive(Clone, Debug)]
pub struct Build<'a> {
    /// What `sh` runs.
    pub command: &'a str,
    /// Where.
    pub folder: &'a Path,
    /// Whether it is to write in colours.
    pub colors: bool,
    /// How often is told that it still runs.
    pub still: Duration,
    /// How long its processes have to end when they are asked to, before they are killed.
    pub grace: Duration,
}

/// How a build ended.
#[derive(Clone, Debug)]
pub struct Built {
    /// Why it failed, if it did: `exit status: 1`.
    pub failed: Option<String>,
    /// What it wrote to standard output and standard error, in the order in which it came.
    pub output: String,
    /// How long it took.
    pub took: Duration,
}

impl<'a> Build<'a> {
    /// With the times of `fdn dev`.
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

    /// Runs it, and ends it with all that it started when `stop` says so. Dropping the future kills them. `tell` hears now and then that it
    /// still runs, with the last lines that it wrote.
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
            // Longer than this only a process that the build left behind keeps the pipes.
            drop(timeout(LINGER, &mut reading).await);
        }
        // What it left behind in its group goes on: a build may start a daemon of its tools.
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
        // Names of functions tell where a trap was; a template's build strips them for size.
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

/// What a build wrote: how it began, and how it goes on.
#[derive(Debug, Default)]
struct Output(Mutex<Written>);

#[derive(Debug, Default)]
struct Written {
    first: Vec<u8>,
    last: Vec<u8>,
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, Written> {
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

    /// The last lines, each on one of its own after a colon; nothing without any.
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
    // A pipe that breaks has no more to say.
    while let Ok(length @ 1..) = pipe.read(&mut piece).await {
        output.add(&piece[..length]);
    }
}

/// The processes of a build, killed when this is dropped.
struct Group(Option<Pid>);

impl Group {
    /// Asks all to end, and kills those that do not.
    async fn end(&self, child: &mut Child, grace: Duration) -> io::Result<ExitStatus> {
        self.signal(Signal::TERM);
        // One that was stopped hears nothing before it goes on.
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
                // Nobody may have asked yet how it ended.
                Ok(stat) if !stat.contains(") Z ") => Err(stat),
                _ => Ok(()),
            }
        })
        .await;
    }

    /// Starts a build that writes the id of a process into `pid`, waits for that, and ends the build. The id, and how it ended.
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
        // The shell may tell what became of what it ran, too.
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
        // One that was stopped is ended before its time is over.
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

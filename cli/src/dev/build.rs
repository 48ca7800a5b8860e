//! One run of a function's own build, with what it wrote.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

/// How many octets of what a build writes are kept: the first ones, because the first error is the one that counts.
const OUTPUT_MAX: usize = 1 << 20;

/// How long what it wrote is read when the build itself has ended.
const LINGER: Duration = Duration::from_millis(500);

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

/// Runs a command with `sh` in a folder. Dropping the future ends the command and all that it started.
///
/// # Errors
/// When it cannot be started.
pub async fn run(command: &str, folder: &Path, colors: bool) -> io::Result<Built> {
    let began = Instant::now();
    let mut shell = Command::new("sh");
    shell
        .arg("-c")
        .arg(command)
        .current_dir(folder)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // Names of functions tell where a trap was; a template's build strips them for size.
    if std::env::var_os("CARGO_PROFILE_RELEASE_STRIP").is_none() {
        shell.env("CARGO_PROFILE_RELEASE_STRIP", "none");
    }
    if colors {
        shell
            .env("CARGO_TERM_COLOR", "always")
            .env("CLICOLOR_FORCE", "1")
            .env("FORCE_COLOR", "1");
    }
    let mut child = shell.spawn()?;
    let group = Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
    let output = Mutex::new(Vec::new());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut reading = std::pin::pin!(async {
        tokio::join!(collect(stdout, &output), collect(stderr, &output));
    });
    let (status, read) = tokio::select! {
        status = child.wait() => (status?, false),
        () = &mut reading => (child.wait().await?, true),
    };
    if !read {
        // Longer than this only a process that the build left behind keeps the pipes.
        drop(tokio::time::timeout(LINGER, &mut reading).await);
    }
    // What it left behind in its group goes on: a build may start a daemon of its tools.
    group.ended();
    let output = output.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Built {
        failed: (!status.success()).then(|| status.to_string()),
        output: text(&output),
        took: began.elapsed(),
    })
}

async fn collect(pipe: Option<impl AsyncRead + Unpin>, output: &Mutex<Vec<u8>>) {
    let Some(mut pipe) = pipe else { return };
    let mut piece = vec![0; 8 << 10];
    // A pipe that breaks has no more to say.
    while let Ok(length @ 1..) = pipe.read(&mut piece).await {
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        let room = OUTPUT_MAX.saturating_sub(output.len());
        output.extend_from_slice(&piece[..length.min(room)]);
    }
}

fn text(output: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(output).into_owned();
    if output.len() >= OUTPUT_MAX {
        text.push_str("\n… what came after is left out\n");
    }
    text
}

/// The processes of a build, ended when this is dropped.
struct Group(Option<Pid>);

impl Group {
    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            let _ = kill_process_group(pid, Signal::TERM);
        }
    }
}

#[cfg(test)]
mod tests {
    use fdn_testkit::wait;

    use super::*;

    async fn ran(command: &str) -> Built {
        let folder = tempfile::tempdir().expect("folder");
        run(command, folder.path(), false).await.expect("started")
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
    async fn ending_a_build_ends_what_it_started() {
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("pid");
        let command = "sleep 1000 & echo $! >pid.new; mv pid.new pid; wait";
        let building = tokio::spawn({
            let folder = folder.path().to_owned();
            async move { run(command, &folder, false).await }
        });
        let pid = wait::until("the build to run", async || std::fs::read_to_string(&file)).await;
        let stat = format!("/proc/{}/stat", pid.trim());
        assert!(std::fs::exists(&stat).expect("asked"), "it runs");
        building.abort();
        assert!(building.await.is_err(), "aborted");
        wait::until("the inner process to end", async || {
            match std::fs::read_to_string(&stat) {
                // Nobody may have asked yet how it ended.
                Ok(stat) if !stat.contains(") Z ") => Err(stat),
                _ => Ok(()),
            }
        })
        .await;
    }
}

//! The command `fdn`, as a person types it.

use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::ensure;
use fdn_core::billing::{Meter, UsageView};
use fdn_testkit::wait;

use crate::binary;

/// A user of the command, with a home of one's own.
#[derive(Debug)]
pub struct Cli {
    home: PathBuf,
    program: PathBuf,
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Typed {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Cli {
    /// A user whose settings lie below `home`, with the command of this build.
    #[must_use]
    pub fn new(home: &Path) -> Self {
        Self::with(home, binary("fdn"))
    }

    /// The same with this program as the command.
    #[must_use]
    pub fn with(home: &Path, program: PathBuf) -> Self {
        Self {
            home: home.to_owned(),
            program,
        }
    }

    /// The command with this user's environment.
    #[must_use]
    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .env("HOME", &self.home)
            .env("XDG_CONFIG_HOME", self.home.join("config"))
            .env("XDG_DATA_HOME", self.home.join("data"))
            .env_remove("FDN_CONTROLLER")
            .env_remove("FDN_TOKEN_FILE");
        command
    }

    /// Types a command, whatever comes of it. Blocks; call it from a blocking thread when other work must go on.
    ///
    /// # Panics
    /// When the program cannot be started.
    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Typed {
        let Output {
            status,
            stdout,
            stderr,
        } = self.command(args).output().expect("fdn can be started");
        Typed {
            code: status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&stdout).into_owned(),
            err: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }

    /// Types a command that must succeed, and returns its output.
    ///
    /// # Panics
    /// When it fails; the message holds all it printed.
    pub fn ok<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let args: Vec<_> = args.into_iter().map(|a| a.as_ref().to_owned()).collect();
        let typed = self.run(&args);
        assert_eq!(typed.code, 0, "fdn {args:?}: {}\n{}", typed.out, typed.err);
        typed.out
    }

    /// Types a command with `-o json` that must succeed, and reads its output.
    ///
    /// # Panics
    /// When it fails or prints something else than JSON.
    pub fn json<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> serde_json::Value {
        let mut all: Vec<_> = args.into_iter().map(|a| a.as_ref().to_owned()).collect();
        all.extend(["-o".into(), "json".into()]);
        let out = self.ok(&all);
        serde_json::from_str(&out)
            .unwrap_or_else(|e| panic!("fdn {all:?} printed no JSON ({e}): {out}"))
    }

    /// Waits until the bill comes to say that an app was called exactly so often.
    ///
    /// # Panics
    /// When it says more, or less for too long.
    pub async fn bills(&self, app: &str, expected: u64) {
        self.bills_within(app, expected..=expected).await;
    }

    /// Waits until the bill comes to say that an app was called at least and at most so often.
    ///
    /// # Panics
    /// When it says more, or less for too long.
    pub async fn bills_within(&self, app: &str, expected: RangeInclusive<u64>) {
        let (least, most) = (i128::from(*expected.start()), i128::from(*expected.end()));
        wait::until("the usage of all calls", async || {
            let view: UsageView = serde_json::from_value(self.json(["bill", "--by", "app"]))?;
            let row = view.rows.iter().find(|row| row.name == app);
            let calls = row.and_then(|row| row.quantities.get(&Meter::Invocations));
            let calls = calls.map_or(0, |calls| calls.0);
            assert!(
                calls <= most,
                "{app}: {calls} calls are counted, {most} were made"
            );
            ensure!(calls >= least, "{app}: {calls} of {least}");
            Ok::<_, anyhow::Error>(())
        })
        .await;
    }
}

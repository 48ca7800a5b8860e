//! The commands `fdn sim …`: arguments, and what they print.

mod devices;
mod invocations;
mod paper;
mod place;
mod replay;
mod scaling;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use serde::Serialize;

use crate::Error;
use crate::progress::Progress;

/// How the result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for people; its form may change.
    #[default]
    Table,
    /// JSON for programs.
    Json,
}

/// What to simulate.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Place pods that want slices of devices on a recorded cluster until more is asked for than there is
    Devices(devices::Args),
    /// Simulate invocations of functions: orders and keep-alive policies on a recorded trace
    Invocations(invocations::Args),
    /// Run every experiment: a table beside the published figures, JSON and plots for each
    Paper(paper::Args),
    /// Place a workflow on a network and print where and when each task runs
    Place(place::Args),
    /// Make the planning passes again that a controller recorded, and compare them with what was decided and with other rules
    Replay(replay::Args),
    /// Start instances on the nodes of a cluster: local check, probes, the global scheduler, hints
    Scaling(scaling::Args),
}

/// Runs a command, with its result on `out`.
///
/// # Errors
/// When a file or option cannot be used, or the result cannot be written.
pub fn run(command: &Command, out: &mut dyn Write, progress: &dyn Progress) -> Result<(), Error> {
    match command {
        Command::Devices(args) => devices::run(args, out, progress),
        Command::Invocations(args) => invocations::run(args, out, progress),
        Command::Paper(args) => paper::run(args, out, progress),
        Command::Place(args) => place::run(args, out),
        Command::Replay(args) => replay::run(args, out, progress),
        Command::Scaling(args) => scaling::run(args, out, progress),
    }
}

/// Writes text to the standard output.
fn print(out: &mut dyn Write, text: &str) -> Result<(), Error> {
    out.write_all(text.as_bytes())
        .map_err(written(Path::new("standard output")))
}

/// Writes a value as JSON to the standard output.
fn print_json(out: &mut dyn Write, value: &impl Serialize) -> Result<(), Error> {
    print(out, &json(value)?)
}

fn json(value: &impl Serialize) -> Result<String, Error> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Error::Broken(error.to_string()))?;
    Ok(text + "\n")
}

fn written(path: &Path) -> impl Fn(io::Error) -> Error + use<> {
    let path = PathBuf::from(path);
    move |source| Error::Write {
        path: path.clone(),
        source,
    }
}

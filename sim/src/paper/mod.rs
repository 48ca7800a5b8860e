//! Every experiment, each with its tables, plots and gates beside the published figures.
//!
//! An experiment is a value that implements [`Experiment`]; [`ALL`] lists them in the order in which they are run and printed.

mod autoscale;
mod azure;
mod e1;
mod e2;
mod e3;
mod e4;
mod e5;
mod hints;
mod kept;
mod online;
mod optimum;
mod starvation;
mod workflows;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::input::DATA_DIRECTORY;
use crate::progress::Progress;
use crate::report::Outcome;

/// The experiments.
pub const ALL: &[&dyn Experiment] = &[
    &workflows::Workflows,
    &optimum::Optimum,
    &e1::E1,
    &online::Online,
    &e2::E2,
    &starvation::Starvation,
    &e3::E3,
    &hints::Hints,
    &e4::E4,
    &e5::E5,
    &autoscale::Autoscale,
];

/// How much is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// A part that is enough to see that everything works: for tests.
    Quick,
    /// Everything.
    #[default]
    Full,
}

/// What an experiment is given.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The folder of the recorded traces, if there is one.
    pub data: Option<&'a Path>,
    /// How much to run.
    pub effort: Effort,
    /// Who is told about progress.
    pub progress: &'a dyn Progress,
}

impl Context<'_> {
    /// A file of the recorded traces.
    ///
    /// # Errors
    /// When there is no such folder.
    pub fn data(&self, file: &str) -> Result<PathBuf, Error> {
        self.data.map(|folder| folder.join(file)).ok_or_else(|| {
            Error::Usage(format!(
                "needs the recorded traces; name their folder with --data or {DATA_DIRECTORY}"
            ))
        })
    }
}

/// An experiment.
pub trait Experiment: Sync + fmt::Debug {
    /// Its short name, as in `fdn sim paper --only NAME`, and the name of its files.
    fn name(&self) -> &'static str;

    /// What it measures, in one line.
    fn title(&self) -> &'static str;

    /// Whether it needs recorded traces.
    fn needs_data(&self) -> bool;

    /// Runs it.
    ///
    /// # Errors
    /// When a file is missing or malformed, or the simulation breaks a rule.
    fn run(&self, context: &Context<'_>) -> Result<Outcome, Error>;
}

//! Why a simulation cannot be run.

use std::path::{Path, PathBuf};

use fdn_core::{Coded, ErrorCode};

/// An error of the simulator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("{}: cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file's content is not what it should be.
    #[error("{}: {at}: {expected}", path.display())]
    Input {
        /// The file.
        path: PathBuf,
        /// Where in it: a line, or a JSON path.
        at: String,
        /// What was found and what was expected.
        expected: String,
    },
    /// Options do not go together, or one has a value that cannot be used.
    #[error("{0}")]
    Usage(String),
    /// A result cannot be written.
    #[error("{}: cannot be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The job or the pods cannot be placed at all.
    #[error("{0}")]
    Infeasible(String),
    /// What was recorded comes out otherwise: another release planned it, or a record was changed.
    #[error("{differing} of {passes} recorded passes come out otherwise")]
    Differs {
        /// How many do.
        differing: u64,
        /// How many there are.
        passes: u64,
    },
    /// The simulated world broke a rule that must always hold: a bug.
    #[error("the simulation broke a rule: {0}")]
    Broken(String),
}

impl Error {
    /// A fault in a file's content.
    pub fn input(path: &Path, at: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Input {
            path: path.to_owned(),
            at: at.into(),
            expected: expected.into(),
        }
    }
}

impl Coded for Error {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Read { .. } | Self::Input { .. } | Self::Differs { .. } => {
                ErrorCode::InputInvalid
            }
            Self::Usage(_) => ErrorCode::BadRequest,
            Self::Write { .. } => ErrorCode::DataDirectory,
            Self::Infeasible(_) => ErrorCode::NoClusterFits,
            Self::Broken(_) => ErrorCode::Internal,
        }
    }
}

//! The crate's error: what was asked for cannot be placed, or is no placement problem at all.

use fdn_core::{Coded, ErrorCode};

use crate::dag::DagError;
use crate::place::{Infeasible, ProblemError};

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The tasks and edges are no DAG.
    #[error("the tasks cannot be placed")]
    Dag(#[from] DagError),
    /// The parts of the problem do not belong together.
    #[error("the placement problem is not consistent")]
    Problem(#[from] ProblemError),
    /// No cluster can take one of the tasks.
    #[error(transparent)]
    Infeasible(#[from] Infeasible),
}

impl Coded for Error {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Dag(error) => error.code(),
            Self::Problem(error) => error.code(),
            Self::Infeasible(error) => error.code(),
        }
    }
}

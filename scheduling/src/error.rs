//! The crate's error: a job cannot be placed, or the input is not a placement problem.

use fdn_core::{Coded, ErrorCode};

use crate::dag::DagError;
use crate::place::{Infeasible, ProblemError};

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Tasks and edges do not form a DAG.
    #[error("the tasks cannot be placed")]
    Dag(#[from] DagError),
    /// The parts of the problem are inconsistent.
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

//! How a gateway recognises the call of a job: `JOB;ATTEMPT` in the header `x-fdn-job`, accepted only on controllers' connections.
//!
//! Such a call bypasses the app's policy, because whoever submitted the job had the right to run it.

use std::fmt;
use std::str::FromStr;

use crate::error::ParseError;
use crate::id::JobId;

/// The job and attempt that a call belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPass {
    /// The job.
    pub job: JobId,
    /// The number of the attempt, from 1.
    pub attempt: u32,
}

impl JobPass {
    /// The caller's identity as functions see it: `job:JOB/ATTEMPT`.
    #[must_use]
    pub fn identity(&self) -> String {
        format!("job:{}/{}", self.job, self.attempt)
    }
}

impl fmt::Display for JobPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{};{}", self.job, self.attempt)
    }
}

impl FromStr for JobPass {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let bad = || ParseError::new("job pass", s, "JOB;ATTEMPT");
        let (job, attempt) = s.split_once(';').ok_or_else(bad)?;
        Ok(Self {
            job: job.parse()?,
            attempt: attempt.parse().map_err(|_| bad())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_pass_round_trips() {
        let pass = JobPass {
            job: JobId::from_uuid(Uuid::from_u128(7)),
            attempt: 2,
        };
        assert_eq!(pass.to_string().parse::<JobPass>().expect("own text"), pass);
        assert!(pass.identity().starts_with("job:job_") && pass.identity().ends_with("/2"));
        for bad in ["", "job_7;1", "x;1", &format!("{pass};more")] {
            assert!(bad.parse::<JobPass>().is_err(), "{bad}");
        }
    }
}

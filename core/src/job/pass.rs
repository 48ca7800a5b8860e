//! How a gateway knows that a call is a job's: a pass in the header `x-fdn-job`, made by the dispatcher with a key that follows from the gateway's own
//! token, which only it and the centre have.
//!
//! Such a call is let past the app's policy, because whoever submitted the job had the right to run it. The pass counts for one host, one
//! job, one attempt and a short time, so one that is seen on the way lets nobody in for long, and nowhere else.

use std::fmt;
use std::str::FromStr;

use crate::error::ParseError;
use crate::id::{HostName, JobId};
use crate::unit::Timestamp;

/// For what the key of passes is derived from a node's own token.
pub const KEY_CONTEXT: &str = "fdn-job-calls";

/// Who calls, until when the call may begin, and the proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPass {
    /// The job.
    pub job: JobId,
    /// The attempt, from 1 up.
    pub attempt: u32,
    /// When the pass ends.
    pub expires_at: Timestamp,
    /// Hexadecimal HMAC-SHA-256 of [`JobPass::claim`].
    pub proof: String,
}

impl JobPass {
    /// What the proof is made of.
    #[must_use]
    pub fn claim(host: &HostName, job: JobId, attempt: u32, expires_at: Timestamp) -> String {
        format!("{host}\n{job}\n{attempt}\n{}", expires_at.get())
    }

    /// The claim of this pass at `host`.
    #[must_use]
    pub fn claim_at(&self, host: &HostName) -> String {
        Self::claim(host, self.job, self.attempt, self.expires_at)
    }

    /// What functions are told of who called.
    #[must_use]
    pub fn identity(&self) -> String {
        format!("job:{}/{}", self.job, self.attempt)
    }
}

impl fmt::Display for JobPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.expires_at.get();
        write!(f, "{};{};{at};{}", self.job, self.attempt, self.proof)
    }
}

impl FromStr for JobPass {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        // The text may hold a proof: it is not repeated.
        let bad = || ParseError::new("job pass", "…", "JOB;ATTEMPT;TIME;PROOF");
        let mut parts = s.split(';');
        let mut part = || parts.next().ok_or_else(bad);
        let pass = Self {
            job: part()?.parse()?,
            attempt: part()?.parse().map_err(|_| bad())?,
            expires_at: Timestamp(part()?.parse().map_err(|_| bad())?),
            proof: part()?.to_owned(),
        };
        if parts.next().is_some() || pass.proof.len() != 64 {
            return Err(bad());
        }
        Ok(pass)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_pass_round_trips_and_claims_one_call() {
        let pass = JobPass {
            job: JobId::from_uuid(Uuid::from_u128(7)),
            attempt: 2,
            expires_at: Timestamp(9),
            proof: "a".repeat(64),
        };
        assert_eq!(pass.to_string().parse::<JobPass>().expect("own text"), pass);
        let host = |name: &str| name.parse::<HostName>().expect("host");
        let claim = pass.claim_at(&host("a.fn.test"));
        let next = JobPass {
            attempt: 3,
            ..pass.clone()
        };
        assert_ne!(claim, pass.claim_at(&host("b.fn.test")));
        assert_ne!(claim, next.claim_at(&host("a.fn.test")));
        for bad in ["", "job_7;1;2", "x;1;2;3", &format!("{pass};more")] {
            assert!(bad.parse::<JobPass>().is_err(), "{bad}");
        }
    }
}

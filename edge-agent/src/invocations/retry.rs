//! Decides whether a failed call is retried.
//!
//! A request that was certainly not sent can always be retried. One that may have been seen is retried only if that has no further effect: its
//! method is idempotent (RFC 9110, section 9.2.2), or the function is declared idempotent, and its body is still available. Both are limited by
//! the number of attempts and by the call's deadline.

use http::Method;

/// How a call failed, as far as it matters for a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptFailure {
    /// No byte was sent.
    NotSent,
    /// The instance may have seen the request.
    Interrupted {
        /// Whether the whole request is still available.
        replayable: bool,
    },
}

impl AttemptFailure {
    /// The label in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::NotSent => "not_sent",
            Self::Interrupted { .. } => "interrupted",
        }
    }
}

/// Whether running a request twice has the same effect as running it once.
#[must_use]
pub fn is_idempotent(method: &Method, declared: bool) -> bool {
    declared
        || matches!(
            *method,
            Method::GET
                | Method::HEAD
                | Method::OPTIONS
                | Method::TRACE
                | Method::PUT
                | Method::DELETE
        )
}

/// The failed attempts of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailedAttempts {
    /// Attempts in which no byte was sent, because the instance turned out to be gone.
    pub not_sent: u32,
    /// Attempts that were interrupted.
    pub interrupted: u32,
}

/// The limit of attempts that find the instance gone, as a multiple of the limit of interrupted ones: after all instances were killed, each that
/// was idle is found by some call.
const GONE: u32 = 64;

impl FailedAttempts {
    /// Counts a failure. Returns whether the call is retried, if it may be interrupted in at most `attempts` attempts.
    pub fn should_retry(
        &mut self,
        failed: AttemptFailure,
        idempotent: bool,
        attempts: u32,
    ) -> bool {
        match failed {
            AttemptFailure::NotSent => {
                self.not_sent += 1;
                self.not_sent < attempts.saturating_mul(GONE)
            }
            AttemptFailure::Interrupted { replayable } => {
                self.interrupted += 1;
                idempotent && replayable && self.interrupted < attempts
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_safe_is_made_again() {
        let cut = AttemptFailure::Interrupted { replayable: true };
        let consumed = AttemptFailure::Interrupted { replayable: false };
        let once =
            |failed, idempotent| FailedAttempts::default().should_retry(failed, idempotent, 3);
        assert!(
            once(AttemptFailure::NotSent, false),
            "a POST that nobody saw"
        );
        assert!(!once(cut, false), "a POST that may have been seen");
        assert!(once(cut, true) && !once(consumed, true));
    }

    #[test]
    fn attempts_are_bounded() {
        for (failed, max) in [
            (AttemptFailure::Interrupted { replayable: true }, 3),
            (AttemptFailure::NotSent, 3 * GONE),
        ] {
            let mut tries = FailedAttempts::default();
            let again = (0..1000).take_while(|_| tries.should_retry(failed, true, 3));
            assert_eq!(again.count(), max as usize - 1);
        }
    }

    #[test]
    fn methods_are_those_of_rfc_9110() {
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"] {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            assert!(is_idempotent(&method, false), "{method}");
        }
        for method in ["POST", "PATCH", "CONNECT", "PURGE"] {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            assert!(!is_idempotent(&method, false), "{method}");
            assert!(
                is_idempotent(&method, true),
                "the function says so: {method}"
            );
        }
    }
}

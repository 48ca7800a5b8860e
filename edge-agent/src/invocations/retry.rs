//! When a call that failed is made again.
//!
//! A request that surely was not handed over can always be made again. One that may have been seen is made again only if that
//! changes nothing: its method is idempotent (RFC 9110, section 9.2.2), or the function is declared to be, and its body is
//! still here. Both within the number of attempts and the call's time.

use http::Method;

/// How a call failed, as far as making it again goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// No octet was handed over.
    NotSent,
    /// It may have been seen.
    Interrupted {
        /// Whether the whole request is still here.
        replayable: bool,
    },
}

impl Failed {
    /// The label in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::NotSent => "not_sent",
            Self::Interrupted { .. } => "interrupted",
        }
    }
}

/// Whether doing it twice is the same as doing it once.
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

/// Whether a call is made again that failed so in its `attempt`-th attempt (1 is the first) of `attempts`.
#[must_use]
pub fn again(failed: Failed, idempotent: bool, attempt: u32, attempts: u32) -> bool {
    attempt < attempts
        && match failed {
            Failed::NotSent => true,
            Failed::Interrupted { replayable } => idempotent && replayable,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_safe_is_made_again() {
        let cut = Failed::Interrupted { replayable: true };
        let consumed = Failed::Interrupted { replayable: false };
        assert!(
            again(Failed::NotSent, false, 1, 3),
            "a POST that nobody saw"
        );
        assert!(!again(cut, false, 1, 3), "a POST that may have been seen");
        assert!(again(cut, true, 1, 3) && !again(consumed, true, 1, 3));
        assert!(!again(Failed::NotSent, true, 3, 3), "attempts are bounded");
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

//! When a call that failed is made again.
//!
//! A request that surely was not handed over can always be made again. One that may have been seen is made again only if that
//! changes nothing: its method is idempotent (RFC 9110, section 9.2.2), or the function is declared to be, and its body is
//! still here. Both within the number of attempts and the call's time.

use http::Method;

/// How a call failed, as far as making it again goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// No byte was handed over.
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

/// How often a call was made in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tries {
    /// Without a byte being handed over: each time another instance turned out to be gone.
    pub not_sent: u32,
    /// Cut short.
    pub interrupted: u32,
}

/// A call meets this many times as many instances that are gone as it may be cut short: after a kill of all, each that was idle is met by
/// some call.
const GONE: u32 = 64;

impl Tries {
    /// Counts a failure; whether the call is made again, being cut short at most `attempts` times.
    pub fn again(&mut self, failed: Failed, idempotent: bool, attempts: u32) -> bool {
        match failed {
            Failed::NotSent => {
                self.not_sent += 1;
                self.not_sent < attempts.saturating_mul(GONE)
            }
            Failed::Interrupted { replayable } => {
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
        let cut = Failed::Interrupted { replayable: true };
        let consumed = Failed::Interrupted { replayable: false };
        let once = |failed, idempotent| Tries::default().again(failed, idempotent, 3);
        assert!(once(Failed::NotSent, false), "a POST that nobody saw");
        assert!(!once(cut, false), "a POST that may have been seen");
        assert!(once(cut, true) && !once(consumed, true));
    }

    #[test]
    fn attempts_are_bounded() {
        for (failed, most) in [
            (Failed::Interrupted { replayable: true }, 3),
            (Failed::NotSent, 3 * GONE),
        ] {
            let mut tries = Tries::default();
            let again = (0..1000).take_while(|_| tries.again(failed, true, 3));
            assert_eq!(again.count(), most as usize - 1);
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

//! The webhook that is sent when a job has ended or a budget raised an alert, and how the receiver verifies its sender. It goes to public
//! addresses ([`crate::address`]) unless the operator allows others.
//!
//! The request is a `POST` with the job or the alert as JSON. `fdn-webhook-timestamp` is the time in seconds since 1970,
//! `fdn-webhook-signature` is `v1=` and the hexadecimal HMAC-SHA-256 of `TIMESTAMP.BODY` under the secret of the app, or of the tenant's
//! budgets. A receiver should compare in constant time and refuse old timestamps; it may get an event more than once, and recognises it
//! by `fdn-webhook-id`.

/// The event's id, the same for every delivery of the event.
pub const ID_HEADER: &str = "fdn-webhook-id";
/// The time of signing, in seconds since 1970.
pub const TIMESTAMP_HEADER: &str = "fdn-webhook-timestamp";
/// The signature of timestamp and body.
pub const SIGNATURE_HEADER: &str = "fdn-webhook-signature";
/// The longest URL, in bytes.
pub const URL_MAX: usize = 2048;

/// The text that is signed.
#[must_use]
pub fn signed(timestamp_s: u64, body: &str) -> String {
    format!("{timestamp_s}.{body}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_signed_with_the_body() {
        assert_eq!(signed(17, "{}"), "17.{}");
    }
}

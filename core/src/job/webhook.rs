//! What is sent when a job has ended or a budget gave an alert, and how the receiver knows who sent it. It goes to public addresses
//! ([`crate::address`]) unless the operator allows others.
//!
//! The request is a `POST` with the job or the alert as JSON. `fdn-webhook-timestamp` has the time in seconds since 1970,
//! `fdn-webhook-signature` `v1=` and the hexadecimal HMAC-SHA-256 of `TIMESTAMP.BODY` under the app's, or the tenant's budgets', secret. A receiver compares in constant time and refuses
//! old timestamps; it may get one event more than once, and knows it by `fdn-webhook-id`.

/// The event's id: the same each time the event is sent.
pub const ID_HEADER: &str = "fdn-webhook-id";
/// When it was signed, in seconds since 1970.
pub const TIMESTAMP_HEADER: &str = "fdn-webhook-timestamp";
/// The signature.
pub const SIGNATURE_HEADER: &str = "fdn-webhook-signature";
/// The longest address.
pub const URL_MAX: usize = 2048;

/// What is signed.
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

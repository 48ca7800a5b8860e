//! Validation of a token's claims. The gateway has verified the signature before.

use serde_json::{Map, Value};

use super::JwtRule;
use crate::unit::Timestamp;

/// The claims of a token with a valid signature.
pub type Claims = Map<String, Value>;

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// It is not a token, its algorithm is not allowed, or its signature is wrong.
    Malformed,
    /// It has expired, or has no expiry time.
    Expired,
    /// It is not valid yet.
    TooEarly,
    /// Its issuer or audience is another one.
    Elsewhere,
    /// It lacks a claim that the policy requires.
    LacksClaim,
    /// It is signed with a key that is not known here.
    UnknownKey,
    /// No key is known here at all: the provider's keys could not be fetched yet.
    NoKeys,
}

impl TokenFault {
    /// The explanation for the client: enough to correct its token, nothing about the policy.
    #[must_use]
    pub const fn detail(self) -> &'static str {
        match self {
            Self::Malformed => "the token is malformed or its signature is wrong",
            Self::Expired => "the token has expired",
            Self::TooEarly => "the token does not count yet",
            Self::Elsewhere => "the token was made by or for somebody else",
            Self::LacksClaim => "the token lacks a claim that this app asks for",
            Self::UnknownKey => "the token was made with a key that is not known",
            Self::NoKeys => "the keys that tokens are checked with cannot be had now",
        }
    }
}

/// Checks the claims of a token (RFC 7519, section 4.1). A token without an expiry time is refused, since it could never be revoked.
///
/// # Errors
/// The first reason why it is refused.
pub fn check(rule: &JwtRule, claims: &Claims, now: Timestamp) -> Result<(), TokenFault> {
    #[allow(
        clippy::cast_precision_loss,
        reason = "milliseconds since 1970 fit the 53 bits of a float"
    )]
    let (now, leeway) = (now.0 as f64 / 1e3, rule.leeway.as_millis() as f64 / 1e3);
    match claims.get("exp").and_then(Value::as_f64) {
        Some(end) if now < end + leeway => {}
        _ => return Err(TokenFault::Expired),
    }
    match claims.get("nbf") {
        None => {}
        Some(begin) => match begin.as_f64() {
            Some(begin) if begin - leeway <= now => {}
            _ => return Err(TokenFault::TooEarly),
        },
    }
    let named = |claim: &str, wanted: &[String]| {
        claims
            .get(claim)
            .is_some_and(|value| names_one(value, wanted, false))
    };
    if !named("iss", &rule.issuers) || !named("aud", &rule.audiences) {
        return Err(TokenFault::Elsewhere);
    }
    for (claim, wanted) in &rule.required_claims {
        let value = claims.get(claim).ok_or(TokenFault::LacksClaim)?;
        // `scope` is a space-separated list (RFC 8693, section 4.2).
        if !wanted.is_empty() && !names_one(value, wanted, claim == "scope") {
            return Err(TokenFault::LacksClaim);
        }
    }
    Ok(())
}

/// Whether a claim is one of `wanted`, or a list that contains one of them; with `words`, a text is such a list.
fn names_one(value: &Value, wanted: &[String], words: bool) -> bool {
    let wants = |text: &str| wanted.iter().any(|w| w == text);
    match value {
        Value::String(text) if words => text.split(' ').any(wants),
        Value::String(text) => wants(text),
        Value::Array(list) => list.iter().filter_map(Value::as_str).any(wants),
        Value::Number(number) => wants(&number.to_string()),
        Value::Bool(truth) => wants(if *truth { "true" } else { "false" }),
        Value::Null | Value::Object(_) => false,
    }
}

/// The subject of a token if it is valid in a header; else empty.
#[must_use]
pub fn subject(claims: &Claims) -> &str {
    let subject = claims
        .get("sub")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let fits = subject.len() <= 256 && subject.bytes().all(|b| (b'!'..=b'~').contains(&b));
    if fits { subject } else { "" }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn rule() -> JwtRule {
        serde_json::from_value(json!({
            "jwks_url": "https://id.example/jwks", "issuers": ["https://id.example"], "audiences": ["api", "other"],
            "leeway": "10s", "required_claims": { "role": ["admin", "editor"], "scope": ["read"], "email": [] },
        }))
        .expect("a rule")
    }

    fn claims(change: Value) -> Claims {
        let mut claims = json!({
            "iss": "https://id.example", "aud": ["api"], "exp": 1000, "nbf": 500, "role": ["guest", "editor"],
            "scope": "write read", "email": "a@b", "sub": "me",
        });
        let all = claims.as_object_mut().expect("an object");
        for (name, value) in change.as_object().expect("an object") {
            all.insert(name.clone(), value.clone());
        }
        all.retain(|_, value| !value.is_null());
        all.clone()
    }

    fn at(change: Value, seconds: u64) -> Result<(), TokenFault> {
        check(&rule(), &claims(change), Timestamp(seconds * 1000))
    }

    #[test]
    fn each_claim_counts() {
        assert_eq!(at(json!({}), 700), Ok(()));
        assert_eq!(at(json!({"aud": "other"}), 700), Ok(()));
        let cases = [
            (json!({"exp": null}), TokenFault::Expired),
            (json!({"exp": "1000"}), TokenFault::Expired),
            (json!({"nbf": "x"}), TokenFault::TooEarly),
            (
                json!({"iss": "https://evil.example"}),
                TokenFault::Elsewhere,
            ),
            (json!({"iss": null}), TokenFault::Elsewhere),
            (json!({"aud": null}), TokenFault::Elsewhere),
            (json!({"aud": ["apis"]}), TokenFault::Elsewhere),
            (json!({"role": "reader"}), TokenFault::LacksClaim),
            (json!({"role": null}), TokenFault::LacksClaim),
            (json!({"scope": "reader write"}), TokenFault::LacksClaim),
            (json!({"email": null}), TokenFault::LacksClaim),
        ];
        for (change, fault) in cases {
            assert_eq!(at(change.clone(), 700), Err(fault), "{change}");
        }
    }

    #[test]
    fn subjects_stand_in_headers_or_are_left_out() {
        assert_eq!(subject(&claims(json!({}))), "me");
        for bad in [json!("a\nb"), json!(7), json!(null), json!("x".repeat(300))] {
            assert_eq!(subject(&claims(json!({"sub": bad}))), "");
        }
    }

    proptest! {
        /// A token counts from its beginning to its end, with the leeway on both sides, and at no other time.
        #[test]
        fn time_is_kept(now in 0u64..2000) {
            let expected = if now >= 1010 {
                Err(TokenFault::Expired)
            } else if now < 490 {
                Err(TokenFault::TooEarly)
            } else {
                Ok(())
            };
            prop_assert_eq!(at(json!({}), now), expected);
        }
    }
}

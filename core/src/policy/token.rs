//! Which claims a token must have. The signature is checked before, by the gateway.

use serde_json::{Map, Value};

use super::JwtRule;
use crate::unit::Timestamp;

/// The claims of a token whose signature is good.
pub type Claims = Map<String, Value>;

/// Why a token does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// It is no token, its algorithm is not allowed, or its signature is wrong.
    Malformed,
    /// It has ended, or has no end.
    Expired,
    /// It does not count yet.
    TooEarly,
    /// Somebody else made it, or it was made for somebody else.
    Elsewhere,
    /// It is good, but lacks a claim that the policy asks for.
    LacksClaim,
    /// It was made with a key that is not known here.
    UnknownKey,
    /// No key is known here at all: they could not be fetched yet.
    NoKeys,
}

impl TokenFault {
    /// What a client is told: enough to mend its token, nothing of the policy.
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

/// Checks the claims of a token (RFC 7519, section 4.1). A token without an end is refused: nobody could take it back.
///
/// # Errors
/// The first reason why it does not count.
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
        // `scope` is a list of words (RFC 8693, section 4.2).
        if !wanted.is_empty() && !names_one(value, wanted, claim == "scope") {
            return Err(TokenFault::LacksClaim);
        }
    }
    Ok(())
}

/// Whether a claim is one of `wanted`, or a list with one of them.
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

/// Whom a token speaks for: its subject, where that can stand in a header.
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

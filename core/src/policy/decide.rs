//! Admission of a call: one function from policy, facts and time to a verdict.
//!
//! The order is fixed, with cheap and selective rules first: addresses, CORS preflight, authentication, the client's rate, the app's
//! rate, quota, concurrency, body. A call that one rule refuses is not counted by later ones: a caller without credentials cannot use up
//! a rate, and a caller over its rate cannot use up the quota. The client's rate precedes the app's, so that one client cannot use up the
//! app's rate with calls that are refused.
//!
//! Counters and keys are behind [`Counters`]: the gateway has real ones, tests have fakes.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use super::cors::Preflight;
use super::key::{self, ApiKey};
use super::quota::{QuotaUsage, RemainingQuota, remaining_quota};
use super::token::{self, Claims, TokenFault};
use super::{Authentication, GatewaySpec, JwtRule, Policy};
use crate::digest::Digest;
use crate::error::ErrorCode;
use crate::unit::Timestamp;

/// What is known of a request before its body is read.
#[derive(Clone, Copy, Debug)]
pub struct RequestFacts<'a> {
    /// The client's address; `None` on a connection without one.
    pub address: Option<IpAddr>,
    /// The preflight request, if this is one.
    pub preflight: Option<Preflight<'a>>,
    /// The `x-api-key` header.
    pub api_key: Option<&'a str>,
    /// The bearer token of the `authorization` header.
    pub bearer: Option<&'a str>,
    /// The announced length of the body.
    pub content_length: Option<u64>,
}

/// The key by which calls are attributed to a client for its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientKey {
    /// An IPv4 address, or the first 64 bits of an IPv6 address, which is what one subscriber typically has.
    Address(u128),
    /// A verified identity, hashed.
    Identity(u128),
}

impl ClientKey {
    /// The key of a client's address.
    #[must_use]
    pub fn of_address(address: Option<IpAddr>) -> Self {
        Self::Address(match address.map(|a| a.to_canonical()) {
            Some(IpAddr::V4(v4)) => v4.to_ipv6_mapped().to_bits(),
            Some(IpAddr::V6(v6)) => v6.to_bits() >> 64 << 64,
            None => Ipv6Addr::UNSPECIFIED.to_bits(),
        })
    }

    fn of_identity(kind: &str, text: &str) -> Self {
        let digest = Digest::of(format!("{kind}:{text}").as_bytes());
        let mut first = [0; 16];
        first.copy_from_slice(&digest.as_bytes()[..16]);
        Self::Identity(u128::from_be_bytes(first))
    }
}

/// The caller's identity, as far as it was verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// Not verified, since the policy does not ask for it.
    #[default]
    Unknown,
    /// The holder of the API key with this name.
    Key(String),
    /// The subject of a token; empty if the token has none.
    Subject(String),
}

impl Identity {
    /// The value of the header that functions see: `key:NAME` or `jwt:SUBJECT`; `None` if unknown.
    #[must_use]
    pub fn header(&self) -> Option<String> {
        match self {
            Self::Unknown => None,
            Self::Key(name) => Some(format!("key:{name}")),
            Self::Subject(subject) => Some(format!("jwt:{subject}")),
        }
    }
}

/// The state of a rate after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateState {
    /// Whether the call is within the rate; only then is it counted.
    pub admitted: bool,
    /// How many further calls would be admitted now.
    pub remaining: u32,
    /// Until one more call is possible (if refused), or until the full burst is (if admitted).
    pub reset: Duration,
}

/// The scope of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateScope {
    /// All calls of the app.
    App,
    /// The calls of one client.
    Client(ClientKey),
}

/// Counters and keys that the decision needs beside the policy. Each method is called at most once per call, in the order of the rules.
pub trait Counters {
    /// The claims of a token whose signature is valid under one of the provider's keys.
    ///
    /// # Errors
    /// Why it is not valid.
    fn verify(&self, rule: &JwtRule, token: &str) -> Result<Claims, TokenFault>;

    /// Takes one call from a rate of the policy.
    fn rate(&self, scope: RateScope) -> RateState;

    /// The calls admitted within the present quota windows.
    fn quota_usage(&self) -> QuotaUsage;

    /// Counts one call against the quota.
    fn count(&self);

    /// Takes one of `limit` places for concurrent calls; the caller must give it back. False if all are taken.
    fn enter(&self, limit: u32) -> bool;
}

/// The remaining budget of a rate or quota, for response headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Its name: `client`, `app` or `quota`.
    pub name: &'static str,
    /// The remaining calls.
    pub remaining: u64,
    /// Seconds until it is replenished.
    pub reset_s: u64,
}

/// An admitted call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// The caller's identity.
    pub identity: Identity,
    /// Whether an API key proved the identity; the key is then not passed on to the function.
    pub by_key: bool,
    /// The budget with the least left; `None` if the policy has no rate or quota.
    pub budget: Option<Budget>,
    /// Whether the call took one of the places for concurrent calls.
    pub entered: bool,
}

/// A refused call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The rule that refused it, a label in metrics.
    pub reason: Reason,
    /// The explanation for the client.
    pub detail: &'static str,
    /// Seconds after which a retry can succeed; `None` if it cannot help.
    pub retry_after_s: Option<u64>,
    /// The budget that is used up, if that is the reason.
    pub budget: Option<Budget>,
}

/// The verdict on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The call is admitted to the function.
    Admit(Admitted),
    /// The gateway answers a preflight with these headers.
    Preflight(Vec<(&'static str, String)>),
    /// The call is refused.
    Refuse(Refused),
}

/// The rule that refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The client's address is not allowed.
    Address,
    /// A preflight asked for something that is not allowed.
    Preflight,
    /// Credentials are missing.
    NoCredentials,
    /// Credentials are not valid.
    BadCredentials,
    /// Credentials are valid, but do not grant access.
    Forbidden,
    /// Tokens cannot be verified at present.
    NoKeys,
    /// The client exceeds its rate.
    ClientRate,
    /// All clients together exceed the app's rate.
    AppRate,
    /// The quota is used up.
    Quota,
    /// Too many calls are running.
    Concurrency,
    /// The body is too large.
    Body,
    /// The app's tenant is suspended.
    Suspended,
}

impl Reason {
    /// All reasons, for metrics.
    pub const ALL: [Self; 12] = [
        Self::Address,
        Self::Preflight,
        Self::NoCredentials,
        Self::BadCredentials,
        Self::Forbidden,
        Self::NoKeys,
        Self::ClientRate,
        Self::AppRate,
        Self::Quota,
        Self::Concurrency,
        Self::Body,
        Self::Suspended,
    ];

    /// The label in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Preflight => "preflight",
            Self::NoCredentials => "no_credentials",
            Self::BadCredentials => "bad_credentials",
            Self::Forbidden => "forbidden",
            Self::NoKeys => "no_keys",
            Self::ClientRate => "client_rate",
            Self::AppRate => "app_rate",
            Self::Quota => "quota",
            Self::Concurrency => "concurrency",
            Self::Body => "body",
            Self::Suspended => "suspended",
        }
    }

    /// The error code of the response.
    #[must_use]
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Address => ErrorCode::AddressRefused,
            Self::Preflight => ErrorCode::OriginRefused,
            Self::NoCredentials => ErrorCode::CredentialsMissing,
            Self::BadCredentials => ErrorCode::CredentialsInvalid,
            Self::Forbidden => ErrorCode::TokenForbidden,
            Self::NoKeys => ErrorCode::KeysUnavailable,
            Self::ClientRate | Self::AppRate => ErrorCode::RateLimited,
            Self::Quota => ErrorCode::QuotaUsedUp,
            Self::Concurrency => ErrorCode::TooManyAtOnce,
            Self::Body => ErrorCode::BodyTooLarge,
            Self::Suspended => ErrorCode::AppSuspended,
        }
    }
}

impl Refused {
    const fn new(reason: Reason, detail: &'static str) -> Self {
        Self {
            reason,
            detail,
            retry_after_s: None,
            budget: None,
        }
    }
}

/// Decides on a request; only an admitted call is counted.
#[must_use]
pub fn decide(
    spec: &GatewaySpec,
    facts: &RequestFacts<'_>,
    now: Timestamp,
    counters: &impl Counters,
) -> Verdict {
    match verdict(spec, facts, now, counters) {
        Ok(verdict) => verdict,
        Err(refused) => Verdict::Refuse(refused),
    }
}

fn verdict(
    spec: &GatewaySpec,
    facts: &RequestFacts<'_>,
    now: Timestamp,
    counters: &impl Counters,
) -> Result<Verdict, Refused> {
    if spec.suspended {
        let detail = "the owner of this app is suspended; it is served again when that ends";
        return Err(Refused::new(Reason::Suspended, detail));
    }
    let policy = &spec.policy;
    address(policy, facts.address)?;
    if let (Some(cors), Some(asked)) = (&policy.cors, &facts.preflight) {
        let refused = Refused::new(
            Reason::Preflight,
            "pages of this origin may not call this app so",
        );
        return Ok(Verdict::Preflight(cors.preflight(asked).ok_or(refused)?));
    }
    let (identity, client) = authenticate(spec, facts, now, counters)?;
    let mut budget = None;
    if policy.rate.client.is_some() {
        let state = counters.rate(RateScope::Client(client));
        rate(Reason::ClientRate, "client", state, &mut budget)?;
    }
    if policy.rate.app.is_some() {
        let state = counters.rate(RateScope::App);
        rate(Reason::AppRate, "app", state, &mut budget)?;
    }
    if !policy.quota.is_empty() {
        quota(policy, now, counters, &mut budget)?;
    }
    if let (Some(limit), Some(length)) = (policy.body_limit, facts.content_length)
        && length > limit.as_bytes()
    {
        return Err(Refused::new(
            Reason::Body,
            "the request body is larger than this app accepts",
        ));
    }
    let mut entered = false;
    if let Some(limit) = policy.concurrency {
        entered = counters.enter(limit);
        if !entered {
            return Err(Refused {
                retry_after_s: Some(1),
                ..Refused::new(
                    Reason::Concurrency,
                    "as many calls of this app run as may; try again later",
                )
            });
        }
    }
    if !policy.quota.is_empty() {
        counters.count();
    }
    Ok(Verdict::Admit(Admitted {
        by_key: matches!(identity, Identity::Key(_)),
        identity,
        budget,
        entered,
    }))
}

fn address(policy: &Policy, address: Option<IpAddr>) -> Result<(), Refused> {
    let (allow, deny) = (&policy.addresses.allow, &policy.addresses.deny);
    if allow.is_empty() && deny.is_empty() {
        return Ok(());
    }
    let good = address.is_some_and(|address| {
        (allow.is_empty() || allow.iter().any(|prefix| prefix.contains(address)))
            && !deny.iter().any(|prefix| prefix.contains(address))
    });
    good.then_some(())
        .ok_or_else(|| Refused::new(Reason::Address, "this address may not call this app"))
}

fn authenticate(
    spec: &GatewaySpec,
    facts: &RequestFacts<'_>,
    now: Timestamp,
    counters: &impl Counters,
) -> Result<(Identity, ClientKey), Refused> {
    match &spec.policy.authentication {
        Authentication::None => Ok((Identity::Unknown, ClientKey::of_address(facts.address))),
        Authentication::ApiKey {} => {
            let bearer = facts.bearer.filter(|token| key::looks_like_key(token));
            let presented = facts.api_key.or(bearer).ok_or(Refused::new(
                Reason::NoCredentials,
                "this app asks for an API key, in x-api-key or as a bearer token",
            ))?;
            let found: &ApiKey = key::find(&spec.keys, presented, now).ok_or(Refused::new(
                Reason::BadCredentials,
                "the API key is not known, was revoked, or has expired",
            ))?;
            let name = found.name.as_str().to_owned();
            let client = ClientKey::Identity(found.id.uuid().as_u128());
            Ok((Identity::Key(name), client))
        }
        Authentication::Jwt(rule) => {
            let presented = facts.bearer.ok_or(Refused::new(
                Reason::NoCredentials,
                "this app asks for a bearer token",
            ))?;
            let claims = counters.verify(rule, presented);
            let claims = claims.and_then(|claims| {
                token::check(rule, &claims, now)?;
                Ok(claims)
            });
            let claims = claims.map_err(refused_token)?;
            let subject = token::subject(&claims);
            let client = if subject.is_empty() {
                ClientKey::of_address(facts.address)
            } else {
                ClientKey::of_identity("jwt", subject)
            };
            Ok((Identity::Subject(subject.to_owned()), client))
        }
    }
}

fn refused_token(fault: TokenFault) -> Refused {
    let reason = match fault {
        TokenFault::LacksClaim => Reason::Forbidden,
        TokenFault::NoKeys => Reason::NoKeys,
        TokenFault::Malformed
        | TokenFault::Expired
        | TokenFault::TooEarly
        | TokenFault::Elsewhere
        | TokenFault::UnknownKey => Reason::BadCredentials,
    };
    Refused {
        retry_after_s: (fault == TokenFault::NoKeys).then_some(5),
        ..Refused::new(reason, fault.detail())
    }
}

/// Whole seconds, rounded up.
const fn seconds(span: Duration) -> u64 {
    let part = if span.subsec_nanos() > 0 { 1 } else { 0 };
    span.as_secs() + part
}

fn tighter(budget: &mut Option<Budget>, other: Budget) {
    if budget.is_none_or(|known| other.remaining < known.remaining) {
        *budget = Some(other);
    }
}

fn rate(
    reason: Reason,
    name: &'static str,
    state: RateState,
    budget: &mut Option<Budget>,
) -> Result<(), Refused> {
    let known = Budget {
        name,
        remaining: u64::from(state.remaining),
        reset_s: seconds(state.reset),
    };
    if !state.admitted {
        return Err(Refused {
            retry_after_s: Some(known.reset_s.max(1)),
            budget: Some(Budget {
                remaining: 0,
                ..known
            }),
            ..Refused::new(reason, "calls come faster than this app allows; slow down")
        });
    }
    tighter(budget, known);
    Ok(())
}

fn quota(
    policy: &Policy,
    now: Timestamp,
    counters: &impl Counters,
    budget: &mut Option<Budget>,
) -> Result<(), Refused> {
    let RemainingQuota::Calls { left, until, .. } =
        remaining_quota(&policy.quota, counters.quota_usage())
    else {
        return Ok(());
    };
    let known = Budget {
        name: "quota",
        remaining: left.saturating_sub(1),
        reset_s: seconds(until.since(now)),
    };
    if left == 0 {
        return Err(Refused {
            retry_after_s: Some(known.reset_s.max(1)),
            budget: Some(known),
            ..Refused::new(Reason::Quota, "the quota of this app is used up")
        });
    }
    tighter(budget, known);
    Ok(())
}

#[cfg(test)]
mod tests;

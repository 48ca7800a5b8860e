//! Whether a call is let in: one function from policy, facts and time to a verdict.
//!
//! The order is fixed, cheap and telling rules first: addresses, CORS preflight, authentication, rate of the client, rate of the app, quota,
//! concurrency, body. A call that one rule refuses is not counted by the rules after it, so a caller without credentials can use up
//! nobody's rate, and a caller over its rate nobody's quota. The rate of the client stands before that of the app so that one
//! client cannot use up the app's rate with calls that are refused.
//!
//! What has to be counted or looked up elsewhere is asked of [`Counters`]; a test gives made-up ones, the gateway its own.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use super::cors::Preflight;
use super::key::{self, ApiKey};
use super::quota::{Left, Used, left};
use super::token::{self, Claims, TokenFault};
use super::{Authentication, GatewaySpec, JwtRule, Policy};
use crate::digest::Digest;
use crate::error::ErrorCode;
use crate::unit::Timestamp;

/// What is known of a request before its body.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The client's address; unknown on a connection without one.
    pub address: Option<IpAddr>,
    /// What the client asks for, if this is a preflight.
    pub preflight: Option<Preflight<'a>>,
    /// The field `x-api-key`.
    pub api_key: Option<&'a str>,
    /// The token of `authorization: Bearer`.
    pub bearer: Option<&'a str>,
    /// The length of the body that was announced.
    pub content_length: Option<u64>,
}

/// Whose calls are counted together by the rate of each client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientKey {
    /// An IPv4 address, or the first 64 bits of an IPv6 address: what one subscriber has.
    Address(u128),
    /// An identity that was proven.
    Identity(u128),
}

impl ClientKey {
    /// The key of an address.
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

/// Who calls, as far as it was proven.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// Nobody asked.
    #[default]
    Unknown,
    /// The holder of the key with this name.
    Key(String),
    /// The subject of a token; empty if it has none.
    Subject(String),
}

impl Identity {
    /// The value of the header that functions see: `key:NAME` or `jwt:SUBJECT`.
    #[must_use]
    pub fn header(&self) -> Option<String> {
        match self {
            Self::Unknown => None,
            Self::Key(name) => Some(format!("key:{name}")),
            Self::Subject(subject) => Some(format!("jwt:{subject}")),
        }
    }
}

/// How a rate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateState {
    /// Whether this call is within it; it is counted if so.
    pub admitted: bool,
    /// Calls that would be let in now, after this one.
    pub remaining: u32,
    /// Until there is room for one more (refused), or for the whole burst (admitted).
    pub reset: Duration,
}

/// Which rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateScope {
    /// That of all calls.
    App,
    /// That of one client's calls.
    Client(ClientKey),
}

/// What is counted and known beside the policy. Each is asked at most once for a call, in the order of the rules.
pub trait Counters {
    /// The claims of a token whose signature is good under one of the provider's keys.
    ///
    /// # Errors
    /// Why it is not.
    fn verify(&self, rule: &JwtRule, token: &str) -> Result<Claims, TokenFault>;

    /// Takes one call out of a rate that the policy has.
    fn rate(&self, scope: RateScope) -> RateState;

    /// Calls let in within the present windows.
    fn used(&self) -> Used;

    /// Takes one call out of the quota.
    fn count(&self);

    /// Takes one of `limit` places for calls that run; whoever asked gives it back.
    fn enter(&self, limit: u32) -> bool;
}

/// What is left of a rate or quota, for the headers of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// What it is called: `client`, `app`, `quota`.
    pub name: &'static str,
    /// Calls left.
    pub remaining: u64,
    /// Seconds until there are more.
    pub reset_s: u64,
}

/// A call that is let in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// Who calls.
    pub identity: Identity,
    /// Whether `identity` was proven by an API key, which then goes no further.
    pub by_key: bool,
    /// The budget with the least left, if the policy has one.
    pub budget: Option<Budget>,
    /// Whether it took one of the places for calls that run.
    pub entered: bool,
}

/// A call that is not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Which rule: a label of metrics.
    pub reason: Reason,
    /// What the client is told.
    pub detail: &'static str,
    /// When it may try again, if that can help.
    pub retry_after_s: Option<u64>,
    /// The budget that is used up.
    pub budget: Option<Budget>,
}

/// What comes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The function is called.
    Admit(Admitted),
    /// The gateway answers a preflight, with these headers.
    Preflight(Vec<(&'static str, String)>),
    /// The gateway refuses.
    Refuse(Refused),
}

/// Which rule refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The address may not call.
    Address,
    /// A preflight asked for what is not allowed.
    Preflight,
    /// No credentials came.
    NoCredentials,
    /// The credentials are not good.
    BadCredentials,
    /// The credentials are good for something else.
    Forbidden,
    /// Tokens cannot be checked now.
    NoKeys,
    /// The client calls too fast.
    ClientRate,
    /// All clients together call too fast.
    AppRate,
    /// The quota is used up.
    Quota,
    /// Too many calls run.
    Concurrency,
    /// The body is too large.
    Body,
    /// The app's tenant is suspended.
    Suspended,
}

impl Reason {
    /// All, for metrics.
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

    /// The label of metrics.
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

    /// The code of the answer.
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

/// Decides on a request. Counts what is admitted, and only that.
#[must_use]
pub fn decide(
    spec: &GatewaySpec,
    facts: &Facts<'_>,
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
    facts: &Facts<'_>,
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
    facts: &Facts<'_>,
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

/// Whole seconds, never too few.
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
    let Left::Calls { left, until, .. } = left(&policy.quota, counters.used()) else {
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

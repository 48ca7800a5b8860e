//! The policy of an app: who may call it, how often, from where, and what the gateway adds to its responses.
//!
//! A [`Policy`] is declared by the app's owner (TOML, JSON or YAML with one structure), validated by [`Policy::check`], stored by the
//! controller, and pushed to every node as part of the app's desired state, so that it holds while no controller is available and after a
//! restart. Pure functions decide what it means: [`decide::decide`] takes policy, facts of the request, time and counters and returns the
//! verdict. The gateway provides the counters and writes the response.
//!
//! Everything is off by default: an empty policy admits every call and adds nothing.

pub mod api;
mod check;
pub mod cors;
pub mod decide;
pub mod key;
pub mod quota;
pub mod token;
pub mod traffic;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use check::PolicyError;
pub use key::ApiKey;
pub use traffic::Traffic;

use crate::id::HostName;
use crate::prefix::ClientPrefix;
use crate::unit::{ByteSize, DurationMs};

/// The configuration of an app's gateways, apart from what the app runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GatewaySpec {
    /// Who may call it, and how often.
    pub policy: Policy,
    /// The valid API keys, if the policy requires one; hashes only.
    pub keys: Vec<ApiKey>,
    /// The split of its calls between versions.
    pub traffic: Traffic,
    /// Further host names that it serves, whose ownership is proven.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub hosts: BTreeSet<HostName>,
    /// Whether its tenant is suspended; all calls are then refused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
}

impl GatewaySpec {
    /// Whether everything has its default.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.policy.is_empty()
            && self.keys.is_empty()
            && self.traffic.is_empty()
            && self.hosts.is_empty()
            && !self.suspended
    }
}

/// The policy of an app. An absent rule restricts and adds nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// The client addresses that may call the app.
    pub addresses: Addresses,
    /// The rules for calls by pages of other origins; if absent, browsers get no CORS headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cors: Option<Cors>,
    /// How callers prove their identity.
    pub authentication: Authentication,
    /// The limits of the call rate.
    pub rate: RateLimits,
    /// The limits of the number of calls per day and month.
    pub quota: QuotaRule,
    /// The most calls that run at the same time on each node, from 1 to 100000; unlimited if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// The most jobs that run at the same time and call the app's function, over all clusters: its own and those of workflows that run it.
    /// From 1 to 100000. The network's limit for one app applies if it is lower or this is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs_at_once: Option<u32>,
    /// The largest request body. The function's own limit applies if it is smaller or this is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_limit: Option<ByteSize>,
    /// The security headers that are added to responses.
    pub security_headers: SecurityHeaders,
}

impl Policy {
    /// Whether the policy admits every call and adds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The client addresses that may call an app.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Addresses {
    /// If not empty, only these prefixes may call; at most 1000.
    pub allow: Vec<ClientPrefix>,
    /// These prefixes may not call, even if they are in `allow`; at most 1000.
    pub deny: Vec<ClientPrefix>,
}

/// The rules for cross-origin calls by browsers (the CORS protocol of the Fetch standard).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Cors {
    /// The allowed origins, such as `https://example.org` or `https://*.example.org` (the star stands for one or more labels); `*` for any.
    pub origins: Vec<String>,
    /// The allowed methods besides those that need no permission; `GET`, `HEAD` and `POST` if absent.
    pub methods: Vec<String>,
    /// The allowed request headers besides those that need no permission; `*` for any.
    pub headers: Vec<String>,
    /// The response headers that pages can read.
    pub expose: Vec<String>,
    /// Whether requests may carry cookies and `authorization`; not possible with the origin `*`.
    pub credentials: bool,
    /// How long browsers may cache the answer to a preflight request, at most `24h`; `10m` if absent.
    pub max_age: DurationMs,
}

impl Default for Cors {
    fn default() -> Self {
        Self {
            origins: Vec::new(),
            methods: ["GET", "HEAD", "POST"].map(str::to_owned).to_vec(),
            headers: Vec::new(),
            expose: Vec::new(),
            credentials: false,
            max_age: DurationMs::from_secs(600),
        }
    }
}

/// How callers of an app prove their identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Authentication {
    /// They need not.
    #[default]
    None,
    /// By a key of the app, in `x-api-key` or `authorization: Bearer`.
    ApiKey {},
    /// By a signed token (JWT) of an identity provider, in `authorization: Bearer`.
    Jwt(JwtRule),
}

/// The requirements for a signed token (RFC 7519, RFC 8725).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JwtRule {
    /// The URL of the provider's public keys (RFC 7517): `https`, or `http` on a loopback address where the node's settings allow it.
    pub jwks_url: String,
    /// The allowed values of the claim `iss`.
    pub issuers: Vec<String>,
    /// The values of which the claim `aud` must contain one.
    pub audiences: Vec<String>,
    /// The accepted signature algorithms; RS256, ES256 and EdDSA if absent.
    #[serde(default = "JwtRule::default_algorithms")]
    pub algorithms: BTreeSet<JwtAlgorithm>,
    /// The tolerated difference between clocks, at most `10m`; `30s` if absent.
    #[serde(default = "JwtRule::default_leeway")]
    pub leeway: DurationMs,
    /// By claim that a token must have: the accepted values; any value if the list is empty.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub required_claims: BTreeMap<String, Vec<String>>,
}

impl JwtRule {
    fn default_algorithms() -> BTreeSet<JwtAlgorithm> {
        [
            JwtAlgorithm::RS256,
            JwtAlgorithm::ES256,
            JwtAlgorithm::EdDSA,
        ]
        .into()
    }

    const fn default_leeway() -> DurationMs {
        DurationMs::from_secs(30)
    }
}

/// A signature algorithm with a public key. Algorithms with a shared secret are not supported: a node must not be able to create tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[allow(missing_docs, reason = "the names are those of RFC 7518 and RFC 8037")]
pub enum JwtAlgorithm {
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    EdDSA,
}

/// Limits of the call rate. Each node counts separately.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RateLimits {
    /// The limit of all calls of the app; absent for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app: Option<Rate>,
    /// The limit for each client: each identity where callers prove one, otherwise each IPv4 address or IPv6 /64 prefix. Absent for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<Rate>,
}

/// A rate limit with bursts (the generic cell rate algorithm).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// The number of calls per period, from 1 to 1000000.
    pub requests: u32,
    /// The period, from `1s` to `1h`; `1s` if absent.
    #[serde(default = "Rate::second")]
    pub per: DurationMs,
    /// The number of calls that may come at once after a pause; as many as `requests` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
}

impl Rate {
    const fn second() -> DurationMs {
        DurationMs::from_secs(1)
    }

    /// How many calls are admitted at once after a pause; `requests` by default.
    #[must_use]
    pub fn burst(&self) -> u32 {
        self.burst.unwrap_or(self.requests).max(1)
    }
}

/// Limits of the number of calls over the whole network. Days and months are in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QuotaRule {
    /// The most calls per day, at least 1; absent for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_day: Option<u64>,
    /// The most calls per month, at least 1; absent for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_month: Option<u64>,
}

impl QuotaRule {
    /// Whether the rule has no limit.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.per_day.is_none() && self.per_month.is_none()
    }
}

/// Security headers that are added to responses where the function did not set them itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SecurityHeaders {
    /// Whether to add `x-content-type-options: nosniff`.
    pub nosniff: bool,
    /// The value of `x-frame-options`; absent for no such header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame_options: Option<FrameOptions>,
    /// The value of `referrer-policy`; absent for no such header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub referrer_policy: Option<String>,
    /// The `max-age` of `strict-transport-security`, at most two years; absent for no such header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hsts: Option<DurationMs>,
    /// The value of `content-security-policy`; absent for no such header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_security_policy: Option<String>,
}

impl SecurityHeaders {
    /// The headers, with names in lower case.
    #[must_use]
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let mut out = Vec::new();
        if self.nosniff {
            out.push(("x-content-type-options", "nosniff".to_owned()));
        }
        if let Some(frame) = self.frame_options {
            out.push(("x-frame-options", frame.as_str().to_owned()));
        }
        if let Some(value) = &self.referrer_policy {
            out.push(("referrer-policy", value.clone()));
        }
        if let Some(age) = self.hsts {
            let seconds = age.as_millis() / 1000;
            out.push(("strict-transport-security", format!("max-age={seconds}")));
        }
        if let Some(value) = &self.content_security_policy {
            out.push(("content-security-policy", value.clone()));
        }
        out
    }
}

/// Which pages may embed an app's responses in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FrameOptions {
    /// No page may.
    Deny,
    /// Pages of the same origin may.
    SameOrigin,
}

impl FrameOptions {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "DENY",
            Self::SameOrigin => "SAMEORIGIN",
        }
    }
}

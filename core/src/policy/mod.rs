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

/// The rules of one app.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// Which addresses may call.
    pub addresses: Addresses,
    /// What browsers are told of calls from pages of other origins; they are told nothing if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cors: Option<Cors>,
    /// How callers prove who they are.
    pub authentication: Authentication,
    /// How fast calls may come.
    pub rate: RateLimits,
    /// How many calls may come in a day and in a month.
    pub quota: QuotaRule,
    /// How many calls may run at once, on each node; from 1 to 100000, unbounded if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// How many jobs may run at once that call its function, over all clusters: its own and those of workflows that run it; from 1 to
    /// 100000. The network's own bound of an app counts where it is lower, or this is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs_at_once: Option<u32>,
    /// The largest request body, where the function's own limit is not smaller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_limit: Option<ByteSize>,
    /// Headers added to answers.
    pub security_headers: SecurityHeaders,
}

impl Policy {
    /// Whether the policy admits every call and adds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Which addresses may call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Addresses {
    /// If not empty, only these; at most 1000 prefixes.
    pub allow: Vec<ClientPrefix>,
    /// Never these, whatever `allow` says; at most 1000 prefixes.
    pub deny: Vec<ClientPrefix>,
}

/// Cross-origin calls of browsers (the CORS protocol of the Fetch standard).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Cors {
    /// Origins, such as `https://example.org`, `https://*.example.org` (any one label or more in place of the star), or `*` for any.
    pub origins: Vec<String>,
    /// Methods beside those that need no leave.
    pub methods: Vec<String>,
    /// Request headers beside those that need no leave; `*` for any.
    pub headers: Vec<String>,
    /// Response headers that pages may read.
    pub expose: Vec<String>,
    /// Whether cookies and `authorization` may come along; not with the origin `*`.
    pub credentials: bool,
    /// How long a browser may keep the answer to a preflight, at most 24 h.
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

/// How callers prove who they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Authentication {
    /// Not at all.
    #[default]
    None,
    /// By a key of the app, in `x-api-key` or `authorization: Bearer`.
    ApiKey {},
    /// By a signed token of an identity provider, in `authorization: Bearer`.
    Jwt(JwtRule),
}

/// Which tokens are good (RFC 7519, RFC 8725).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JwtRule {
    /// Where the provider's public keys are (RFC 7517): `https`, or `http` on a loopback address where the node's settings allow it.
    pub jwks_url: String,
    /// `iss` must be one of these.
    pub issuers: Vec<String>,
    /// `aud` must name one of these.
    pub audiences: Vec<String>,
    /// Algorithms that count.
    #[serde(default = "JwtRule::default_algorithms")]
    pub algorithms: BTreeSet<JwtAlgorithm>,
    /// How far clocks may differ, at most 10 min.
    #[serde(default = "JwtRule::default_leeway")]
    pub leeway: DurationMs,
    /// Claims that a token must have, each with one of the values listed; any value if none is listed.
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

/// A signature algorithm with a public key. Those with a shared secret are left out: a node must not be able to make tokens.
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

/// How fast calls may come, counted by each node for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RateLimits {
    /// All calls of the app.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app: Option<Rate>,
    /// The calls of each client: of each identity where callers have one, else of each IPv4 address or IPv6 /64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<Rate>,
}

/// A rate with room for bursts (the generic cell rate algorithm).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// This many calls, from 1 to 1000000,
    pub requests: u32,
    /// in this time, from 1 s to 1 h.
    #[serde(default = "Rate::second")]
    pub per: DurationMs,
    /// This many at once after a pause; as many as `requests` if absent.
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

/// How many calls may come, over the whole network; days and months are those of UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QuotaRule {
    /// Calls in a day, at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_day: Option<u64>,
    /// Calls in a month, at least 1.
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

/// Headers added to an app's answers, where the function did not set them itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SecurityHeaders {
    /// `x-content-type-options: nosniff`.
    pub nosniff: bool,
    /// `x-frame-options`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame_options: Option<FrameOptions>,
    /// `referrer-policy`, with this value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub referrer_policy: Option<String>,
    /// `strict-transport-security`, with this age, at most two years.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hsts: Option<DurationMs>,
    /// `content-security-policy`, with this value.
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

/// Who may show an app's pages in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FrameOptions {
    /// No page may embed the response.
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

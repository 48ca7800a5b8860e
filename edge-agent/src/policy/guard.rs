//! An app's policy in executable form: checks requests by their heads.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use actix_http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_http::{Method, RequestHead, header as names};
use bytes::Bytes;
use fdn_core::api::header;
use fdn_core::policy::cors::Preflight;
use fdn_core::policy::decide::{
    Admitted, Budget, ClientKey, Counters, RateScope, RateState, Reason, Refused, RequestFacts,
    Verdict, decide,
};
use fdn_core::policy::quota::QuotaUsage;
use fdn_core::policy::token::{Claims, TokenFault};
use fdn_core::policy::{GatewaySpec, JwtRule, Policy};
use fdn_core::{AppName, Timestamp};
use governor::clock::DefaultClock;

use super::counts::{AppCounts, PolicyMetrics};
use super::jwks::KeySet;
use super::quota::Quota;
use super::rates::{AppRate, ClientRates};
use crate::gateway::head::{Identity, Peer, address_text};
use crate::gateway::problem::ProblemResponse;
use crate::settings::PolicySettings;

/// Headers to add to an answer.
pub type Headers = Vec<(HeaderName, HeaderValue)>;

/// An app's policy in executable form.
pub struct Guard {
    app: AppName,
    spec: GatewaySpec,
    state: Arc<PolicyState>,
}

/// The counters of a policy. Kept while the policy stays the same, even if API keys or traffic rules change.
pub(super) struct PolicyState {
    app_rate: Option<AppRate>,
    client_rates: Option<ClientRates>,
    running: AtomicU32,
    quota: Arc<Quota>,
    keys: Option<Arc<KeySet>>,
    counts: AppCounts,
    security: Headers,
    rate_policy: Option<HeaderValue>,
}

impl PolicyState {
    pub(super) fn new(
        app: &AppName,
        policy: &Policy,
        settings: &PolicySettings,
        metrics: &PolicyMetrics,
        keys: Option<Arc<KeySet>>,
        quota: Arc<Quota>,
    ) -> Self {
        let counts = metrics.app(app);
        counts.clients.set(0);
        let clock = DefaultClock::default();
        let client_rates = policy.rate.client.as_ref().map(|rate| {
            ClientRates::new(
                rate,
                settings.clients,
                clock.clone(),
                counts.clients.clone(),
                counts.overflow.clone(),
            )
        });
        Self {
            app_rate: policy.rate.app.as_ref().map(|r| AppRate::new(r, clock)),
            client_rates,
            running: AtomicU32::new(0),
            quota,
            keys,
            counts,
            security: headers(policy.security_headers.headers()),
            rate_policy: rate_policy(policy),
        }
    }

    /// The keys that tokens are verified with, if the policy asks for tokens.
    pub(super) const fn keys(&self) -> Option<&Arc<KeySet>> {
        self.keys.as_ref()
    }
}

/// The `ratelimit-policy` header (draft-ietf-httpapi-ratelimit-headers-10): every budget with its size and window.
fn rate_policy(policy: &Policy) -> Option<HeaderValue> {
    let mut parts = Vec::new();
    for (name, rate) in [("client", &policy.rate.client), ("app", &policy.rate.app)] {
        if let Some(rate) = rate {
            let window = rate.per.as_millis().div_ceil(1000);
            parts.push(format!("\"{name}\";q={};w={window}", rate.requests));
        }
    }
    let quota = &policy.quota;
    for (calls, window) in [(quota.per_day, 86_400), (quota.per_month, 31 * 86_400)] {
        if let Some(calls) = calls {
            parts.push(format!("\"quota\";q={calls};w={window}"));
        }
    }
    HeaderValue::from_str(&parts.join(", "))
        .ok()
        .filter(|_| !parts.is_empty())
}

/// Converts headers for the gateway; those of a validated policy are always valid.
fn headers(list: Vec<(&'static str, String)>) -> Headers {
    list.into_iter()
        .filter_map(|(name, value)| {
            let value = HeaderValue::from_str(&value).ok()?;
            Some((HeaderName::from_static(name), value))
        })
        .collect()
}

/// A place under the limit of concurrent calls, until dropped.
pub struct Permit(Arc<PolicyState>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The pass of a call that its app's policy admits.
pub struct Pass {
    state: Arc<PolicyState>,
    /// The caller's identity, for the function.
    identity: Option<http::HeaderValue>,
    /// Whether the credentials were an API key, which is not forwarded beyond the gateway.
    by_key: bool,
    /// The call's place under the limit of concurrent calls, if there is a limit.
    pub permit: Option<Arc<Permit>>,
    body_limit: Option<u64>,
    added: Headers,
    varies: bool,
}

/// The decision on a request.
pub enum Decision {
    /// It is admitted.
    Pass(Box<Pass>),
    /// The gateway answers this CORS preflight with these headers.
    Preflight(Headers),
    /// It is refused with this answer and these headers.
    Refused(ProblemResponse, Headers),
}

impl Guard {
    pub(super) const fn new(app: AppName, spec: GatewaySpec, state: Arc<PolicyState>) -> Self {
        Self { app, spec, state }
    }

    /// Whether the app's tenant is suspended, so that nobody may call the app.
    #[must_use]
    pub const fn is_suspended(&self) -> bool {
        self.spec.suspended
    }

    pub(super) const fn spec(&self) -> &GatewaySpec {
        &self.spec
    }

    pub(super) const fn state(&self) -> &Arc<PolicyState> {
        &self.state
    }

    /// Checks a request by its head. If its token names an unknown key, the identity provider's keys are fetched first, unless they were fetched
    /// recently.
    pub async fn check(&self, head: &RequestHead, peer: &Peer) -> Decision {
        let (verdict, lacks_keys) = self.decide(head, peer);
        if lacks_keys
            && let Some(keys) = &self.state.keys
            && keys.refresh().await
        {
            return self.decision(self.decide(head, peer).0, head);
        }
        self.decision(verdict, head)
    }

    /// The verdict, and whether it might be different with newer keys.
    fn decide(&self, head: &RequestHead, peer: &Peer) -> (Verdict, bool) {
        let counters = RequestCounters {
            state: &self.state,
            now: fdn_service::now(),
            lacks_keys: Cell::new(false),
        };
        let facts = facts(head, peer);
        let verdict = decide(&self.spec, &facts, counters.now, &counters);
        (verdict, counters.lacks_keys.get())
    }

    fn decision(&self, verdict: Verdict, head: &RequestHead) -> Decision {
        match verdict {
            Verdict::Admit(admitted) => Decision::Pass(Box::new(self.pass(admitted, head))),
            Verdict::Preflight(list) => {
                let mut added = headers(list);
                added.push((names::VARY, PREFLIGHT_VARY));
                Decision::Preflight(added)
            }
            Verdict::Refuse(refused) => self.refused(&refused, head),
        }
    }

    fn pass(&self, admitted: Admitted, head: &RequestHead) -> Pass {
        let permit = admitted
            .entered
            .then(|| Arc::new(Permit(Arc::clone(&self.state))));
        let identity = admitted.identity.header();
        let mut added = self.shared(head);
        if let Some(budget) = &admitted.budget {
            added.extend(self.budget(budget));
        }
        Pass {
            state: Arc::clone(&self.state),
            identity: identity.and_then(|text| http::HeaderValue::try_from(text).ok()),
            by_key: admitted.by_key,
            permit,
            body_limit: self.spec.policy.body_limit.map(|limit| limit.as_bytes()),
            added,
            varies: self.varies(),
        }
    }

    fn refused(&self, refused: &Refused, head: &RequestHead) -> Decision {
        self.state.counts.refused(refused.reason);
        let mut added = self.shared(head);
        if self.varies() {
            added.push((names::VARY, ORIGIN));
        }
        added.extend(self.state.security.iter().cloned());
        added.extend(refused.budget.iter().flat_map(|b| self.budget(b)));
        if let Some(seconds) = refused.retry_after_s {
            added.push((names::RETRY_AFTER, HeaderValue::from(seconds)));
        }
        let challenge = match refused.reason {
            Reason::NoCredentials => Some(""),
            Reason::BadCredentials => Some(", error=\"invalid_token\""),
            Reason::Forbidden => Some(", error=\"insufficient_scope\""),
            _ => None,
        };
        if let Some(error) = challenge {
            let text = format!("Bearer realm=\"{}\"{error}", self.app);
            if let Ok(value) = HeaderValue::from_str(&text) {
                added.push((names::WWW_AUTHENTICATE, value));
            }
        }
        Decision::Refused(
            ProblemResponse::new(refused.reason.code(), refused.detail),
            added,
        )
    }

    fn varies(&self) -> bool {
        let cors = self.spec.policy.cors.as_ref();
        cors.is_some_and(fdn_core::policy::Cors::varies)
    }

    /// The CORS headers for the request's origin.
    fn shared(&self, head: &RequestHead) -> Headers {
        let Some(cors) = &self.spec.policy.cors else {
            return Headers::new();
        };
        text(head, &names::ORIGIN).map_or_else(Headers::new, |from| headers(cors.answer(from)))
    }

    /// The `ratelimit` and `ratelimit-policy` headers.
    fn budget(&self, budget: &Budget) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let text = format!(
            "\"{}\";r={};t={}",
            budget.name, budget.remaining, budget.reset_s
        );
        let now = HeaderValue::from_str(&text).ok();
        let policy = self.state.rate_policy.clone();
        now.map(|value| (RATELIMIT, value))
            .into_iter()
            .chain(policy.map(|value| (RATELIMIT_POLICY, value)))
    }
}

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const ORIGIN: HeaderValue = HeaderValue::from_static("origin");
const PREFLIGHT_VARY: HeaderValue = HeaderValue::from_static(
    "origin, access-control-request-method, access-control-request-headers",
);

impl Pass {
    /// The caller's identity, for the function.
    #[must_use]
    pub fn identity(&self) -> Identity<'_> {
        Identity {
            value: self.identity.as_ref(),
            by_key: self.by_key,
        }
    }

    /// The maximum size of the body, in bytes, if the function accepts `limit`.
    #[must_use]
    pub fn body_limit(&self, limit: u64) -> u64 {
        self.body_limit.map_or(limit, |own| own.min(limit))
    }

    /// The policy's headers for an answer of the gateway's own.
    #[must_use]
    pub fn headers(&self) -> Headers {
        let mut headers = self.added.clone();
        if self.varies {
            headers.push((names::VARY, ORIGIN));
        }
        headers.extend(self.state.security.iter().cloned());
        headers
    }

    /// Adds the policy's headers to an answer. Its CORS and rate-limit headers replace the function's; security headers that the function set
    /// stay.
    pub fn decorate(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.added {
            headers.insert(name.clone(), value.clone());
        }
        if self.varies {
            headers.append(names::VARY, ORIGIN);
        }
        for (name, value) in &self.state.security {
            if !headers.contains_key(name) {
                headers.insert(name.clone(), value.clone());
            }
        }
    }
}

/// The single value of a header field, as text. Several values are as bad as none: it is unknown which one is meant.
fn text<'a>(head: &'a RequestHead, name: &HeaderName) -> Option<&'a str> {
    let mut values = head.headers().get_all(name);
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    value.to_str().ok()
}

fn facts<'a>(head: &'a RequestHead, peer: &Peer) -> RequestFacts<'a> {
    let authorization = text(head, &names::AUTHORIZATION);
    let bearer = authorization.and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    let preflight = (head.method == Method::OPTIONS)
        .then(|| {
            Some(Preflight {
                origin: text(head, &names::ORIGIN)?,
                method: text(head, &names::ACCESS_CONTROL_REQUEST_METHOD)?,
                headers: text(head, &names::ACCESS_CONTROL_REQUEST_HEADERS).unwrap_or_default(),
            })
        })
        .flatten();
    RequestFacts {
        address: client_address(head, peer),
        preflight,
        api_key: text(head, &API_KEY),
        bearer,
        content_length: crate::gateway::head::content_length(head.headers()),
    }
}

const API_KEY: HeaderName = HeaderName::from_static(header::API_KEY);
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The client's address: the connection's, or, behind a trusted proxy, the last one in `x-forwarded-for`, which the proxy added. The entries
/// before it are claims of the client.
pub(crate) fn client_address(head: &RequestHead, peer: &Peer) -> Option<IpAddr> {
    if !peer.proxy {
        return peer.ip;
    }
    let last = head.headers().get_all(FORWARDED_FOR).last();
    let last = last.and_then(|value| value.to_str().ok());
    let last = last.and_then(|list| list.rsplit(',').next());
    last.and_then(|text| text.trim().parse().ok()).or(peer.ip)
}

/// The client's address for a gateway that the call is handed on to, which knows neither the connection nor the trusted proxies here.
pub(crate) fn client_text(head: &RequestHead, peer: &Peer) -> Bytes {
    if peer.proxy {
        address_text(client_address(head, peer))
    } else {
        peer.address.clone()
    }
}

/// The key of a client's address, for rates and splits.
#[must_use]
pub fn client_key(head: &RequestHead, peer: &Peer) -> ClientKey {
    ClientKey::of_address(client_address(head, peer))
}

/// The counters, for the decision on one request.
struct RequestCounters<'a> {
    state: &'a PolicyState,
    now: Timestamp,
    /// Whether a token names a key that is not known.
    lacks_keys: Cell<bool>,
}

/// The state of a rate that the policy does not have: no limit.
const UNBOUNDED: RateState = RateState {
    admitted: true,
    remaining: u32::MAX,
    reset: std::time::Duration::ZERO,
};

impl Counters for RequestCounters<'_> {
    fn verify(&self, rule: &JwtRule, token: &str) -> Result<Claims, TokenFault> {
        let Some(keys) = &self.state.keys else {
            return Err(TokenFault::NoKeys);
        };
        keys.verify(rule, token).inspect_err(|fault| {
            let lacks = matches!(fault, TokenFault::UnknownKey | TokenFault::NoKeys);
            self.lacks_keys.set(lacks);
        })
    }

    fn rate(&self, scope: RateScope) -> RateState {
        match scope {
            RateScope::App => self
                .state
                .app_rate
                .as_ref()
                .map_or(UNBOUNDED, AppRate::take),
            RateScope::Client(client) => {
                let rates = self.state.client_rates.as_ref();
                rates.map_or(UNBOUNDED, |rates| rates.take(client))
            }
        }
    }

    fn quota_usage(&self) -> QuotaUsage {
        self.state.quota.used(self.now)
    }

    fn count(&self) {
        self.state.quota.count(self.now);
    }

    fn enter(&self, limit: u32) -> bool {
        let running = &self.state.running;
        running
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| {
                (n < limit).then_some(n + 1)
            })
            .is_ok()
    }
}

#[cfg(test)]
mod tests;

//! Login with an identity provider: OpenID Connect Core 1.0, authorization code with PKCE (RFC 7636), state and nonce.
//!
//! The state of a pending login (state, nonce, the PKCE verifier) is sealed in a cookie of the browser, so that any controller can complete it.
//! The provider is trusted for one thing: who somebody is *there*, by issuer and subject. Which user that is here is decided in `people`, and
//! never by the name alone.

mod people;
mod provider;

use std::time::Duration;

use fdn_core::account::SessionKind;
use fdn_core::message::Sealed;
use fdn_core::{Coded, ErrorCode, Timestamp};
use fdn_service::secret::Secret;
use openidconnect::core::{CoreAuthenticationFlow, CoreJwsSigningAlgorithm as Algorithm};
use openidconnect::{
    AccessTokenHash, AuthorizationCode, CsrfToken, Nonce, OAuth2TokenResponse, PkceCodeChallenge,
    PkceCodeVerifier, Scope, TokenResponse,
};
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::actor::Actor;
use super::login::{NewSession, begin_session};
use crate::Error;
use crate::error::chain;
use crate::settings::OidcSettings;
use crate::state::State;
pub use provider::Provider;

/// The longest time a login may take at the provider.
pub const LOGIN_TIME: Duration = Duration::from_secs(600);
/// The context that the cookie is sealed for.
const CONTEXT: &str = "fdn-oidc-login";
/// The accepted signature algorithms of tokens: none with a shared secret.
const ALGORITHMS: [Algorithm; 10] = [
    Algorithm::RsaSsaPkcs1V15Sha256,
    Algorithm::RsaSsaPkcs1V15Sha384,
    Algorithm::RsaSsaPkcs1V15Sha512,
    Algorithm::RsaSsaPssSha256,
    Algorithm::RsaSsaPssSha384,
    Algorithm::RsaSsaPssSha512,
    Algorithm::EcdsaP256Sha256,
    Algorithm::EcdsaP384Sha384,
    Algorithm::EdDsa,
    Algorithm::EcdsaP521Sha512,
];

/// A login that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OidcError {
    /// No provider is configured.
    #[error("logins with an identity provider are not set up here; log in with a password")]
    Off,
    /// The provider failed or rejected the login.
    #[error("the login failed: {reason}; begin again at /v1/oidc/login")]
    Failed {
        /// The reason, in words for the user.
        reason: &'static str,
        /// Details for the log.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The user may not log in here.
    #[error("{0}")]
    Refused(String),
}

impl OidcError {
    fn failed(
        reason: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Failed {
            reason,
            source: source.into(),
        }
    }
}

impl Coded for OidcError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Off => ErrorCode::OidcOff,
            Self::Failed { .. } => ErrorCode::OidcFailed,
            Self::Refused(_) => ErrorCode::OidcRefused,
        }
    }
}

/// The state of a pending login.
#[derive(Serialize, Deserialize)]
struct PendingLogin {
    state: String,
    nonce: String,
    verifier: String,
    begun_at: Timestamp,
}

/// A login that was begun.
pub struct Start {
    /// The URL that the browser is sent to.
    pub url: String,
    /// The cookie that the browser keeps meanwhile.
    pub cookie: String,
}

/// The parameters with which the provider sends the browser back.
#[derive(Deserialize)]
pub struct Callback {
    /// The authorization code.
    code: Option<String>,
    /// The state that was sent along.
    state: Option<String>,
    /// The error if there is no code.
    error: Option<String>,
}

fn settings(state: &State) -> Result<&OidcSettings, OidcError> {
    state.settings.oidc.as_ref().ok_or(OidcError::Off)
}

/// Begins a login.
///
/// # Errors
/// When no provider is configured, or it cannot be reached.
pub async fn begin(state: &State) -> Result<Start, Error> {
    let settings = settings(state)?;
    let client = state.oidc.client(settings, false).await?;
    let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
    let request = client.authorize_url(
        CoreAuthenticationFlow::AuthorizationCode,
        CsrfToken::new_random,
        Nonce::new_random,
    );
    let scopes = settings.scopes.iter().cloned().map(Scope::new);
    let request = request.add_scopes(scopes).set_pkce_challenge(challenge);
    let (url, csrf, nonce) = request.url();
    let pending = PendingLogin {
        state: csrf.secret().clone(),
        nonce: nonce.secret().clone(),
        verifier: verifier.secret().clone(),
        begun_at: fdn_service::now(),
    };
    let text =
        serde_json::to_string(&pending).map_err(|e| Error::Internal(format!("a login: {e}")))?;
    Ok(Start {
        url: url.into(),
        cookie: state.key.seal(CONTEXT, &text)?.0,
    })
}

/// Completes a login and begins a console session.
///
/// # Errors
/// When the provider rejects the login or sends something invalid, the user may not log in, or a store fails.
pub async fn end(
    state: &State,
    cookie: Option<&str>,
    callback: Callback,
    actor: &Actor,
) -> Result<NewSession, Error> {
    let count = |result| state.metrics.logins.with_label_values(&[result]).inc();
    match end_inner(state, cookie, callback, actor).await {
        Ok(begun) => {
            count("oidc");
            Ok(begun)
        }
        Err(error) => {
            count("oidc_refused");
            warn!(
                error = chain(&error),
                "a login with the identity provider failed"
            );
            Err(error)
        }
    }
}

async fn end_inner(
    state: &State,
    cookie: Option<&str>,
    callback: Callback,
    actor: &Actor,
) -> Result<NewSession, Error> {
    let settings = settings(state)?;
    let now = fdn_service::now();
    let pending = pending(state, cookie, now)?;
    let sent = callback.state.unwrap_or_default();
    if !Secret::new(pending.state.clone()).matches(&sent) {
        return Err(OidcError::failed("it was begun in another browser", "another state").into());
    }
    if let Some(error) = callback.error {
        // The text of the error can come from anybody: it is for the log only.
        return Err(OidcError::failed("the identity provider said no", error).into());
    }
    let code = callback
        .code
        .ok_or_else(|| OidcError::failed("the identity provider sent no code", "no code"))?;
    let claims = claims(state, settings, code, pending).await?;
    let user = people::resolve(state, settings, &claims, actor, now).await?;
    begin_session(state, (&user, None), SessionKind::Cookie, actor, now).await
}

fn pending(state: &State, cookie: Option<&str>, now: Timestamp) -> Result<PendingLogin, Error> {
    let failed = |source: &str| OidcError::failed("it was left alone for too long", source);
    let cookie = cookie.ok_or_else(|| failed("no cookie"))?;
    let text = state.key.open(CONTEXT, &Sealed(cookie.to_owned()));
    let text = text.map_err(|_| failed("a cookie that was not sealed here"))?;
    let pending: PendingLogin =
        serde_json::from_str(&text).map_err(|_| failed("a cookie that cannot be read"))?;
    if now.since(pending.begun_at) > LOGIN_TIME {
        return Err(failed("an old cookie").into());
    }
    Ok(pending)
}

/// Exchanges the code for an ID token and returns its verified claims.
async fn claims(
    state: &State,
    settings: &OidcSettings,
    code: String,
    pending: PendingLogin,
) -> Result<people::Claims, Error> {
    let client = state.oidc.client(settings, true).await?;
    let fetch = state.oidc.fetch(settings);
    let request = client
        .exchange_code(AuthorizationCode::new(code))
        .map_err(|e| OidcError::failed("the identity provider takes no codes", e))?
        .set_pkce_verifier(PkceCodeVerifier::new(pending.verifier));
    let answer = request
        .request_async(&fetch)
        .await
        .map_err(|e| OidcError::failed("the identity provider refused the code", e.to_string()))?;
    let bad = "the identity provider sent a token that does not count";
    let token = answer
        .id_token()
        .ok_or_else(|| OidcError::failed(bad, "no ID token"))?;
    let verifier = client.id_token_verifier().set_allowed_algs(ALGORITHMS);
    let verified = token
        .claims(&verifier, &Nonce::new(pending.nonce))
        .map_err(|e| OidcError::failed(bad, e))?;
    if let Some(expected) = verified.access_token_hash() {
        let algorithm = token.signing_alg().map_err(|e| OidcError::failed(bad, e))?;
        let key = token
            .signing_key(&verifier)
            .map_err(|e| OidcError::failed(bad, e))?;
        let actual = AccessTokenHash::from_token(answer.access_token(), algorithm, key)
            .map_err(|e| OidcError::failed(bad, e))?;
        if actual != *expected {
            return Err(OidcError::failed(bad, "another access token").into());
        }
    }
    let subject = verified.subject().to_string();
    people::Claims::of_verified(subject, &token.to_string())
        .ok_or_else(|| OidcError::failed(bad, "claims that cannot be read").into())
}

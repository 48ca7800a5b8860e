//! The identity provider: its discovery document and keys, cached for a while, and the HTTP client for it.

use std::time::{Duration, Instant};

use openidconnect::core::{CoreClient, CoreProviderMetadata};
use openidconnect::{
    ClientId, ClientSecret, EndpointMaybeSet, EndpointNotSet, EndpointSet, HttpRequest,
    HttpResponse, IssuerUrl, RedirectUrl,
};
use tokio::sync::Mutex;

use super::OidcError;
use crate::Error;
use crate::settings::OidcSettings;

/// How long the discovery document and the keys are cached.
const KEEP: Duration = Duration::from_secs(600);
/// The least time between two fetches: anybody can start logins as often as they like.
const LEAST: Duration = Duration::from_secs(10);
/// The largest response of the provider, in bytes.
const ANSWER_MAX: usize = 1 << 20;

/// The OpenID Connect client, as configured by the discovery document.
pub(super) type Client = CoreClient<
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// The HTTP client for the provider and the cached discovery document.
pub struct Provider {
    http: reqwest::Client,
    known: Mutex<Option<(Instant, CoreProviderMetadata)>>,
}

/// A failed request to the provider.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    /// The request failed.
    #[error("the identity provider cannot be asked")]
    Http(#[from] reqwest::Error),
    /// It took too long.
    #[error("the identity provider did not answer in time")]
    Late,
    /// The response is too large.
    #[error("the identity provider's answer is longer than {ANSWER_MAX} bytes")]
    Long,
    /// The response is not valid HTTP.
    #[error("the identity provider's answer cannot be read")]
    Answer(#[from] http::Error),
}

impl Provider {
    /// Creates a provider with an empty cache. Redirects are not followed: only hosts that the settings name are contacted.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new() -> Result<Self, Error> {
        Ok(Self {
            http: fdn_service::http_client::build_direct(Duration::from_secs(30))?,
            known: Mutex::new(None),
        })
    }

    /// A client of the provider. With `anew`, the keys are at most [`LEAST`] old, since a token is to be verified with them.
    ///
    /// # Errors
    /// When the provider cannot be reached, or the client secret cannot be read.
    pub(super) async fn client(
        &self,
        settings: &OidcSettings,
        anew: bool,
    ) -> Result<Client, Error> {
        let metadata = self.metadata(settings, anew).await?;
        let secret = match &settings.client_secret_file {
            Some(path) => {
                let secret = fdn_service::secret::read(path)?;
                Some(ClientSecret::new(secret.expose().to_owned()))
            }
            None => None,
        };
        let id = ClientId::new(settings.client_id.clone());
        let redirect = RedirectUrl::from_url(settings.redirect_url.clone());
        let client = CoreClient::from_provider_metadata(metadata, id, secret);
        Ok(client.set_redirect_uri(redirect))
    }

    async fn metadata(
        &self,
        settings: &OidcSettings,
        anew: bool,
    ) -> Result<CoreProviderMetadata, Error> {
        // Held during the fetch, so that many logins at once cause one request.
        let mut known = self.known.lock().await;
        let keep = if anew { LEAST } else { KEEP };
        if let Some((at, metadata)) = &*known
            && at.elapsed() < keep
        {
            return Ok(metadata.clone());
        }
        let issuer = settings.issuer.as_str();
        // `Url` writes a slash for an empty path, and issuers are compared as text.
        let bare = issuer.trim_end_matches('/');
        let issuer = if settings.issuer.path() == "/" {
            bare
        } else {
            issuer
        };
        let issuer = IssuerUrl::new(issuer.to_owned())
            .map_err(|e| Error::config(format!("oidc.issuer: {e}")))?;
        let fetch = self.fetch(settings);
        let found = CoreProviderMetadata::discover_async(issuer, &fetch).await;
        let found = found.map_err(|e| {
            OidcError::failed("the identity provider cannot be asked now", e.to_string())
        })?;
        *known = Some((Instant::now(), found.clone()));
        Ok(found)
    }

    /// The function that sends requests to the provider.
    pub(super) fn fetch(
        &self,
        settings: &OidcSettings,
    ) -> impl Fn(
        HttpRequest,
    ) -> futures::future::BoxFuture<'static, Result<HttpResponse, FetchError>>
    + use<> {
        let (http, time) = (self.http.clone(), settings.timeout.as_duration());
        move |request| {
            let http = http.clone();
            Box::pin(async move {
                let exchange = tokio::time::timeout(time, exchange(http, request));
                exchange.await.map_err(|_| FetchError::Late)?
            })
        }
    }
}

async fn exchange(http: reqwest::Client, request: HttpRequest) -> Result<HttpResponse, FetchError> {
    let request = reqwest::Request::try_from(request)?;
    let mut answer = http.execute(request).await?;
    let mut response = http::Response::builder().status(answer.status());
    for (name, value) in answer.headers() {
        response = response.header(name, value);
    }
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await? {
        if body.len() + piece.len() > ANSWER_MAX {
            return Err(FetchError::Long);
        }
        body.extend_from_slice(&piece);
    }
    Ok(response.body(body)?)
}

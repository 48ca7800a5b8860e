//! The provider: its discovery document and keys, kept for a while, and the HTTP client that asks it.

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

/// How long the discovery document and the keys are taken to be the same.
const KEEP: Duration = Duration::from_secs(600);
/// The least time between two fetches: a stranger can ask for logins as often as it likes.
const LEAST: Duration = Duration::from_secs(10);
/// The largest answer of the provider.
const ANSWER_MAX: usize = 1 << 20;

/// The client, as far as the discovery document sets it up.
pub(super) type Client = CoreClient<
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// What is known of the provider.
pub struct Provider {
    http: reqwest::Client,
    known: Mutex<Option<(Instant, CoreProviderMetadata)>>,
}

/// An exchange with the provider that failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    /// On the way.
    #[error("the identity provider cannot be asked")]
    Http(#[from] reqwest::Error),
    /// It took too long.
    #[error("the identity provider did not answer in time")]
    Late,
    /// It is too much.
    #[error("the identity provider's answer is longer than {ANSWER_MAX} bytes")]
    Long,
    /// It is no answer.
    #[error("the identity provider's answer cannot be read")]
    Answer(#[from] http::Error),
}

impl Provider {
    /// Knows nothing yet. Redirects are not followed: nobody is asked whom the settings do not name.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new() -> Result<Self, Error> {
        Ok(Self {
            http: fdn_service::http_client::build_direct(Duration::from_secs(30))?,
            known: Mutex::new(None),
        })
    }

    /// A client of the provider. `anew`: with keys that are as new as may be, since a token is to be checked with them.
    ///
    /// # Errors
    /// When the provider cannot be asked, or the secret not be read.
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
        // Held while it is fetched: many logins at once ask once.
        let mut known = self.known.lock().await;
        let keep = if anew { LEAST } else { KEEP };
        if let Some((at, metadata)) = &*known
            && at.elapsed() < keep
        {
            return Ok(metadata.clone());
        }
        let issuer = settings.issuer.as_str();
        // A URL without a path is written with a slash, and issuers are compared as text.
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

    /// What asks the provider.
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

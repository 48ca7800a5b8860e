//! Asking a gateway for its health: over which protocol, and whose certificates are believed.

use std::error::Error as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use fdn_service::{ServiceError, http_client};
use reqwest::Response;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// What gateways tell their health over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    /// HTTP, as their admin listeners speak it.
    #[default]
    Http,
    /// HTTP inside TLS. A certificate names the address that is asked: gateways have no names here.
    Https,
}

/// Asks gateways for their health.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    scheme: Scheme,
}

impl Client {
    /// A client that waits no longer than `idle` for anything. It believes the authorities in `ca_file`, or without one those of the web.
    ///
    /// # Errors
    /// When the file holds no certificates that can be used.
    pub fn new(idle: Duration, scheme: Scheme, ca_file: Option<&Path>) -> Result<Self, Error> {
        let http = http_client::build_trusting(idle, ca_file).map_err(|cause| match cause {
            ServiceError::Authorities { .. } => Error::Setting {
                key: "health.ca_file",
                reason: format!("cannot be used: {cause}"),
            },
            other => other.into(),
        })?;
        Ok(Self { http, scheme })
    }

    /// What the gateway with this health address answers.
    pub(super) async fn ask(&self, address: SocketAddr) -> reqwest::Result<Response> {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        let url = format!("{scheme}://{address}/healthz");
        self.http.get(url).send().await
    }
}

/// Why a request failed, with what that came of: the outermost error says no more than that it did.
pub(super) fn reason(cause: reqwest::Error) -> String {
    let cause = cause.without_url();
    let mut text = cause.to_string();
    let mut next = cause.source();
    while let Some(inner) = next {
        text = format!("{text}: {inner}");
        next = inner.source();
    }
    text
}

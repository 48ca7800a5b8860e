//! The HTTP client that asks gateways for their health: its protocol, and the authorities that it trusts.

use std::error::Error as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use fdn_service::{ServiceError, http_client};
use reqwest::Response;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The protocol of health checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    /// HTTP, as the gateways' admin listeners speak it.
    #[default]
    Http,
    /// HTTP over TLS. Certificates must be valid for the IP address, since gateways have no names here.
    Https,
}

/// A client that asks gateways for their health.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    scheme: Scheme,
}

impl Client {
    /// A client with timeout `idle`. It trusts the authorities in `ca_file`, or the public ones if there is none.
    ///
    /// # Errors
    /// When the file holds no usable certificates.
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

    /// Requests the health of the gateway with this health address.
    pub(super) async fn ask(&self, address: SocketAddr) -> reqwest::Result<Response> {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        let url = format!("{scheme}://{address}/healthz");
        self.http.get(url).send().await
    }
}

/// Why a request failed, including all causes: the outermost error says only that it did.
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

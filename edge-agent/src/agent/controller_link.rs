//! The node's connection and identity towards the controllers, and its own key.

use std::path::PathBuf;
use std::sync::Arc;

use fdn_core::enrol::NodeAddresses;
use fdn_link::join::{ApiAccess, Controller, RenewParts, Renewer};
use fdn_link::{Connection, IdentityFiles, Link, LinkMetrics};
use fdn_service::secret::Secret;
use fdn_service::{CancellationToken, secret};
use tracing::warn;

use super::Shared;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::settings::Settings;
use crate::status::Identity;

impl Shared {
    /// The task that keeps the node's certificate valid, if it has one.
    pub(super) fn renewer(&self, identity: &Identity) -> Result<Option<Renewer>, Error> {
        let (tls, api) = (&self.settings.tls, &self.settings.controller);
        let Some(files) = tls.files() else {
            return Ok(None);
        };
        let fleet = Arc::clone(&self.fleet);
        Ok(Some(Renewer::new(RenewParts {
            controllers: Arc::clone(&self.centre),
            answer_timeout: self.settings.centre.answer_timeout.as_duration(),
            controller: Controller::of_member(
                &api.url,
                ApiAccess {
                    ca_file: api.ca_file.clone(),
                    proxy: self.settings.centre.proxy.clone(),
                },
                "fdn-edge-agent join",
            )?,
            files,
            retry: tls.renew_retry,
            retry_max: tls.renew_retry_max,
            token_file: self.settings.network.token_file.clone(),
            addresses: NodeAddresses {
                gateway: identity.gateway,
                admin: identity.admin,
                peer: self
                    .settings
                    .peers
                    .address(&self.settings.tls, &self.settings.gateway),
                names: Vec::new(),
            },
            renewed: Box::new(move |serial, authorities| {
                fleet.renewed(serial.to_owned(), authorities)
            }),
            expires: self.metrics.certificate_expires.clone(),
        })))
    }
}

/// The file of the key with which this node seals secrets before they reach its disk.
const SEAL_KEY: &str = "seal.key";

/// The path of this node's own key.
pub(super) fn own_key_file(settings: &Settings) -> PathBuf {
    settings.data.join("state").join(SEAL_KEY)
}

/// Reads this node's own key, or creates it. A new key opens nothing that an older one sealed: the saved state of apps is deleted then, and comes
/// again from the controllers.
pub(super) fn own_key(settings: &Settings) -> Result<Secret, Error> {
    let path = own_key_file(settings);
    let apps = settings.data.join("state").join("apps.json");
    if !path.exists() && apps.exists() {
        warn!("the state of apps on disk was sealed with another key; it is asked for anew");
        std::fs::remove_file(&apps).map_err(|source| Error::Data { path: apps, source })?;
    }
    Ok(secret::read_or_create(&path)?)
}

/// Connects to the controllers with the node's certificate.
pub(super) fn connect(
    settings: &Settings,
    metrics: &Metrics,
    stop: CancellationToken,
) -> Result<Connection, Error> {
    let files: IdentityFiles = settings.tls.files().ok_or_else(|| {
        Error::Settings(
            "tls.ca, tls.certificate and tls.key must name the files of the node's identity; `fdn-edge-agent join` writes them"
                .to_owned(),
        )
    })?;
    let metrics = LinkMetrics::new(&metrics.registry, "fdn_agent")?;
    Ok(Link::start(&settings.centre, files, metrics, stop)?)
}

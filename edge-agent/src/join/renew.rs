//! The next certificate, in time: after two thirds of the present one's life, again and again until it is there.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::enrol::{NodeAddresses, RenewRequest, RenewResponse, renew_at};
use fdn_core::{Coded as _, ErrorCode, Timestamp};
use fdn_service::pki::{Facts, NodeKey};
use fdn_service::{CancellationToken, now};
use prometheus::IntGauge;
use tracing::{error, info, warn};

use super::Controller;
use crate::apps::backoff::pause;
use crate::disk;
use crate::error::Error;
use crate::fleet::Fleet;
use crate::settings::TlsSettings;

/// The longest sleep: the machine's clock may be set, and a file be replaced by hand.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);

/// Replaces the node's certificate in time.
pub struct Renewer {
    parts: RenewParts,
    failures: u32,
}

/// What a renewer needs.
pub struct RenewParts {
    /// Where to ask.
    pub controller: Controller,
    /// The files.
    pub tls: TlsSettings,
    /// The file of the token by which the controller knows the node.
    pub token_file: std::path::PathBuf,
    /// Where others reach the node.
    pub addresses: NodeAddresses,
    /// Who is told of the new certificate.
    pub fleet: Arc<Fleet>,
    /// Shows when the certificate ends, in seconds since 1970.
    pub expires: IntGauge,
}

impl Renewer {
    /// A renewer.
    #[must_use]
    pub const fn new(parts: RenewParts) -> Self {
        Self { parts, failures: 0 }
    }

    /// Renews until `stop` is cancelled. A node without a certificate has nothing to renew.
    pub async fn run(mut self, stop: CancellationToken) {
        let (Some(certificate), Some(key)) = (
            self.parts.tls.certificate.clone(),
            self.parts.tls.key.clone(),
        ) else {
            return;
        };
        loop {
            let wait = self.step(&certificate, &key).await;
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Renews if it is time; how long to wait then.
    pub(super) async fn step(&mut self, certificate: &Path, key: &Path) -> Duration {
        match self.try_step(certificate, key).await {
            Ok(wait) => {
                self.failures = 0;
                wait
            }
            Err(failure) => {
                self.failures = self.failures.saturating_add(1);
                if failure.code() == ErrorCode::CertificateRefused {
                    error!(%failure, "the certificate is not renewed");
                } else if self.failures == 1 {
                    warn!(%failure, "the certificate could not be renewed; trying again until it works");
                }
                let tls = &self.parts.tls;
                pause(
                    self.failures,
                    tls.renew_retry.as_duration(),
                    tls.renew_retry_max.as_duration(),
                    rand::random(),
                )
            }
        }
    }

    async fn try_step(&self, certificate: &Path, key: &Path) -> Result<Duration, Error> {
        let facts = read(certificate)?;
        self.show(&facts);
        let wait = until_due(&facts, now());
        if !wait.is_zero() {
            return Ok(wait);
        }
        let answer = self.ask(&facts, &NodeKey::read(key)?).await?;
        let fresh = Facts::of_pem(&answer.identity.certificate)?;
        if fresh.identity != facts.identity {
            let text = format!("the next certificate is for {}", fresh.identity);
            return Err(super::JoinError::Answer(text).into());
        }
        disk::replace(&self.parts.token_file, answer.node_token.as_bytes())?;
        disk::replace_public(certificate, answer.identity.certificate.as_bytes())?;
        self.parts
            .fleet
            .renewed(fresh.serial.clone(), &answer.identity.authorities)?;
        self.show(&fresh);
        info!(serial = fresh.serial, "the certificate was renewed");
        Ok(until_due(&fresh, now()).max(self.parts.tls.renew_retry.as_duration()))
    }

    async fn ask(&self, facts: &Facts, key: &NodeKey) -> Result<RenewResponse, Error> {
        let (at, addresses) = (now(), &self.parts.addresses);
        let signature = key.sign(&RenewRequest::signed_text(&facts.serial, at, addresses))?;
        let request = RenewRequest {
            serial: facts.serial.clone(),
            at,
            addresses: addresses.clone(),
            signature,
        };
        Ok(self.parts.controller.renew(&request).await?)
    }

    fn show(&self, facts: &Facts) {
        let seconds = facts.expires_at.get() / 1000;
        self.parts
            .expires
            .set(i64::try_from(seconds).unwrap_or(i64::MAX));
    }
}

fn read(path: &Path) -> Result<Facts, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Data {
        path: path.to_owned(),
        source,
    })?;
    Ok(Facts::of_pem(&text)?)
}

/// How long until a certificate should be renewed, as far as one sleep should go.
fn until_due(facts: &Facts, now: Timestamp) -> Duration {
    renew_at(facts.issued_at, facts.expires_at)
        .since(now)
        .min(LOOK_AGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_ends_when_it_is_time_and_never_late() {
        let hour = 3_600_000;
        let facts = Facts {
            identity: "fdn://cluster/c/node/n".parse().expect("an identity"),
            serial: "ab".to_owned(),
            issued_at: Timestamp(0),
            expires_at: Timestamp(30 * hour),
        };
        let wait = |now| until_due(&facts, Timestamp(now));
        assert_eq!(wait(0), LOOK_AGAIN);
        assert_eq!(wait(20 * hour - 5), Duration::from_millis(5));
        assert_eq!(wait(20 * hour), Duration::ZERO);
        assert_eq!(wait(99 * hour), Duration::ZERO);
    }
}

//! Certificate renewal: after two thirds of the present certificate's lifetime, with retries until it succeeds.
//!
//! The next certificate is requested over the connection to a controller or, if there is none, for example because the certificate has expired,
//! from the controllers' API. Either way the request is signed with the certificate's key.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fdn_core::enrol::{Machine, NodeAddresses, RenewRequest, RenewResponse, renew_at};
use fdn_core::{Coded as _, DurationMs, ErrorCode, Timestamp};
use fdn_service::pki::{Facts, NodeKey};
use fdn_service::{CancellationToken, ServiceError, now};
use prometheus::IntGauge;
use tracing::{error, info, warn};

use super::{Controller, JoinError};
use crate::{IdentityFiles, SharedControllerLink, disk, pause, post_json};

/// The longest sleep between checks: the machine's clock may be adjusted, and a file may be replaced by hand.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// A callback for a new certificate, with its serial number and the authorities to trust.
pub type RenewalCallback = Box<dyn Fn(&str, &[String]) -> Result<(), ServiceError> + Send + Sync>;

/// Renews the machine's certificate in time.
pub struct Renewer {
    parts: RenewParts,
    failures: u32,
}

/// The dependencies and settings of a renewer.
pub struct RenewParts {
    /// The connection to a controller, asked first.
    pub controllers: SharedControllerLink,
    /// The time limit for that request.
    pub answer_timeout: Duration,
    /// The controllers' API, asked if there is no connection; `None` if it cannot be used.
    pub controller: Option<Controller>,
    /// The identity's files.
    pub files: IdentityFiles,
    /// The pause after the first failure; it doubles with each further one.
    pub retry: DurationMs,
    /// The longest such pause.
    pub retry_max: DurationMs,
    /// The file of the machine's own token.
    pub token_file: PathBuf,
    /// The addresses at which others reach the machine.
    pub addresses: NodeAddresses,
    /// Called with each new certificate.
    pub renewed: RenewalCallback,
    /// Shows when the certificate expires, in seconds since 1970.
    pub expires: IntGauge,
}

impl Renewer {
    /// A renewer.
    #[must_use]
    pub const fn new(parts: RenewParts) -> Self {
        Self { parts, failures: 0 }
    }

    /// Renews until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let wait = self.step().await;
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Renews the certificate if it is due; returns how long to wait until the next step.
    pub async fn step(&mut self) -> Duration {
        match self.try_step().await {
            Ok(wait) => {
                self.failures = 0;
                wait
            }
            Err(failure) => {
                self.failures = self.failures.saturating_add(1);
                if failure.code() == ErrorCode::CertificateRefused {
                    // The error text says what to do. Renewal is still retried, because the cause may be a clock that is corrected later.
                    let code = failure.code().as_str();
                    error!(
                        code, %failure,
                        "the controllers do not renew this machine's certificate; without the next one it is out of the network when this one ends"
                    );
                } else if self.failures == 1 {
                    warn!(%failure, "the certificate could not be renewed; trying again until it works");
                }
                pause(
                    self.failures,
                    self.parts.retry.as_duration(),
                    self.parts.retry_max.as_duration(),
                    rand::random(),
                )
            }
        }
    }

    async fn try_step(&self) -> Result<Duration, JoinError> {
        let certificate = &self.parts.files.certificate;
        let facts = read(certificate)?;
        self.show(&facts);
        let wait = until_due(&facts, now());
        if !wait.is_zero() {
            return Ok(wait);
        }
        let answer = self
            .ask(&facts, &NodeKey::read(&self.parts.files.key)?)
            .await?;
        let fresh = Facts::<Machine>::of_pem(&answer.identity.certificate)?;
        if fresh.identity != facts.identity {
            let text = format!("the next certificate is for {}", fresh.identity);
            return Err(JoinError::Answer(text));
        }
        disk::replace(&self.parts.token_file, answer.node_token.as_bytes())?;
        disk::replace_public(certificate, answer.identity.certificate.as_bytes())?;
        (self.parts.renewed)(&fresh.serial, &answer.identity.authorities)?;
        self.show(&fresh);
        info!(serial = fresh.serial, "the certificate was renewed");
        Ok(until_due(&fresh, now()).max(self.parts.retry.as_duration()))
    }

    async fn ask(&self, facts: &Facts<Machine>, key: &NodeKey) -> Result<RenewResponse, JoinError> {
        let (at, addresses) = (now(), &self.parts.addresses);
        let signature = key.sign(&RenewRequest::signed_text(&facts.serial, at, addresses))?;
        let request = RenewRequest {
            serial: facts.serial.clone(),
            at,
            addresses: addresses.clone(),
            signature,
        };
        let limit = self.parts.answer_timeout;
        let asked = post_json(&*self.parts.controllers, "/edge/v1/renew", &request, limit).await;
        match (asked, &self.parts.controller) {
            (Ok(answer), _) => Ok(answer),
            (Err(error), Some(controller)) if error.status().is_none() => {
                controller.renew(&request).await
            }
            (Err(error), _) => Err(JoinError::from(error)),
        }
    }

    fn show(&self, facts: &Facts<Machine>) {
        let seconds = facts.expires_at.get() / 1000;
        self.parts
            .expires
            .set(i64::try_from(seconds).unwrap_or(i64::MAX));
    }
}

fn read(path: &Path) -> Result<Facts<Machine>, JoinError> {
    let text = std::fs::read_to_string(path).map_err(|e| ServiceError::File {
        path: path.to_owned(),
        reason: e.to_string(),
    })?;
    Ok(Facts::of_pem(&text)?)
}

/// The time until a certificate should be renewed, at most [`CHECK_INTERVAL_MAX`].
fn until_due(facts: &Facts<Machine>, now: Timestamp) -> Duration {
    renew_at(facts.issued_at, facts.expires_at)
        .since(now)
        .min(CHECK_INTERVAL_MAX)
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
        assert_eq!(wait(0), CHECK_INTERVAL_MAX);
        assert_eq!(wait(20 * hour - 5), Duration::from_millis(5));
        assert_eq!(wait(20 * hour), Duration::ZERO);
        assert_eq!(wait(99 * hour), Duration::ZERO);
    }
}

//! What a certificate says.

use std::fmt::Display;
use std::str::FromStr;

use fdn_core::Timestamp;
use fdn_core::enrol::NodeIdentity;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{BACKDATED_MS, failed};
use crate::error::ServiceError;

/// What a certificate of the network says; a node's, unless another kind of identity is asked for. Reading it does not mean that it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts<I = NodeIdentity> {
    /// Whose it is.
    pub identity: I,
    /// Its serial number in hexadecimal digits.
    pub serial: String,
    /// When it was made.
    pub issued_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
}

impl<I: FromStr<Err: Display>> Facts<I> {
    /// Reads a certificate (PEM).
    ///
    /// # Errors
    /// When it is no certificate of such a machine.
    pub fn of_pem(text: &str) -> Result<Self, ServiceError> {
        let (_, pem) = parse_x509_pem(text.as_bytes()).map_err(failed)?;
        Self::of_der(&pem.contents)
    }

    /// Reads a certificate as it comes with a connection.
    ///
    /// # Errors
    /// When it is no certificate of such a machine.
    pub fn of_der(bytes: &[u8]) -> Result<Self, ServiceError> {
        let (_, certificate) = X509Certificate::from_der(bytes).map_err(failed)?;
        let names = certificate
            .subject_alternative_name()
            .map_err(failed)?
            .ok_or_else(|| failed("the certificate names nobody"))?;
        let mut uris = names.value.general_names.iter().filter_map(|name| {
            if let GeneralName::URI(uri) = name {
                Some(*uri)
            } else {
                None
            }
        });
        let (Some(uri), None) = (uris.next(), uris.next()) else {
            return Err(failed("the certificate does not name exactly one machine"));
        };
        let validity = certificate.validity();
        let (from, to) = (
            millis(validity.not_before.timestamp()),
            millis(validity.not_after.timestamp()),
        );
        Ok(Self {
            identity: uri.parse().map_err(failed)?,
            serial: hex::encode(certificate.raw_serial()),
            issued_at: Timestamp(from.saturating_add(BACKDATED_MS)),
            expires_at: Timestamp(to),
        })
    }
}

fn millis(seconds: i64) -> u64 {
    u64::try_from(seconds)
        .unwrap_or_default()
        .saturating_mul(1000)
}

#[cfg(test)]
mod tests;

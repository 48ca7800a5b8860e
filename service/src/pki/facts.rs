//! The content of the network's own certificates.

use std::fmt::Display;
use std::str::FromStr;

use fdn_core::Timestamp;
use fdn_core::enrol::NodeIdentity;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{BACKDATED_MS, failed};
use crate::error::ServiceError;

/// The content of a certificate: by default of a node, otherwise of the identity type `I`. Reading it does not validate the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts<I = NodeIdentity> {
    /// The identity of its owner.
    pub identity: I,
    /// Its serial number, in hexadecimal.
    pub serial: String,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
}

impl<I: FromStr<Err: Display>> Facts<I> {
    /// Reads a certificate (PEM).
    ///
    /// # Errors
    /// When it is not a certificate of an `I`.
    pub fn of_pem(text: &str) -> Result<Self, ServiceError> {
        let (_, pem) = parse_x509_pem(text.as_bytes()).map_err(failed)?;
        Self::of_der(&pem.contents)
    }

    /// Reads a certificate (DER), as received on a connection.
    ///
    /// # Errors
    /// When it is not a certificate of an `I`.
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

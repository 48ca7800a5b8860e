//! The network's own certificates: ECDSA on P-256, created with `rcgen`.
//!
//! The controller holds an [`Authority`]; each machine holds a [`NodeKey`] that never leaves it, and a certificate whose URI name contains its
//! identity:
//! a [`fdn_core::enrol::NodeIdentity`], another [`fdn_core::enrol::Machine`], or a [`fdn_core::enrol::ControllerIdentity`]. A certificate is used
//! at
//! both ends of a connection. [`Facts`] reads the content of a certificate; validating the chain ([`tls`]) and checking the
//! list of revoked serial numbers is up to the user of the connection.

mod authority;
mod facts;
mod key;
pub mod pin;
pub mod tls;
pub mod verifier;

pub use authority::{Authority, Bearer, Issued, Subject};
pub use facts::Facts;
pub use key::{NodeKey, PublicKey};

use fdn_core::Timestamp;
use time::OffsetDateTime;

use crate::error::ServiceError;

/// How far certificates are backdated, in ms, for machines whose clocks are behind.
const BACKDATED_MS: u64 = 3_600_000;

fn failed(error: impl std::fmt::Display) -> ServiceError {
    ServiceError::Certificate(error.to_string())
}

/// Certificates have times in whole seconds.
fn date(at: Timestamp) -> Result<OffsetDateTime, ServiceError> {
    let seconds = i64::try_from(at.get() / 1000).map_err(failed)?;
    OffsetDateTime::from_unix_timestamp(seconds).map_err(failed)
}

/// A serial number with 126 random bits: positive and of constant length, as RFC 5280, section 4.1.2.2, requires.
fn serial() -> Result<[u8; 16], ServiceError> {
    let mut bytes = crate::secret::random_bytes::<16>()?;
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    Ok(bytes)
}

//! Certificates of the network's own: ECDSA on P-256, made with `rcgen`.
//!
//! The controller holds an [`Authority`]; each machine holds a [`NodeKey`] that never leaves it, and a certificate whose URI name says what it is:
//! a [`fdn_core::enrol::NodeIdentity`], another [`fdn_core::enrol::Machine`], or a [`fdn_core::enrol::ControllerIdentity`]. A certificate serves
//! both ends of a connection. What a certificate says is read by [`Facts`]; whether it counts is for whoever checks the chain ([`tls`]), and for the
//! list of revoked serial numbers.

mod authority;
mod facts;
pub mod judged;
mod key;
pub mod pin;
pub mod tls;

pub use authority::{Authority, Bearer, Issued, Subject};
pub use facts::Facts;
pub use key::{NodeKey, PublicKey};

use fdn_core::Timestamp;
use time::OffsetDateTime;

use crate::error::ServiceError;

/// How long before it was made a certificate counts, for clocks that are behind.
const BACKDATED_MS: u64 = 3_600_000;

fn failed(error: impl std::fmt::Display) -> ServiceError {
    ServiceError::Certificate(error.to_string())
}

/// Certificates hold whole seconds.
fn date(at: Timestamp) -> Result<OffsetDateTime, ServiceError> {
    let seconds = i64::try_from(at.get() / 1000).map_err(failed)?;
    OffsetDateTime::from_unix_timestamp(seconds).map_err(failed)
}

/// A serial number of 126 random bits: positive and of one length, as RFC 5280, section 4.1.2.2, wants it.
fn serial() -> Result<[u8; 16], ServiceError> {
    let mut bytes = crate::secret::random_bytes::<16>()?;
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    Ok(bytes)
}

//! Joining a network: the request with a join token, and the identity on disk.

mod api;
mod error;
mod files;
mod renew;

use std::path::Path;

use fdn_core::enrol::{EnrolResponse, JoinToken};
use fdn_service::secret;

pub use api::{ApiAccess, Controller};
pub use error::JoinError;
pub use files::{Identity, Joined, bundle};
pub use renew::{RenewParts, RenewalCallback, Renewer};

/// Reads a join token from a file; `-` is standard input.
///
/// # Errors
/// When it cannot be read, or is not a join token.
pub fn read_token(path: &Path) -> Result<JoinToken, JoinError> {
    let text = if path.as_os_str() == "-" {
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line);
        read.map_err(|e| fdn_service::ServiceError::File {
            path: path.to_owned(),
            reason: e.to_string(),
        })?;
        line
    } else {
        secret::read(path)?.expose().to_owned()
    };
    text.parse().map_err(JoinError::Token)
}

/// The addresses at which machines reach the controllers; where an address is only a port, `host` is used, the host at which this machine joined.
#[must_use]
pub fn controllers(answer: &EnrolResponse, host: &str) -> Vec<String> {
    let written = |controller: &String| match controller.strip_prefix(':') {
        Some(port) if host.contains(':') => format!("[{host}]:{port}"),
        Some(port) => format!("{host}:{port}"),
        None => controller.clone(),
    };
    answer.controllers.iter().map(written).collect()
}

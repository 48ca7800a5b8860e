//! Who makes a change, as the audit log keeps it.

use std::fmt;
use std::net::IpAddr;

use fdn_core::ApiTokenId;

/// The name of what the network does by itself.
const NETWORK: &str = "the network";

/// Who makes a change, by what, and from where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// A user, a node, a join token, or the network itself.
    pub name: String,
    /// The API token that was used, if one was.
    pub token: Option<ApiTokenId>,
    /// The client's address.
    pub address: Option<IpAddr>,
    /// The request's id.
    pub request: Option<String>,
    /// The idempotency key of the request: it is marked as carried out together with the change.
    pub idempotency: Option<String>,
}

impl Actor {
    /// Somebody of this name, without a request.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            token: None,
            address: None,
            request: None,
            idempotency: None,
        }
    }

    /// The network itself.
    #[must_use]
    pub fn network() -> Self {
        Self::named(NETWORK)
    }

    /// The same request, made by somebody who became known only while it was handled.
    #[must_use]
    pub fn known_as(&self, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..self.clone()
        }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

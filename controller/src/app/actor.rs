//! The actor of a change, as recorded in the audit log.

use std::fmt;
use std::net::IpAddr;

use fdn_core::ApiTokenId;

use crate::store::idempotency::BegunRequest;

/// The actor's name for what the network does by itself.
const NETWORK: &str = "the network";

/// Who makes a change, with which token, and from where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The name of a user, a node or a join token, or that of the network itself.
    pub name: String,
    /// The API token that was used, if any.
    pub token: Option<ApiTokenId>,
    /// The client's address.
    pub address: Option<IpAddr>,
    /// The request's id.
    pub request: Option<String>,
    /// The request as begun under its idempotency key, if it has one: it is marked as done in the same transaction as the change.
    pub idempotency: Option<BegunRequest>,
}

impl Actor {
    /// An actor with this name, without a request.
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

    /// The same request with another name, for an actor who was identified only while it was handled.
    #[must_use]
    pub fn with_name(&self, name: impl Into<String>) -> Self {
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

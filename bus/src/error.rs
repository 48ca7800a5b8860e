//! Errors of the broker.

use fdn_core::{Coded, ErrorCode};

/// An error of the broker.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BusError {
    /// The broker cannot be reached.
    #[error("the broker at {address} is away; messages wait in the outbox until it returns")]
    Unreachable {
        /// The broker's address, without credentials.
        address: String,
        /// The cause, if known.
        #[source]
        source: Option<lapin::Error>,
    },
    /// The broker did not confirm the message.
    #[error("the broker did not confirm message {id}")]
    NotConfirmed {
        /// The message.
        id: fdn_core::MessageId,
    },
    /// The message is not of a kind that controllers send each other.
    #[error("a {kind} does not travel through the broker")]
    NotForBroker {
        /// The kind of the message.
        kind: &'static str,
    },
    /// The broker's address is not valid.
    #[error("the broker address is not valid: {0}; expected amqp://user:password@host:port/vhost")]
    Address(String),
    /// A message could not be serialized as JSON.
    #[error("message {id} cannot be written")]
    Encode {
        /// The message.
        id: fdn_core::MessageId,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
}

impl Coded for BusError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Unreachable { .. } | Self::NotConfirmed { .. } => ErrorCode::BrokerFailed,
            Self::Address(_) => ErrorCode::ConfigInvalid,
            Self::Encode { .. } | Self::NotForBroker { .. } => ErrorCode::Internal,
        }
    }
}

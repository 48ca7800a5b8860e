//! What can go wrong with a broker.

use fdn_core::{Coded, ErrorCode};

/// An error of the broker.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BusError {
    /// The broker cannot be reached.
    #[error("the broker at {address} is away; messages wait in the outbox until it returns")]
    Away {
        /// Where it should be, without credentials.
        address: String,
        /// What was seen.
        #[source]
        source: Option<lapin::Error>,
    },
    /// The broker did not take the message.
    #[error("the broker did not confirm message {id}")]
    NotConfirmed {
        /// The message.
        id: fdn_core::MessageId,
    },
    /// The message is none that controllers send each other.
    #[error("a {kind} does not travel through the broker")]
    NotForBroker {
        /// What it is.
        kind: &'static str,
    },
    /// The broker's address is not valid.
    #[error("the broker address is not valid: {0}; expected amqp://user:password@host:port/vhost")]
    Address(String),
    /// A message could not be written as JSON.
    #[error("message {id} cannot be written")]
    Encode {
        /// The message.
        id: fdn_core::MessageId,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

impl Coded for BusError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Away { .. } | Self::NotConfirmed { .. } => ErrorCode::BrokerFailed,
            Self::Address(_) => ErrorCode::ConfigInvalid,
            Self::Encode { .. } | Self::NotForBroker { .. } => ErrorCode::Internal,
        }
    }
}

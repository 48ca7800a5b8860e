//! The controller's side of the broker: [`publisher`] empties the outbox, [`consumer`] hears reports.

pub mod consumer;
pub mod publisher;

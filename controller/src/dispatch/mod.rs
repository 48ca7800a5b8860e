//! The controller's sending side of the broker: [`publisher`] empties the outbox. Messages from the broker are received by [`crate::edge`] and
//! [`crate::jobs`].

pub mod publisher;

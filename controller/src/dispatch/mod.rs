//! The controller's side of the broker: [`publisher`] empties the outbox. What comes from there is heard by [`crate::edge`] and [`crate::jobs`].

pub mod publisher;

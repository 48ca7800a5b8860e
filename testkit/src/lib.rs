//! Fixtures and throw-away servers for tests.

pub mod components;
pub mod docker;
pub mod ports;
pub mod postgres;
pub mod process;
pub mod rabbitmq;
pub mod wait;

//! Fixtures and temporary servers for tests.

pub mod components;
pub mod dns;
pub mod docker;
pub mod exclusive;
pub mod folder;
pub mod kubernetes;
pub mod link;
mod names;
pub mod ports;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod rabbitmq;
pub mod registry;
pub mod wait;

//! The controller as a whole: over HTTP and the broker's channels, on SQLite and on a real PostgreSQL.

mod access;
mod api;
mod broker;
mod explain;
mod fleet;
mod join_tokens;
mod logs;
mod machines;
mod migrations;
mod openapi;
mod outage;
mod outbox;
mod planner;
mod rig;
mod store;
mod store_fleet;
mod store_observed;
mod surface;
mod uploads;
mod usage;

//! The schedulers of instances together, under networks that do their worst and under one that does nothing.

mod adversary;
mod cluster;
mod global;
mod heads;
mod lists;
mod lists_late;
mod oracle;
mod protocol;
mod submitter;

//! Fine-grained resources: packed words against quantities that are taken apart, choices against loops over all nodes.

mod fleet;
mod ledger;
mod packed;
mod select;

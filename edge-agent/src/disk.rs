//! Writes files so that they are whole after a power loss ([`fdn_link::disk`]).

pub use fdn_link::disk::{folder, replace, replace_public};

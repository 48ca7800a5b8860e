//! Functions of recorded traces under an autoscaler: [`fdn_scheduling::scale`] in virtual time, function by function.
//!
//! Room is not bounded here: how many instances a function gets is the scaler's decision alone, so scalers can be compared.

mod input;
mod measure;
mod world;

pub use input::{Function, Request};
pub use measure::{Reversals, load_reversals, perfect_ms};
pub use world::{Course, TICK, play};

#![no_main]
//! See `harness::snapshot`.

#[path = "../harness.rs"]
#[allow(dead_code, reason = "each target uses one function of it")]
mod harness;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| harness::snapshot(bytes));

//! Tests of the whole network as separate processes, as its users meet it.
//!
//! [`Network`] starts the real binaries; [`cli`] types the commands; [`dns`] asks with `dig`. The binaries must have been built
//! (`cargo build --release --workspace`, which `make test` does): a missing one fails the test.

#![allow(
    clippy::print_stderr,
    reason = "a failing test shows the logs of its processes"
)]

pub mod balancer;
pub mod cli;
pub mod deadlines;
pub mod dns;
pub mod embedded;
pub mod endurance;
pub mod fleet;
pub mod held;
pub mod load;
pub mod namespace;
pub mod network;
pub mod programs;
mod records;
mod regions;
pub mod tutorial;

pub use cli::Cli;
pub use deadlines::Deadlines;
pub use embedded::Embedded;
pub use fleet::Fleet;
pub use held::Held;
pub use network::{Network, Region};
pub use programs::Programs;

use std::path::PathBuf;

/// A binary of this workspace, of the same build as the running test.
///
/// # Panics
/// When it has not been built.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test
        .parent()
        .and_then(|deps| deps.parent())
        .expect("tests lie in target/PROFILE/deps");
    let path = folder.join(name);
    assert!(
        path.is_file(),
        "{} is missing: run cargo build --release --workspace first",
        path.display()
    );
    path
}

/// The root of the project.
#[must_use]
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

//! The recorded traces, which are not part of the project.

use std::path::PathBuf;

use fdn_sim::input::{DATA_DIRECTORY, data_directory};

/// If this variable is set, as it is in CI, a test that misses the traces fails.
const REQUIRED: &str = "FDN_DATA_REQUIRED";

/// The folder of the recorded traces; without it, says that the test is left out, which CI does not accept.
#[expect(clippy::print_stderr, reason = "a test that is left out must say so")]
pub(crate) fn traces() -> Option<PathBuf> {
    let directory = data_directory();
    if directory.is_none() {
        let required = std::env::var_os(REQUIRED).is_some_and(|value| !value.is_empty());
        assert!(
            !required,
            "{REQUIRED} is set, but there are no recorded traces; set {DATA_DIRECTORY}"
        );
        eprintln!("left out: no recorded traces; set {DATA_DIRECTORY} to their folder");
    }
    directory
}

#[test]
fn the_traces_are_there_where_they_must_be() {
    if let Some(directory) = traces() {
        assert!(directory.join("azure-functions/functions.csv.gz").is_file());
    }
}

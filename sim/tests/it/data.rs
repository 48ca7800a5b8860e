//! The recorded traces, which are not part of the project.

use std::io::Write as _;
use std::path::PathBuf;

use fdn_sim::input::{DATA_DIRECTORY, data_directory};

/// If this variable is set, as it is in CI, a test that misses the traces fails.
const REQUIRED: &str = "FDN_DATA_REQUIRED";

/// The folder of the recorded traces; without it, says that the test is left out, which CI does not accept.
///
/// It is said to standard error itself: what a test that passes prints with a macro, nobody sees.
pub(crate) fn traces() -> Option<PathBuf> {
    let directory = data_directory();
    if directory.is_none() {
        let required = std::env::var_os(REQUIRED).is_some_and(|value| !value.is_empty());
        assert!(
            !required,
            "{REQUIRED} is set, but there are no recorded traces; set {DATA_DIRECTORY}"
        );
        let test = std::thread::current();
        let name = test.name().unwrap_or("a test").to_owned();
        let said = writeln!(
            std::io::stderr(),
            "left out: {name}: no recorded traces; set {DATA_DIRECTORY} to their folder"
        );
        said.expect("standard error takes a line");
    }
    directory
}

#[test]
fn the_traces_are_there_where_they_must_be() {
    if let Some(directory) = traces() {
        assert!(directory.join("azure-functions/functions.csv.gz").is_file());
    }
}

//! Where the recorded traces lie. They are not part of the project, because their licences are their own; experiments and tests
//! that need them say so and are left out where the folder is missing.

use std::path::PathBuf;

/// The variable that names the folder.
pub const DATA_DIRECTORY: &str = "FDN_DATA";

/// The folder of the recorded traces: what the variable names, else `shared/data` in the working directory or the nearest folder
/// above it that has one.
///
/// `None` where there is no such folder.
#[must_use]
pub fn data_directory() -> Option<PathBuf> {
    let named = std::env::var_os(DATA_DIRECTORY).filter(|value| !value.is_empty());
    if let Some(directory) = named {
        return Some(PathBuf::from(directory)).filter(|directory| directory.is_dir());
    }
    let here = std::env::current_dir().ok()?;
    here.ancestors()
        .map(|folder| folder.join("shared/data"))
        .find(|directory| directory.is_dir())
}

//! `fdn new`: creates the folder of a function that builds with the usual tools of its language.

use std::path::{Path, PathBuf};

use fdn_core::ErrorCode;

use crate::args::{Language, NewArgs};
use crate::console::Console;
use crate::error::CliError;
use crate::templates;

/// Runs the command.
///
/// # Errors
/// When the folder is not empty or cannot be written.
pub fn run(args: &NewArgs, console: &mut Console) -> Result<(), CliError> {
    if args.lang == Language::Rust && args.name.as_str().starts_with(|c: char| c.is_ascii_digit()) {
        return Err(CliError::Usage(format!(
            "a Rust package cannot be called {}: its name must begin with a letter",
            args.name
        )));
    }
    let folder = args
        .dir
        .clone()
        .unwrap_or_else(|| PathBuf::from(args.name.as_str()));
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => CliError::Exists {
            path: folder.clone(),
        },
        _ => CliError::File {
            path: folder.clone(),
            reason: error.to_string(),
            code: ErrorCode::BadRequest,
        },
    };
    let written = templates::instantiate(args.lang, &args.name, &folder).map_err(failed)?;
    console.line(&format!("made {}", folder.display()))?;
    for path in written {
        let inside: &Path = path.strip_prefix(&folder).unwrap_or(&path);
        console.line(&format!("  {}", inside.display()))?;
    }
    console.note(&format!(
        "next: read {}; it says how to build and deploy it",
        folder.join("README.md").display()
    ));
    Ok(())
}

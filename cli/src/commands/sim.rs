//! `fdn sim`: runs the schedulers in virtual time, without a network.

use fdn_sim::progress::{Bars, Progress, Silent};

use crate::args::SimArgs;
use crate::console::Console;
use crate::error::CliError;

/// Runs the command.
///
/// # Errors
/// When a file or option cannot be used, or standard output is closed.
pub fn run(args: &SimArgs, console: &mut Console) -> Result<(), CliError> {
    let bars = Bars::default();
    let progress: &dyn Progress = if console.err_is_terminal() {
        &bars
    } else {
        &Silent
    };
    fdn_sim::command::run(&args.command, console.out(), progress)?;
    Ok(())
}

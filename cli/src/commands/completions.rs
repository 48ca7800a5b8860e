//! `fdn completions`.

use clap::CommandFactory as _;
use clap_complete::Shell as Generator;

use crate::args::{Cli, CompletionsArgs, Shell};
use crate::console::Console;
use crate::error::CliError;

/// Runs the command.
///
/// # Errors
/// When standard output is closed.
pub fn run(args: &CompletionsArgs, console: &mut Console) -> Result<(), CliError> {
    let generator = match args.shell {
        Shell::Bash => Generator::Bash,
        Shell::Zsh => Generator::Zsh,
        Shell::Fish => Generator::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(generator, &mut Cli::command(), "fdn", &mut script);
    console.print_bytes(&script)
}

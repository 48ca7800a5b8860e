//! The output streams of a command: results go to standard output, everything else to standard error.
//!
//! Both are passed in, so that tests can read what a user would see. Colours and progress are only used on a terminal.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use serde::Serialize;

use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Format, Report};

/// When colours are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless the variable NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The two streams of a command.
pub struct Console {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    out_is_terminal: bool,
    err_is_terminal: bool,
    colors: bool,
}

impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console")
            .field("out_is_terminal", &self.out_is_terminal)
            .field("err_is_terminal", &self.err_is_terminal)
            .field("colors", &self.colors)
            .finish_non_exhaustive()
    }
}

impl Console {
    /// The streams of this process.
    #[must_use]
    pub fn of_process(color: ColorChoice, env: &Environment) -> Self {
        let (out, err) = (io::stdout(), io::stderr());
        let (out_is_terminal, err_is_terminal) = (out.is_terminal(), err.is_terminal());
        let colors = match color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                out_is_terminal
                    && env.get("NO_COLOR").is_none()
                    && env.get("TERM").is_none_or(|term| term != "dumb")
            }
        };
        Self {
            out: Box::new(out),
            err: Box::new(err),
            out_is_terminal,
            err_is_terminal,
            colors,
        }
    }

    /// Uses the given streams, as if they were files: no colours, no progress.
    #[must_use]
    pub fn new(out: Box<dyn Write + Send>, err: Box<dyn Write + Send>) -> Self {
        Self {
            out,
            err,
            out_is_terminal: false,
            err_is_terminal: false,
            colors: false,
        }
    }

    /// The same console with colours.
    #[must_use]
    pub fn with_colors(self) -> Self {
        Self {
            colors: true,
            ..self
        }
    }

    /// Whether standard output is a terminal.
    #[must_use]
    pub const fn out_is_terminal(&self) -> bool {
        self.out_is_terminal
    }

    /// Whether standard error is a terminal, so that progress is shown.
    #[must_use]
    pub const fn err_is_terminal(&self) -> bool {
        self.err_is_terminal
    }

    /// Whether colours are used.
    #[must_use]
    pub const fn colors(&self) -> bool {
        self.colors
    }

    /// Text in a colour (an SGR parameter such as `31`), if colours are used.
    #[must_use]
    pub fn paint(&self, color: &str, text: &str) -> String {
        if self.colors && !text.is_empty() {
            format!("\u{1b}[{color}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// Writes to standard output.
    ///
    /// # Errors
    /// When the stream is closed.
    pub fn print(&mut self, text: &str) -> Result<(), CliError> {
        self.print_bytes(text.as_bytes())
    }

    /// Writes a line to standard output.
    ///
    /// # Errors
    /// When the stream is closed.
    pub fn line(&mut self, text: &str) -> Result<(), CliError> {
        self.print(&format!("{text}\n"))
    }

    /// Writes bytes to standard output, and flushes it.
    ///
    /// # Errors
    /// When the stream is closed.
    pub fn print_bytes(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.out.write_all(bytes)?;
        Ok(self.out.flush()?)
    }

    /// Standard output, for writing in pieces.
    pub fn out(&mut self) -> &mut dyn Write {
        &mut self.out
    }

    /// Writes a line to standard error. Errors are ignored.
    pub fn note(&mut self, text: &str) {
        drop(self.err.write_all(format!("{text}\n").as_bytes()));
        drop(self.err.flush());
    }

    /// Writes a result in the requested format.
    ///
    /// # Errors
    /// When the stream is closed, or the value cannot be written in this format.
    pub fn report<R: Report + Serialize>(
        &mut self,
        format: Format,
        report: &R,
    ) -> Result<(), CliError> {
        self.print(&crate::output::render(format, report)?)
    }
}

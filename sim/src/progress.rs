//! Progress of long runs, shown on a terminal's standard error only.

use std::fmt;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Who is told about progress. Experiments run side by side, so every method takes `&self`.
pub trait Progress: Sync + fmt::Debug {
    /// A part of the work begins: its name and how many steps it has.
    fn begin(&self, what: &str, steps: u64) -> Box<dyn Part>;
}

/// A part of the work under way; it ends when dropped.
pub trait Part: Sync + Send {
    /// Some steps were done.
    fn advance(&self, steps: u64);
}

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _: &str, _: u64) -> Box<dyn Part> {
        Box::new(Self)
    }
}

impl Part for Silent {
    fn advance(&self, _: u64) {}
}

/// Draws bars on standard error; nothing is drawn where that is no terminal.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    bars: indicatif::MultiProgress,
}

impl Progress for Bars {
    fn begin(&self, what: &str, steps: u64) -> Box<dyn Part> {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::hidden());
        // The template is a constant; a mistake in it would only cost its looks.
        let style = ProgressStyle::with_template("  {msg:32} {bar:30} {pos}/{len} {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what.to_owned());
        Box::new(Bar(self.bars.add(bar)))
    }
}

struct Bar(ProgressBar);

impl Part for Bar {
    fn advance(&self, steps: u64) {
        self.0.inc(steps);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

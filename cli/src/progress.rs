//! Progress on standard error, shown only on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::console::Console;

fn target(console: &Console) -> ProgressDrawTarget {
    if console.err_is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    }
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants below; a mistake in one would only affect its appearance.
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("━╸─")
}

/// A progress bar for an upload of `bytes` bytes.
#[must_use]
pub(crate) fn upload(console: &Console, bytes: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(bytes), target(console));
    bar.set_style(style(
        "  {msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}",
    ));
    bar.set_message("sending");
    bar
}

/// Changes the bar for the time when everything was sent and the controller is working.
pub(crate) fn validating(bar: &ProgressBar) {
    bar.set_style(style("  {spinner} {msg} {elapsed}"));
    bar.set_message("checking and compiling");
    bar.enable_steady_tick(Duration::from_millis(100));
}

/// A spinner for waiting.
#[must_use]
pub(crate) fn spinner(console: &Console, message: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, target(console));
    bar.set_style(style("  {spinner} {msg} {elapsed}"));
    bar.set_message(message.to_owned());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

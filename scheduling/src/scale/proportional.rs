//! A plain proportional controller as a baseline: `ceil(mean requests in the system / concurrency)` over one window, up and down at once.
//!
//! **Source.** The Horizontal Pod Autoscaler of Kubernetes, `ceil(current * metric / target)`, with the mean number of requests per
//! instance as the metric, without its stabilization. Waiting requests count like executing ones.

use fdn_core::Millis;

use super::autoscaler::whole;
use super::settings::{ScaleError, Settings};
use super::window::Window;
use super::{Decision, Keep, Load, Scaler, Size};

/// The proportional controller: see the module.
#[derive(Clone, Debug)]
pub struct Proportional {
    settings: Settings,
    window: Window,
    seen: Option<Millis>,
    target: u32,
}

impl Proportional {
    /// A controller for a function without instances. It uses the stable window, the concurrency and the bounds of the settings.
    ///
    /// # Errors
    /// When a setting is out of its range.
    pub fn new(settings: Settings) -> Result<Self, ScaleError> {
        settings.validate()?;
        Ok(Self {
            window: Window::new(settings.stable, settings.bucket),
            target: settings.min,
            settings,
            seen: None,
        })
    }
}

impl Scaler for Proportional {
    fn name(&self) -> &'static str {
        "proportional"
    }

    fn tick(&mut self, now: Millis, size: Size, load: Option<&Load>, keep: Keep) -> Decision {
        let now = self.seen.map_or(now, |seen| seen.max(now));
        self.window.advance(now, self.target);
        if let Some(load) = load {
            let from = self.seen.unwrap_or(now);
            let present = load.busy + load.queued as f64;
            self.window.record(from, now, load.arrivals as f64, present);
            let sums = self.window.sums(self.settings.stable);
            let mean = if sums.observed_ms > 0.0 {
                sums.busy_ms / sums.observed_ms
            } else {
                0.0
            };
            let waiting = u32::from(load.queued > 0);
            let kept = match keep {
                Keep::Grace => 0,
                Keep::Warm(kept) => kept,
            };
            self.target = whole(mean / self.settings.concurrency)
                .max(waiting)
                .max(kept)
                .clamp(self.settings.min, self.settings.max);
        }
        self.seen = Some(now);
        Decision::of(self.target, size)
    }
}

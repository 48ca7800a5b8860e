//! The autoscaler of one function.
//!
//! **Problem.** How many instances should a function have now? With too few, requests wait for starts; with too many, memory is wasted;
//! and the number must not oscillate.
//!
//! **Source.** Little's law, `L = lambda * W`: requests in execution are arrivals per time times the time they take. Stable and panic
//! windows as in the Knative Pod Autoscaler; instances beyond the mean by the square-root rule (Halfin and Whitt, "Heavy-traffic
//! limits for queues with many exponential servers", Operations Research 29(3), 1981). What is started is
//! `ceil(demand) - (running + pending)`, as scaling tasks (patent on a highly scalable distributed scheduling system for
//! serverless computing).
//!
//! 1. *Load.* Over a window `w`: `L_w = max(busy_w, arrivals_w * min(exec, w) / w)`. The second term is what the arrivals would have
//!    kept busy in the window had none of them waited, so that a lack of instances does not hide the load.
//! 2. *Demand.* `max(L + headroom * sqrt(L), Q) / concurrency`. If requests wait, the running ones use all present capacity, and those that wait
//!    need more in addition: `Q = executing + queued * min(1, exec / cold)`, since an instance that is ready after the queue has
//!    drained helps nobody.
//! 3. *Up* at once: if requests wait, to the demand; else when the demand exceeds the present size by more than the tolerance.
//! 4. *Panic* when the short window demands `panic_factor` times the running instances or more; then the larger of both windows
//!    counts, and nothing is scaled down until a stable window has passed without a further reason to panic.
//! 5. *Down* to the largest need within the last stable window, never below.
//! 6. *Zero.* Without any load, the last instance goes when the idle grace has passed, or, where a keep-alive policy decides,
//!    exactly when that policy keeps none.
//! 7. *Rates* and *bounds* are applied last; bounds are stronger.
//!
//! **Invariants.** `min <= wanted <= max`. Within a rate period the size grows at most by `up` and shrinks at most by `down` (except as
//! the bounds require). Of two loads at one tick the larger never gets fewer instances. A size that was needed is kept for a stable
//! window: so up, down and up again takes longer than that, and two sizes alternate at most once per stable window. A constant load gives
//! a constant size. Without any load the size is never raised, and it is zero within the idle grace plus one rate period, one bucket and
//! one tick for each step down that the rate allows.
//!
//! **Missing data.** A tick without an observation, or after the clock was set back, keeps the size (within bounds and rates) and enters no mean.
//!
//! **Complexity.** O(buckets) per tick, no allocation.

use fdn_core::Millis;

use super::settings::{Profile, Rate, ScaleError, Settings};
use super::window::{Sums, Window};
use super::{Decision, Keep, Load, Scaler, Size};

/// Tolerance by which rounding errors may exceed a whole number of instances without adding one.
const EPSILON: f64 = 1e-6;

/// The autoscaler of one function: see the module.
#[derive(Clone, Debug)]
pub struct Autoscaler {
    settings: Settings,
    profile: Profile,
    window: Window,
    /// The time of the last tick; `None` before the first.
    seen: Option<Millis>,
    /// The last time with any load; `None` if there was none.
    active: Option<Millis>,
    panic_until: Option<Millis>,
    target: u32,
}

/// The demand of both windows, in instances.
#[derive(Clone, Copy, Debug)]
struct Demand {
    stable: f64,
    panic: f64,
}

impl Autoscaler {
    /// An autoscaler for a function without instances.
    ///
    /// # Errors
    /// When a setting is out of its range.
    pub fn new(settings: Settings, profile: Profile) -> Result<Self, ScaleError> {
        settings.validate()?;
        Ok(Self {
            window: Window::new(settings.stable, settings.bucket),
            target: settings.min,
            settings,
            profile,
            seen: None,
            active: None,
            panic_until: None,
        })
    }

    /// Replaces the function's profile, for instance when it has been measured.
    pub const fn set_profile(&mut self, profile: Profile) {
        self.profile = profile;
    }

    /// The target size set by the last tick.
    #[must_use]
    pub const fn target(&self) -> u32 {
        self.target
    }

    /// Whether panic mode keeps instances because of a sudden load.
    #[must_use]
    pub fn is_panicking(&self, now: Millis) -> bool {
        self.panic_until.is_some_and(|until| now < until)
    }

    fn observe(&mut self, from: Millis, now: Millis, load: &Load) {
        self.window
            .record(from, now, load.arrivals as f64, load.busy.max(0.0));
        if !load.is_idle() {
            self.active = Some(now);
        }
    }

    fn demand(&self, load: &Load) -> Demand {
        let share = (self.profile.exec.get() / self.profile.cold.get().max(1.0)).min(1.0);
        let urgent = if load.queued > 0 {
            load.executing as f64 + load.queued as f64 * share
        } else {
            0.0
        };
        let of = |window| {
            let mean = self.slots(&self.window.sums(window));
            let steady = mean + self.settings.headroom * mean.sqrt();
            steady.max(urgent) / self.settings.concurrency
        };
        Demand {
            stable: of(self.settings.stable),
            panic: of(self.settings.panic),
        }
    }

    /// The mean number of requests in execution, had none of them waited.
    fn slots(&self, sums: &Sums) -> f64 {
        if sums.observed_ms <= 0.0 {
            return 0.0;
        }
        let each = self.profile.exec.get().min(sums.observed_ms);
        sums.busy_ms.max(sums.arrivals * each) / sums.observed_ms
    }

    /// The size for a demand: while no request waits, an excess within the tolerance does not justify another instance.
    fn up_to(&self, demand: f64, load: &Load) -> u32 {
        if load.queued > 0 {
            return whole(demand);
        }
        whole(demand / (1.0 + self.settings.tolerance))
    }

    fn aim(&mut self, now: Millis, size: Size, load: &Load, keep: Keep) -> u32 {
        let demand = self.demand(load);
        let running = f64::from(size.running.max(1));
        if f64::from(self.up_to(demand.panic, load)) >= self.settings.panic_factor * running {
            self.panic_until = Some(now + self.settings.stable);
        }
        let panicking = self.is_panicking(now);
        let counted = if panicking {
            demand.stable.max(demand.panic)
        } else {
            demand.stable
        };
        let raised = self.up_to(counted, load);
        self.window.note(raised.max(whole(counted)), self.target);
        let aim = if raised > self.target && !load.is_idle() {
            raised
        } else if panicking {
            // Panic also keeps the size when there is no load to raise it for.
            self.target
        } else {
            self.target.min(self.window.need(self.settings.stable))
        };
        self.or_zero(now, load, keep, aim)
    }

    /// The aim with what is kept warm: under load at least one instance; without load, zero or what the grace or the policy keeps.
    fn or_zero(&self, now: Millis, load: &Load, keep: Keep, aim: u32) -> u32 {
        if !load.is_idle() {
            return match keep {
                Keep::Grace => aim.max(1),
                Keep::Warm(kept) => aim.max(kept).max(1),
            };
        }
        let recent = |active: Millis| now - active < self.settings.idle_grace;
        match keep {
            Keep::Grace if self.active.is_some_and(recent) => aim.max(1),
            Keep::Grace => 0,
            // A single instance is up to the keep-alive policy; more than one, to the load of the stable window.
            Keep::Warm(kept) if aim <= 1 => kept,
            Keep::Warm(kept) => aim.max(kept),
        }
    }

    /// The aim clamped to rates and bounds.
    fn within(&self, aim: u32) -> u32 {
        let (least, most) = self.window.sizes(self.settings.rate_period);
        let up = grown(least.min(self.target), self.settings.up);
        let down = shrunk(most.max(self.target), self.settings.down);
        aim.clamp(down.min(up), up)
            .clamp(self.settings.min, self.settings.max)
    }
}

impl Scaler for Autoscaler {
    fn name(&self) -> &'static str {
        "autoscaler"
    }

    fn tick(&mut self, now: Millis, size: Size, load: Option<&Load>, keep: Keep) -> Decision {
        // After the clock was set back, time stands still until it has caught up.
        let set_back = self.seen.is_some_and(|seen| now < seen);
        let now = self.seen.map_or(now, |seen| seen.max(now));
        self.window.advance(now, self.target);
        let aim = match load {
            Some(load) if !set_back => {
                match self.seen {
                    Some(from) => self.observe(from, now, load),
                    // The observation before the first tick covers an unknown time.
                    None => self.active = (!load.is_idle()).then_some(now),
                }
                self.aim(now, size, load, keep)
            }
            _ => self.target,
        };
        self.target = self.within(aim);
        self.window.note(0, self.target);
        self.seen = Some(now);
        Decision::of(self.target, size)
    }
}

/// The demand in whole instances, at least one for any demand at all.
pub(super) fn whole(demand: f64) -> u32 {
    (demand - EPSILON)
        .ceil()
        .max(f64::from(u8::from(demand > 0.0))) as u32
}

fn grown(size: u32, rate: Rate) -> u32 {
    let by_factor = (f64::from(size) * rate.factor) as u32;
    by_factor.max(size.saturating_add(rate.instances))
}

fn shrunk(size: u32, rate: Rate) -> u32 {
    let by_factor = (f64::from(size) / rate.factor) as u32;
    by_factor.min(size.saturating_sub(rate.instances))
}

//! The autoscaler of one function.
//!
//! **Problem.** How many instances should a function have now? Too few and requests wait for starts; too many and memory is held for
//! nothing; and the number must not swing.
//!
//! **Source.** Little's law, `L = lambda * W`: requests in execution are arrivals per time times the time they take. Stable and panic
//! windows as in the Knative Pod Autoscaler; instances beyond the mean by the square-root rule (Halfin and Whitt, "Heavy-traffic
//! limits for queues with many exponential servers", Operations Research 29(3), 1981). What is started is
//! `ceil(demand) - (running + pending)`, as scaling tasks (patent on a highly scalable distributed scheduling system for
//! serverless computing).
//!
//! 1. *Load.* Over a window `w`: `L_w = max(busy_w, arrivals_w * min(exec, w) / w)`. The second term is what the arrivals would have
//!    kept busy in the window had none of them waited, so that a lack of instances does not hide the load.
//! 2. *Demand.* `max(L + headroom * sqrt(L), Q) / concurrency`. If requests wait, everything that runs is taken, and those that wait
//!    want more beside it: `Q = executing + queued * min(1, exec / cold)`, since an instance that is ready after the queue has
//!    drained helps nobody.
//! 3. *Up* at once: if requests wait, to what is demanded; else when demand passes the present size by more than the tolerance.
//! 4. *Panic* when the short window wants `panic_factor` times the running instances or more; then the larger of both windows
//!    counts, and nothing is taken away until a stable window has passed without a further reason to panic.
//! 5. *Down* to the most that was needed at any time in the last stable window, never below.
//! 6. *Zero.* Without any load, the last instance goes when the idle grace has passed, or, where a keep-alive policy decides,
//!    exactly when that policy keeps none.
//! 7. *Rates* and *bounds* are applied last; bounds are stronger.
//!
//! **Invariants.** `min <= wanted <= max`. Within a rate period the size grows at most by `up` and shrinks at most by `down` (but for
//! what the bounds demand). Of two loads at one tick the larger never gets fewer instances. A size that was needed is kept for a
//! stable window: so up, down and up again takes longer than that, and two sizes alternate at most once per stable window. A
//! constant load gives a constant size. Without any load it is never raised, and zero within the idle grace, and one rate period,
//! one bucket and one tick for each step down that the rate allows.
//!
//! **Missing data.** A tick without an observation, or with a clock that was set back, keeps the size (within bounds and rates) and counts for no mean.
//!
//! **Complexity.** O(buckets) per tick, no allocation.

use fdn_core::Millis;

use super::settings::{Profile, Rate, ScaleError, Settings};
use super::window::{Sums, Window};
use super::{Decision, Keep, Load, Scaler, Size};

/// What rounding errors may add to a demand without asking for an instance more.
const EPSILON: f64 = 1e-6;

/// Scales one function.
#[derive(Clone, Debug)]
pub struct Autoscaler {
    settings: Settings,
    profile: Profile,
    window: Window,
    /// When the last tick was; `None` before the first.
    seen: Option<Millis>,
    /// When there was load last.
    active: Option<Millis>,
    panic_until: Option<Millis>,
    target: u32,
}

/// What both windows want.
#[derive(Clone, Copy, Debug)]
struct Demand {
    stable: f64,
    panic: f64,
}

impl Autoscaler {
    /// For a function without instances.
    ///
    /// # Errors
    /// When the settings do not go together.
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

    /// Replaces what is known of the function, as when it has been measured.
    pub const fn set_profile(&mut self, profile: Profile) {
        self.profile = profile;
    }

    /// How many instances are wanted since the last tick.
    #[must_use]
    pub const fn target(&self) -> u32 {
        self.target
    }

    /// Whether instances are kept because of sudden load.
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

    /// Requests in execution at once, had none of them waited.
    fn slots(&self, sums: &Sums) -> f64 {
        if sums.observed_ms <= 0.0 {
            return 0.0;
        }
        let each = self.profile.exec.get().min(sums.observed_ms);
        sums.busy_ms.max(sums.arrivals * each) / sums.observed_ms
    }

    /// The size that a demand asks for: while no request waits, a little more than an instance can take is no reason for another.
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
            // Also when nothing is there to raise it for.
            self.target
        } else {
            self.target.min(self.window.need(self.settings.stable))
        };
        self.or_zero(now, load, keep, aim)
    }

    /// What is left of the aim when there is no load, and what is kept warm in any case.
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
            // One instance is a matter of keeping warm; more than one, of the load of the last minute.
            Keep::Warm(kept) if aim <= 1 => kept,
            Keep::Warm(kept) => aim.max(kept),
        }
    }

    /// The aim within rates and bounds.
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
        // A clock that was set back: time stands still until it has caught up.
        let set_back = self.seen.is_some_and(|seen| now < seen);
        let now = self.seen.map_or(now, |seen| seen.max(now));
        self.window.advance(now, self.target);
        let aim = match load {
            Some(load) if !set_back => {
                match self.seen {
                    Some(from) => self.observe(from, now, load),
                    // What came before the first tick came in a time that nobody knows.
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

/// The demand in whole instances: at least one for any at all.
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

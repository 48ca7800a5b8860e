//! An autoscaler for every function, beside the keep-alive policy.

use fdn_core::Millis;
use fdn_scheduling::invocation::{Action, FunctionIndex, Scheduler};
use fdn_scheduling::scale::{Autoscaler, Keep, Load, Profile, Scaler, Settings};

use super::trace::Workload;
use crate::Error;
use crate::autoscale::Reversals;

/// How functions are scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaling {
    /// Of every function's autoscaler.
    pub settings: Settings,
    /// How often they decide.
    pub tick: Millis,
}

/// A figure over time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    value: f64,
    since: Millis,
    sum: f64,
}

impl Span {
    /// Time has passed until now.
    pub(super) fn until(&mut self, now: Millis) {
        self.sum += self.value * (now - self.since).get();
        self.since = now;
    }

    /// The figure from now on.
    pub(super) const fn set(&mut self, value: f64) {
        self.value = value;
    }

    /// The figure times its time, in ms.
    pub(super) const fn sum(&self) -> f64 {
        self.sum
    }
}

/// A function and its scaler.
#[derive(Debug)]
struct Row {
    scaler: Autoscaler,
    /// Since the last decision.
    arrivals: u64,
    executing: Span,
    wanted: u32,
    reversals: Reversals,
}

/// All scalers.
#[derive(Debug)]
pub(super) struct Scalers {
    scaling: Scaling,
    decided: Millis,
    rows: Vec<Row>,
}

impl Scalers {
    /// # Errors
    /// When the settings do not go together.
    pub(super) fn new(scaling: Scaling, workload: &Workload) -> Result<Self, Error> {
        let row = |function: &super::trace::Function| {
            let profile = Profile {
                exec: function.profile.execution(),
                cold: function.profile.cold_start(),
            };
            Ok(Row {
                scaler: Autoscaler::new(scaling.settings, profile)
                    .map_err(|error| Error::Usage(error.to_string()))?,
                arrivals: 0,
                executing: Span::default(),
                wanted: 0,
                reversals: Reversals::new(scaling.settings.stable),
            })
        };
        Ok(Self {
            scaling,
            decided: Millis::ZERO,
            rows: workload
                .functions
                .iter()
                .map(row)
                .collect::<Result<_, Error>>()?,
        })
    }

    pub(super) const fn tick(&self) -> Millis {
        self.scaling.tick
    }

    pub(super) fn arrived(&mut self, function: FunctionIndex) {
        self.rows[function.get()].arrivals += 1;
    }

    /// An invocation of a function begins or ends to execute.
    pub(super) fn executes(&mut self, now: Millis, function: usize, begins: bool) {
        let executing = &mut self.rows[function].executing;
        executing.until(now);
        executing.set(executing.value + if begins { 1.0 } else { -1.0 });
    }

    /// Lets every scaler decide.
    pub(super) fn decide(
        &mut self,
        now: Millis,
        scheduler: &mut Scheduler,
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        let span = (now - self.decided).get();
        self.decided = now;
        for (at, row) in self.rows.iter_mut().enumerate() {
            let function = FunctionIndex::new(at);
            row.executing.until(now);
            let busy = std::mem::take(&mut row.executing.sum) / span;
            let standing = scheduler
                .function_state(function)
                .ok_or_else(|| Error::Broken(format!("function {at} is not known")))?;
            let load = Load {
                arrivals: std::mem::take(&mut row.arrivals),
                busy,
                executing: standing.executing,
                queued: standing.queued,
            };
            let decision = row
                .scaler
                .tick(now, standing.size, Some(&load), Keep::Grace);
            if decision.wanted != row.wanted {
                row.reversals.change(now, row.wanted, decision.wanted);
                row.wanted = decision.wanted;
            }
            scheduler
                .scale(now, function, decision, actions)
                .map_err(|error| Error::Broken(error.to_string()))?;
        }
        Ok(())
    }

    /// How often wanted numbers changed their direction, and how often they swung.
    pub(super) fn reversals(&self) -> (u64, u64) {
        let each = self.rows.iter().map(|row| &row.reversals);
        each.fold((0, 0), |(count, flaps), of| {
            (count + of.count, flaps + of.flaps)
        })
    }
}

//! The recorded traces of function invocations, as the experiments on them use them.

use fdn_core::{MebiBytes, Millis};

use super::Context;
use crate::Error;
use crate::invocations::{Machines, Policy, Run, Scale, Workload, simulate};

/// The traces cover this time.
pub(super) const SPAN: Millis = Millis::new(300_000.0);

/// Arrivals are written with this resolution.
pub(super) const RESOLUTION: Millis = Millis::new(0.1);

/// A trace, a share of it, and the machines that serve it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) trace: &'static str,
    /// Of each of eight workers, in MiB.
    pub(super) memory: u64,
    pub(super) scale: f64,
}

impl Setting {
    pub(super) const fn machines(&self) -> Machines {
        Machines {
            nodes: 8,
            memory: MebiBytes(self.memory),
        }
    }

    pub(super) fn read(&self, context: &Context<'_>) -> Result<Workload, Error> {
        let functions = context.data("azure-functions/functions.csv.gz")?;
        let trace = context.data(&format!("azure-functions/trace_{}.csv.gz", self.trace))?;
        Workload::read(&functions, &trace, Scale::new(self.scale)?)
    }

    pub(super) fn run(&self, workload: &Workload, policy: &Policy) -> Result<Run, Error> {
        simulate(workload, self.machines(), SPAN, policy)
    }

    pub(super) fn name(&self) -> String {
        format!("{} {}", self.trace, self.scale)
    }
}

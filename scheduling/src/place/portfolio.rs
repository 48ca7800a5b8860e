//! The best of several list schedulers.
//!
//! **Problem.** As HEFT's. No list scheduler is best for every job; they are quick enough to try several and keep the best.
//!
//! **Source.** Its parts: [`Heft`] with insertion, [`Peft`], PEFT's choice in HEFT's order, and [`Lookahead`].
//!
//! **Readings.** The best plan is the one of least latency (formula 5), ties by this order. Parts that cannot place the job are skipped;
//! if none can, the first part's refusal is returned.
//!
//! **Complexity.** That of its parts together, most of it the lookahead's.
//!
//! **Invariants.** Those of Heu-Orche; never worse than any of its parts.

use super::list::{Heft, Lookahead, Peft, PeftOrder};
use super::{Detail, Infeasible, Placer, Planned, Problem};

/// The placer with the parts' buffers, which are reused from job to job.
#[derive(Debug)]
pub struct Portfolio {
    heft: Heft,
    peft: Peft,
    heft_oct: Peft,
    lookahead: Lookahead,
}

impl Default for Portfolio {
    fn default() -> Self {
        Self {
            heft: Heft::default(),
            peft: Peft::default(),
            heft_oct: Peft::new(PeftOrder::UpwardRank),
            lookahead: Lookahead::default(),
        }
    }
}

impl Portfolio {
    /// The parts, in the order in which they are tried.
    pub fn parts(&mut self) -> [&mut dyn Placer; 4] {
        [
            &mut self.heft,
            &mut self.peft,
            &mut self.heft_oct,
            &mut self.lookahead,
        ]
    }
}

impl Placer for Portfolio {
    fn name(&self) -> &'static str {
        "portfolio"
    }

    fn place(&mut self, problem: &Problem<'_>, detail: Detail) -> Result<Planned, Infeasible> {
        let [first, others @ ..] = self.parts();
        let mut best = (0, first.place(problem, Detail::Nothing));
        for (at, part) in (1..).zip(others) {
            let planned = part.place(problem, Detail::Nothing);
            if is_better(&planned, &best.1) {
                best = (at, planned);
            }
        }
        match best {
            // Only the plan that is kept needs a report.
            (at, Ok(_)) if detail == Detail::Full => self.parts()[at].place(problem, detail),
            (_, outcome) => outcome,
        }
    }
}

fn is_better(outcome: &Result<Planned, Infeasible>, than: &Result<Planned, Infeasible>) -> bool {
    match (outcome, than) {
        (Ok(planned), Ok(than)) => planned.plan.latency() < than.plan.latency(),
        (Ok(_), Err(_)) => true,
        (Err(_), _) => false,
    }
}

//! Below which mean completion no order can come.
//!
//! The workers together are one fluid machine of as much memory, which serves the memory-time `R*E` of invocations and knows no
//! cold starts, no fragments and no order it must keep. The mean of the *mean busy dates* (when, on average, the work of an
//! invocation is done) is least if the smallest invocation is always served first, interrupting larger ones (Goemans et al.:
//! Single machine scheduling with release dates, SIAM J. Discrete Math. 15, 2002). In any real schedule an invocation executes
//! for `E` at a constant rate, so it ends `E/2` after its mean busy date: the mean completion is at least the mean of `mean busy
//! date + E/2 - arrival`, and at least the mean of `E`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fdn_core::Millis;

use super::trace::Workload;
use super::world::Machines;

/// The work of an invocation, and what is left of it.
#[derive(Clone, Copy, Debug)]
struct Job {
    size: f64,
    left: f64,
}

/// A lower bound of the mean completion on these machines.
#[must_use]
pub fn lower_bound(workload: &Workload, machines: Machines) -> Millis {
    let count = workload.invocations.len();
    if count == 0 {
        return Millis::ZERO;
    }
    let rate = machines.nodes as f64 * machines.memory.get() as f64;
    let mut dates = 0.0;
    let mut left: BinaryHeap<Reverse<(Millis, usize)>> = BinaryHeap::new();
    let mut jobs: Vec<Job> = Vec::with_capacity(count);
    let mut now = 0.0_f64;
    for (at, invocation) in workload.invocations.iter().enumerate() {
        let memory = workload.functions[invocation.function].profile.memory();
        let size = memory.get() as f64 * invocation.execution.get();
        let until = invocation.arrival.get();
        dates += serve(&mut jobs, &mut left, &mut now, until, rate);
        now = now.max(until);
        jobs.push(Job { size, left: size });
        left.push(Reverse((Millis::new(size), at)));
    }
    dates += serve(&mut jobs, &mut left, &mut now, f64::INFINITY, rate);
    let sum = |part: fn(&super::trace::Invocation) -> f64| -> f64 {
        workload.invocations.iter().map(part).sum()
    };
    let executions = sum(|i| i.execution.get());
    let arrivals = sum(|i| i.arrival.get());
    let mean = |sum: f64| Millis::new(sum / count as f64);
    mean(dates + executions / 2.0 - arrivals).max(mean(executions))
}

/// Serves until a time; gives the sum over the work done of its date, each by the invocation's size.
fn serve(
    jobs: &mut [Job],
    left: &mut BinaryHeap<Reverse<(Millis, usize)>>,
    now: &mut f64,
    until: f64,
    rate: f64,
) -> f64 {
    let mut dates = 0.0;
    while *now < until
        && let Some(&Reverse((_, at))) = left.peek()
    {
        let job = &mut jobs[at];
        let ends = *now + job.left / rate;
        let stop = ends.min(until);
        let done = if ends <= until {
            left.pop();
            job.left
        } else {
            (stop - *now) * rate
        };
        dates += done / job.size * f64::midpoint(*now, stop);
        job.left -= done;
        *now = stop;
    }
    dates
}

#[cfg(test)]
mod tests {
    use fdn_core::MebiBytes;
    use fdn_scheduling::invocation::Profile;
    use proptest::prelude::*;

    use super::super::policy::{KeepAliveName, Policy, PolicyName};
    use super::super::trace::{Durations, Function, Invocation};
    use super::super::world::simulate;
    use super::*;

    fn workload(functions: &[(f64, f64, u64)], invocations: &[(f64, usize)]) -> Workload {
        let function = |&(execution, cold, memory): &(f64, f64, u64)| Function {
            name: "f".to_owned(),
            profile: Profile::new(Millis::new(execution), Millis::new(cold), MebiBytes(memory))
                .expect("valid"),
            durations: Durations::new([execution; 7]).expect("valid"),
        };
        let mut invocations: Vec<Invocation> = invocations
            .iter()
            .map(|&(arrival, function)| Invocation {
                arrival: Millis::new(arrival),
                function,
                execution: Millis::new(functions[function].0),
            })
            .collect();
        invocations.sort_by_key(|invocation| invocation.arrival);
        Workload {
            functions: functions.iter().map(function).collect(),
            invocations,
        }
    }

    const ONE: Machines = Machines {
        nodes: 1,
        memory: MebiBytes(2),
    };

    #[test]
    fn the_smaller_interrupts_the_larger() {
        // Work 40 from 0 and work 4 from 10 on a machine of rate 2: 0..10 the first, 10..12 the second, 12..22 the first.
        let workload = workload(&[(20.0, 0.0, 2), (4.0, 0.0, 1)], &[(0.0, 0), (10.0, 1)]);
        let (first, second) = (f64::midpoint(5.0, 17.0) + 10.0, 11.0 + 2.0 - 10.0);
        let bound = lower_bound(&workload, ONE).get();
        assert!(
            (bound - f64::midpoint(first, second)).abs() < 1e-9,
            "{bound}"
        );
        assert_eq!(lower_bound(&Workload::default(), ONE), Millis::ZERO);
    }

    #[test]
    fn nobody_is_done_before_having_executed() {
        // Far more memory than work: the fluid machine is done at once, the executions are not.
        let workload = workload(&[(20.0, 0.0, 1)], &[(0.0, 0), (0.0, 0)]);
        let wide = Machines {
            nodes: 1000,
            memory: MebiBytes(1000),
        };
        assert_eq!(lower_bound(&workload, wide), Millis::new(20.0));
    }

    proptest! {
        #[test]
        fn no_order_comes_below_the_bound(
            functions in prop::collection::vec((1u32..50, 0u32..20, 1u64..=2), 1..4),
            invocations in prop::collection::vec((0u32..200, any::<prop::sample::Index>()), 1..20),
        ) {
            let functions: Vec<_> = functions
                .into_iter()
                .map(|(e, d, r)| (f64::from(e), f64::from(d), r))
                .collect();
            let invocations: Vec<_> = invocations
                .into_iter()
                .map(|(at, which)| (f64::from(at), which.index(functions.len())))
                .collect();
            let workload = workload(&functions, &invocations);
            let bound = lower_bound(&workload, ONE).get();
            for name in [PolicyName::Funcsched, PolicyName::QueueOrCold, PolicyName::Fcfs, PolicyName::Srtf] {
                let policy = Policy::new(name, KeepAliveName::Lru);
                let run = simulate(&workload, ONE, Millis::new(300.0), &policy).expect("it runs");
                prop_assert!(run.completion_ms.mean >= bound - 1e-6, "{name:?}");
            }
        }
    }
}

//! With one pre-scheduler that reads after each commit, the result is the serial scheduler's.

use fdn_core::{MebiBytes, MilliCpu, Millis, Resources};
use fdn_scheduling::commit::{
    Choice, LeastRequested, List, NodeSelection, PreScheduler, Settings, Ties, Verdict, View,
};
use proptest::prelude::*;

use super::{committer, container, rng};

/// A serial scheduler that shares nothing with the crate: least mean share in use after placing, in whole numbers, ties by the
/// smaller node.
struct Serial {
    capacity: Vec<[u64; 2]>,
    used: Vec<[u64; 2]>,
}

impl Serial {
    /// The mean share, times `2 * capacity[0] * capacity[1]`, compares exactly only among nodes of one size; so shares are
    /// compared crosswise.
    fn better(&self, a: usize, b: usize, demand: [u64; 2]) -> bool {
        let share = |n: usize| {
            let [cpu, memory] = [0, 1].map(|class| self.used[n][class] + demand[class]);
            let [whole_cpu, whole_memory] = self.capacity[n];
            (
                cpu * whole_memory + memory * whole_cpu,
                whole_cpu * whole_memory,
            )
        };
        let ((above_a, below_a), (above_b, below_b)) = (share(a), share(b));
        above_a * below_b < above_b * below_a
    }

    fn place(&mut self, demand: [u64; 2]) -> Option<usize> {
        let fits = |n: &usize| {
            (0..2).all(|class| self.used[*n][class] + demand[class] <= self.capacity[*n][class])
        };
        let best = (0..self.capacity.len()).filter(fits).reduce(|best, n| {
            if self.better(n, best, demand) {
                n
            } else {
                best
            }
        })?;
        (0..2).for_each(|class| self.used[best][class] += demand[class]);
        Some(best)
    }
}

fn vector([cpu, memory]: [u64; 2]) -> Resources {
    Resources::new(MilliCpu(cpu), MebiBytes(memory))
}

/// Capacities are powers of two, so that equal shares are equal numbers in floating point too.
fn capacities() -> impl Strategy<Value = Vec<[u64; 2]>> {
    prop::collection::vec(
        (6u32..10, 6u32..10).prop_map(|(a, b)| [1 << a, 1 << b]),
        1..12,
    )
}

proptest! {
    #[test]
    fn one_pre_scheduler_without_working_ahead_is_serial(
        capacity in capacities(),
        demands in prop::collection::vec([1u64..64, 1u64..64], 1..60),
        length in 1usize..5,
    ) {
        let settings = Settings { retries_max: 0, ..Settings::default() };
        let vectors: Vec<Resources> = capacity.iter().copied().map(vector).collect();
        let mut committer = committer(settings, &vectors);
        let mut serial = Serial { used: vec![[0, 0]; capacity.len()], capacity };
        let choice = Choice { length, selection: NodeSelection::All, ties: Ties::Node };
        let mut pre_scheduler = PreScheduler::new(LeastRequested, choice);
        let (mut view, mut list, mut rng) = (View::default(), List::default(), rng(0));
        let mut live: Vec<(u128, usize, [u64; 2])> = Vec::new();
        for (number, demand) in (0u128..).zip(demands) {
            // Every third time something leaves first.
            if number % 3 == 2 && !live.is_empty() {
                let (gone, node, held) = live.swap_remove(number as usize % live.len());
                committer.release(container(gone, vector(held)).id, &mut Vec::new());
                (0..2).for_each(|class| serial.used[node][class] -= held[class]);
            }
            committer.submit(container(number, vector(demand))).expect("room in the queue");
            let assignment = committer.take(Millis::ZERO).expect("pending");
            view.read(committer.store());
            pre_scheduler.list(&assignment, view.records(), &mut rng, &mut list);
            let commit = committer.commit(&list);
            prop_assert_eq!(commit.changed, 0);
            let node = match commit.verdict {
                Verdict::Placed(placed) => Some(placed.node.get()),
                Verdict::Waiting => {
                    committer.release(assignment.container.id, &mut Vec::new());
                    None
                }
                other => return Err(TestCaseError::fail(format!("{other:?}"))),
            };
            prop_assert_eq!(node, serial.place(demand));
            live.extend(node.map(|node| (number, node, demand)));
        }
    }

    /// The committer's own full scan is the same scheduler: with empty lists, every container is placed by it.
    #[test]
    fn a_full_scan_is_serial(
        capacity in capacities(),
        demands in prop::collection::vec([1u64..64, 1u64..64], 1..60),
    ) {
        let settings = Settings { retries_max: 0, ..Settings::default() };
        let vectors: Vec<Resources> = capacity.iter().copied().map(vector).collect();
        let mut committer = committer(settings, &vectors);
        let mut serial = Serial { used: vec![[0, 0]; capacity.len()], capacity };
        for (number, demand) in (0u128..).zip(demands) {
            committer.submit(container(number, vector(demand))).expect("room in the queue");
            let ticket = committer.take(Millis::ZERO).expect("pending").ticket;
            let commit = committer.commit(&List { ticket, entries: Vec::new() });
            prop_assert!(commit.scanned);
            let node = match commit.verdict {
                Verdict::Placed(placed) => Some(placed.node.get()),
                _ => None,
            };
            prop_assert_eq!(node, serial.place(demand));
        }
    }
}

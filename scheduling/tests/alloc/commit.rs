//! Pre-scheduler and committer allocate nothing per list.

use fdn_core::{InstanceId, MebiBytes, MilliCpu, Millis, Resources};
use fdn_scheduling::commit::{
    Choice, Committer, Container, ContainerState, LeastRequested, List, NodeSelection,
    PreScheduler, Settings, Verdict, View,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use uuid::Uuid;

use crate::counting::allocations;

const NODES: u32 = 200;
const CONTAINERS: u128 = 400;

fn container(number: u128) -> Container {
    Container {
        id: InstanceId::from_uuid(Uuid::from_u128(number)),
        demand: Resources::new(MilliCpu(1000), MebiBytes(512)),
    }
}

#[test]
fn taking_listing_and_committing_allocate_nothing() {
    let part = NodeSelection::Part { index: 0, of: 2 };
    for (selection, length) in [
        (NodeSelection::All, 8),
        (NodeSelection::Sample(50), 8),
        (part, 8),
        (NodeSelection::Dealt { hands: 10 }, 8),
        (NodeSelection::All, 0),
    ] {
        let mut committer =
            Committer::new(Settings::default(), LeastRequested).expect("settings of use");
        let mut served = Vec::new();
        for _ in 0..NODES {
            let capacity = Resources::new(MilliCpu(4000), MebiBytes(2048));
            committer.add_node(capacity, &mut served).expect("room");
        }
        let choice = Choice {
            length,
            selection,
            ..Choice::default()
        };
        let mut pre_scheduler = PreScheduler::new(LeastRequested, choice);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let (mut view, mut lists) = (View::default(), vec![List::default(); 2]);
        let mut pass = |committer: &mut Committer<LeastRequested>| {
            for number in 0..CONTAINERS {
                committer.submit(container(number)).expect("room");
            }
            let counted = allocations(|| {
                // Two lists at a time from one view, so that every second one finds its nodes changed.
                while committer.count(ContainerState::Pending) > 0 {
                    view.read(committer.store());
                    for list in &mut lists {
                        let assignment = committer.take(Millis::ZERO).expect("pending");
                        pre_scheduler.list(&assignment, view.records(), &mut rng, list);
                    }
                    for list in &lists {
                        let verdict = committer.commit(list).verdict;
                        assert!(matches!(verdict, Verdict::Placed(_)), "{verdict:?}");
                    }
                }
            });
            for number in 0..CONTAINERS {
                committer.release(container(number).id, &mut served);
            }
            counted
        };
        assert!(pass(&mut committer) > 0, "the first pass makes the buffers");
        assert_eq!(pass(&mut committer), 0, "h = {length}, {selection:?}");
    }
}

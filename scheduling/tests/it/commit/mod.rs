//! Pre-scheduling with one committer.

mod committer;
mod example;
mod oracle;
mod prescheduler;
mod properties;
mod view;

use fdn_core::{InstanceId, MebiBytes, MilliCpu, Millis, Resources};
use fdn_scheduling::commit::{
    Choice, Commit, Committer, Container, LeastRequested, List, NodeIndex, NodeSelection, Placed,
    PreScheduler, Settings, Ties, Verdict, View,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use uuid::Uuid;

/// CPU in cores and memory in GiB.
pub(crate) fn size(cores: u64, gib: u64) -> Resources {
    Resources::new(MilliCpu(1000 * cores), MebiBytes(1024 * gib))
}

/// A container of this number.
pub(crate) fn container(number: u128, demand: Resources) -> Container {
    Container {
        id: InstanceId::from_uuid(Uuid::from_u128(number)),
        demand,
    }
}

fn node(index: u32) -> NodeIndex {
    NodeIndex::new(index)
}

fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// A committer with nodes of these capacities, from place 0 up.
fn committer(settings: Settings, capacities: &[Resources]) -> Committer<LeastRequested> {
    let mut committer = Committer::new(settings, LeastRequested).expect("settings of use");
    for &capacity in capacities {
        committer
            .add_node(capacity, &mut Vec::new())
            .expect("room for a node");
    }
    committer
}

/// A pre-scheduler that breaks ties by node.
fn serial_like(length: usize) -> PreScheduler<LeastRequested> {
    let choice = Choice {
        length,
        selection: NodeSelection::All,
        ties: Ties::Node,
    };
    PreScheduler::new(LeastRequested, choice)
}

/// Takes the next container and lists for it what is best now.
fn next_list(committer: &mut Committer<LeastRequested>, now: f64) -> Option<List> {
    let assignment = committer.take(Millis::new(now))?;
    let (mut view, mut list) = (View::default(), List::default());
    view.read(committer.store());
    serial_like(8).list(&assignment, view.records(), &mut rng(0), &mut list);
    Some(list)
}

fn placed(commit: &Commit) -> Placed {
    match commit.verdict {
        Verdict::Placed(placed) => placed,
        other => panic!("not placed: {other:?}"),
    }
}

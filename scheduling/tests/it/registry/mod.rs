//! What the head of a cluster knows.

mod convergence;
mod recount;
mod steps;

use fdn_core::{InstanceId, MebiBytes, MilliCpu, Millis, Resources, Revision};
use fdn_scheduling::commit::NodeIndex;
use fdn_scheduling::registry::{
    FunctionIndex, InstanceReport, Limits, NodeReport, Profile, Registry, Stamp, State,
};
use uuid::Uuid;

fn id(number: u128) -> InstanceId {
    InstanceId::from_uuid(Uuid::from_u128(number))
}

fn function(index: u32) -> FunctionIndex {
    FunctionIndex::new(index)
}

fn node(index: u32) -> NodeIndex {
    NodeIndex::new(index)
}

fn profile(execution: f64) -> Profile {
    let demand = Resources::new(MilliCpu(100), MebiBytes(128));
    Profile::new(demand, Millis::new(execution), Millis::new(250.0)).expect("times")
}

fn size(cores: u64) -> NodeReport {
    NodeReport {
        capacity: Resources::new(MilliCpu(1000 * cores), MebiBytes(1024)),
        ..NodeReport::default()
    }
}

fn report(number: u128, of: u32, state: State, stamp: Stamp) -> InstanceReport {
    InstanceReport {
        id: id(number),
        function: function(of),
        state,
        stamp,
    }
}

/// A registry with functions 0 and 1, and nodes 0 and 1 at the first change of their first start.
fn registry(limits: Limits) -> Registry {
    let mut registry = Registry::new(limits);
    for index in [0, 1] {
        registry
            .register(function(index), Revision(1), profile(5.0))
            .expect("room");
        registry
            .observe_node(node(index), Stamp::new(1, 1), size(4), &mut Vec::new())
            .expect("room");
    }
    registry
}

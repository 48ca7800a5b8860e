//! How much memory the schedulers of instances take: what is asked of the allocator, nothing of which is asked for later.
#![allow(
    clippy::print_stdout,
    reason = "the figures are for who runs the test to read them"
)]

use fdn_core::{Millis, Resources};
use fdn_scheduling::instance::{
    Demand, Global, GlobalSettings, Limits, Load, Node, NodeIndex, Policy, Settings, Slots,
};

use crate::counting::bytes;

fn node<D: Demand>(limits: Limits, policy: Policy) -> Node<D> {
    let settings = Settings {
        limits,
        ..Settings::for_round_trip(Millis::new(0.5)).with_policy(policy)
    };
    Node::new(NodeIndex(0), 500, D::default(), settings).expect("valid settings")
}

fn global<D: Demand>(nodes: usize, memory_limit: usize) -> Global<D> {
    let settings = GlobalSettings {
        memory_limit,
        ..GlobalSettings::for_round_trip(Millis::new(0.5))
    };
    Global::new(&vec![D::default(); nodes], settings)
}

/// One test, so that nothing else allocates meanwhile.
#[test]
fn what_nodes_and_tasks_take_is_as_stated() {
    let least = Limits {
        queue: 1,
        probing: 1,
        reservations: 1,
        waiters: 1,
        running: 1,
        memory: 1,
    };
    let usual = Limits::default();
    let policy = Policy::LocalProbeGlobal;
    let more = 1 << 16;
    let remembering = Limits {
        memory: more,
        ..least
    };
    let idle = bytes(|| node::<Slots>(least, policy));
    let task = (bytes(|| node::<Slots>(remembering, policy)) - idle) / more;
    let production = bytes(|| node::<Slots>(usual, policy));
    let hinted = bytes(|| {
        let mut node = node::<Slots>(least, Policy::Hints);
        node.snapshot(&[Load::default(); 500]);
        node
    }) - bytes(|| node::<Slots>(least, Policy::Hints));
    let in_view = (bytes(|| global::<Slots>(8192, 1)) - bytes(|| global::<Slots>(4096, 1))) / 4096;
    let in_view_of_resources =
        (bytes(|| global::<Resources>(8192, 1)) - bytes(|| global::<Resources>(4096, 1))) / 4096;
    let placed = (bytes(|| global::<Slots>(1, more)) - bytes(|| global::<Slots>(1, 1))) / more;
    println!("a node with the least limits: {idle} bytes");
    println!("a node with the usual limits: {production} bytes, touched as they are used");
    println!("a task remembered by a node: {task} bytes, index included");
    println!("a snapshot of 500 nodes: {hinted} bytes");
    println!(
        "a node in the view of the global scheduler: {in_view} bytes; of resources {in_view_of_resources}"
    );
    println!("a task remembered by the global scheduler: {placed} bytes, index included");
    assert!(idle <= 2048, "{idle}");
    assert!(task <= 64, "{task}");
    assert!(production <= 8 << 20, "{production}");
    assert!(hinted <= 500 * 8, "{hinted}");
    assert!(in_view <= 128, "{in_view}");
    assert!(in_view_of_resources <= 320, "{in_view_of_resources}");
    assert!(placed <= 80, "{placed}");
}

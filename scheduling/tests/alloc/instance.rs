//! The schedulers of instances take their memory at the start, and decide without allocating.

use fdn_core::Millis;

#[path = "../it/instances/loopback.rs"]
mod loopback;

use crate::counting::allocations;
use loopback::Loopback;

#[test]
fn no_decision_allocates() {
    use fdn_scheduling::instance::Policy;
    for policy in [
        Policy::LocalProbeGlobal,
        Policy::Hints,
        Policy::BottomUp,
        Policy::ReProbing,
        Policy::LateBinding,
    ] {
        let mut cluster = Loopback::new(policy, 50, 20, Millis::new(13.0));
        cluster.run(100_000);
        let started = cluster.started();
        let counted = allocations(|| cluster.run(20_000));
        // With late binding some questions wait.
        let started = cluster.started() - started;
        assert!((19_900..20_100).contains(&started), "{policy:?}: {started}");
        assert_eq!(counted, 0, "{policy:?}: in some 100 000 decisions");
    }
}

//! The experiment on the distance to the optimum, at a small size.

use fdn_sim::paper::{ALL, Context, Effort};
use fdn_sim::progress::Silent;

#[test]
fn every_optimum_is_proven_and_nothing_is_better() {
    let find = ALL.iter().find(|experiment| experiment.name() == "optimum");
    let context = Context {
        data: None,
        effort: Effort::Quick,
        progress: &Silent,
    };
    let outcome = find.expect("it is listed").run(&context);
    let outcome = outcome.expect("random jobs need no file");
    let gate = |what: &str| {
        let found = outcome.gates.iter().find(|gate| gate.what.contains(what));
        found.expect("the gate is there")
    };
    assert_eq!(gate("optima proven").measured, 1.0);
    assert!(gate("nodes").holds);
    let beside_optimum = outcome
        .gates
        .iter()
        .filter(|gate| gate.what.ends_with("/ optimum"));
    assert!(beside_optimum.clone().count() >= 12);
    for gate in beside_optimum {
        assert!(
            gate.measured >= 1.0 - 1e-9,
            "{}: {}",
            gate.what,
            gate.measured
        );
    }
    assert!(gate("1000 tasks").measured < 1.0, "insertion gains");
    assert_eq!(outcome.plots.len(), 2);
    assert!(outcome.plots.iter().all(|plot| plot.svg().is_ok()));
    assert!(
        outcome.notes[0].contains("left out"),
        "no traces were named"
    );
}

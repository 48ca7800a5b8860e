//! The experiment on the distance to the optimum, at a small size.

use fdn_sim::paper::{ALL, Context, Effort};
use fdn_sim::progress::Silent;
use fdn_sim::report::Outcome;

fn quick() -> Outcome {
    let find = ALL.iter().find(|experiment| experiment.name() == "optimum");
    let context = Context {
        data: None,
        effort: Effort::Quick,
        progress: &Silent,
    };
    let outcome = find.expect("it is listed").run(&context);
    outcome.expect("random jobs need no file")
}

#[test]
fn every_optimum_is_proven_and_nothing_is_better() {
    let outcome = quick();
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

#[test]
fn it_repeats_whatever_the_number_of_threads() {
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let alone = one.expect("a thread").install(quick);
    assert_eq!(quick().tables, alone.tables);
    assert_eq!(quick().gates, alone.gates);
}

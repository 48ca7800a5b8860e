//! Pre-schedulers side by side and one committer.

use fdn_core::{Coded, ErrorCode, Millis};
use fdn_scheduling::commit::{Choice, NodeSelection, Ties};
use fdn_sim::optimistic::{Load, Setup, Start, Way, run, run_serially};
use fdn_sim::seed::Seed;

fn setup(way: Way, pre_schedulers: u32) -> Setup {
    Setup {
        pre_schedulers,
        choice: way.choice(5),
        utilization: 0.4,
        ..Setup::default()
    }
}

/// 100 containers of 200 ms each.
fn hundred(pre_schedulers: u32, list_cost: f64) -> Setup {
    Setup {
        pre_schedulers,
        demand_max: 1,
        utilization: 0.002,
        scoring: Millis::new(200.0),
        list_cost: Millis::new(list_cost),
        changed_cost: Millis::ZERO,
        start: Start::Together,
        ..Setup::default()
    }
}

#[test]
fn the_cost_model_is_t_plus_n_times_r_against_n_times_t() {
    let time = |setup: &Setup| run(setup).expect("a setup of use").time_ms;
    assert_eq!(time(&hundred(100, 50.0)), 5200.0);
    assert_eq!(time(&hundred(100, 5.0)), 700.0);
    let serial = run_serially(&hundred(1, 5.0)).expect("a setup of use");
    assert_eq!(serial.time_ms, 20_000.0);
}

#[test]
fn always_the_best_conflicts_always_and_random_ties_seldom() {
    let share = |way, k| run(&setup(way, k)).expect("a setup of use").top_changed;
    for k in [1, 16] {
        assert!(share(Way::Best, k) > 0.98);
    }
    for (way, published) in [(Way::BestRandom, 0.49), (Way::Sample, 0.63)] {
        let share = share(way, 16);
        assert!((share - published).abs() < 0.06, "{way:?}: {share}");
    }
    assert!(share(Way::SampleRandom, 16) < 0.45);
}

#[test]
fn with_a_bound_on_lists_in_flight_more_pre_schedulers_than_the_committer_can_serve_do_no_harm() {
    let rate = |setup: &Setup| run(setup).expect("a setup of use").placed_per_s;
    let free = setup(Way::BestRandom, 128);
    let bounded = free.with_back_pressure();
    assert_eq!(bounded.in_flight_max, Some(44));
    // The committer can do 22 222 lists per second of which all entries have changed.
    assert!(rate(&bounded) > 20_000.0);
    assert!(rate(&free) < 10_000.0);
}

#[test]
fn without_conflicts_the_nodes_are_as_even_as_a_serial_scheduler_leaves_them() {
    let setup = setup(Way::Best, 1);
    let serial = run_serially(&setup).expect("a setup of use");
    let one = run(&setup).expect("a setup of use");
    assert!((one.spread / serial.spread - 1.0).abs() < 0.02);
    let many = run(&Setup {
        pre_schedulers: 32,
        ..setup
    });
    assert!(many.expect("a setup of use").spread > 3.0 * serial.spread);
}

#[test]
fn a_steady_load_keeps_the_nodes_in_use() {
    let steady = Setup {
        load: Load::Steady,
        utilization: 0.7,
        lists: 4000,
        ..setup(Way::SampleRandom, 8)
    };
    let outcome = run(&steady).expect("a setup of use");
    assert!((outcome.utilization - 0.7).abs() < 0.03, "{outcome:?}");
    assert!(
        (outcome.placed_per_s / 4000.0 - 1.0).abs() < 0.02,
        "{outcome:?}"
    );
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_another() {
    let of = |seed| {
        let setup = Setup {
            seed: Seed(seed),
            ..setup(Way::SampleRandom, 32)
        };
        run(&setup).expect("a setup of use")
    };
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn what_cannot_be_used_is_refused() {
    let good = Setup::default();
    let empty_list = Choice {
        length: 0,
        selection: NodeSelection::All,
        ties: Ties::Random,
    };
    let bad = [
        Setup { nodes: 0, ..good },
        Setup {
            utilization: 1.0,
            ..good
        },
        Setup {
            pre_schedulers: 0,
            ..good
        },
        Setup {
            demand_max: 101,
            ..good
        },
        Setup {
            scoring: Millis::ZERO,
            ..good
        },
        Setup { lists: 0, ..good },
        Setup {
            choice: empty_list,
            ..good
        },
    ];
    for setup in bad {
        let error = run(&setup).expect_err("not usable");
        assert_eq!(error.code(), ErrorCode::BadRequest, "{error}");
    }
}

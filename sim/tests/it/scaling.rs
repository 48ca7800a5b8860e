//! `fdn sim scaling`, and the world behind it.

use clap::Parser;
use fdn_core::Millis;
use fdn_sim::command::{Command, run};
use fdn_sim::progress::Silent;
use fdn_sim::scaling::{Outcome, Scheduler, Setup, full_share, simulate};
use fdn_sim::seed::Seed;

#[derive(Debug, Parser)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

fn command(args: &str) -> Result<String, String> {
    let words = std::iter::once("sim").chain(args.split_whitespace());
    let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    run(&line.command, &mut out, &Silent).map_err(|error| error.to_string())?;
    String::from_utf8(out).map_err(|error| error.to_string())
}

const ALL: [Scheduler; 6] = [
    Scheduler::LocalProbeGlobal,
    Scheduler::Hints,
    Scheduler::BottomUp,
    Scheduler::ReProbing,
    Scheduler::LateBinding,
    Scheduler::Central,
];

fn small(scheduler: Scheduler) -> Setup {
    Setup {
        scheduler,
        nodes: 100,
        rate_per_s: 20_000.0,
        tasks: 40_000,
        warm_up: 0.25,
        utilization: 0.9,
        ..Setup::default()
    }
}

fn of(setup: &Setup) -> Outcome {
    simulate(setup).expect("a run without a broken rule")
}

#[test]
fn the_command_prints_json_with_units_and_the_same_twice() {
    let args = "scaling --nodes 50 --utilization 0.9 --rate 10000 --tasks 5000 --scheduler hints \
        --delay-us 100 --slots 10 --loss 0.01 --duplicate 0.01 --seed 7 -o json";
    let text = command(args).expect("a result");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["scheduler"], "hints");
    assert_eq!(json["tasks"], 5000);
    assert_eq!(json["measured"], 4000);
    for key in ["mean_ms", "p50_ms", "p99_ms", "max_ms"] {
        assert!(
            json["latency"][key].as_f64().expect("a number") > 0.1,
            "{key}"
        );
    }
    let placed = json["placed"].as_u64().expect("a count");
    assert_eq!(placed + json["refused"].as_u64().expect("a count"), 5000);
    assert_eq!(command(args).as_ref(), Ok(&text), "byte for byte");
    let table = command(&args.replace("-o json", "")).expect("a table");
    assert!(
        table.contains("latency p99 ms") && table.contains("sustained"),
        "{table}"
    );
}

#[test]
fn what_cannot_be_simulated_is_named() {
    let error = |args: &str| command(args).expect_err("refused");
    assert_eq!(error("scaling --nodes 0"), "nodes must be at least 1");
    assert_eq!(error("scaling --loss 1"), "loss must be from 0 to below 1");
    assert_eq!(
        error("scaling --utilization 2"),
        "utilization must be above 0 and at most 1.5"
    );
    assert_eq!(error("scaling --rate 0"), "rate must be above 0");
    assert_eq!(
        error("scaling --lost-nodes 500"),
        "at least one node must remain"
    );
    assert!(error("scaling --scheduler magic").contains("local-probe-global"));
}

#[test]
fn every_scheduler_places_everything_it_can_sustain() {
    for scheduler in ALL {
        let found = of(&small(scheduler));
        assert_eq!(
            (found.placed, found.refused, found.waiting),
            (40_000, 0, 0),
            "{scheduler:?}"
        );
        assert_eq!(found.stages.total(), 30_000);
        let off = found.utilization_measured - 0.9;
        assert!(off.abs() < 0.03, "{scheduler:?}: {off}");
    }
}

#[test]
fn latencies_are_made_of_hops_and_work() {
    // 0.26 ms per message with its work: arrival; arrival, probe, answer, task; arrival, probe, answer, forward, decision, task.
    let found = of(&small(Scheduler::LocalProbeGlobal));
    assert!((found.latency.p50_ms - 0.26).abs() < 1e-9);
    let found = of(&Setup {
        utilization: 0.6,
        ..small(Scheduler::Central)
    });
    assert!((0.535..0.6).contains(&found.latency.p50_ms), "{found:?}");
}

#[test]
fn a_centre_saturates_where_its_decisions_take_all_the_time() {
    let at = |rate_per_s| {
        of(&Setup {
            rate_per_s,
            ..small(Scheduler::Central)
        })
    };
    assert!(at(36_000.0).sustained);
    assert!(!at(44_000.0).sustained, "25 µs each");
}

/// No rule is broken and no task is lost on a bad network with lost nodes and heads.
fn rough(scheduler: Scheduler, tasks: u64, seed: u64) {
    let found = of(&Setup {
        utilization: 0.8,
        tasks,
        loss: 0.02,
        duplicate: 0.02,
        lost_nodes: 3,
        lost_heads: 2,
        delay: Millis::new(0.1),
        seed: Seed(seed),
        ..small(scheduler)
    });
    assert_eq!((found.placed, found.refused), (tasks, 0), "{scheduler:?}");
}

#[test]
fn a_rough_network_with_lost_nodes_breaks_no_rule_and_loses_no_task() {
    for scheduler in ALL {
        rough(scheduler, 20_000, 0);
    }
}

#[test]
fn seeds_differ_and_repeat() {
    let run = |seed| {
        of(&Setup {
            seed: Seed(seed),
            tasks: 5_000,
            ..small(Scheduler::LocalProbeGlobal)
        })
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

mod soak {
    use super::*;

    #[test]
    fn a_rough_network_breaks_no_rule_whatever_the_seed() {
        for scheduler in ALL {
            for seed in 1..10 {
                rough(scheduler, 20_000, seed);
            }
        }
    }

    #[test]
    fn full_nodes_are_as_many_as_erlang_s_formula_says() {
        for (utilization, tolerance) in [(0.8, 0.1), (0.9, 0.1)] {
            let found = of(&Setup {
                utilization,
                tasks: 150_000,
                ..Setup::default()
            });
            let expected = full_share(20, utilization);
            let ratio = found.local_failed / expected;
            assert!((ratio - 1.0).abs() < tolerance, "{utilization}: {ratio}");
            // Both probes meet full nodes, but for the ones the global scheduler has just helped.
            let cubed = found.reached_global / expected.powi(3);
            assert!((cubed - 1.0).abs() < 0.25, "{utilization}: {cubed}");
        }
    }

    #[test]
    fn probes_sustain_more_than_twice_as_much_as_bottom_up_and_hints_more_than_both() {
        let p99 = |scheduler, rate_per_s| {
            let setup = Setup {
                scheduler,
                rate_per_s,
                nodes: 500,
                utilization: 0.95,
                tasks: 60_000,
                ..Setup::default()
            };
            of(&setup).latency.p99_ms
        };
        assert!(p99(Scheduler::LocalProbeGlobal, 100_000.0) <= 2.0);
        assert!(p99(Scheduler::LocalProbeGlobal, 250_000.0) <= 5.0);
        assert!(p99(Scheduler::BottomUp, 125_000.0) > 5.0);
        assert!(p99(Scheduler::Hints, 800_000.0) <= 2.5);
        assert!(p99(Scheduler::LocalProbeGlobal, 800_000.0) > 5.0);
    }

    #[test]
    fn the_experiments_run_in_a_quick_form() {
        let text = command("paper --quick --only e3 --only hints").expect("a report");
        for part in [
            "Share of tasks by stage",
            "p99 in ms at 100 000/s",
            "p99 and messages at utilization 0.95",
            "Gates",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}

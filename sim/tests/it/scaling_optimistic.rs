//! The scheduler `optimistic` in the scaling world.

use clap::Parser;
use fdn_core::Millis;
use fdn_sim::command::Command;
use fdn_sim::progress::Silent;
use fdn_sim::scaling::{Outcome, Scheduler, Setup, simulate};

fn setup(rate_per_s: f64) -> Setup {
    Setup {
        scheduler: Scheduler::Optimistic,
        rate_per_s,
        tasks: 20_000,
        ..Setup::default()
    }
}

fn run(setup: &Setup) -> Outcome {
    simulate(setup).expect("no rule is broken")
}

#[test]
fn a_task_takes_two_messages_a_scoring_and_a_commit() {
    let outcome = run(&setup(10_000.0));
    // 0.25 ms to the head, 2 ms scoring, at least 20 us for the list, 0.25 ms to the node, 10 us there.
    let least = 0.25 + 2.0 + 0.02 + 0.25 + 0.01;
    assert!(outcome.latency.p50_ms >= least - 1e-9 && outcome.latency.p50_ms < least + 0.03);
    assert!(outcome.sustained && outcome.latency.p99_ms < least + 0.2);
    assert_eq!((outcome.placed, outcome.stages.commit), (20_000, 16_000));
    assert_eq!(
        (outcome.messages_per_task, outcome.reached_global),
        (1.0, 1.0)
    );
    assert!((outcome.utilization_measured - 0.95).abs() < 0.02);
}

#[test]
fn the_committer_bounds_the_rate_and_quicker_schedulers_raise_it() {
    assert!(run(&setup(20_000.0)).sustained);
    assert!(!run(&setup(40_000.0)).sustained);
    // What this project's own pre-scheduler and committer take.
    let quick = Setup {
        scoring: Millis::new(0.02),
        list_cost: Millis::new(0.001),
        changed_cost: Millis::ZERO,
        pre_schedulers: 8,
        ..setup(100_000.0)
    };
    let outcome = run(&quick);
    assert!(
        outcome.sustained && outcome.latency.p99_ms < 0.6,
        "{outcome:?}"
    );
}

#[test]
fn tasks_survive_lost_and_doubled_messages_and_lost_nodes() {
    let rough = Setup {
        loss: 0.02,
        duplicate: 0.05,
        lost_nodes: 20,
        utilization: 0.8,
        ..setup(10_000.0)
    };
    // That no task is started twice is a rule of the simulation itself.
    let outcome = run(&rough);
    assert_eq!((outcome.placed, outcome.waiting), (20_000, 0));
}

#[test]
fn overload_waits_for_room_and_never_overfills_a_node() {
    let overload = Setup {
        utilization: 1.2,
        ..setup(10_000.0)
    };
    let outcome = run(&overload);
    assert!(outcome.utilization_measured <= 1.0 && outcome.utilization_measured > 0.97);
    assert!(!outcome.sustained);
    assert_eq!(outcome.refused, 0);
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    assert_eq!(run(&setup(10_000.0)), run(&setup(10_000.0)));
}

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[test]
fn the_command_knows_the_scheduler_and_its_settings() {
    let words = "fdn scaling --scheduler optimistic --rate 5000 --tasks 2000 --pre-schedulers 16 \
                 --scoring-us 1000 --list-us 10 -o json";
    let cli = Cli::try_parse_from(words.split_whitespace()).expect("known flags");
    let mut out = Vec::new();
    fdn_sim::command::run(&cli.command, &mut out, &Silent).expect("it runs");
    let json: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(json["scheduler"], "optimistic");
    assert_eq!(
        (json["placed"].as_u64(), json["sustained"].as_bool()),
        (Some(2000), Some(true))
    );
}

//! Autoscaler and keep-alive policy on the same containers.

use fdn_core::{MebiBytes, Millis};
use fdn_scheduling::invocation::Profile;
use fdn_scheduling::scale::Settings;
use fdn_sim::invocations::{
    Durations, Function, Invocation, KeepAliveName, Machines, Policy, PolicyName, Scaled, Scaling,
    Workload, simulate, simulate_scaled,
};

const TICK: Millis = Millis::new(2000.0);
const SPAN: Millis = Millis::new(300_000.0);
const MACHINES: Machines = Machines {
    nodes: 1,
    memory: MebiBytes(2048),
};

/// Functions of 100 ms, which load for 1 s and take 512 MiB; invocations by when they come and of which function they are.
fn workload(invocations: &[(f64, usize)]) -> Workload {
    let function = |name: &str| Function {
        name: name.to_owned(),
        profile: Profile::new(Millis::new(100.0), Millis::new(1000.0), MebiBytes(512))
            .expect("valid"),
        durations: Durations::new([100.0; 7]).expect("valid"),
    };
    let invocation = |&(arrival, function): &(f64, usize)| Invocation {
        arrival: Millis::new(arrival),
        function,
        execution: Millis::new(100.0),
    };
    Workload {
        functions: ["a", "b", "c"].map(function).to_vec(),
        invocations: invocations.iter().map(invocation).collect(),
    }
}

fn play(workload: &Workload, keep: KeepAliveName, ms: f64, scaler: bool) -> Scaled {
    let mut policy = Policy::new(PolicyName::QueueOrCold, keep);
    policy.keep = Millis::new(ms);
    let scaling = scaler.then(|| Scaling {
        settings: Settings::default(),
        tick: TICK,
    });
    simulate_scaled(workload, MACHINES, SPAN, &policy, scaling).expect("no rule is broken")
}

/// Within the grace, and long after it.
const THRICE: [(f64, usize); 3] = [(0.0, 0), (30_000.0, 0), (200_000.0, 0)];

#[test]
fn the_scaler_alone_keeps_a_container_for_its_grace() {
    let workload = workload(&THRICE);
    let neither = play(&workload, KeepAliveName::Fixed, 0.0, false);
    assert_eq!((neither.run.cold_starts, neither.alive_ms), (3, 3300.0));
    let scaler = play(&workload, KeepAliveName::Fixed, 0.0, true);
    assert_eq!(scaler.run.cold_starts, 2);
    assert_eq!(scaler.run.completion_ms.max, 1100.0);
    // To the second end, the grace after it, at most three ticks and a bucket, and the third invocation.
    let idle = scaler.alive_ms - 30_100.0 - 1100.0;
    assert!((58_000.0..=68_000.0).contains(&idle), "{idle}");
    assert_eq!(scaler.flaps, 0);
}

#[test]
fn what_either_wants_is_kept() {
    let workload = workload(&THRICE);
    // The policy keeps the container for ever, and the scaler wants no other.
    let alone = play(&workload, KeepAliveName::Lru, 0.0, false);
    let both = play(&workload, KeepAliveName::Lru, 0.0, true);
    assert_eq!((alone.run.cold_starts, alone.alive_ms), (1, 200_100.0));
    assert_eq!((both.run.cold_starts, both.alive_ms), (1, 200_100.0));
    // The policy lets it go after 10 s, the scaler after its grace.
    let policy = play(&workload, KeepAliveName::Fixed, 10_000.0, false);
    let both = play(&workload, KeepAliveName::Fixed, 10_000.0, true);
    let scaler = play(&workload, KeepAliveName::Fixed, 0.0, true);
    let cold = [&policy, &scaler, &both].map(|scaled| scaled.run.cold_starts);
    assert_eq!(cold, [3, 2, 2]);
    assert!(both.alive_ms >= policy.alive_ms && both.alive_ms >= scaler.alive_ms);
}

#[test]
fn more_at_once_than_the_policy_has_seen_are_loaded_ahead() {
    // One every 50 ms for 20 s, of 100 ms each: two at once, and more with the headroom.
    let steady: Vec<_> = (0..400).map(|n| (f64::from(n) * 50.0, 0)).collect();
    let mut burst = steady;
    // Then three at a time.
    burst.extend((0..50).flat_map(|n| [(20_000.0 + f64::from(n) * 200.0, 0); 3]));
    let workload = workload(&burst);
    let alone = play(&workload, KeepAliveName::Lru, 0.0, false);
    let both = play(&workload, KeepAliveName::Lru, 0.0, true);
    assert_eq!(alone.run.prewarmed, 0);
    assert!(both.run.cold_starts <= alone.run.cold_starts);
    assert_eq!(both.flaps, 0);
}

#[test]
fn without_a_scaler_it_is_the_run_and_with_one_it_repeats() {
    let mixed: Vec<_> = (0..600u32)
        .map(|n| {
            (
                f64::from(n * 37 % 97) + f64::from(n) * 90.0,
                (n * n % 7 % 3) as usize,
            )
        })
        .collect();
    let mut workload = workload(&mixed);
    workload.invocations.sort_by_key(|i| i.arrival);
    for keep in [
        KeepAliveName::Fixed,
        KeepAliveName::Lru,
        KeepAliveName::Gdsf,
        KeepAliveName::Hist,
    ] {
        let policy = Policy::new(PolicyName::QueueOrCold, keep);
        let run = simulate(&workload, MACHINES, SPAN, &policy).expect("no rule is broken");
        let off = play(&workload, keep, policy.keep.get(), false);
        assert_eq!((off.run, off.flaps, off.reversals), (run, 0, 0));
        let on = play(&workload, keep, policy.keep.get(), true);
        assert_eq!(on.run.invocations, 600);
        let busy = 100.0 * 600.0 + 1000.0 * on.run.cold_starts as f64;
        assert!(on.alive_ms >= busy - 1e-3, "{} of {busy}", on.alive_ms);
        assert!(on.alive_ms <= 4.0 * on.run.end_ms, "four fit");
        assert_eq!(play(&workload, keep, policy.keep.get(), true), on);
    }
}

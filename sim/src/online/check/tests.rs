use std::sync::Arc;

use fdn_core::{MebiBytes, MilliCpu};
use fdn_scheduling::dag::DagBuilder;
use fdn_scheduling::place::Network;

use super::*;
use crate::generate::Sites;
use crate::online::{Conditions, Job};
use crate::seed::Seed;

/// Two clusters of 5 GiB and speed 1, and two jobs of one container each, which takes 3 GiB and 10 ms.
fn scenario(changes: &[(f64, usize, Change)]) -> Scenario {
    let sites = Sites {
        clusters: 2,
        slots: 2,
        speeds: 1..=1,
        distance: Millis::ZERO,
    };
    let room = Resources::new(MilliCpu(0), MebiBytes(5 * 1024));
    let clusters = sites.draw(Seed(0)).into_iter();
    let mut builder = DagBuilder::new();
    let demand = Resources::new(MilliCpu(0), MebiBytes(3 * 1024));
    builder.task("only", Millis::new(10.0), demand);
    let job = Job {
        at: Millis::ZERO,
        dag: Arc::new(builder.build().expect("a DAG")),
        distance: vec![Millis::ZERO; 2],
    };
    let change =
        |(at, p, change): &(f64, usize, Change)| (Millis::new(*at), ClusterIndex::new(*p), *change);
    let conditions = Conditions {
        changes: changes.iter().map(change).collect(),
        ..Conditions::default()
    };
    let clusters = clusters.map(|cluster| cluster.with_free(room)).collect();
    let jobs = vec![job.clone(), job];
    Scenario::new(clusters, Network::instant(2), jobs, conditions, Seed(0))
}

/// Job, cluster, slot, start, end.
type Given = (usize, usize, u32, f64, f64, End);

fn schedule(runs: &[Given]) -> Schedule {
    let ran = |(job, p, slot, start, end, how): &Given| Ran {
        job: *job,
        task: TaskIndex::new(0),
        cluster: ClusterIndex::new(*p),
        slot: *slot,
        start: Millis::new(*start),
        end: Millis::new(*end),
        how: *how,
    };
    Schedule {
        runs: runs.iter().map(ran).collect(),
        latency: vec![Some(Millis::new(1.0)); 2],
        bindings: 2,
    }
}

fn holds_too_much(scenario: &Scenario, runs: &[Given], hold: Hold) -> bool {
    match check(scenario, &schedule(runs), hold) {
        Ok(()) => false,
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("holds 0m CPU, 6144 MiB"), "{text}");
            true
        }
    }
}

const LOST: (f64, usize, Change) = (6.0, 0, Change::Lost);
const RETURNED: (f64, usize, Change) = (20.0, 0, Change::Returned);

/// What a paused container holds is gone with its cluster: it takes it again when it begins anew.
#[test]
fn what_is_paused_holds_nothing_once_its_cluster_was_lost() {
    let anew = [
        (0, 0, 0, 0.0, 4.0, End::Paused),
        (1, 0, 0, 20.0, 30.0, End::Finished),
        (0, 0, 0, 30.0, 40.0, End::Finished),
    ];
    let elsewhere = [
        (0, 0, 0, 0.0, 4.0, End::Paused),
        (1, 1, 0, 0.0, 10.0, End::Finished),
        (0, 1, 0, 10.0, 20.0, End::Finished),
    ];
    for runs in [anew, elsewhere] {
        assert!(!holds_too_much(
            &scenario(&[LOST, RETURNED]),
            &runs,
            Hold::Task
        ));
    }
}

#[test]
fn what_is_paused_holds_what_it_has_until_it_goes_on_or_its_cluster_is_lost() {
    let goes_on = [
        (0, 0, 0, 0.0, 4.0, End::Paused),
        (1, 0, 0, 4.0, 14.0, End::Finished),
        (0, 0, 0, 14.0, 20.0, End::Finished),
    ];
    assert!(holds_too_much(&scenario(&[]), &goes_on, Hold::Task));
    // Another cluster's loss, one before the pause and one after the end change nothing.
    for other in [(6.0, 1), (0.0, 0), (20.5, 0)] {
        let changes = [
            (other.0, other.1, Change::Lost),
            (30.0, other.1, Change::Returned),
        ];
        assert!(holds_too_much(&scenario(&changes), &goes_on, Hold::Task));
    }
    // Beside it runs another until the loss: too much, then.
    let beside = [
        (0, 0, 0, 0.0, 4.0, End::Paused),
        (1, 0, 1, 5.0, 6.0, End::Lost),
        (1, 0, 0, 20.0, 30.0, End::Finished),
        (0, 0, 0, 30.0, 40.0, End::Finished),
    ];
    assert!(holds_too_much(
        &scenario(&[LOST, RETURNED]),
        &beside,
        Hold::Task
    ));
}

#[test]
fn what_ends_as_its_cluster_changes_ended_after_the_change() {
    let changes = [LOST, (6.0, 0, Change::Returned)];
    let paused_at_the_loss = [
        (0, 0, 0, 6.0, 6.0, End::Paused),
        (1, 0, 0, 6.0, 16.0, End::Finished),
        (0, 0, 0, 16.0, 26.0, End::Finished),
    ];
    assert!(holds_too_much(
        &scenario(&changes),
        &paused_at_the_loss,
        Hold::Task
    ));
    let resumed_at_the_loss = [
        (0, 0, 0, 0.0, 4.0, End::Paused),
        (0, 0, 0, 6.0, 16.0, End::Finished),
        (1, 0, 0, 16.0, 26.0, End::Finished),
    ];
    assert!(!holds_too_much(
        &scenario(&changes),
        &resumed_at_the_loss,
        Hold::Task
    ));
}

/// Two containers of one job would have to hold to the end of the job; these jobs have one each, so theirs ends with it.
#[test]
fn what_is_held_to_the_end_of_a_job_is_held_until_then_or_the_loss() {
    let one_after_the_other = [
        (0, 0, 0, 0.0, 10.0, End::Finished),
        (1, 0, 0, 10.0, 20.0, End::Finished),
    ];
    assert!(!holds_too_much(
        &scenario(&[]),
        &one_after_the_other,
        Hold::Job
    ));
    let side_by_side = [
        (0, 0, 0, 0.0, 10.0, End::Finished),
        (1, 0, 1, 9.0, 19.0, End::Finished),
    ];
    assert!(holds_too_much(&scenario(&[]), &side_by_side, Hold::Job));
}

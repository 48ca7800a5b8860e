//! Worked examples with the state machine, action by action.

use std::sync::Arc;

use fdn_core::{Coded, ErrorCode, Millis};
use fdn_scheduling::dag::{Dag, TaskIndex, Transfer};
use fdn_scheduling::online::{
    Action, Delivery, Event, Handled, Input, JobRef, Limits, Online, Order, Refused, RunRef,
    Settings,
};
use fdn_scheduling::place::{Cluster, ClusterIndex, Hold, Network, Slots, Speed};

use crate::instance::{dag, id, mib, ms};

type Machine = Online<Arc<Dag>>;

fn cluster(name: &str, speed: f64, slots: usize) -> Cluster {
    Cluster::new(id(name), Speed::new(speed), slots)
}

fn machine(settings: Settings, clusters: &[Cluster]) -> Machine {
    Online::new(settings, clusters, Network::instant(clusters.len())).expect("consistent")
}

/// Tasks one after the other, nothing to transfer.
fn chain(tasks: &[(f64, u64)]) -> Arc<Dag> {
    let edges: Vec<_> = (1..tasks.len())
        .map(|n| (n - 1, n, Transfer::Fixed(ms(1.0))))
        .collect();
    Arc::new(dag(tasks, &edges))
}

/// Sends a job from next door; what follows at once is that its first container is bound.
fn send(machine: &mut Machine, now: f64, job: &Arc<Dag>) -> (JobRef, Vec<Action>) {
    let mut actions = Vec::new();
    let distance = vec![Millis::ZERO; 2];
    let job = machine
        .arrive(ms(now), Arc::clone(job), &distance, &mut actions)
        .expect("there is room");
    (job, actions)
}

fn tell(machine: &mut Machine, now: f64, event: Event) -> Vec<Action> {
    let mut actions = Vec::new();
    assert_eq!(
        machine.apply(ms(now), event, &mut actions),
        Handled::Applied
    );
    actions
}

fn run(job: JobRef, task: usize, attempt: u32) -> RunRef {
    RunRef {
        job,
        task: TaskIndex::new(task),
        attempt,
    }
}

fn start(run: RunRef, cluster: usize, slot: u32, until: f64) -> Action {
    Action::Start {
        run,
        cluster: ClusterIndex::new(cluster),
        slot,
        until: ms(until),
    }
}

fn bind(run: RunRef, cluster: usize, expected: f64) -> Action {
    Action::Bind {
        run,
        cluster: ClusterIndex::new(cluster),
        input: Input::Expected(ms(expected)),
    }
}

fn pair() -> [Cluster; 2] {
    [cluster("a", 1.0, 1), cluster("b", 2.0, 1)]
}

#[test]
fn a_job_goes_its_way() {
    let mut machine = machine(Settings::late_fifo(), &pair());
    let (job, actions) = send(&mut machine, 5.0, &chain(&[(8.0, 0), (2.0, 0)]));
    let (first, second) = (run(job, 0, 0), run(job, 1, 0));
    assert_eq!(actions, [bind(first, 1, 5.0)]);
    assert_eq!(
        tell(&mut machine, 5.0, Event::Delivered(first)),
        [start(first, 1, 0, 9.0)]
    );
    // It takes a little longer. Its child is bound where its data is, and starts at once.
    let here = Action::Bind {
        run: second,
        cluster: ClusterIndex::new(1),
        input: Input::Here,
    };
    let after = tell(&mut machine, 9.5, Event::Finished(first));
    assert_eq!(after, [here, start(second, 1, 0, 10.5)]);
    assert_eq!(
        tell(&mut machine, 10.5, Event::Finished(second)),
        [Action::Done(job)]
    );
    assert_eq!(machine.jobs(), 0);
}

#[test]
fn what_is_told_twice_or_of_the_past_changes_nothing() {
    let mut machine = machine(Settings::late_fifo(), &pair());
    let (job, _) = send(&mut machine, 0.0, &chain(&[(8.0, 0)]));
    let first = run(job, 0, 0);
    let mut actions = Vec::new();
    let mut stale = |machine: &mut Machine, event| {
        assert_eq!(machine.apply(ms(9.0), event, &mut actions), Handled::Stale);
        assert!(actions.is_empty());
    };
    stale(&mut machine, Event::Finished(first));
    tell(&mut machine, 0.0, Event::Delivered(first));
    stale(&mut machine, Event::Delivered(first));
    stale(&mut machine, Event::Finished(run(job, 0, 1)));
    stale(&mut machine, Event::Finished(run(job, 7, 0)));
    tell(&mut machine, 4.0, Event::Finished(first));
    stale(&mut machine, Event::Finished(first));
    stale(&mut machine, Event::Cancelled(job));
    let (next, _) = send(&mut machine, 5.0, &chain(&[(8.0, 0)]));
    assert_eq!((next.place(), next == job), (job.place(), false));
    stale(&mut machine, Event::Delivered(first));
    let far = ClusterIndex::new(9);
    stale(&mut machine, Event::Lost(far));
    stale(&mut machine, Event::Returned(ClusterIndex::new(0)));
    stale(&mut machine, Event::SpeedChanged(far, Speed::new(1.0)));
    stale(
        &mut machine,
        Event::SlotFreed {
            cluster: far,
            slot: 0,
        },
    );
    stale(
        &mut machine,
        Event::SlotFreed {
            cluster: ClusterIndex::new(0),
            slot: 0,
        },
    );
}

#[test]
fn the_bounds_refuse_the_next_job_and_nothing_else() {
    let limits = Limits { jobs: 2, tasks: 5 };
    let settings = Settings {
        limits,
        ..Settings::late_fifo()
    };
    let mut machine = machine(settings, &pair());
    let mut actions = Vec::new();
    let (first, _) = send(&mut machine, 0.0, &chain(&[(1.0, 0); 3]));
    let mut full = |machine: &mut Machine, tasks: usize| {
        let refused = machine
            .arrive(
                ms(0.0),
                chain(&vec![(1.0, 0); tasks]),
                &[ms(0.0), ms(0.0)],
                &mut actions,
            )
            .expect_err("full");
        assert_eq!(refused.code(), ErrorCode::Overloaded);
        refused
    };
    assert_eq!(
        full(&mut machine, 3),
        Refused::Full {
            jobs: 1,
            tasks: 3,
            limits
        }
    );
    send(&mut machine, 0.0, &chain(&[(1.0, 0)]));
    assert_eq!(
        full(&mut machine, 1),
        Refused::Full {
            jobs: 2,
            tasks: 4,
            limits
        }
    );
    tell(&mut machine, 1.0, Event::Cancelled(first));
    send(&mut machine, 1.0, &chain(&[(1.0, 0)]));
}

#[test]
fn a_container_that_fits_nowhere_refuses_its_job_by_name() {
    let clusters = pair().map(|c| c.with_free(mib(10)));
    let mut machine = machine(Settings::late_fifo(), &clusters);
    let mut actions = Vec::new();
    let mut arrive = |machine: &mut Machine, tasks: &[(f64, u64)], distance: &[Millis]| {
        let result = machine.arrive(ms(0.0), chain(tasks), distance, &mut actions);
        assert!(result.is_err() && actions.is_empty());
        result.expect_err("checked")
    };
    let near = [ms(0.0), ms(0.0)];
    let refused = arrive(&mut machine, &[(1.0, 1), (1.0, 11)], &near);
    let Refused::Infeasible(infeasible) = &refused else {
        panic!("{refused}")
    };
    assert_eq!(
        (infeasible.name.as_str(), infeasible.clusters.len()),
        ("t1", 2)
    );
    assert_eq!(refused.code(), ErrorCode::NoClusterFits);
    // Each fits, but not all of them, if they are held to the end.
    let refused = arrive(&mut machine, &[(1.0, 6), (1.0, 6), (1.0, 6)], &near);
    let Refused::Infeasible(infeasible) = &refused else {
        panic!("{refused}")
    };
    assert_eq!(infeasible.name, "t2");
    let wrong = arrive(&mut machine, &[(1.0, 1)], &near[..1]);
    assert_eq!(wrong.code(), ErrorCode::Internal);
    assert!(matches!(
        arrive(&mut machine, &[(1.0, 1)], &[ms(-1.0), ms(0.0)]),
        Refused::Problem(_)
    ));
    assert_eq!(machine.jobs(), 0);
}

#[test]
fn resources_held_to_the_end_make_the_next_job_wait() {
    let clusters = [
        cluster("a", 1.0, 2).with_free(mib(10)),
        cluster("b", 1.0, 0),
    ];
    let mut machine = machine(Settings::late_fifo(), &clusters);
    let (first, _) = send(&mut machine, 0.0, &chain(&[(4.0, 3), (4.0, 3)]));
    // 6 are kept for the first from the beginning, so 5 more are too much, and what comes later does not pass.
    let (second, actions) = send(&mut machine, 1.0, &chain(&[(4.0, 5)]));
    assert!(actions.is_empty());
    let (third, actions) = send(&mut machine, 1.0, &chain(&[(4.0, 1)]));
    assert!(actions.is_empty());
    assert_eq!((machine.jobs(), machine.held()), (3, 2));
    tell(&mut machine, 0.0, Event::Delivered(run(first, 0, 0)));
    let after = tell(&mut machine, 4.0, Event::Finished(run(first, 0, 0)));
    assert_eq!(after.len(), 2, "the first goes on, nothing else: {after:?}");
    let after = tell(&mut machine, 8.0, Event::Finished(run(first, 1, 0)));
    let expected = [
        Action::Done(first),
        bind(run(second, 0, 0), 0, 8.0),
        bind(run(third, 0, 0), 0, 8.0),
    ];
    assert_eq!(after, expected);
}

#[test]
fn held_while_it_runs_the_first_in_line_is_not_passed_over() {
    let clusters = [
        cluster("a", 1.0, 3).with_free(mib(10)),
        cluster("b", 1.0, 0),
    ];
    let settings = Settings {
        hold: Hold::Task,
        ..Settings::late_fifo()
    };
    let mut machine = machine(settings, &clusters);
    let sizes = [6, 5, 1];
    let jobs = sizes.map(|size| send(&mut machine, 0.0, &chain(&[(4.0, size)])).0);
    let [first, second, third] = jobs.map(|job| run(job, 0, 0));
    assert_eq!(tell(&mut machine, 0.0, Event::Delivered(first)).len(), 1);
    assert_eq!(tell(&mut machine, 0.0, Event::Delivered(second)), []);
    assert_eq!(
        tell(&mut machine, 0.0, Event::Delivered(third)),
        [],
        "1 would fit, but waits its turn"
    );
    let after = tell(&mut machine, 4.0, Event::Finished(first));
    let expected = [
        Action::Done(jobs[0]),
        start(second, 0, 0, 8.0),
        start(third, 0, 1, 8.0),
    ];
    // Slots that were never used have been idle longest.
    assert_eq!(after[0], expected[0]);
    assert_eq!(after.len(), 3);
}

#[test]
fn what_a_lost_cluster_ran_begins_again_elsewhere_and_its_late_report_counts_for_nothing() {
    let mut machine = machine(Settings::late_fifo(), &pair());
    let (job, _) = send(&mut machine, 0.0, &chain(&[(8.0, 0), (8.0, 0)]));
    tell(&mut machine, 0.0, Event::Delivered(run(job, 0, 0)));
    tell(&mut machine, 4.0, Event::Finished(run(job, 0, 0)));
    // The second runs on b since 4. What the first has made is not lost; it comes over from 4 + 1.
    let b = ClusterIndex::new(1);
    let again = run(job, 1, 1);
    assert_eq!(
        tell(&mut machine, 4.5, Event::Lost(b)),
        [bind(again, 0, 5.0)]
    );
    let mut actions = Vec::new();
    let late = Event::Finished(run(job, 1, 0));
    assert_eq!(machine.apply(ms(8.0), late, &mut actions), Handled::Stale);
    assert_eq!(
        tell(&mut machine, 8.0, Event::Delivered(again)),
        [start(again, 0, 0, 16.0)]
    );
    assert_eq!(tell(&mut machine, 9.0, Event::Returned(b)), []);
    assert_eq!(
        tell(&mut machine, 16.0, Event::Finished(again)),
        [Action::Done(job)]
    );
}

#[test]
fn with_no_cluster_left_containers_wait_until_one_returns() {
    let mut machine = machine(Settings::late_fifo(), &pair());
    let (job, _) = send(&mut machine, 0.0, &chain(&[(8.0, 0)]));
    let [a, b] = [0, 1].map(ClusterIndex::new);
    assert_eq!(tell(&mut machine, 1.0, Event::Lost(a)), []);
    let strand = Action::Strand {
        job,
        task: TaskIndex::new(0),
    };
    assert_eq!(tell(&mut machine, 2.0, Event::Lost(b)), [strand]);
    assert_eq!(machine.stranded(), 1);
    // The request is sent again, now.
    assert_eq!(
        tell(&mut machine, 3.0, Event::Returned(a)),
        [bind(run(job, 0, 1), 0, 3.0)]
    );
    assert_eq!(machine.stranded(), 0);
}

#[test]
fn a_draining_cluster_ends_what_it_has_and_takes_nothing_new() {
    let mut machine = machine(Settings::late_fifo(), &pair());
    let (job, _) = send(&mut machine, 0.0, &chain(&[(8.0, 0), (8.0, 0)]));
    tell(&mut machine, 0.5, Event::Drained(ClusterIndex::new(1)));
    let first = run(job, 0, 0);
    assert_eq!(
        tell(&mut machine, 1.0, Event::Delivered(first)),
        [start(first, 1, 0, 5.0)]
    );
    assert_eq!(
        tell(&mut machine, 5.0, Event::Finished(first)),
        [bind(run(job, 1, 0), 0, 6.0)]
    );
}

#[test]
fn a_cancelled_job_leaves_its_slot_to_the_next() {
    let mut machine = machine(
        Settings::late_fifo(),
        &[cluster("a", 1.0, 1), cluster("b", 1.0, 0)],
    );
    let jobs = [0, 1].map(|_| send(&mut machine, 0.0, &chain(&[(8.0, 0)])).0);
    let [first, second] = jobs.map(|job| run(job, 0, 0));
    tell(&mut machine, 0.0, Event::Delivered(first));
    tell(&mut machine, 0.0, Event::Delivered(second));
    let stop = Action::Stop {
        run: first,
        cluster: ClusterIndex::new(0),
        slot: 0,
    };
    let after = tell(&mut machine, 3.0, Event::Cancelled(jobs[0]));
    assert_eq!(after, [stop, start(second, 0, 0, 11.0)]);
    // Cancelled while it waits behind nothing: the machine is as at the beginning.
    tell(&mut machine, 4.0, Event::Cancelled(jobs[1]));
    assert_eq!(machine.jobs(), 0);
    let (_, actions) = send(&mut machine, 5.0, &chain(&[(8.0, 0)]));
    assert_eq!(actions.len(), 1);
}

#[test]
fn lrtf_pauses_the_shortest_and_lets_it_go_on() {
    let mut machine = machine(
        Settings::lrtf(),
        &[cluster("a", 1.0, 1), cluster("b", 1.0, 0)],
    );
    let jobs = [10.0, 20.0].map(|work| send(&mut machine, 0.0, &chain(&[(work, 0)])).0);
    let [short, long] = jobs.map(|job| run(job, 0, 0));
    tell(&mut machine, 0.0, Event::Delivered(short));
    let pause = Action::Preempt {
        run: short,
        cluster: ClusterIndex::new(0),
        slot: 0,
    };
    let after = tell(&mut machine, 2.0, Event::Delivered(long));
    assert_eq!(after, [pause, start(long, 0, 0, 22.0)]);
    let mut actions = Vec::new();
    assert_eq!(
        machine.apply(ms(10.0), Event::Finished(short), &mut actions),
        Handled::Stale
    );
    let after = tell(&mut machine, 22.0, Event::Finished(long));
    assert_eq!(
        after,
        [Action::Done(jobs[1]), start(run(jobs[0], 0, 1), 0, 0, 30.0)]
    );
}

#[test]
fn a_speed_that_changes_moves_what_is_expected() {
    let mut machine = machine(Settings::late_fifo(), &pair());
    let (job, _) = send(&mut machine, 0.0, &chain(&[(8.0, 0)]));
    tell(&mut machine, 0.0, Event::Delivered(run(job, 0, 0)));
    // On b until 4; at a quarter of the speed from 2 on it would end at 10, so a is sooner for 7 more.
    tell(
        &mut machine,
        2.0,
        Event::SpeedChanged(ClusterIndex::new(1), Speed::new(0.5)),
    );
    let (next, actions) = send(&mut machine, 2.0, &chain(&[(7.0, 0)]));
    assert_eq!(actions, [bind(run(next, 0, 0), 0, 2.0)]);
}

#[test]
fn a_request_is_sent_again_when_the_cluster_to_which_it_was_sent_is_lost() {
    let mut machine = machine(Settings::late_fifo(), &pair());
    let mut actions = Vec::new();
    let distance = [10.0, 3.0].map(ms);
    let job = machine
        .arrive(ms(0.0), chain(&[(8.0, 0)]), &distance, &mut actions)
        .expect("there is room");
    assert_eq!(actions, [bind(run(job, 0, 0), 1, 3.0)]);
    let after = tell(&mut machine, 2.0, Event::Lost(ClusterIndex::new(1)));
    assert_eq!(after, [bind(run(job, 0, 1), 0, 12.0)]);
}

/// The second of three would have a long way to the user from b, but its answer goes to the third.
#[test]
fn only_an_exit_is_chosen_by_the_way_back() {
    let settings = Settings {
        exit_leg: true,
        ..Settings::late_fifo()
    };
    let mut machine = machine(settings, &pair());
    let mut actions = Vec::new();
    let distance = [0.0, 50.0].map(ms);
    let job = chain(&[(8.0, 0), (8.0, 0), (8.0, 0)]);
    let job = machine
        .arrive(ms(0.0), job, &distance, &mut actions)
        .expect("there is room");
    tell(&mut machine, 0.0, Event::Delivered(run(job, 0, 0)));
    let after = tell(&mut machine, 8.0, Event::Finished(run(job, 0, 0)));
    assert_eq!(after, [bind(run(job, 1, 0), 1, 9.0)]);
    tell(&mut machine, 9.0, Event::Delivered(run(job, 1, 0)));
    let after = tell(&mut machine, 13.0, Event::Finished(run(job, 1, 0)));
    assert_eq!(after, [bind(run(job, 2, 0), 0, 14.0)], "the last one is");
}

/// What was kept on a draining cluster for a container that is not bound yet is kept elsewhere at once, and not given away.
#[test]
fn claims_on_a_draining_cluster_move_before_the_next_job_is_let_in() {
    let clusters = [("a", 1.0), ("b", 2.0), ("c", 0.5)];
    let clusters = clusters.map(|(name, speed)| cluster(name, speed, 1).with_free(mib(1)));
    let mut machine = machine(Settings::late_fifo(), &clusters);
    let arrive = |machine: &mut Machine, job: &Arc<Dag>| {
        let mut actions = Vec::new();
        let distance = [Millis::ZERO; 3];
        machine
            .arrive(ms(0.0), Arc::clone(job), &distance, &mut actions)
            .expect("there is room");
    };
    // Its first is bound to b, its second would go to a.
    arrive(&mut machine, &chain(&[(8.0, 1), (8.0, 1)]));
    tell(&mut machine, 1.0, Event::Drained(ClusterIndex::new(0)));
    arrive(&mut machine, &chain(&[(8.0, 1)]));
    assert_eq!(machine.held(), 1, "c is kept for the first");
}

/// What has run at one speed is not counted again at the next.
#[test]
fn a_speed_that_changes_twice_counts_each_stretch_of_time_once() {
    for (work, chosen) in [(1.6, 0), (2.4, 1)] {
        let mut machine = machine(Settings::late_fifo(), &pair());
        let (job, _) = send(&mut machine, 0.0, &chain(&[(12.0, 0)]));
        tell(&mut machine, 0.0, Event::Delivered(run(job, 0, 0)));
        // On b, 4 of 12 are done at 2 and 6 at 4: at four times the speed the rest ends at 5.5.
        for (now, speed) in [(2.0, 1.0), (4.0, 4.0)] {
            let change = Event::SpeedChanged(ClusterIndex::new(1), Speed::new(speed));
            tell(&mut machine, now, change);
        }
        // 4 + work on a, or 5.5 + work / 4 on b: equal for 2.
        let (next, actions) = send(&mut machine, 4.0, &chain(&[(work, 0)]));
        assert_eq!(actions, [bind(run(next, 0, 0), chosen, 4.0)]);
    }
}

#[test]
fn data_leaves_when_it_is_made_or_when_it_is_wanted() {
    for (delivery, expected) in [(Delivery::Pushed, 5.0), (Delivery::Pulled, 9.0)] {
        let settings = Settings {
            delivery,
            order: Order::LeastWork,
            ..Settings::late_fifo()
        };
        let mut machine = machine(settings, &[cluster("a", 1.0, 1), cluster("b", 1.0, 1)]);
        let edge = |time: f64| Transfer::Fixed(ms(time));
        // The child of both has the data of the first by 1 + 4, or asks for it when the second is done.
        let job = Arc::new(dag(
            &[(1.0, 0), (1.0, 0), (1.0, 0)],
            &[(0, 1, edge(0.5)), (0, 2, edge(4.0)), (1, 2, edge(0.0))],
        ));
        let (job, _) = send(&mut machine, 0.0, &job);
        let [a, b] = [0, 1].map(ClusterIndex::new);
        tell(&mut machine, 0.0, Event::Delivered(run(job, 0, 0)));
        tell(&mut machine, 0.5, Event::Drained(a));
        let after = tell(&mut machine, 1.0, Event::Finished(run(job, 0, 0)));
        assert_eq!(after, [bind(run(job, 1, 0), 1, 1.5)]);
        tell(&mut machine, 1.5, Event::Delivered(run(job, 1, 0)));
        let after = tell(&mut machine, 5.0, Event::Finished(run(job, 1, 0)));
        assert_eq!(after, [bind(run(job, 2, 0), b.get(), expected)]);
    }
}

#[test]
fn slots_that_are_busy_at_the_beginning_are_free_when_that_is_said() {
    let slots: Slots = [ms(6.0), ms(2.0)].into_iter().collect();
    let clusters = [cluster("a", 1.0, 0).with_slots(slots), cluster("b", 1.0, 0)];
    let mut machine = machine(Settings::late_fifo(), &clusters);
    let (job, _) = send(&mut machine, 0.0, &chain(&[(8.0, 0)]));
    let first = run(job, 0, 0);
    assert_eq!(tell(&mut machine, 0.0, Event::Delivered(first)), []);
    let cluster = ClusterIndex::new(0);
    let freed = tell(&mut machine, 2.0, Event::SlotFreed { cluster, slot: 1 });
    assert_eq!(freed, [start(first, 0, 1, 10.0)]);
}

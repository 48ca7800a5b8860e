//! What holds for every stream of jobs and every series of failures.

use std::sync::Arc;

use fdn_core::Millis;
use fdn_scheduling::dag::Dag;
use fdn_scheduling::online::{
    Action, Choice, Delivery, Limits, Online, Order, Settings, Starvation,
};
use fdn_scheduling::place::{Cluster, Hold, Network, Slots};
use proptest::prelude::*;

use super::world::{Outside, World};
use crate::instance::{Instance, Raw, mib, ms, raw};

const CHOICES: [Choice; 4] = [
    Choice::EarliestFinish,
    Choice::RoundRobin,
    Choice::LeastQueued,
    Choice::Nearest,
];

const ORDERS: [Order; 5] = [
    Order::Arrival,
    Order::JobArrival,
    Order::LeastWork,
    Order::LargestTask,
    Order::LongestRemaining,
];

fn settings() -> impl Strategy<Value = Settings> {
    (
        prop::sample::select(&CHOICES),
        prop::sample::select(&ORDERS),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        prop::option::of((0u32..100, 0u32..=10)),
    )
        .prop_map(
            |(choice, order, task, exit_leg, pulled, starvation)| Settings {
                choice,
                order,
                hold: if task { Hold::Task } else { Hold::Job },
                exit_leg,
                delivery: if pulled {
                    Delivery::Pulled
                } else {
                    Delivery::Pushed
                },
                starvation: starvation.and_then(|(after, share)| {
                    Starvation::new(ms(f64::from(after)), f64::from(share) / 10.0)
                }),
                limits: Limits::default(),
            },
        )
}

/// Clusters from one instance, idle at the beginning, and jobs from others.
#[derive(Clone, Debug)]
struct Stream {
    place: Raw,
    jobs: Vec<(u16, Raw)>,
    changes: Vec<(u16, usize, u8)>,
}

fn stream(limited: bool) -> impl Strategy<Value = Stream> {
    (
        raw(1, 3),
        prop::collection::vec((0u16..400, raw(7, 1)), 1..6),
        prop::collection::vec((0u16..600, 0usize..3, 0u8..6), 0..6),
    )
        .prop_map(move |(mut place, jobs, changes)| {
            for cluster in &mut place.clusters {
                cluster.slots.fill(0);
                cluster.free = if limited {
                    cluster.free.min(16)
                } else {
                    u64::MAX
                };
            }
            Stream {
                place,
                jobs,
                changes,
            }
        })
}

impl Stream {
    /// The same with speeds, slots and transfers that make every time a whole fraction by a power of two.
    fn exact(&self) -> Self {
        let mut exact = self.clone();
        for cluster in &mut exact.place.clusters {
            cluster.speed = 1 << (cluster.speed % 3);
            cluster.slots.truncate(2);
        }
        for (_, job) in &mut exact.jobs {
            job.data = false;
        }
        exact
    }

    fn clusters(&self) -> (Vec<Cluster>, Network) {
        let Instance {
            clusters, network, ..
        } = self.place.build();
        let unlimited = |c: Cluster| {
            let all = c.free == mib(u64::MAX);
            if all {
                c.with_free(fdn_core::Resources::UNLIMITED)
            } else {
                c
            }
        };
        (clusters.into_iter().map(unlimited).collect(), network)
    }

    fn dags(&self) -> Vec<(Millis, Arc<Dag>)> {
        let job = |(at, raw): &(u16, Raw)| (ms(f64::from(*at) / 8.0), Arc::new(raw.build().dag));
        let mut jobs: Vec<_> = self.jobs.iter().map(job).collect();
        jobs.sort_by_key(|(at, _)| *at);
        jobs
    }

    fn world(&self, settings: Settings, failures: bool) -> World {
        let (clusters, network) = self.clusters();
        let mut world = World::new(settings, &clusters, &network);
        for (n, (at, dag)) in self.dags().into_iter().enumerate() {
            let d = |p: usize| ms(((n * 7 + p * 13) % 29) as f64);
            world.at(at, Outside::Job(dag, (0..clusters.len()).map(d).collect()));
        }
        if failures {
            for (at, cluster, what) in &self.changes {
                let p = cluster % clusters.len();
                let outside = match what {
                    0 | 1 => Outside::Lost(p),
                    2 => Outside::Drained(p),
                    3 => Outside::Speed(p, f64::from(1 << (at % 4))),
                    4 => Outside::Cancel(*cluster),
                    _ => Outside::Returned(p),
                };
                world.at(ms(f64::from(*at) / 8.0), outside);
            }
            for p in 0..clusters.len() {
                world.at(ms(10_000.0), Outside::Returned(p));
            }
        }
        world
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn every_rule_holds_and_every_job_ends_whatever_fails(
        stream in stream(true), settings in settings(), stutter in any::<bool>()
    ) {
        let mut world = stream.world(settings, true);
        world.stutter = stutter;
        world.play();
        prop_assert_eq!((world.machine.jobs(), world.machine.stranded(), world.machine.held()), (0, 0, 0));
    }

    #[test]
    fn no_slot_idles_beside_a_queue_where_resources_do_not_matter(
        stream in stream(false), settings in settings()
    ) {
        let mut world = stream.world(settings, true);
        world.play();
        prop_assert_eq!(world.machine.jobs(), 0);
    }

    #[test]
    fn the_same_stream_is_served_in_the_same_way(stream in stream(true), settings in settings()) {
        let play = || {
            let mut world = stream.world(settings, true);
            world.play();
            (world.starts, world.done)
        };
        prop_assert_eq!(play(), play());
    }

    #[test]
    fn one_job_on_one_cluster_with_one_slot_takes_its_work_and_the_way_there(
        raw in raw(8, 1), settings in settings()
    ) {
        let mut raw = raw;
        raw.clusters[0].slots = vec![0];
        raw.clusters[0].free = 1 << 40;
        let instance = raw.build();
        let problem = instance.problem();
        let mut world = World::new(settings, &instance.clusters, &instance.network);
        let dag = Arc::new(instance.dag.clone());
        world.at(Millis::ZERO, Outside::Job(Arc::clone(&dag), instance.distance.clone()));
        world.play();
        let cluster = fdn_scheduling::place::ClusterIndex::new(0);
        let work = dag.indices().map(|task| problem.work(task, cluster).get()).sum::<f64>();
        let expected = instance.distance[0].get() + work;
        prop_assert!((world.done[&0].get() - expected).abs() < 1e-6, "{:?} {expected}", world.done);
    }

    #[test]
    fn what_ran_before_leaves_no_trace(stream in stream(true), settings in settings()) {
        let stream = stream.exact();
        let mut fresh = stream.world(settings, false);
        fresh.play();
        // The same a second time, in places that are used and with buffers that are warm. Turns and savings go on where
        // they were, and shares of work are rounded.
        let shifts = settings.order != Order::LongestRemaining && settings.choice != Choice::RoundRobin;
        if shifts && settings.starvation.is_none() {
            let (clusters, _) = stream.clusters();
            let before = fresh.starts.len();
            let dags = stream.dags();
            let later = ms(65_536.0);
            for (n, (at, dag)) in dags.into_iter().enumerate() {
                let d = |p: usize| ms(((n * 7 + p * 13) % 29) as f64);
                fresh.at(later + at, Outside::Job(dag, (0..clusters.len()).map(d).collect()));
            }
            fresh.play();
            let (first, second) = fresh.starts.split_at(before);
            let known = |starts: &[super::world::Start], since: Millis| -> Vec<_> {
                starts.iter().map(|(at, _, task, p, _)| ((*at - since), *task, *p)).collect()
            };
            prop_assert_eq!(known(first, Millis::ZERO), known(second, later));
        }
    }

    #[test]
    fn a_user_is_sent_to_the_cluster_with_room_that_answers_first(
        clusters in prop::collection::vec((1u32..6, 1u64..12), 1..5),
        users in prop::collection::vec((1u32..50, 0u64..4, prop::collection::vec(0u32..100, 5)), 1..20),
    ) {
        // One slot each and nothing delivered yet: what is bound to a cluster runs one after the other.
        let settings = Settings { exit_leg: true, ..Settings::late_fifo() };
        let place = |(p, (speed, room)): (usize, &(u32, u64))| {
            let id = format!("c{p}").parse().expect("a label");
            let speed = fdn_scheduling::place::Speed::new(f64::from(*speed));
            Cluster::new(id, speed, 1).with_free(mib(*room))
        };
        let places: Vec<Cluster> = clusters.iter().enumerate().map(place).collect();
        let network = Network::instant(places.len());
        let mut machine = Online::new(settings, &places, network).expect("consistent");
        let mut queued = vec![0.0; places.len()];
        let mut left: Vec<u64> = clusters.iter().map(|(_, room)| *room).collect();
        for (work, demand, distance) in users {
            let dag = Arc::new(crate::instance::dag(&[(f64::from(work), demand)], &[]));
            let distance: Vec<Millis> = distance[..places.len()].iter().map(|d| ms(f64::from(*d))).collect();
            let time = |p: usize| f64::from(work) / f64::from(clusters[p].0);
            let answer = |p: usize| distance[p].get().max(queued[p]) + time(p) + distance[p].get();
            let with_room = (0..places.len()).filter(|p| demand <= left[*p]);
            let best = with_room.map(answer).fold(f64::INFINITY, f64::min);
            let mut actions = Vec::new();
            let taken = machine.arrive(Millis::ZERO, dag, &distance, &mut actions);
            let Some(Action::Bind { cluster, .. }) = actions.first() else {
                // It waits until somebody's resources are free, or is too large for any cluster.
                prop_assert!(best == f64::INFINITY || machine.held() > 0, "{taken:?}");
                continue;
            };
            let p = cluster.get();
            prop_assert!(demand <= left[p]);
            prop_assert!((answer(p) - best).abs() < 1e-9, "{} instead of {best}", answer(p));
            queued[p] += time(p);
            left[p] -= demand;
        }
    }
}

/// A stream of small jobs that alone fills the cluster, and one large job at its beginning.
fn crowded(settings: Settings) -> World {
    let cluster = Cluster::new(
        "a".parse().expect("a label"),
        fdn_scheduling::place::Speed::new(1.0),
        0,
    )
    .with_slots(Slots::idle(2));
    let network = Network::instant(1);
    let mut world = World::new(settings, &[cluster], &network);
    let chain = |tasks: usize, work: f64| {
        let tasks: Vec<(f64, u64)> = vec![(work, 0); tasks];
        let edge = |n| (n, n + 1, fdn_scheduling::dag::Transfer::Fixed(Millis::ZERO));
        let edges: Vec<_> = (0..tasks.len() - 1).map(edge).collect();
        Arc::new(crate::instance::dag(&tasks, &edges))
    };
    world.at(
        Millis::ZERO,
        Outside::Job(chain(20, 10.0), vec![Millis::ZERO]),
    );
    for n in 0..2000 {
        let small = chain(1, 10.0);
        world.at(
            ms(f64::from(n) * 4.9),
            Outside::Job(small, vec![Millis::ZERO]),
        );
    }
    world
}

#[test]
fn least_work_starves_a_large_job_and_the_bound_ends_that() {
    let bounded = |after, share| Settings {
        starvation: Starvation::new(ms(after), share),
        ..Settings::late_least_work()
    };
    let done = |settings| {
        let mut world = crowded(settings);
        world.play();
        let small = (1..=2000).map(|n| world.done[&n] - ms(f64::from(n as u32 - 1) * 4.9));
        let mean = small.map(|latency| latency.get()).sum::<f64>() / 2000.0;
        (world.done[&0], mean)
    };
    let (starved, least) = done(Settings::late_least_work());
    assert!(starved > ms(9800.0), "served last: {starved}");
    let (served, mean) = done(bounded(100.0, 0.1));
    // 20 containers of 10 ms, at a tenth of two slots: 1000 ms, and the time before it may go first.
    assert!(served < ms(1200.0), "{served}");
    let (half, _) = done(bounded(100.0, 0.05));
    assert!(served < half && half < ms(2300.0), "{half}");
    assert!(least < mean);
}

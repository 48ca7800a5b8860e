//! Chooses the clusters of the next jobs: the online form of placement ([`fdn_scheduling::online`], late binding) over the present state of the
//! network.
//!
//! Each round builds a new scheduler from the latest node statuses, because other dispatchers and callers use the same clusters, and because
//! clusters come, go and change. What this dispatcher has started since a cluster's last status is counted as well: a status is some seconds old,
//! and without that a burst would all go to what was idle then. A job that finds no free slot is not sent: it waits, so that a later round can
//! still choose another cluster.
//!
//! The time until a cluster can run an app at all ([`readiness`](crate::reconcile::serving::readiness)) counts like network latency: a cluster
//! that has the app wins over an equally fast one that has to fetch it first, and loses to one that is faster by more than the fetch takes. A job
//! waits for a slot where it will be done first rather than going where its function arrives late.

use std::collections::BTreeMap;
use std::sync::Arc;

use fdn_core::message::AppPhase;
use fdn_core::{AppName, ClusterId, Millis, Timestamp};
use fdn_scheduling::dag::Dag;
use fdn_scheduling::online::{Action, Event, Input, JobRef, Online, Refused, Settings};
use fdn_scheduling::place::{Cluster, Exclusion, Hold, Network, Slots};

use crate::edge::node_client::NodeAddress;
use crate::reconcile::node_registry::NodeRegistry;
use crate::reconcile::serving::Phases;
use crate::reconcile::serving::readiness::ProvisioningCost;
use crate::state::{State, lock};

/// How much longer than the longest cold start a slot in use is assumed to stay in use. So a ready cluster with room that only has to start an
/// instance is never skipped for a full one that has instances.
const IN_USE: Millis = Millis::new(1000.0);

/// A gateway that accepts calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// The address at which controllers call it.
    pub at: NodeAddress,
    /// The number of free slots, by its last status.
    pub free: u32,
    /// The apps that it can serve without loading them first.
    pub ready: Vec<AppName>,
}

/// The expected work of one job of an app.
#[derive(Clone, Debug)]
pub struct ExpectedRun {
    /// The app.
    pub app: AppName,
    /// The stages, with their expected run times.
    pub dag: Arc<Dag>,
    /// The cost of bringing the entry stage to a node, in each of its forms.
    pub forms: Vec<ProvisioningCost>,
}

/// A snapshot of the network for dispatching.
#[derive(Clone, Debug)]
pub struct NetworkSnapshot {
    /// The clusters, by name.
    pub clusters: Vec<Cluster>,
    /// The network between them.
    pub network: Network,
    /// By cluster, in the order of `clusters`: the slots in use, and the sum of the sequence numbers of the statuses that say so.
    pub used: Vec<(usize, u64)>,
    /// The gateways, by cluster.
    pub gateways: BTreeMap<ClusterId, Vec<Gateway>>,
    /// By cluster: the state of each app there.
    pub phases: Arc<Phases>,
}

impl NetworkSnapshot {
    /// Takes a snapshot of the network.
    #[must_use]
    pub fn of(state: &State, now: Timestamp) -> Self {
        let live = lock(&state.live);
        let world = state.world_of(&live, now);
        let (used, gateways) = slots_and_gateways(&live, world.clusters(), now);
        Self {
            clusters: world.clusters().to_vec(),
            network: world.network().clone(),
            used,
            gateways,
            phases: world.phases(),
        }
    }

    /// By cluster: the time until it can run the jobs of an app, or why it cannot.
    fn readiness(&self, runs: &ExpectedRun) -> Vec<Result<Millis, Exclusion>> {
        let all = 0..self.clusters.len();
        all.map(|at| self.phases.readiness(&runs.app, &runs.forms, at))
            .collect()
    }

    /// The gateway of a cluster for a call of `app`: one that has the app ready if there is one, and of these the one with the most free slots.
    #[must_use]
    pub fn gateway(&self, cluster: &ClusterId, app: &AppName) -> Option<NodeAddress> {
        let gateways = self.gateways.get(cluster)?;
        let best = gateways
            .iter()
            .max_by_key(|gateway| (gateway.ready.contains(app), gateway.free));
        best.map(|gateway| gateway.at.clone())
    }
}

type SlotsAndGateways = (Vec<(usize, u64)>, BTreeMap<ClusterId, Vec<Gateway>>);

fn slots_and_gateways(
    live: &NodeRegistry,
    clusters: &[Cluster],
    now: Timestamp,
) -> SlotsAndGateways {
    let mut used = vec![(0, 0_u64); clusters.len()];
    let mut gateways: BTreeMap<ClusterId, Vec<Gateway>> = BTreeMap::new();
    for seen in live.alive(now) {
        let status = &seen.status;
        if status.draining || live.cordoned(&status.node) {
            continue;
        }
        if let Ok(at) = clusters.binary_search_by(|c| c.id.cmp(&status.cluster)) {
            used[at].0 += status.busy.saturating_add(status.waiting) as usize;
            used[at].1 = used[at].1.wrapping_add(status.sequence);
        }
        // Controllers cannot call an agent of an older release: jobs wait for another one.
        let Some(at) = NodeAddress::of(status) else {
            continue;
        };
        let ready = status
            .apps
            .iter()
            .filter(|app| app.phase == AppPhase::Ready);
        gateways
            .entry(status.cluster.clone())
            .or_default()
            .push(Gateway {
                at,
                free: status.slots.saturating_sub(status.busy),
                ready: ready.map(|app| app.app.clone()).collect(),
            });
    }
    (used, gateways)
}

/// The attempts of this dispatcher on each cluster: those running now, and those running when the cluster last reported.
#[derive(Clone, Debug, Default)]
pub struct OwnAttempts {
    running: BTreeMap<ClusterId, usize>,
    reported: BTreeMap<ClusterId, (u64, usize)>,
}

impl OwnAttempts {
    /// Counts an attempt that was started there.
    pub fn started(&mut self, cluster: &ClusterId) {
        *self.running.entry(cluster.clone()).or_default() += 1;
    }

    /// Counts the end of an attempt there.
    pub fn ended(&mut self, cluster: &ClusterId) {
        if let Some(running) = self.running.get_mut(cluster) {
            *running = running.saturating_sub(1);
        }
    }

    fn of(&self, cluster: &ClusterId) -> usize {
        self.running.get(cluster).copied().unwrap_or(0)
    }

    /// Notes which clusters have new statuses: those count what runs now.
    pub fn observe(&mut self, snapshot: &NetworkSnapshot) {
        for (cluster, (_, sequence)) in snapshot.clusters.iter().zip(&snapshot.used) {
            let own = self.of(&cluster.id);
            let reported = self.reported.entry(cluster.id.clone()).or_default();
            if reported.0 != *sequence {
                *reported = (*sequence, own);
            }
        }
        let known = |id: &ClusterId| snapshot.clusters.iter().any(|c| c.id == *id);
        self.reported.retain(|id, _| known(id));
        self.running.retain(|id, running| *running > 0 || known(id));
    }

    /// The assumed slots of a cluster: those used by others according to its last status, and by this dispatcher, are free only at `in_use`.
    fn slots(&self, cluster: &Cluster, used: usize, in_use: Millis) -> Slots {
        let then = self
            .reported
            .get(&cluster.id)
            .map_or(0, |reported| reported.1);
        let others = used.saturating_sub(then);
        let total = cluster.slots.len();
        let taken = (others + self.of(&cluster.id)).min(total);
        let free = std::iter::repeat_n(Millis::ZERO, total - taken);
        free.chain(std::iter::repeat_n(in_use, taken)).collect()
    }
}

/// The decision where a job goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// To this cluster, now.
    At {
        /// The cluster.
        cluster: ClusterId,
        /// The expected time until the cluster can run it.
        ready: Millis,
    },
    /// Nowhere yet: the clusters that could take it are full.
    Later,
    /// Nowhere: no cluster can take it as the network is. The text says why.
    Nowhere(String),
}

/// The number of free slots.
#[must_use]
pub fn free(snapshot: &NetworkSnapshot, own: &OwnAttempts) -> usize {
    let clusters = snapshot.clusters.iter().zip(&snapshot.used);
    clusters
        .map(|(cluster, (used, _))| own.slots(cluster, *used, IN_USE))
        .map(|slots| {
            slots
                .available()
                .iter()
                .filter(|at| **at == Millis::ZERO)
                .count()
        })
        .sum()
}

/// Places jobs, in their order.
#[must_use]
pub fn place(
    snapshot: &NetworkSnapshot,
    own: &OwnAttempts,
    jobs: &[Arc<ExpectedRun>],
) -> Vec<Placement> {
    let starts = jobs.iter().flat_map(|job| &job.forms);
    let in_use = IN_USE
        + starts
            .map(ProvisioningCost::cold_start)
            .max()
            .unwrap_or_default();
    let clusters: Vec<Cluster> = snapshot
        .clusters
        .iter()
        .zip(&snapshot.used)
        .map(|(cluster, (used, _))| {
            let slots = own.slots(cluster, *used, in_use);
            cluster.clone().with_slots(slots)
        })
        .collect();
    let settings = Settings {
        hold: Hold::Task,
        ..Settings::late_fifo()
    };
    let Ok(mut machine) = Online::new(settings, &clusters, snapshot.network.clone()) else {
        return vec![Placement::Later; jobs.len()];
    };
    let mut known: BTreeMap<&AppName, Vec<Result<Millis, Exclusion>>> = BTreeMap::new();
    let mut places = vec![Placement::Later; jobs.len()];
    let mut refs: BTreeMap<JobRef, usize> = BTreeMap::new();
    for (at, job) in jobs.iter().enumerate() {
        // A job has no client location: the distance of a cluster is the time until the app is ready there.
        let readiness = known.entry(&job.app);
        let readiness = &*readiness.or_insert_with(|| snapshot.readiness(job));
        let far = |ready: &Result<Millis, Exclusion>| ready.unwrap_or(Millis::INFINITY);
        let distance: Vec<Millis> = readiness.iter().map(far).collect();
        let mut actions = Vec::new();
        match machine.arrive(Millis::ZERO, Arc::clone(&job.dag), &distance, &mut actions) {
            Ok(job) => {
                refs.insert(job, at);
            }
            Err(Refused::Infeasible(mut why)) => {
                for ((_, exclusion), ready) in why.clusters.iter_mut().zip(readiness) {
                    if let (Exclusion::OutOfReach, Err(own)) = (*exclusion, ready) {
                        *exclusion = *own;
                    }
                }
                places[at] = Placement::Nowhere(why.to_string());
            }
            Err(_) => {}
        }
        let mut next = 0;
        while next < actions.len() {
            match actions[next] {
                Action::Bind {
                    run,
                    input: Input::Expected(_),
                    ..
                } => {
                    // The input is sent with the call.
                    let _ = machine.apply(Millis::ZERO, Event::Delivered(run), &mut actions);
                }
                Action::Start { run, cluster, .. } => {
                    if let Some(job) = refs.get(&run.job)
                        && places[*job] == Placement::Later
                    {
                        let ready = known.get(&jobs[*job].app);
                        let ready = ready.and_then(|of| of.get(cluster.get())?.ok());
                        places[*job] = Placement::At {
                            cluster: clusters[cluster.get()].id.clone(),
                            ready: ready.unwrap_or_default(),
                        };
                    }
                }
                Action::Bind { .. }
                | Action::Preempt { .. }
                | Action::Stop { .. }
                | Action::Strand { .. }
                | Action::Done(_) => {}
            }
            next += 1;
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use fdn_core::Resources;
    use fdn_core::manifest::RuntimeKind;
    use fdn_core::message::{AppObserved, NodeStatus};
    use fdn_scheduling::place::{Availability, Speed};

    use super::*;
    use crate::fixture;

    fn snapshot(clusters: Vec<Cluster>) -> NetworkSnapshot {
        NetworkSnapshot {
            network: Network::instant(clusters.len()),
            used: vec![(0, 1); clusters.len()],
            gateways: BTreeMap::new(),
            phases: Arc::default(),
            clusters,
        }
    }

    fn cluster(name: &str, speed: f64, slots: usize) -> Cluster {
        Cluster::new(name.parse().expect("name"), Speed::new(speed), slots)
    }

    /// Jobs of 100 ms, of an app that a node fetches within `fetch` ms.
    fn jobs_of(count: usize, fetch: f64) -> Vec<Arc<ExpectedRun>> {
        let dag = Dag::single("work", Millis::new(100.0), Resources::default()).expect("valid");
        let (kind, none) = (RuntimeKind::Wasm, Millis::ZERO);
        let runs = Arc::new(ExpectedRun {
            app: "work".parse().expect("app"),
            dag: Arc::new(dag),
            // 1 MB takes a second at 1 MB/s.
            forms: vec![ProvisioningCost::new(
                kind,
                (fetch * 1e3) as u64,
                1.0,
                none,
                none,
            )],
        });
        (0..count).map(|_| Arc::clone(&runs)).collect()
    }

    fn jobs(count: usize) -> Vec<Arc<ExpectedRun>> {
        jobs_of(count, 0.0)
    }

    /// The same clusters, each with one node that has the app in this phase; `None` for a node that does not hold it.
    fn with_phases(mut snapshot: NetworkSnapshot, phases: &[Option<AppPhase>]) -> NetworkSnapshot {
        let node = |(cluster, phase): (&Cluster, &Option<AppPhase>)| {
            let mut status = fixture::status(&format!("{}-1", cluster.id), cluster.id.as_str());
            status.apps = phase.clone().into_iter().map(observed).collect();
            status
        };
        let nodes: Vec<NodeStatus> = snapshot.clusters.iter().zip(phases).map(node).collect();
        let ids: Vec<&ClusterId> = snapshot.clusters.iter().map(|c| &c.id).collect();
        let alive: Vec<&NodeStatus> = nodes.iter().collect();
        snapshot.phases = Arc::new(Phases::new(&ids, &alive));
        snapshot
    }

    fn observed(phase: AppPhase) -> AppObserved {
        AppObserved {
            phase,
            ..fixture::observed("work")
        }
    }

    fn names(places: &[Placement]) -> Vec<&str> {
        places
            .iter()
            .map(|place| match place {
                Placement::At { cluster, .. } => cluster.as_str(),
                Placement::Later => "later",
                Placement::Nowhere(_) => "nowhere",
            })
            .collect()
    }

    #[test]
    fn a_burst_fills_the_fastest_first_and_no_slot_twice() {
        let snapshot = snapshot(vec![cluster("a", 1.0, 2), cluster("b", 2.0, 1)]);
        let own = OwnAttempts::default();
        assert_eq!(free(&snapshot, &own), 3);
        let places = place(&snapshot, &own, &jobs(5));
        let names = names(&places);
        assert_eq!(names[0], "b");
        assert_eq!(names.iter().filter(|n| **n == "a").count(), 2, "{names:?}");
        assert_eq!(
            names.iter().filter(|n| **n == "later").count(),
            2,
            "{names:?}"
        );
    }

    #[test]
    fn what_was_started_since_a_cluster_spoke_counts_until_it_ends() {
        let id: ClusterId = "a".parse().expect("name");
        let mut snapshot = snapshot(vec![cluster("a", 1.0, 2)]);
        let mut own = OwnAttempts::default();
        own.observe(&snapshot);
        own.started(&id);
        own.started(&id);
        assert_eq!(
            (
                free(&snapshot, &own),
                names(&place(&snapshot, &own, &jobs(1)))
            ),
            (0, vec!["later"])
        );
        // The next status counts them too: they are not counted twice.
        snapshot.used = vec![(2, 2)];
        own.observe(&snapshot);
        assert_eq!(free(&snapshot, &own), 0);
        own.ended(&id);
        assert_eq!(free(&snapshot, &own), 1, "free before the cluster says so");
        // The slots that others use stay counted.
        snapshot.used = vec![(2, 3)];
        own.observe(&snapshot);
        assert_eq!(free(&snapshot, &own), 0);
    }

    #[test]
    fn without_a_cluster_that_can_take_it_a_job_says_so() {
        let down = cluster("a", 1.0, 4).with_availability(Availability::Down);
        assert_eq!(
            names(&place(
                &snapshot(vec![down]),
                &OwnAttempts::default(),
                &jobs(1)
            )),
            ["nowhere"]
        );
        assert_eq!(
            place(&snapshot(Vec::new()), &OwnAttempts::default(), &jobs(1)).len(),
            1
        );
    }

    #[test]
    fn a_cluster_that_has_the_app_wins_over_one_as_fast_that_must_fetch_it() {
        let two = || snapshot(vec![cluster("a", 1.0, 2), cluster("b", 1.0, 2)]);
        let own = OwnAttempts::default();
        let phases = [Some(AppPhase::Fetching), Some(AppPhase::Ready)];
        let snapshot = with_phases(two(), &phases);
        let placed = place(&snapshot, &own, &jobs_of(1, 30.0));
        let ready = Millis::ZERO;
        let cluster = "b".parse().expect("name");
        assert_eq!(placed, [Placement::At { cluster, ready }]);
        // `b` is full: a cluster that gets the app before a slot of `b` is free is used, one that gets it later is not.
        let names = |fetch| names(&place(&snapshot, &own, &jobs_of(4, fetch))).join(" ");
        assert_eq!(names(30.0), "b b a a");
        assert_eq!(names(9_000.0), "b b later later");
        // A cluster that does not hold the app never becomes ready.
        let untold = with_phases(two(), &[None, Some(AppPhase::Ready)]);
        let placed = place(&untold, &own, &jobs_of(3, 0.0));
        assert_eq!(self::names(&placed), ["b", "b", "later"]);
    }

    #[test]
    fn a_ready_cluster_loses_to_one_that_is_faster_by_more_than_the_rest_of_the_way() {
        let (slow, fast) = (cluster("a", 1.0, 1), cluster("b", 4.0, 1));
        let phases = [Some(AppPhase::Ready), Some(AppPhase::Fetching)];
        let snapshot = with_phases(snapshot(vec![slow, fast]), &phases);
        let at = |fetch| place(&snapshot, &OwnAttempts::default(), &jobs_of(1, fetch));
        // 100 ms on `a`, 25 on `b`.
        let cluster = "b".parse().expect("name");
        let ready = Millis::new(70.0);
        assert_eq!(at(70.0), [Placement::At { cluster, ready }]);
        assert_eq!(names(&at(80.0)), ["a"]);
    }

    #[test]
    fn where_it_is_ready_nowhere_the_nearest_to_it_takes_it_and_who_cannot_says_why() {
        let failed = || {
            Some(AppPhase::Failed {
                reason: "no".to_owned(),
            })
        };
        let three = ["a", "b", "c"].map(|name| cluster(name, 1.0, 1));
        let phases = [
            failed(),
            Some(AppPhase::Fetching),
            Some(AppPhase::Compiling),
        ];
        let all = with_phases(snapshot(three.to_vec()), &phases);
        let placed = place(&all, &OwnAttempts::default(), &jobs_of(1, 500.0));
        assert_eq!(names(&placed), ["c"]);
        let none = with_phases(snapshot(three.to_vec()), &[failed(), None, None]);
        let placed = place(&none, &OwnAttempts::default(), &jobs_of(1, 500.0));
        let Placement::Nowhere(why) = &placed[0] else {
            panic!("{placed:?}")
        };
        for words in [
            "a (has no node that could make it ready)",
            "b (is not ready yet to serve it)",
        ] {
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn a_cold_start_in_a_free_slot_is_not_passed_over_for_a_full_cluster() {
        let cold = Millis::new(30_000.0);
        let none = Millis::ZERO;
        let runs = ExpectedRun {
            forms: vec![ProvisioningCost::new(
                RuntimeKind::Docker,
                1_000_000,
                1.0,
                none,
                cold,
            )],
            ..(*jobs(1)[0]).clone()
        };
        let mut two = snapshot(vec![cluster("a", 1.0, 2), cluster("b", 1.0, 2)]);
        let warm = with_phases(two.clone(), &[Some(AppPhase::Ready), Some(AppPhase::Ready)]);
        two.used[0].0 = 2;
        let full = NetworkSnapshot {
            used: two.used,
            ..warm
        };
        let placed = place(&full, &OwnAttempts::default(), &[Arc::new(runs)]);
        let cluster = "b".parse().expect("name");
        let ready = cold;
        assert_eq!(placed, [Placement::At { cluster, ready }]);
    }

    proptest::proptest! {
        #[test]
        fn when_all_is_full_or_nothing_is_known_readiness_changes_nothing(
            speeds in proptest::collection::vec(0.25f64..4.0, 1..5),
            fetch in 0.0f64..900.0,
            used in proptest::collection::vec(0usize..4, 5),
            full in proptest::bool::ANY,
        ) {
            let clusters: Vec<Cluster> = speeds
                .iter()
                .enumerate()
                .map(|(at, speed)| cluster(&format!("c-{at}"), *speed, 3))
                .collect();
            let mut plain = snapshot(clusters);
            for (seen, used) in plain.used.iter_mut().zip(&used) {
                seen.0 = if full { 3 } else { *used };
            }
            let own = OwnAttempts::default();
            let all: Vec<Option<AppPhase>> = speeds.iter().map(|_| Some(AppPhase::Ready)).collect();
            let mixed: Vec<Option<AppPhase>> = (0..speeds.len())
                .map(|at| Some(if at % 2 == 0 { AppPhase::Fetching } else { AppPhase::Ready }))
                .collect();
            let placed = |snapshot: &NetworkSnapshot| place(snapshot, &own, &jobs_of(4, fetch));
            let before = placed(&plain);
            let where_to = |places: &[Placement]| names(places).join(" ");
            proptest::prop_assert_eq!(where_to(&placed(&with_phases(plain.clone(), &all))), where_to(&place(&plain, &own, &jobs(4))));
            let after = placed(&with_phases(plain.clone(), &mixed));
            if full {
                proptest::prop_assert!(before.iter().chain(&after).all(|place| *place == Placement::Later));
            }
            // No slot is used twice, and nothing is sent where none is free.
            let free: Vec<usize> = plain.used.iter().map(|(used, _)| 3 - (*used).min(3)).collect();
            for (cluster, free) in plain.clusters.iter().zip(free) {
                let sent = after.iter().filter(|place| matches!(place, Placement::At { cluster: at, .. } if *at == cluster.id));
                proptest::prop_assert!(sent.count() <= free);
            }
        }
    }
}

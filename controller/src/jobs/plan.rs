//! Which clusters the next jobs go to: the online form of placement ([`fdn_scheduling::online`], late binding) over the network as it is.
//!
//! Each round makes the machine anew from what nodes last said, because other dispatchers and callers use the same clusters, and
//! because a cluster may have come, gone or changed. What this dispatcher has started since a cluster last spoke is counted as well: a status
//! is some seconds old, and a burst would all go where it was idle then. A job that finds no free slot is not sent: it waits where a later
//! round can still send it elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use fdn_core::message::AppPhase;
use fdn_core::{AppName, ClusterId, Millis, Timestamp};
use fdn_scheduling::dag::Dag;
use fdn_scheduling::online::{Action, Event, Input, JobRef, Online, Refused, Settings};
use fdn_scheduling::place::{Cluster, Hold, Network, Slots};

use crate::edge::ask::Reached;
use crate::reconcile::live::Live;
use crate::state::{State, lock};

/// A slot that is in use is taken to be free after this long: only the order of clusters that are all full depends on it.
const IN_USE: Millis = Millis::new(1000.0);

/// A gateway that may take calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// Where controllers call it.
    pub at: Reached,
    /// Slots that are free, by its last word.
    pub free: u32,
    /// Apps that answer there without being loaded first.
    pub ready: Vec<AppName>,
}

/// The network at one moment, as dispatching needs it.
#[derive(Clone, Debug)]
pub struct Ground {
    /// The clusters, by name.
    pub clusters: Vec<Cluster>,
    /// What joins them.
    pub network: Network,
    /// Slots in use, in the order of `clusters`, and what the statuses that say so are numbered in sum.
    pub used: Vec<(usize, u64)>,
    /// Their gateways.
    pub gateways: BTreeMap<ClusterId, Vec<Gateway>>,
}

impl Ground {
    /// The network now.
    #[must_use]
    pub fn of(state: &State, now: Timestamp) -> Self {
        let live = lock(&state.live);
        let world = state.world_of(&live, now);
        let (used, gateways) = seen(&live, world.clusters(), now);
        Self {
            clusters: world.clusters().to_vec(),
            network: world.network().clone(),
            used,
            gateways,
        }
    }

    /// The gateway of a cluster that a call of `app` goes to: one that has it ready if there is one, and of these the one with most room.
    #[must_use]
    pub fn gateway(&self, cluster: &ClusterId, app: &AppName) -> Option<Reached> {
        let gateways = self.gateways.get(cluster)?;
        let best = gateways
            .iter()
            .max_by_key(|gateway| (gateway.ready.contains(app), gateway.free));
        best.map(|gateway| gateway.at.clone())
    }
}

type Seen = (Vec<(usize, u64)>, BTreeMap<ClusterId, Vec<Gateway>>);

fn seen(live: &Live, clusters: &[Cluster], now: Timestamp) -> Seen {
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
        // An agent of an older release cannot be called by controllers: jobs wait for another one.
        let Some(at) = Reached::of(status) else {
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

/// What this dispatcher itself runs on each cluster, and ran when the cluster last spoke.
#[derive(Clone, Debug, Default)]
pub struct Own {
    running: BTreeMap<ClusterId, usize>,
    spoken: BTreeMap<ClusterId, (u64, usize)>,
}

impl Own {
    /// An attempt was started there.
    pub fn started(&mut self, cluster: &ClusterId) {
        *self.running.entry(cluster.clone()).or_default() += 1;
    }

    /// An attempt has ended there.
    pub fn ended(&mut self, cluster: &ClusterId) {
        if let Some(running) = self.running.get_mut(cluster) {
            *running = running.saturating_sub(1);
        }
    }

    fn of(&self, cluster: &ClusterId) -> usize {
        self.running.get(cluster).copied().unwrap_or(0)
    }

    /// Clusters have spoken anew: what they count now holds what runs now.
    pub fn look(&mut self, ground: &Ground) {
        for (cluster, (_, sequence)) in ground.clusters.iter().zip(&ground.used) {
            let own = self.of(&cluster.id);
            let spoken = self.spoken.entry(cluster.id.clone()).or_default();
            if spoken.0 != *sequence {
                *spoken = (*sequence, own);
            }
        }
        let known = |id: &ClusterId| ground.clusters.iter().any(|c| c.id == *id);
        self.spoken.retain(|id, _| known(id));
        self.running.retain(|id, running| *running > 0 || known(id));
    }

    /// The slots of a cluster as they are taken to be: what others use by its last word, and what we do.
    fn slots(&self, cluster: &Cluster, used: usize) -> Slots {
        let then = self.spoken.get(&cluster.id).map_or(0, |spoken| spoken.1);
        let others = used.saturating_sub(then);
        let total = cluster.slots.len();
        let taken = (others + self.of(&cluster.id)).min(total);
        let free = std::iter::repeat_n(Millis::ZERO, total - taken);
        free.chain(std::iter::repeat_n(IN_USE, taken)).collect()
    }
}

/// Where a job goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// There, now.
    At(ClusterId),
    /// Nowhere now: what could take it is full.
    Later,
    /// No cluster can take it as the network is.
    Nowhere(String),
}

/// How many slots are free.
#[must_use]
pub fn free(ground: &Ground, own: &Own) -> usize {
    let clusters = ground.clusters.iter().zip(&ground.used);
    clusters
        .map(|(cluster, (used, _))| own.slots(cluster, *used))
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
pub fn place(ground: &Ground, own: &Own, jobs: &[Arc<Dag>]) -> Vec<Place> {
    let clusters: Vec<Cluster> = ground
        .clusters
        .iter()
        .zip(&ground.used)
        .map(|(cluster, (used, _))| cluster.clone().with_slots(own.slots(cluster, *used)))
        .collect();
    let settings = Settings {
        hold: Hold::Task,
        ..Settings::late_fifo()
    };
    let Ok(mut machine) = Online::new(settings, &clusters, ground.network.clone()) else {
        return vec![Place::Later; jobs.len()];
    };
    // Nobody waits at a place of their own for a job: all clusters are equally near.
    let distance = vec![Millis::ZERO; clusters.len()];
    let mut places = vec![Place::Later; jobs.len()];
    let mut refs: BTreeMap<JobRef, usize> = BTreeMap::new();
    for (at, dag) in jobs.iter().enumerate() {
        let mut actions = Vec::new();
        match machine.arrive(Millis::ZERO, Arc::clone(dag), &distance, &mut actions) {
            Ok(job) => {
                refs.insert(job, at);
            }
            Err(Refused::Infeasible(why)) => places[at] = Place::Nowhere(why.to_string()),
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
                    // The input travels with the call.
                    let _ = machine.apply(Millis::ZERO, Event::Delivered(run), &mut actions);
                }
                Action::Start { run, cluster, .. } => {
                    if let Some(job) = refs.get(&run.job)
                        && places[*job] == Place::Later
                    {
                        places[*job] = Place::At(clusters[cluster.get()].id.clone());
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
    use fdn_scheduling::place::{Availability, Speed};

    use super::*;

    fn ground(clusters: Vec<Cluster>) -> Ground {
        Ground {
            network: Network::instant(clusters.len()),
            used: vec![(0, 1); clusters.len()],
            gateways: BTreeMap::new(),
            clusters,
        }
    }

    fn cluster(name: &str, speed: f64, slots: usize) -> Cluster {
        Cluster::new(name.parse().expect("name"), Speed::new(speed), slots)
    }

    fn jobs(count: usize) -> Vec<Arc<Dag>> {
        let dag = Dag::single("work", Millis::new(100.0), Resources::default()).expect("valid");
        let dag = Arc::new(dag);
        (0..count).map(|_| Arc::clone(&dag)).collect()
    }

    fn names(places: &[Place]) -> Vec<&str> {
        places
            .iter()
            .map(|place| match place {
                Place::At(cluster) => cluster.as_str(),
                Place::Later => "later",
                Place::Nowhere(_) => "nowhere",
            })
            .collect()
    }

    #[test]
    fn a_burst_fills_the_fastest_first_and_no_slot_twice() {
        let ground = ground(vec![cluster("a", 1.0, 2), cluster("b", 2.0, 1)]);
        let own = Own::default();
        assert_eq!(free(&ground, &own), 3);
        let places = place(&ground, &own, &jobs(5));
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
        let mut ground = ground(vec![cluster("a", 1.0, 2)]);
        let mut own = Own::default();
        own.look(&ground);
        own.started(&id);
        own.started(&id);
        assert_eq!(
            (free(&ground, &own), names(&place(&ground, &own, &jobs(1)))),
            (0, vec!["later"])
        );
        // Its next word counts them too: they are not counted twice.
        ground.used = vec![(2, 2)];
        own.look(&ground);
        assert_eq!(free(&ground, &own), 0);
        own.ended(&id);
        assert_eq!(free(&ground, &own), 1, "free before the cluster says so");
        // What others use stays counted.
        ground.used = vec![(2, 3)];
        own.look(&ground);
        assert_eq!(free(&ground, &own), 0);
    }

    #[test]
    fn without_a_cluster_that_can_take_it_a_job_says_so() {
        let down = cluster("a", 1.0, 4).with_availability(Availability::Down);
        assert_eq!(
            names(&place(&ground(vec![down]), &Own::default(), &jobs(1))),
            ["nowhere"]
        );
        assert_eq!(
            place(&ground(Vec::new()), &Own::default(), &jobs(1)).len(),
            1
        );
    }
}

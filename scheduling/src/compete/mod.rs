//! Client groups of all apps compete for the room of the clusters.
//!
//! **Problem.** Each group would have the cluster that is best for it alone; together they fill the best one and wait there. What a group
//! takes away from others is its work: its rate of calls times their run time. So every group is planned against what all others already
//! ask of each cluster.
//!
//! **Way.** What groups ask for where they are now is added up ([`Load`]). Then each has its turn, those with the most work first, since
//! the room for them is hardest to find: its own part is taken out, Heu-Orche places its workflow with run times that contain the mean wait it
//! would meet in each cluster if it came there whole and its toll, which is what it would make the others wait ([`Load::toll`]), and it stays where it was unless the gain passes the margin ([`crate::steer`]), the old
//! place cannot serve it any more, or it has no place yet. What users may be moved at once is bounded ([`Moves`]). Its part is added
//! where it is now. That is a best response of each group to all others, repeated with every plan. With the toll each move for a gain makes the
//! time of all calls together shorter, by the model, so it comes to rest, and leaving all in place is never better; without it groups crowd
//! the cluster that is best for each.
//!
//! **Typical and mean.** What a call of one group takes is what calls typically take; what it keeps others from is the mean. Where one call in a
//! hundred takes long the two are far apart, and a cluster that looks half empty by typical run times is full. So load is counted with means
//! ([`crate::dag::Task::mean`]), and latency with typical times and the mean wait that the load makes.
//!
//! **Memory.** Calls need instances, and these need memory ([`containers`]). What the plans need of a cluster's memory is at most what its nodes
//! have. Nobody is driven out by somebody who comes: a group that comes to a cluster must fit beside all that are there or were there and have
//! not had their turn, one that stays only beside those that had theirs. So where calls have grown beyond the memory, the groups with the
//! least work move, and no more of them than must. A move for the gain must leave the margin free, lest a group come and go with each
//! change of its rate. A group that fits nowhere stays where it was, and that is said ([`Verdict::Unplaced`]). Who stays is not kept out by what its
//! own instances hold: what the plans have its app hold there counts as free for it.
//!
//! **Source.** Heu-Orche (see [`crate::place`]); congestion games: Rosenthal, International Journal of Game Theory 2, 1973.
//!
//! **Complexity.** One Heu-Orche and one evaluation for each group: O(n(m + |E|)) with n clusters and m stages; no memory is taken for a group
//! that stays, once buffers have grown.
//!
//! **Invariants.** Every group with a cluster that can take it has one; what placed groups need of a cluster's memory is at most what there is;
//! where memory is ample nothing depends on it; a group moves for a gain above the margin or because it must; what
//! moved for gain never costs more than the bucket allows; the same input gives the same output.

mod appraise;
mod load;
mod memory;
mod moves;
mod pass;

use fdn_core::{Millis, Resources};

pub use appraise::{Appraisal, appraise};
pub use load::{FULL, Load, Rate};
pub use memory::containers;
pub use moves::{Cost, Moves};
pub use pass::Pass;

use crate::Error;
use crate::dag::{Dag, TaskIndex};
use crate::place::{
    Bars, Cluster, ClusterIndex, Costs, Exclusion, HeuOrche, Memory, Misfit, Network, Options,
    Placer, Plan, Problem, Rooms, Slots,
};
use crate::steer::{Margin, justifies};
use memory::{Demand, Ledger};

/// The client group of an app, and what it asks for.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// Groups of one app have its number and share its instances; numbers are small, since tables are as long as the largest.
    pub app: usize,
    /// What one call runs; the same for all groups of an app.
    pub dag: &'a Dag,
    /// How far its clients are from each cluster, one way.
    pub distance: &'a [Millis],
    /// How often they call.
    pub rate: Rate,
    /// The cluster of each given task so far; one that is no longer there has an index beyond all.
    pub before: Option<&'a [ClusterIndex]>,
    /// What keeps tasks out of clusters, if anything does.
    pub bars: Option<&'a Bars>,
    /// By what run times differ from work over speed, task by task and in these cluster by cluster; nothing where they do not.
    pub factors: Option<&'a [f64]>,
    /// Whether its clients were moved for a gain so lately that they stay for now, unless they must leave.
    pub dwells: bool,
}

impl Offer<'_> {
    /// By what the run time of a task differs from work over speed.
    fn factor(&self, task: usize, at: usize, clusters: usize) -> f64 {
        let factors = self.factors.unwrap_or_default();
        factors.get(task * clusters + at).copied().unwrap_or(1.0)
    }

    /// The share of a cluster's slots that is open to a task.
    fn share(&self, task: usize, at: usize) -> f64 {
        self.bars.map_or(1.0, |bars| bars.share(task, at))
    }
}

/// By what is decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// The gain that a move must have.
    pub margin: Margin,
    /// Readings of Heu-Orche.
    pub options: Options,
    /// How long an overfull cluster is taken to stay so.
    pub horizon: Millis,
}

/// What became of a group, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It had no place.
    First,
    /// It stays: nothing else is better.
    StillBest,
    /// It stays: something else is better, but not by enough.
    WithinMargin,
    /// It moves for the gain.
    Better,
    /// It would move for the gain, but enough others have, or it has itself lately; it is asked again next time.
    Deferred,
    /// It moves because the old place cannot take it.
    Failed(Exclusion),
    /// No cluster can take it.
    Unplaced,
}

impl Verdict {
    /// Whether users are sent elsewhere than before.
    #[must_use]
    pub const fn moves(self) -> bool {
        match self {
            Self::First | Self::Better | Self::Failed(_) => true,
            Self::StillBest | Self::WithinMargin | Self::Deferred | Self::Unplaced => false,
        }
    }
}

/// What was decided for one offer.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Why.
    pub verdict: Verdict,
    /// The cluster of each given task; empty if no cluster can take it.
    pub clusters: Vec<ClusterIndex>,
    /// What a call takes there, the expected waits included, and no toll; of one that is deferred, where it still is.
    pub latency: Millis,
}

/// A competition: the clusters, and what is asked of each.
#[derive(Debug)]
pub struct Competition<'a> {
    clusters: Vec<Cluster>,
    network: &'a Network,
    terms: Terms,
    loads: Vec<Load>,
    /// Of it, what tasks ask for that find only a part of the cluster open: few nodes have what they need, and these are taken for the same ones.
    narrow: Vec<Load>,
    /// The memory that everybody needs who is somewhere.
    all: Ledger,
    /// Of these, those that had their turn or have none.
    decided: Ledger,
    placer: HeuOrche,
    /// What decides about the offer: its times and its tolls.
    costs: Costs,
    /// Run times with the waits that it would meet.
    times: Costs,
    /// The mean run time of a task of the offer in each cluster.
    means: Vec<Millis>,
    rooms: Rooms,
    best: Plan,
    old: Plan,
}

impl<'a> Competition<'a> {
    /// Among `clusters`, joined by `network`.
    #[must_use]
    pub fn new(clusters: &[Cluster], network: &'a Network, terms: Terms) -> Self {
        Self {
            loads: clusters.iter().map(Load::of).collect(),
            narrow: clusters.iter().map(Load::of).collect(),
            all: Ledger::new(clusters.len()),
            decided: Ledger::new(clusters.len()),
            clusters: clusters.to_vec(),
            network,
            terms,
            placer: HeuOrche::default(),
            costs: Costs::default(),
            times: Costs::default(),
            means: Vec::new(),
            rooms: Rooms::default(),
            best: Plan::default(),
            old: Plan::default(),
        }
    }

    /// What is asked of each cluster.
    #[must_use]
    pub fn loads(&self) -> &[Load] {
        &self.loads
    }

    /// What is needed of each cluster's memory.
    #[must_use]
    pub fn needed(&self) -> &[Memory] {
        self.all.needed()
    }

    /// Adds what an offer asks for where its tasks are, and has no turn.
    pub fn settle(&mut self, offer: &Offer<'_>, clusters: &[ClusterIndex]) {
        self.come(offer, clusters);
        self.decided.put(offer, clusters, &self.clusters);
    }

    /// Takes that back.
    pub fn leave(&mut self, offer: &Offer<'_>, clusters: &[ClusterIndex]) {
        self.go(offer, clusters);
        self.decided.take(offer, clusters, &self.clusters);
    }

    fn come(&mut self, offer: &Offer<'_>, clusters: &[ClusterIndex]) {
        self.each_task(offer, clusters, Load::add);
        self.all.put(offer, clusters, &self.clusters);
    }

    fn go(&mut self, offer: &Offer<'_>, clusters: &[ClusterIndex]) {
        self.each_task(offer, clusters, Load::take);
        self.all.take(offer, clusters, &self.clusters);
    }

    fn each_task(
        &mut self,
        offer: &Offer<'_>,
        clusters: &[ClusterIndex],
        change: impl Fn(&mut Load, Rate, Millis),
    ) {
        for (task, cluster) in (0..offer.dag.given()).zip(clusters) {
            let at = cluster.get();
            if let (Some(load), Some(narrow)) = (self.loads.get_mut(at), self.narrow.get_mut(at)) {
                let mean = offer.dag.task(TaskIndex::new(task)).mean();
                let factor = offer.factor(task, at, self.clusters.len());
                let time = self.clusters[at].speed.time(mean) * factor;
                // A cluster that runs nothing is asked for nothing: infinite times would never be taken back.
                if time.is_finite() {
                    change(load, offer.rate, time);
                    if offer.share(task, at) < 1.0 {
                        change(narrow, offer.rate, time);
                    }
                }
            }
        }
    }

    /// Every offer has its turn, those with the most work first, ties in their order. `decided` hears of each with the problem as it was
    /// decided, in the order of the turns.
    ///
    /// # Errors
    /// When an offer's parts do not fit the clusters.
    pub fn run(
        &mut self,
        offers: &[Offer<'_>],
        moves: &mut Moves,
        mut decided: impl FnMut(usize, &Problem<'_>, &Outcome),
    ) -> Result<(), Error> {
        let longest = offers.iter().map(|offer| offer.dag.len()).max();
        self.shorten(longest.unwrap_or(0));
        for offer in offers {
            self.come(offer, offer.before.unwrap_or_default());
        }
        let work: Vec<f64> = offers.iter().map(work).collect();
        let total: f64 = work.iter().sum();
        let mut turns: Vec<usize> = (0..offers.len()).collect();
        turns.sort_by(|a, b| work[*b].total_cmp(&work[*a]).then(a.cmp(b)));
        for at in turns {
            let part = if total > 0.0 { work[at] / total } else { 0.0 };
            let cost = Cost(f64::midpoint(part, 1.0 / offers.len() as f64));
            self.turn(&offers[at], cost, moves, |problem, outcome| {
                decided(at, problem, outcome);
            })?;
        }
        Ok(())
    }

    /// A job of so many tasks uses no more than so many slots, those that are free first.
    fn shorten(&mut self, tasks: usize) {
        for cluster in &mut self.clusters {
            if cluster.slots.len() > tasks {
                let mut free = cluster.slots.available();
                free.sort_unstable();
                cluster.slots = free.into_iter().take(tasks).collect::<Slots>();
            }
        }
    }

    fn turn(
        &mut self,
        offer: &Offer<'_>,
        cost: Cost,
        moves: &mut Moves,
        decided: impl FnOnce(&Problem<'_>, &Outcome),
    ) -> Result<(), Error> {
        let before = offer.before.unwrap_or_default();
        let held = self.all.held(offer, before);
        self.go(offer, before);
        self.fill_costs(offer);
        self.fill_rooms(offer, before);
        let mut clusters = std::mem::take(&mut self.clusters);
        let outcome = with_back(&mut clusters, &held, |clusters| {
            self.decide(clusters, offer, cost, moves, decided)
        });
        self.clusters = clusters;
        let outcome = outcome?;
        // Whom no cluster can take stays where it was, and takes there what it takes.
        let there = if outcome.verdict == Verdict::Unplaced {
            before
        } else {
            &outcome.clusters
        };
        self.come(offer, there);
        self.decided.put(offer, there, &self.clusters);
        Ok(())
    }

    /// What the offer's tasks need of each cluster, and what is left there: for those that stay beside those that had their turn, for those that
    /// come beside all.
    fn fill_rooms(&mut self, offer: &Offer<'_>, before: &[ClusterIndex]) {
        let Self {
            clusters,
            all,
            decided,
            rooms,
            ..
        } = self;
        let more = |ledger: &Ledger, task: usize, at: usize| {
            let demand = Demand::of(offer, task, &clusters[at]);
            demand.map_or_else(Memory::default, |demand| {
                ledger.more((offer.app, task), at, &demand)
            })
        };
        let stays = |task: usize, at: usize| before.get(task).is_some_and(|p| p.get() == at);
        rooms.refill(
            (offer.dag.given(), clusters.len()),
            |task, at| {
                let alone = more(decided, task, at);
                if stays(task, at) {
                    return alone;
                }
                // Who shares an instance with somebody who may have to leave must be able to have it alone.
                let need = alone.max(more(all, task, at));
                if !is_in(before, at) {
                    return need;
                }
                // Where another of its tasks was, less counts as needed than there is for one that comes, and that other one may take more
                // beside all than it does alone.
                let others = (0..offer.dag.given()).filter(|other| stays(*other, at));
                let rest = all.needed()[at] - decided.needed()[at];
                need.beside(others.fold(rest, |rest, other| {
                    let alone = more(decided, other, at);
                    rest + (alone.max(more(all, other, at)) - alone)
                }))
            },
            |at| {
                let ledger = if is_in(before, at) { &*decided } else { &*all };
                Memory::of(&clusters[at].capacity) - ledger.needed()[at]
            },
        );
    }

    /// Run times with the waits that the offer would meet, if all of it came there, and the same with its tolls.
    fn fill_costs(&mut self, offer: &Offer<'_>) {
        let Self {
            clusters,
            loads,
            narrow,
            costs,
            times,
            means,
            terms,
            ..
        } = self;
        let tasks = offer.dag.given();
        let whole = whole(offer.dag);
        let task_of = |task: usize| offer.dag.task(TaskIndex::new(task));
        let count = clusters.len();
        means.clear();
        // Each of its tasks adds its own part; the mean of them, as often as there are, each as long as it takes there.
        means.extend(clusters.iter().enumerate().map(|(at, cluster)| {
            let sum = match offer.factors {
                None => cluster.speed.time(whole),
                Some(_) => (0..tasks).fold(Millis::ZERO, |sum, task| {
                    sum + cluster.speed.time(task_of(task).mean()) * offer.factor(task, at, count)
                }),
            };
            Millis::new(sum.get() / tasks as f64)
        }));
        let calls = Rate::per_second(offer.rate.get() * tasks as f64);
        let part = |task: usize, at: usize| loads[at].part(offer.share(task, at), &narrow[at]);
        times.refill(tasks, count, |task, at| {
            let mean = means[at];
            if !mean.get().is_finite() {
                return Millis::INFINITY;
            }
            clusters[at].speed.time(task_of(task).work) * offer.factor(task, at, count)
                + part(task, at).wait(calls, mean, terms.horizon)
        });
        costs.refill(tasks, count, |task, at| {
            let mean = means[at];
            if !mean.get().is_finite() {
                return Millis::INFINITY;
            }
            times.get(task, at) + part(task, at).toll(calls, mean, terms.horizon)
        });
    }

    fn decide(
        &mut self,
        clusters: &[Cluster],
        offer: &Offer<'_>,
        cost: Cost,
        moves: &mut Moves,
        decided: impl FnOnce(&Problem<'_>, &Outcome),
    ) -> Result<Outcome, Error> {
        let costs = std::mem::take(&mut self.costs);
        let times = std::mem::take(&mut self.times);
        let mut rooms = std::mem::take(&mut self.rooms);
        let outcome = self.outcome(
            clusters,
            ((&costs, &times), &mut rooms),
            offer,
            (cost, moves),
            decided,
        );
        (self.costs, self.times, self.rooms) = (costs, times, rooms);
        outcome
    }

    fn outcome(
        &mut self,
        clusters: &[Cluster],
        (costs, rooms): ((&Costs, &Costs), &mut Rooms),
        offer: &Offer<'_>,
        (cost, moves): (Cost, &mut Moves),
        decided: impl FnOnce(&Problem<'_>, &Outcome),
    ) -> Result<Outcome, Error> {
        let stays = match offer.before {
            None => None,
            Some(before) => {
                let problem = self.problem(clusters, offer, (costs, rooms))?;
                let assigned = |task: TaskIndex| before.get(task.get()).copied();
                let stays = self.placer.evaluate_into(&problem, assigned, &mut self.old);
                if stays.is_ok() {
                    let share = self.terms.margin.get();
                    rooms.withhold(|at| {
                        let part = if is_in(before, at) { 0.0 } else { share };
                        Memory::of(&clusters[at].capacity).times(part)
                    });
                }
                Some(stays)
            }
        };
        let problem = self.problem(clusters, offer, (costs, rooms))?;
        let placed = self.placer.place_into(&problem, &mut self.best).is_ok();
        let mut outcome = self.judge(offer, stays, placed, (cost, moves));
        if outcome.verdict != Verdict::Unplaced {
            outcome.latency = self.felt(&problem.with_costs(costs.1)?, &outcome.clusters);
        }
        decided(&problem, &outcome);
        Ok(outcome)
    }

    fn problem<'b>(
        &self,
        clusters: &'b [Cluster],
        offer: &Offer<'b>,
        (costs, rooms): ((&'b Costs, &'b Costs), &'b Rooms),
    ) -> Result<Problem<'b>, Error>
    where
        'a: 'b,
    {
        let problem = Problem::new(offer.dag, clusters, self.network, offer.distance)?;
        let problem = problem.with_tolls(costs.0, costs.1)?.with_rooms(rooms)?;
        let problem = match offer.bars {
            Some(bars) => problem.with_bars(bars)?,
            None => problem,
        };
        Ok(problem.with_options(self.terms.options))
    }

    /// What a call takes, tolls left out.
    fn felt(&mut self, problem: &Problem<'_>, clusters: &[ClusterIndex]) -> Millis {
        let assigned = |task: TaskIndex| clusters.get(task.get()).copied();
        let served = self.placer.evaluate_into(problem, assigned, &mut self.old);
        served.map_or(Millis::INFINITY, |()| self.old.latency())
    }

    /// What becomes of an offer, by whether it can stay where it is, if it is somewhere, and whether there is a place for it.
    fn judge(
        &self,
        offer: &Offer<'_>,
        stays: Option<Result<(), Misfit>>,
        placed: bool,
        (cost, moves): (Cost, &mut Moves),
    ) -> Outcome {
        let verdict = match (stays, placed) {
            (None | Some(Err(_)), false) => {
                return Outcome {
                    verdict: Verdict::Unplaced,
                    clusters: Vec::new(),
                    latency: Millis::INFINITY,
                };
            }
            (None, true) => Verdict::First,
            (Some(Err(misfit)), true) => Verdict::Failed(misfit.exclusion),
            (Some(Ok(())), true) => self.weigh(offer.dwells, cost, moves),
            (Some(Ok(())), false) => Verdict::StillBest,
        };
        let plan = if verdict.moves() {
            &self.best
        } else {
            &self.old
        };
        let placements = &plan.placements()[..offer.dag.given()];
        Outcome {
            verdict,
            clusters: placements
                .iter()
                .map(|placement| placement.cluster)
                .collect(),
            latency: plan.latency(),
        }
    }

    fn weigh(&self, dwells: bool, cost: Cost, moves: &mut Moves) -> Verdict {
        let (old, new) = (self.old.latency(), self.best.latency());
        if old <= new {
            Verdict::StillBest
        } else if !justifies(old, new, self.terms.margin) {
            Verdict::WithinMargin
        } else if !dwells && moves.pay(cost) {
            Verdict::Better
        } else {
            Verdict::Deferred
        }
    }
}

/// Whether a cluster is among these.
fn is_in(clusters: &[ClusterIndex], at: usize) -> bool {
    clusters.iter().any(|cluster| cluster.get() == at)
}

/// Does something while what an app holds of clusters counts as free: who is there is not kept out by its own instances.
fn with_back<T>(
    clusters: &mut [Cluster],
    held: &[(usize, Resources)],
    act: impl FnOnce(&[Cluster]) -> T,
) -> T {
    let mut kept = Vec::with_capacity(held.len());
    for (at, held) in held {
        let cluster = &mut clusters[*at];
        kept.push((*at, cluster.free, cluster.largest));
        cluster.give_back(held);
    }
    let result = act(clusters);
    // One that stands there twice has its first values back last.
    for (at, free, largest) in kept.into_iter().rev() {
        (clusters[at].free, clusters[at].largest) = (free, largest);
    }
    result
}

/// The mean work of one call at speed 1.
fn whole(dag: &Dag) -> Millis {
    (0..dag.given()).fold(Millis::ZERO, |sum, task| {
        sum + dag.task(TaskIndex::new(task)).mean()
    })
}

/// What a group asks for at speed 1, in erlangs.
fn work(offer: &Offer<'_>) -> f64 {
    offer.rate.erlangs(whole(offer.dag))
}

//! Who decides where a call goes: the network, or a rule that it is compared with.
//!
//! The rules are those that placement is compared with in simulation ([`fdn_scheduling::online::Settings`]), for calls that are one task each. They are
//! given the best conditions that they can have: they know sizes, speeds, distances and run times exactly. A rule that goes by what waits
//! everywhere must be asked for each call at the one place that knows; the way there counts, as every way does here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use super::site::{SITES, round_trips};

/// The cluster beside the place that knows what waits everywhere.
const CENTRE: usize = 0;

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Policy {
    /// The network: where its DNS sends clients.
    Ours,
    /// The nearest cluster.
    Nearest,
    /// Client networks are dealt out to the clusters in turn, and stay.
    RoundRobin,
    /// Clusters in turn, call by call; their queues first come, first served.
    Fcfs,
    /// The cluster with the least work queued for what it can do, call by call; its queue first come, first served.
    Priority,
}

impl Policy {
    /// As the table names it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Nearest => "nearest cluster",
            Self::RoundRobin => "round robin",
            Self::Fcfs => "FCFS",
            Self::Priority => "priority-first",
        }
    }

    /// What nodes do with calls that would wait.
    pub(crate) const fn waiting(self) -> Waiting {
        let (order, gain) = match self {
            Self::Ours => ("queue-or-cold", 20),
            Self::Nearest | Self::RoundRobin => ("queue-or-cold", 100),
            Self::Fcfs | Self::Priority => ("fcfs", 100),
        };
        Waiting { order, gain }
    }
}

/// What nodes do with calls that would wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// In which order they start (`queue.order`).
    pub(crate) order: &'static str,
    /// How much sooner they must be over elsewhere to be handed on (`forward.gain`); 100: where a rule has sent them is where they stay.
    pub(crate) gain: u8,
}

/// By what a cluster is chosen.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    /// As the DNS answers.
    Answer,
    Nearest,
    /// In turn, app by app and place by place.
    Dealt,
    /// In turn, call by call.
    InTurn,
    LeastWork,
    /// Where clients of each app and place were sent once.
    Kept(BTreeMap<(usize, usize), usize>),
}

impl From<Policy> for Rule {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Ours => Self::Answer,
            Policy::Nearest => Self::Nearest,
            Policy::RoundRobin => Self::Dealt,
            Policy::Fcfs => Self::InTurn,
            Policy::Priority => Self::LeastWork,
        }
    }
}

/// A rule with what it remembers.
#[derive(Debug)]
pub(crate) struct Steer {
    rule: Rule,
    trips: Vec<Vec<Duration>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Calls so far.
    turn: usize,
    dealt: BTreeMap<(usize, usize), usize>,
    /// Work of calls on their way or at a cluster, in ms at speed 1.
    work: [f64; SITES.len()],
    /// Calls so far of each cluster: its nodes take turns.
    nodes: [usize; SITES.len()],
}

/// A call that was sent somewhere, until this is dropped.
#[derive(Debug)]
pub(crate) struct Sent {
    steer: Arc<Steer>,
    pub(crate) site: usize,
    pub(crate) node: usize,
    work: f64,
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.steer.lock().work[self.site] -= self.work;
    }
}

impl Steer {
    /// By a rule, of which nothing is remembered yet.
    pub(crate) fn new(rule: Rule) -> anyhow::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            rule,
            trips: round_trips()?,
            state: Mutex::default(),
        }))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long it takes a client of a place to learn where to call, beside asking its DNS.
    pub(crate) fn way(&self, place: usize) -> Duration {
        match self.rule {
            Rule::LeastWork => self.trips[place][CENTRE],
            Rule::Answer | Rule::Nearest | Rule::Dealt | Rule::InTurn | Rule::Kept(_) => {
                Duration::ZERO
            }
        }
    }

    /// Sends a call of `work` of an app's client at a place somewhere, of nodes for which `serves` holds; the DNS answered with `answered`. Nowhere
    /// if that cluster has no such node.
    pub(crate) fn send(
        self: &Arc<Self>,
        (app, place, work): (usize, usize, f64),
        answered: (usize, usize),
        serves: impl Fn(usize, usize) -> bool,
    ) -> Option<Sent> {
        let mut state = self.lock();
        let site = self.choose(&mut state, app, place, answered.0);
        let node = if matches!(self.rule, Rule::Answer) {
            answered.1
        } else {
            let nodes = SITES[site].nodes;
            let first = state.nodes[site];
            let mut turns = (first..first + nodes).map(|turn| turn % nodes);
            turns.find(|node| serves(site, *node))?
        };
        state.nodes[site] += 1;
        state.work[site] += work;
        drop(state);
        Some(Sent {
            steer: Arc::clone(self),
            site,
            node,
            work,
        })
    }

    fn choose(&self, state: &mut State, app: usize, place: usize, answered: usize) -> usize {
        let turn = state.turn;
        match &self.rule {
            Rule::Answer => answered,
            Rule::Nearest => self.nearest(place),
            Rule::Dealt => {
                let next = state.dealt.len() % SITES.len();
                *state.dealt.entry((app, place)).or_insert(next)
            }
            Rule::InTurn => {
                state.turn += 1;
                turn % SITES.len()
            }
            Rule::LeastWork => {
                let queued = |site: &usize| state.work[*site] / SITES[*site].capacity();
                let least = (0..SITES.len()).min_by(|a, b| queued(a).total_cmp(&queued(b)));
                least.unwrap_or(answered)
            }
            Rule::Kept(places) => {
                let kept = places.get(&(app, place)).copied();
                kept.unwrap_or_else(|| self.nearest(place))
            }
        }
    }

    fn nearest(&self, place: usize) -> usize {
        let trips = &self.trips[place];
        (0..trips.len()).min_by_key(|at| trips[*at]).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYWHERE: fn(usize, usize) -> bool = |_, _| true;

    fn sites(rule: Rule, calls: &[(usize, usize)]) -> Vec<usize> {
        let steer = Steer::new(rule).expect("distances");
        let send = |(app, place): &(usize, usize)| {
            let sent = steer.send((*app, *place, 100.0), (3, 1), EVERYWHERE);
            sent.expect("sent").site
        };
        calls.iter().map(send).collect()
    }

    #[test]
    fn each_rule_sends_as_it_says() {
        let calls = [(0, 0), (0, 12), (0, 0), (1, 0), (0, 10), (0, 12)];
        assert_eq!(sites(Rule::Answer, &calls), [3; 6]);
        assert_eq!(sites(Rule::Nearest, &calls), [0, 1, 0, 0, 2, 1]);
        assert_eq!(sites(Rule::InTurn, &calls), [0, 1, 2, 3, 0, 1]);
        assert_eq!(sites(Rule::Dealt, &calls), [0, 1, 0, 2, 3, 1]);
        let kept = BTreeMap::from([((0, 0), 2)]);
        assert_eq!(sites(Rule::Kept(kept), &calls), [2, 1, 2, 0, 2, 1]);
    }

    #[test]
    fn the_least_work_for_what_a_cluster_can_do_and_the_way_to_who_knows_it() {
        let steer = Steer::new(Rule::LeastWork).expect("distances");
        let send = |work| steer.send((0, 0, work), (0, 0), EVERYWHERE).expect("sent");
        let (eu, us, ap, sa) = (send(160.0), send(150.0), send(100.0), send(80.0));
        assert_eq!([&eu, &us, &ap, &sa].map(|sent| sent.site), [0, 1, 2, 3]);
        // All have ten milliseconds now; the one whose call ends has none.
        drop(ap);
        let next = [send(100.0), send(10.0)];
        assert_eq!(next.each_ref().map(|sent| sent.site), [2, 0]);
        assert!(steer.way(10) > Duration::from_millis(100), "from Tokyo");
        let ours = Steer::new(Rule::Answer).expect("distances");
        assert_eq!(ours.way(10), Duration::ZERO);
    }

    #[test]
    fn nodes_take_turns_but_for_those_that_are_gone() {
        let steer = Steer::new(Rule::Nearest).expect("distances");
        let node = |serves: fn(usize, usize) -> bool| {
            let sent = steer.send((0, 0, 1.0), (0, 0), serves);
            sent.map(|sent| (sent.site, sent.node))
        };
        assert_eq!(node(EVERYWHERE), Some((0, 0)));
        assert_eq!(node(EVERYWHERE), Some((0, 1)));
        assert_eq!(node(|_, node| node == 1), Some((0, 1)));
        assert_eq!(node(|site, _| site != 0), None);
        let ours = Steer::new(Rule::Answer).expect("distances");
        let sent = ours.send((0, 0, 1.0), (3, 1), |_, _| false);
        assert_eq!(sent.map(|sent| (sent.site, sent.node)), Some((3, 1)));
    }
}

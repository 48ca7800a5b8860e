//! Everything that can happen to a small cluster, searched exhaustively (model checking, with `stateright`).
//!
//! Time advances in rounds: every node ticks, sends to every other, and is answered. Which links work is chosen for each round, in all possible
//! ways. In any round a process may be killed or restarted. For each reachable state it is checked that the invariants hold, and that
//! the cluster becomes whole, with one head, once nothing fails any more.
//!
//! **Why this ends.** Decisions depend only on how long ago a time was, and not beyond the longest duration in [`Timing`]; states that differ in
//! nothing else are merged. Only incarnations grow for ever: states beyond a few of them are not explored.

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::*;
use crate::head::{Ballot, Election, ElectionAction, Epoch, LeaseView};

/// The duration of a round, in milliseconds.
const ROUND: f64 = 100.0;

/// Rounds without a fault after which a cluster must be whole: the dead are given up, and those given up have joined again.
const HEALS: usize = 24;

/// The timing in rounds, as short as its rules allow ([`crate::settings`]).
fn timing() -> Timing {
    Timing {
        lease: ms(2.0 * ROUND),
        suspect_after: ms(ROUND),
        dead_after: ms(3.0 * ROUND),
        fresh: ms(ROUND),
        members: 8,
    }
}

/// How long a round of votes may take.
fn patience() -> Millis {
    ms(ROUND)
}

/// A cluster, its possible faults, and the bounds of the search.
#[derive(Clone, Debug)]
struct Faults {
    nodes: usize,
    /// How many processes may be killed; a killed one may be restarted.
    kills: u8,
    /// States with a later incarnation are not explored.
    incarnations: u32,
    /// States with a later epoch of the head are not explored; if `None`, there are no elections.
    epochs: Option<u32>,
}

impl Faults {
    /// The smallest case: links between three nodes fail and heal, and members are given up once.
    fn three() -> Self {
        Self {
            nodes: 3,
            kills: 0,
            incarnations: 2,
            epochs: None,
        }
    }
}

#[derive(Clone, Debug)]
struct State {
    now: Millis,
    nodes: Vec<Node>,
    has_elections: bool,
    elections: Vec<Election>,
    /// The members elected so far, by epoch.
    elected: BTreeMap<Epoch, BTreeSet<Key>>,
    kills: u8,
    /// What distinguishes this state from others ([`State::encoded`]).
    code: Vec<u64>,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.code == other.code
    }
}

impl std::hash::Hash for State {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.code.hash(state);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// A round in which these directions are open: bit `from * nodes + to`.
    Round(u32),
    Kill(usize),
    Restart(usize),
}

impl State {
    fn new(faults: &Faults) -> Self {
        let (nodes, kills) = (faults.nodes, faults.kills);
        let now = ms(0.0);
        let node = |at| Node::new(now, member(at, 1), timing(), at == 0);
        let mut state = Self {
            now,
            nodes: (0..nodes).map(node).collect(),
            has_elections: faults.epochs.is_some(),
            elections: (0..nodes).map(|_| Election::new(now, patience())).collect(),
            elected: BTreeMap::new(),
            kills,
            code: Vec::new(),
        };
        while !state.is_whole() {
            state.round(u32::MAX);
        }
        state.code = state.encoded();
        state
    }

    fn open(&self, directions: u32, from: usize, to: usize) -> bool {
        directions >> (from * self.nodes.len() + to) & 1 == 1
    }

    fn round(&mut self, directions: u32) {
        self.now += ms(ROUND);
        let live: Vec<usize> = (0..self.nodes.len())
            .filter(|at| self.nodes[*at].alive)
            .collect();
        for at in &live {
            let mut changes = Vec::new();
            self.nodes[*at].members.tick(self.now, &mut changes);
            self.changed(*at, &changes);
        }
        let said: Vec<Vec<ElectionAction>> = live.iter().map(|at| self.elects(*at)).collect();
        for from in &live {
            for to in live.iter().filter(|to| *to != from) {
                if self.open(directions, *from, *to) {
                    let message = self.nodes[*from].greeting(self.now);
                    let key = self.nodes[*from].me.key;
                    self.exchange((*from, key), *to, message, directions);
                }
            }
        }
        // As in production, where messages about heads are sent at the end of a turn, after its pings.
        for (at, election_actions) in live.iter().zip(said) {
            self.does(*at, election_actions, directions);
        }
    }

    /// Delivers a message and its answers. Every ping and every acknowledgement names the head.
    fn exchange(
        &mut self,
        (from, key): (usize, Key),
        to: usize,
        message: Message,
        directions: u32,
    ) {
        let is_ping = matches!(message, Message::Ping(..));
        let mut changes = Vec::new();
        let answering = self.nodes[to].me.key;
        let answers = self.nodes[to].receive(self.now, key, message, &mut changes);
        self.changed(to, &changes);
        if is_ping {
            self.names_head(from, to, directions);
        }
        if !self.open(directions, to, from) {
            return;
        }
        for answer in answers {
            let is_ack = matches!(answer, Message::Ack(..));
            let mut changes = Vec::new();
            let none = self.nodes[from].receive(self.now, answering, answer, &mut changes);
            assert!(none.is_empty(), "an answer is not answered");
            self.changed(from, &changes);
            if is_ack {
                self.names_head(to, from, directions);
            }
        }
    }

    fn changed(&mut self, at: usize, changes: &[Change]) {
        if changes.contains(&Change::Condemned) {
            self.nodes[at].begin_anew(self.now);
            self.elections[at].rejoin(self.now, &mut Vec::new());
        }
    }

    fn names_head(&mut self, from: usize, to: usize, directions: u32) {
        let known = self.elections[from].head_view();
        let key = self.nodes[from].me.key;
        let node = &self.nodes[to];
        if self.has_elections && node.members.is_joined() {
            let mut election_actions = Vec::new();
            self.elections[to].receive_view(
                self.now,
                key,
                known,
                &node.members,
                &mut election_actions,
            );
            self.does(to, election_actions, directions);
        }
    }

    /// The actions of a node's election at this time.
    fn elects(&mut self, at: usize) -> Vec<ElectionAction> {
        let node = &self.nodes[at];
        let mut election_actions = Vec::new();
        if self.has_elections && node.members.is_joined() {
            self.elections[at].tick(
                self.now,
                &node.members,
                LeaseView::Unavailable,
                &mut election_actions,
            );
        }
        election_actions
    }

    fn ballot(&mut self, from: usize, to: usize, ballot: Ballot, directions: u32) {
        let key = self.nodes[from].me.key;
        let node = &self.nodes[to];
        if node.alive && node.members.is_joined() && self.open(directions, from, to) {
            let mut election_actions = Vec::new();
            self.elections[to].receive(self.now, key, ballot, &node.members, &mut election_actions);
            self.does(to, election_actions, directions);
        }
    }

    fn does(&mut self, at: usize, election_actions: Vec<ElectionAction>, directions: u32) {
        for action in election_actions {
            match action {
                ElectionAction::Broadcast(ballot) => {
                    for to in (0..self.nodes.len()).filter(|to| *to != at) {
                        self.ballot(at, to, ballot, directions);
                    }
                }
                ElectionAction::Reply(key, ballot) => {
                    if let Some(to) = self.nodes.iter().position(|node| node.me.key == key) {
                        self.ballot(at, to, ballot, directions);
                    }
                }
                ElectionAction::Changed(epoch, Some(head)) => {
                    self.elected.entry(epoch).or_default().insert(head);
                }
                ElectionAction::Changed(_, None) => {}
            }
        }
    }

    /// Numbers that are equal for two states exactly if the same can happen from them.
    fn encoded(&self) -> Vec<u64> {
        let timing = timing();
        // All times beyond `most` are equivalent.
        let ago = |at: Millis, most: Millis| {
            let rounds = (self.now - at).get().min(most.get() + ROUND) / ROUND;
            rounds.round() as u64 + 1
        };
        let mut code = vec![u64::from(self.kills), self.elected.len() as u64];
        let key = |key: Key| u64::from(key.tag.get()) << 32 | u64::from(key.incarnation);
        for (epoch, heads) in &self.elected {
            code.extend([u64::from(epoch.0), heads.len() as u64]);
            code.extend(heads.iter().map(|head| key(*head)));
        }
        for (node, election) in self.nodes.iter().zip(&self.elections) {
            let members = &node.members;
            code.extend([u64::from(node.alive), key(node.me.key)]);
            if !node.alive {
                continue;
            }
            if self.has_elections {
                code.extend(election.encoded(self.now));
            }
            code.extend([u64::from(members.joined), members.records.len() as u64]);
            for (who, record) in &members.records {
                code.extend([key(*who), u64::from(record.counts)]);
                code.push(record.condemned_by.len() as u64);
                code.extend(record.condemned_by.iter().map(|by| key(*by)));
                if !record.counts {
                    code.push(record.known_by.len() as u64);
                    code.extend(record.known_by.iter().map(|by| key(*by)));
                }
                // A node's knowledge of itself, and what led to a condemnation, are not used again.
                if record.is_condemned() {
                    let since = record.condemned_since;
                    code.push(since.map_or(0, |since| ago(since, timing.lease * 1.1)));
                } else if *who != node.me.key {
                    let left = (record.lease - self.now).max(Millis::ZERO).get() / ROUND;
                    code.extend([
                        ago(record.last_contact, timing.dead_after),
                        record.granted.map_or(0, |at| ago(at, timing.lease)),
                        left.round() as u64,
                    ]);
                    let fresh = |at: &Millis| self.now <= *at + timing.fresh;
                    let suspected = record.suspected_by.iter().filter(|(_, at)| fresh(at));
                    let suspected: Vec<u64> = suspected
                        .flat_map(|(by, at)| [key(*by), ago(*at, timing.fresh)])
                        .collect();
                    code.push(suspected.len() as u64);
                    code.extend(suspected);
                }
            }
            let mut gone: Vec<u64> = members.gone.iter().map(|who| key(*who)).collect();
            gone.sort_unstable();
            code.push(gone.len() as u64);
            code.extend(gone);
        }
        code
    }

    /// Whether the cluster becomes whole if nothing fails any more.
    fn heals(&self) -> bool {
        let mut state = self.clone();
        (0..HEALS).any(|_| {
            state.round(u32::MAX);
            state.is_whole()
        })
    }

    /// Whether all live nodes form one cluster under one head.
    fn is_whole(&self) -> bool {
        let mut heads = BTreeSet::new();
        let nodes = self.nodes.iter().zip(&self.elections);
        for (_, election) in nodes.filter(|(node, _)| node.alive) {
            heads.insert(election.head());
        }
        let head = heads.first().copied().flatten().map(|(_, key)| key);
        let leads = |node: &Node| node.alive && head == Some(node.me.key);
        let has_head = heads.len() == 1 && self.nodes.iter().any(leads);
        is_whole(self.now, &self.nodes) && (has_head || !self.has_elections)
    }

    /// Whether two nodes act without knowing of each other: two clusters where there was one.
    fn is_split(&self) -> bool {
        let acting: Vec<&Node> = self
            .nodes
            .iter()
            .filter(|node| node.alive && node.members.has_quorum(self.now))
            .collect();
        let strange = |a: &Node, b: &Node| a.members.get(b.me.key).is_none();
        acting
            .iter()
            .any(|a| acting.iter().any(|b| strange(a, b) && strange(b, a)))
    }

    /// Whether the others are a majority that is connected: without one nobody can be given up, and an operator must declare who is dead.
    fn may_kill(&self, at: usize) -> bool {
        let live = || self.nodes.iter().filter(|node| node.alive);
        let hears_all = |node: &Node| {
            let mut keys = node.members.members().map(|member| member.key);
            keys.all(|key| node.members.status(self.now, key) == Status::Alive)
        };
        self.nodes[at].alive
            && self.is_whole()
            && live().all(hears_all)
            && live().count() > self.nodes[at].members.majority()
    }
}

impl Model for Faults {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let count = self.nodes;
        let links: Vec<u32> = (0..count)
            .flat_map(|a| (0..a).map(move |b| (a, b)))
            .map(|(a, b)| 1 << (a * count + b) | 1 << (b * count + a))
            .collect();
        for chosen in 0..1_u32 << links.len() {
            let open = links.iter().enumerate();
            let open = open.filter(|(at, _)| chosen >> at & 1 == 1);
            actions.push(Action::Round(open.fold(0, |all, (_, link)| all | link)));
        }
        for at in 0..count {
            if state.kills > 0 && state.may_kill(at) {
                actions.push(Action::Kill(at));
            }
            if !state.nodes[at].alive {
                actions.push(Action::Restart(at));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Round(directions) => state.round(directions),
            Action::Kill(at) => {
                state.nodes[at].alive = false;
                state.kills -= 1;
            }
            Action::Restart(at) => {
                state.nodes[at].restart(state.now);
                state.elections[at] = Election::new(state.now, patience());
            }
        }
        state.code = state.encoded();
        Some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        let mut nodes = state.nodes.iter();
        let mut elections = state.elections.iter();
        nodes.all(|node| node.me.key.incarnation <= self.incarnations)
            && elections.all(|election| {
                self.epochs
                    .is_none_or(|most| election.head_view().epoch.0 <= most)
            })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("who is given up does not act", |_, state: &State| {
                who_acts_though_given_up(state.now, &state.nodes).is_none()
            }),
            Property::always("there is one cluster", |_, state: &State| !state.is_split()),
            Property::always("an epoch has one head", |_, state: &State| {
                state.elected.values().all(|heads| heads.len() == 1)
            }),
            Property::always("what heals grows together", |_, state: &State| {
                state.heals()
            }),
            // The search reaches the interesting states.
            Property::sometimes("two act without a third", |_, state: &State| {
                let acts = |node: &&Node| {
                    node.members.has_quorum(state.now) && node.members.len() < state.nodes.len()
                };
                state.nodes.iter().filter(acts).count() >= 2
            }),
            Property::sometimes("one has come back", |_, state: &State| {
                let is_back = |node: &Node| node.me.key.incarnation > 1 && node.members.joined;
                state.nodes.iter().any(is_back)
            }),
        ]
    }
}

/// Searches all states; there must be at least this many, or the model has lost some of its faults.
fn check(faults: Faults, least: usize) {
    let checker = faults
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    checker.assert_properties();
    let states = checker.unique_state_count();
    assert!(states >= least, "only {states} states were reached");
}

#[test]
fn whatever_links_of_three_nodes_fail() {
    check(Faults::three(), 27_000);
}

mod soak {
    use super::*;

    #[test]
    fn whatever_links_fail_while_heads_are_elected() {
        let faults = Faults {
            epochs: Some(3),
            ..Faults::three()
        };
        check(faults, 450_000);
    }

    #[test]
    fn whatever_links_fail_and_a_process_is_killed() {
        let faults = Faults {
            kills: 1,
            ..Faults::three()
        };
        check(faults, 230_000);
    }
}

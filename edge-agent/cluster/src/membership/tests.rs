//! Membership in virtual time, with links that break and heal and nodes that die: a node that is given up does not act, and the cluster reunites.

mod model;

use std::net::SocketAddr;

use fdn_core::{Millis, Resources};
use proptest::prelude::*;

use super::*;
use crate::identity::Tag;

const STEP: f64 = 50.0;

fn ms(value: f64) -> Millis {
    Millis::new(value)
}

fn timing() -> Timing {
    Timing {
        lease: ms(600.0),
        suspect_after: ms(400.0),
        dead_after: ms(800.0),
        fresh: ms(300.0),
        members: 16,
    }
}

fn member(at: usize, incarnation: u32) -> Member {
    Member {
        key: Key {
            tag: Tag::new(at as u32 + 1),
            incarnation,
        },
        node: format!("n{at}").parse().unwrap(),
        address: SocketAddr::from(([127, 0, 0, 1], 9000 + at as u16)),
        capacity: Resources::default(),
        candidate: true,
    }
}

#[derive(Clone, Debug)]
enum Message {
    Hello(Member),
    Ping(Millis, Opinions),
    Ack(Millis, bool, Opinions),
    Members(Vec<Gossip>),
}

#[derive(Clone, Debug)]
struct Node {
    me: Member,
    members: Membership,
    alive: bool,
}

impl Node {
    fn new(now: Millis, me: Member, timing: Timing, is_founder: bool) -> Self {
        Self {
            members: Membership::new(now, me.clone(), timing, is_founder),
            me,
            alive: true,
        }
    }

    /// The periodic message to each other node.
    fn greeting(&self, now: Millis) -> Message {
        if self.members.is_joined() {
            Message::Ping(now, self.members.opinions(now))
        } else {
            Message::Hello(self.me.clone())
        }
    }

    /// Handles a message; returns the answer.
    fn receive(
        &mut self,
        now: Millis,
        from: Key,
        message: Message,
        changes: &mut Vec<Change>,
    ) -> Vec<Message> {
        let members = &mut self.members;
        match message {
            Message::Hello(member) if members.is_joined() => {
                match members.admit(now, &member, changes) {
                    Ok(_) => vec![Message::Members(members.gossip())],
                    Err(Refusal::Condemned) => {
                        vec![Message::Members(vec![Gossip::Gone(member.key)])]
                    }
                    Err(_) => Vec::new(),
                }
            }
            Message::Ping(sent, opinions) if members.is_joined() => {
                let granted = members.on_ping(now, from, &opinions, changes);
                let differs = opinions.digest != members.digest();
                let list = (members.get(from).is_none() || differs)
                    .then(|| Message::Members(members.gossip()));
                let ack = Message::Ack(sent, granted, members.opinions(now));
                list.into_iter().chain([ack]).collect()
            }
            Message::Hello(_) | Message::Ping(..) => Vec::new(),
            Message::Ack(sent, granted, opinions) => {
                members.on_ack(now, from, (sent, granted), &opinions, changes);
                Vec::new()
            }
            Message::Members(gossip) => {
                members.learn(now, from, &gossip, changes);
                Vec::new()
            }
        }
    }

    /// Joins again under the next incarnation after the others have given this node up.
    fn begin_anew(&mut self, now: Millis) {
        self.me.key.incarnation += 1;
        self.members = Membership::new(now, self.me.clone(), self.members.timing, false);
    }

    /// A process killed and restarted: it knows nothing, and listens at the same address.
    fn restart(&mut self, now: Millis) {
        self.me.key = Key {
            tag: Tag::new(self.me.key.tag.get() + 100),
            incarnation: 1,
        };
        self.members = Membership::new(now, self.me.clone(), self.members.timing, false);
        self.alive = true;
    }
}

struct Cluster {
    now: Millis,
    nodes: Vec<Node>,
    /// The pairs of nodes between which links are cut.
    cut: Vec<(usize, usize)>,
    under_way: VecDeque<(Millis, usize, usize, Key, Message)>,
    changes: Vec<(usize, Change)>,
}

impl Cluster {
    fn new(count: usize) -> Self {
        let node = |at| Node::new(ms(0.0), member(at, 1), timing(), at == 0);
        Self {
            now: ms(0.0),
            nodes: (0..count).map(node).collect(),
            cut: Vec::new(),
            under_way: VecDeque::new(),
            changes: Vec::new(),
        }
    }

    fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cut.contains(&(a, b)) || self.cut.contains(&(b, a))
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        let key = self.nodes[from].me.key;
        // Deliberately not in order: messages of one pair sometimes overtake each other.
        let delay = 5.0 + ((from * 31 + to * 17 + self.under_way.len()) % 40) as f64;
        if !self.is_cut(from, to) {
            self.under_way
                .push_back((self.now + ms(delay), from, to, key, message));
        }
    }

    fn step(&mut self) {
        self.now += ms(STEP);
        let mut due: Vec<_> = Vec::new();
        let now = self.now;
        self.under_way.retain(|entry| {
            if entry.0 <= now {
                due.push(entry.clone());
            }
            entry.0 > now
        });
        due.sort_by_key(|entry| entry.0);
        for (_, from, to, key, message) in due {
            if self.nodes[to].alive && !self.is_cut(from, to) {
                self.receive(from, to, key, message);
            }
        }
        for at in 0..self.nodes.len() {
            if !self.nodes[at].alive {
                continue;
            }
            let mut changes = Vec::new();
            self.nodes[at].members.tick(now, &mut changes);
            self.changed(at, changes);
            for to in (0..self.nodes.len()).filter(|to| *to != at) {
                let message = self.nodes[at].greeting(now);
                self.send(at, to, message);
            }
        }
        self.check();
    }

    fn receive(&mut self, from: usize, to: usize, key: Key, message: Message) {
        let now = self.now;
        let mut changes = Vec::new();
        let answers = self.nodes[to].receive(now, key, message, &mut changes);
        self.changed(to, changes);
        for answer in answers {
            self.send(to, from, answer);
        }
    }

    fn changed(&mut self, at: usize, changes: Vec<Change>) {
        for change in changes {
            if change == Change::Condemned {
                self.nodes[at].begin_anew(self.now);
            }
            self.changes.push((at, change));
        }
    }

    fn check(&self) {
        for node in self.nodes.iter().filter(|node| node.alive) {
            let acts = self.now < node.members.acts_until();
            assert_eq!(acts, node.members.has_quorum(self.now), "{}", node.me.node);
            remembers_rightly(self.now, &node.members);
        }
        let overdue = who_acts_though_given_up(self.now, &self.nodes);
        assert!(overdue.is_none(), "{overdue:?} at {}", self.now);
    }

    fn run(&mut self, span: f64) {
        let until = self.now + ms(span);
        while self.now < until {
            self.step();
        }
    }

    fn restart(&mut self, at: usize) {
        self.nodes[at].restart(self.now);
        self.under_way
            .retain(|(_, from, to, _, _)| *from != at && *to != at);
    }

    fn is_whole(&self) -> bool {
        is_whole(self.now, &self.nodes)
    }
}

/// Checks that the cached opinions are those that a look at all members would yield.
fn remembers_rightly(now: Millis, members: &Membership) {
    let sorted = |mut opinions: Opinions| {
        opinions.suspects.sort_unstable();
        opinions.condemned.sort_unstable();
        opinions
    };
    let kept = sorted(members.opinions(now));
    assert_eq!(kept, sorted(members.compute_opinions(now)));
    assert_eq!(kept.digest, members.digest_of_list());
    let records = || members.records.iter();
    assert_eq!(
        members.has_pending,
        records().any(|(_, record)| !record.counts)
    );
    for (key, record) in records() {
        for by in record.suspected_by.keys() {
            let suspecting = &members.records[by];
            assert!(suspecting.suspects.contains(key), "{by} suspects {key}");
        }
    }
}

/// A node that acts under a key that another one has given up: this must never happen.
fn who_acts_though_given_up(now: Millis, nodes: &[Node]) -> Option<(&NodeId, &NodeId)> {
    let live = || nodes.iter().filter(|node| node.alive);
    live()
        .filter(|node| node.members.has_quorum(now))
        .find_map(|node| {
            live()
                .find(|other| other.members.is_gone(node.me.key))
                .map(|other| (&node.me.node, &other.me.node))
        })
}

/// Whether all live nodes are members of one cluster, count for each other, and may act.
fn is_whole(now: Millis, nodes: &[Node]) -> bool {
    let live: Vec<&Node> = nodes.iter().filter(|node| node.alive).collect();
    let mut keys: Vec<Key> = live.iter().map(|node| node.me.key).collect();
    keys.sort_unstable();
    live.iter().all(|node| {
        let known: Vec<Key> = node.members.members().map(|member| member.key).collect();
        let all_count = known.iter().all(|key| node.members.counts(*key));
        node.members.has_quorum(now) && known == keys && all_count
    })
}

#[test]
fn nodes_join_one_after_the_other_and_all_may_act() {
    let mut cluster = Cluster::new(5);
    assert!(
        cluster.nodes[0].members.has_quorum(cluster.now),
        "the founder is alone"
    );
    assert!(
        !cluster.nodes[1].members.has_quorum(cluster.now),
        "it is no member yet"
    );
    cluster.run(2000.0);
    assert!(cluster.is_whole());
}

#[test]
fn a_dead_node_is_given_up_when_its_lease_is_over_and_not_before() {
    let mut cluster = Cluster::new(5);
    cluster.run(2000.0);
    cluster.changes.clear();
    cluster.nodes[3].alive = false;
    let key = cluster.nodes[3].me.key;
    cluster.run(800.0);
    assert!(cluster.changes.is_empty(), "not before dead_after");
    cluster.run(2000.0);
    let gone = cluster
        .changes
        .iter()
        .filter(|(_, change)| *change == Change::Gone(key));
    assert_eq!(gone.count(), 4, "all others know");
    assert!(cluster.is_whole());
}

#[test]
fn one_broken_link_costs_nobody_its_place() {
    let mut cluster = Cluster::new(5);
    cluster.run(2000.0);
    cluster.changes.clear();
    cluster.cut = vec![(1, 2)];
    cluster.run(20_000.0);
    assert!(cluster.changes.is_empty(), "{:?}", cluster.changes);
    let suspect = cluster.nodes[1]
        .members
        .status(cluster.now, cluster.nodes[2].me.key);
    assert_eq!(suspect, Status::Suspect);
}

#[test]
fn half_of_a_cluster_gives_nobody_up() {
    let mut cluster = Cluster::new(4);
    cluster.run(2000.0);
    cluster.changes.clear();
    cluster.cut = vec![(0, 2), (0, 3), (1, 2), (1, 3)];
    cluster.run(10_000.0);
    assert!(cluster.changes.is_empty());
    assert!(
        cluster
            .nodes
            .iter()
            .all(|node| !node.members.has_quorum(cluster.now))
    );
    cluster.cut.clear();
    cluster.run(1000.0);
    assert!(cluster.is_whole());
    assert!(
        cluster
            .nodes
            .iter()
            .all(|node| node.me.key.incarnation == 1)
    );
}

#[test]
fn who_was_given_up_comes_back_as_the_next_incarnation() {
    let mut cluster = Cluster::new(5);
    cluster.run(2000.0);
    cluster.cut = (0..4).map(|other| (other, 4)).collect();
    cluster.run(5000.0);
    assert!(!cluster.nodes[4].members.has_quorum(cluster.now));
    assert_eq!(cluster.nodes[0].members.len(), 4);
    cluster.cut.clear();
    cluster.run(3000.0);
    assert!(cluster.is_whole());
    assert_eq!(cluster.nodes[4].me.key.incarnation, 2);
}

/// A past bug: two nodes that had been given up came back through one that was cut off from the others at that moment, and outvoted them.
#[test]
fn who_joins_through_one_that_was_just_cut_off_does_not_count() {
    for heal in [50.0, 100.0, 150.0, 200.0, 300.0] {
        let mut cluster = Cluster::new(5);
        cluster.run(2000.0);
        for isolated in [3, 0] {
            let others = (0..5).filter(|at| *at != isolated);
            cluster.cut.extend(others.map(|at| (at, isolated)));
            cluster.run(50.0);
        }
        cluster.run(2300.0);
        assert_eq!(cluster.nodes[4].members.len(), 3, "{heal}");
        cluster.cut.clear();
        cluster.run(heal);
        // Nodes 0, 3 and 4 on one side, 1 and 2 on the other.
        cluster.cut = vec![(0, 1), (0, 2), (3, 1), (3, 2), (4, 1), (4, 2)];
        cluster.run(10_000.0);
        cluster.cut.clear();
        cluster.run(5000.0);
        assert!(cluster.is_whole(), "{heal}");
    }
}

#[test]
fn an_operator_can_say_that_a_node_is_dead() {
    let mut cluster = Cluster::new(2);
    cluster.run(1000.0);
    cluster.nodes[1].alive = false;
    cluster.run(10_000.0);
    let now = cluster.now;
    let dead = cluster.nodes[1].me.key;
    let members = &mut cluster.nodes[0].members;
    assert!(!members.has_quorum(now), "one of two is no majority");
    let mut changes = Vec::new();
    members.left(dead, &mut changes);
    assert_eq!(changes, [Change::Gone(dead)]);
    assert!(members.has_quorum(now));
}

#[test]
fn one_of_two_lets_the_other_in_again_once_it_was_silent() {
    let mut cluster = Cluster::new(2);
    cluster.run(1000.0);
    let before = cluster.nodes[1].me.key;
    cluster.restart(1);
    cluster.run(200.0);
    assert!(!cluster.nodes[1].members.is_joined(), "it may be another");
    cluster.run(1500.0);
    assert!(cluster.is_whole());
    assert!(cluster.changes.contains(&(0, Change::Gone(before))));
    // Under another address nobody knows that it is the same machine.
    cluster.restart(1);
    cluster.nodes[1].me.address.set_port(1);
    cluster.run(10_000.0);
    assert!(!cluster.nodes[1].members.is_joined());
}

#[test]
fn of_two_that_were_both_killed_neither_is_let_in_by_one_that_was_not_asked() {
    let mut cluster = Cluster::new(4);
    cluster.run(2000.0);
    // Two and two; on each side one is killed and restarted.
    cluster.cut = vec![(0, 2), (0, 3), (1, 2), (1, 3)];
    cluster.run(2000.0);
    cluster.restart(1);
    cluster.restart(3);
    cluster.run(10_000.0);
    for node in &cluster.nodes {
        assert!(!node.members.has_quorum(cluster.now), "{}", node.me.node);
    }
    cluster.cut.clear();
    cluster.run(5000.0);
    assert!(cluster.is_whole());
}

#[test]
fn a_name_or_tag_is_not_given_twice() {
    let mut cluster = Cluster::new(2);
    cluster.run(1000.0);
    let now = cluster.now;
    let mut changes = Vec::new();
    let seed = &mut cluster.nodes[0].members;
    let mut admit = |member: &Member| seed.admit(now, member, &mut changes);
    let namesake = Member {
        key: member(7, 1).key,
        ..member(1, 1)
    };
    assert_eq!(
        admit(&namesake),
        Err(Refusal::NameTaken),
        "the one before it answers"
    );
    let twin = Member {
        key: member(1, 1).key,
        ..member(7, 1)
    };
    assert_eq!(admit(&twin), Err(Refusal::TagTaken));
    assert_eq!(admit(&member(1, 1)), Ok(false), "it is a member");
    assert_eq!(
        admit(&member(1, 2)),
        Ok(true),
        "it says itself that it begins anew"
    );
    assert_eq!(admit(&member(1, 1)), Err(Refusal::Condemned));
    assert_eq!(changes[0], Change::Gone(member(1, 1).key));
}

#[derive(Clone, Debug)]
enum Trouble {
    Cut(usize, usize),
    Isolate(usize),
    Split(usize),
    Heal,
    Kill(usize),
    Restart(usize),
}

fn troubles() -> impl Strategy<Value = Vec<(f64, Trouble)>> {
    let trouble = prop_oneof![
        (0usize..7, 0usize..7).prop_map(|(a, b)| Trouble::Cut(a, b)),
        (0usize..7).prop_map(Trouble::Isolate),
        (0usize..128).prop_map(Trouble::Split),
        Just(Trouble::Heal),
        (0usize..7).prop_map(Trouble::Kill),
        (0usize..7).prop_map(Trouble::Restart),
    ];
    prop::collection::vec((50.0..3000.0, trouble), 1..16)
}

/// Whether the counting members other than this one outnumber the dead that they have not given up yet; if not, an
/// operator must declare who is dead.
fn others_suffice(cluster: &Cluster, at: usize) -> bool {
    let nodes = cluster.nodes.iter().enumerate();
    let left: Vec<&Node> = nodes
        .filter(|(other, node)| *other != at && node.alive && node.members.counts(node.me.key))
        .map(|(_, node)| node)
        .collect();
    let is_dead = |member: &&Member| {
        let mut nodes = cluster.nodes.iter();
        nodes.any(|node| !node.alive && node.me.node == member.node)
    };
    let dead = left
        .iter()
        .map(|node| node.members.members().filter(is_dead).count());
    left.len() > dead.max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn who_is_given_up_does_not_act_and_what_heals_grows_together(
        count in 3usize..8,
        troubles in troubles(),
    ) {
        let mut cluster = Cluster::new(count);
        cluster.run(2000.0);
        prop_assert!(cluster.is_whole());
        for (pause, trouble) in troubles {
            let whole = cluster.is_whole();
            match trouble {
                Trouble::Cut(a, b) if a != b => cluster.cut.push((a % count, b % count)),
                Trouble::Cut(..) => {}
                Trouble::Isolate(node) => {
                    let node = node % count;
                    cluster.cut.extend((0..count).filter(|at| *at != node).map(|at| (at, node)));
                }
                Trouble::Split(sides) => {
                    let side = |at: usize| sides >> at & 1;
                    for a in 0..count {
                        cluster.cut.extend((0..a).filter(|b| side(*b) != side(a)).map(|b| (a, b)));
                    }
                }
                Trouble::Heal => cluster.cut.clear(),
                // The remaining nodes need not be a majority of all.
                Trouble::Restart(node) => {
                    let node = node % count;
                    if cluster.nodes[node].alive && others_suffice(&cluster, node) {
                        cluster.restart(node);
                    }
                }
                // A majority must remain: without it nobody can be given up, and an operator must declare who is dead.
                Trouble::Kill(node) => {
                    let live = cluster.nodes.iter().filter(|node| node.alive).count();
                    let node = &mut cluster.nodes[node % count];
                    let majority = node.members.majority();
                    if cluster.cut.is_empty() && whole && node.alive && live > majority {
                        node.alive = false;
                    }
                }
            }
            cluster.run(pause);
        }
        cluster.cut.clear();
        cluster.run(15_000.0);
        prop_assert!(cluster.is_whole());
    }
}

//! Elections: one head per epoch, the right one, and a new one soon after it is gone.

use std::net::SocketAddr;

use fdn_core::Resources;
use proptest::prelude::*;

use super::*;
use crate::identity::{Member, Tag};
use crate::membership::{Opinions, Timing};

fn ms(value: f64) -> Millis {
    Millis::new(value)
}

fn member(at: u32, candidate: bool) -> Member {
    Member {
        key: Key {
            tag: Tag::new(at + 1),
            incarnation: 1,
        },
        node: format!("n{at}").parse().unwrap(),
        address: SocketAddr::from(([127, 0, 0, 1], 9000)),
        capacity: Resources::default(),
        candidate,
    }
}

impl Election {
    /// Numbers that are equal for two elections exactly if the same can happen from them.
    pub(crate) fn encoded(&self, now: Millis) -> Vec<u64> {
        let left = |until: Millis| (until - now).max(Millis::ZERO).get().round() as u64;
        let number = |key: Key| u64::from(key.tag.get()) << 32 | u64::from(key.incarnation);
        let mut code = vec![
            u64::from(self.seen.0),
            u64::from(self.voted.0),
            u64::from(self.followed.0),
            left(self.not_before),
        ];
        let head = self
            .head
            .map_or([0, 0], |(epoch, key)| [u64::from(epoch.0), number(key)]);
        code.extend(head);
        if let Some(round) = &self.candidacy {
            code.extend([
                u64::from(round.epoch.0),
                u64::from(round.before.0),
                left(round.until + ms(1.0)),
                round.votes.len() as u64,
            ]);
            code.extend(round.votes.iter().map(|key| number(*key)));
        } else {
            code.push(0);
        }
        code
    }
}

struct Voter {
    members: Membership,
    election: Election,
    lease: LeaseView,
    alive: bool,
}

struct Cluster {
    now: Millis,
    voters: Vec<Voter>,
    election_actions: Vec<(u32, ElectionAction)>,
}

impl Cluster {
    /// All members of one cluster, connected to each other; the first ones are candidates.
    fn new(count: u32, candidates: u32) -> Self {
        let timing = Timing {
            lease: ms(1e9),
            suspect_after: ms(1000.0),
            dead_after: ms(2e9),
            fresh: ms(1000.0),
            members: 16,
        };
        let all: Vec<Member> = (0..count).map(|at| member(at, at < candidates)).collect();
        let voter = |me: &Member| {
            let mut members = Membership::new(ms(0.0), me.clone(), timing, true);
            let gossip: Vec<_> = all
                .iter()
                .map(|member| crate::membership::Gossip::Member {
                    member: member.clone(),
                    draining: false,
                    counts: true,
                })
                .collect();
            members.learn(ms(0.0), me.key, &gossip, &mut Vec::new());
            for other in &all {
                let opinions = Opinions::default();
                members.on_ack(
                    ms(0.0),
                    other.key,
                    (ms(0.0), true),
                    &opinions,
                    &mut Vec::new(),
                );
            }
            Voter {
                members,
                election: Election::new(ms(0.0), ms(100.0)),
                lease: LeaseView::Unavailable,
                alive: true,
            }
        };
        Self {
            now: ms(0.0),
            voters: all.iter().map(voter).collect(),
            election_actions: Vec::new(),
        }
    }

    fn key(at: u32) -> Key {
        member(at, true).key
    }

    /// Advances time; every live member hears of every other; then messages are delivered, except those that `lost` selects.
    fn step(&mut self, lost: &mut impl FnMut() -> bool) {
        self.now += ms(60.0);
        let alive: Vec<Key> = (0..)
            .zip(&self.voters)
            .filter(|(_, voter)| voter.alive)
            .map(|(at, _)| Self::key(at))
            .collect();
        for (at, voter) in (0..).zip(&mut self.voters).filter(|(_, voter)| voter.alive) {
            for key in &alive {
                voter.members.record_contact(self.now, *key);
            }
            let mut election_actions = Vec::new();
            voter
                .election
                .tick(self.now, &voter.members, voter.lease, &mut election_actions);
            self.election_actions
                .extend(election_actions.into_iter().map(|action| (at, action)));
            // Every ping names the head.
            if let Some((epoch, key)) = voter.election.head() {
                self.election_actions
                    .push((at, ElectionAction::Broadcast(Ballot::Head(epoch, key))));
            }
        }
        for _ in 0..100 {
            let election_actions = std::mem::take(&mut self.election_actions);
            if election_actions.is_empty() {
                return;
            }
            for (from, action) in election_actions {
                let (to, ballot) = match action {
                    ElectionAction::Broadcast(ballot) => {
                        ((0..self.voters.len() as u32).collect(), ballot)
                    }
                    ElectionAction::Reply(key, ballot) => (vec![key.tag.get() - 1], ballot),
                    ElectionAction::Changed(..) => continue,
                };
                for at in to.into_iter().filter(|at| *at != from) {
                    let voter = &mut self.voters[at as usize];
                    if voter.alive && !lost() {
                        let mut election_actions = Vec::new();
                        let key = Self::key(from);
                        voter.election.receive(
                            self.now,
                            key,
                            ballot,
                            &voter.members,
                            &mut election_actions,
                        );
                        self.election_actions
                            .extend(election_actions.into_iter().map(|action| (at, action)));
                    }
                }
            }
        }
        panic!("elections end");
    }

    fn heads(&self) -> Vec<Option<(Epoch, Key)>> {
        let live = self.voters.iter().filter(|voter| voter.alive);
        live.map(|voter| voter.election.head()).collect()
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step(&mut || false);
        }
    }

    fn all_follow(&self, at: u32) -> bool {
        self.heads()
            .iter()
            .all(|head| head.is_some_and(|(_, key)| key == Self::key(at)))
    }
}

#[test]
fn the_candidate_with_the_smallest_name_is_the_head_and_stays_it() {
    let mut cluster = Cluster::new(5, 3);
    cluster.run(10);
    assert!(cluster.all_follow(0));
    let epoch = cluster.voters[1].election.head_view().epoch;
    cluster.run(50);
    assert_eq!(
        cluster.voters[1].election.head_view().epoch,
        epoch,
        "no election without need"
    );
}

#[test]
fn when_the_head_leaves_the_next_candidate_follows_with_a_higher_epoch() {
    let mut cluster = Cluster::new(5, 2);
    cluster.run(10);
    let before = cluster.voters[4].election.head_view().epoch;
    cluster.voters[0].alive = false;
    cluster.run(60);
    assert!(cluster.all_follow(0), "silence alone does not depose it");
    for voter in &mut cluster.voters {
        voter.members.left(Cluster::key(0), &mut Vec::new());
    }
    cluster.run(10);
    assert!(cluster.all_follow(1));
    assert!(cluster.voters[4].election.head_view().epoch > before);
}

/// A past bug, found by the model of membership: a node that had been given up while there was a head came back, was left alone, and took that
/// head's epoch for itself.
#[test]
fn an_epoch_of_which_a_member_tells_is_not_begun_again() {
    let mut cluster = Cluster::new(3, 1);
    let voter = &mut cluster.voters[0];
    let known = HeadView {
        epoch: Epoch(7),
        head: None,
    };
    let mut election_actions = Vec::new();
    voter.election.receive_view(
        ms(0.0),
        Cluster::key(1),
        known,
        &voter.members,
        &mut election_actions,
    );
    cluster.run(10);
    assert!(cluster.all_follow(0));
    assert_eq!(cluster.voters[2].election.head_view().epoch, Epoch(8));
    // A node that is not a member is ignored.
    let voter = &mut cluster.voters[0];
    let known = HeadView {
        epoch: Epoch(70),
        head: None,
    };
    let stranger = Cluster::key(9);
    voter.election.receive_view(
        ms(0.0),
        stranger,
        known,
        &voter.members,
        &mut election_actions,
    );
    assert_eq!(voter.election.head_view().epoch, Epoch(8));
}

#[test]
fn while_the_store_answers_its_holder_is_the_head() {
    let mut cluster = Cluster::new(5, 3);
    for voter in &mut cluster.voters {
        voter.lease = LeaseView::Others;
    }
    cluster.run(20);
    assert_eq!(cluster.heads(), [None; 5], "nobody has the lease");
    cluster.voters[2].lease = LeaseView::Mine;
    cluster.run(10);
    assert!(cluster.all_follow(2));
    // The lease moves to another node.
    cluster.voters[2].lease = LeaseView::Others;
    cluster.voters[1].lease = LeaseView::Mine;
    cluster.run(10);
    assert!(cluster.all_follow(1));
    // The store is unreachable: the head stays.
    for voter in &mut cluster.voters {
        voter.lease = LeaseView::Unavailable;
    }
    cluster.run(20);
    assert!(cluster.all_follow(1));
}

#[test]
fn a_draining_head_gives_way() {
    let mut cluster = Cluster::new(3, 3);
    cluster.run(10);
    let key = Cluster::key(0);
    let gossip = [crate::membership::Gossip::Member {
        member: member(0, true),
        draining: true,
        counts: true,
    }];
    for voter in &mut cluster.voters[1..] {
        voter
            .members
            .learn(cluster.now, key, &gossip, &mut Vec::new());
    }
    cluster.voters[0]
        .members
        .set_draining(true, &mut Vec::new());
    cluster.run(20);
    assert!(cluster.all_follow(1));
}

proptest! {
    #[test]
    fn whatever_is_lost_there_is_one_head_per_epoch_and_in_the_end_one_head(
        count in 1u32..8,
        candidates in 1u32..8,
        losses in prop::collection::vec(any::<bool>(), 0..400),
        leases in prop::collection::vec((0usize..8, 0u8..3), 0..10),
    ) {
        let mut cluster = Cluster::new(count, candidates.min(count));
        let mut losses = losses.into_iter();
        let mut heads: Vec<(Epoch, Key)> = Vec::new();
        let mut leases = leases.into_iter();
        for step in 0..60 {
            if step % 5 == 0 && let Some((at, lease)) = leases.next() {
                let views = [LeaseView::Unavailable, LeaseView::Mine, LeaseView::Others];
                let at = at % cluster.voters.len();
                cluster.voters[at].lease = views[usize::from(lease)];
            }
            cluster.step(&mut || losses.next().unwrap_or(false));
            for head in cluster.heads().into_iter().flatten() {
                if !heads.contains(&head) {
                    prop_assert!(heads.iter().all(|(epoch, _)| *epoch != head.0), "{heads:?} {head:?}");
                    heads.push(head);
                }
            }
        }
        for voter in &mut cluster.voters {
            voter.lease = LeaseView::Unavailable;
        }
        cluster.run(60);
        let heads = cluster.heads();
        prop_assert!(heads[0].is_some());
        prop_assert!(heads.iter().all(|head| *head == heads[0]), "{heads:?}");
    }
}

//! Streams whose other side is not, or no longer, who it says; refusals, and what a node keeps when it joins anew.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fdn_core::enrol::NodeIdentity;
use fdn_core::{ClusterId, MebiBytes, MilliCpu, NodeId, Resources};
use fdn_scheduling::instance::TaskId;
use futures::{FutureExt, StreamExt};
use prometheus::Registry;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{Actor, ActorParts};
use crate::clock::millis;
use crate::head::HeadView;
use crate::host::{Host, StartOrder};
use crate::identity::{Key, Member, Tag};
use crate::link::cut::Cuts;
use crate::link::outbox::{Drain, Outbox};
use crate::link::{LinkEvent, Links, Opened, Peer, SessionId, hello};
use crate::membership::{Gossip, Opinions};
use crate::metrics::Metrics;
use crate::settings::ClusterSettings;
use crate::wire::convert;
use crate::wire::proto::{self, Body, Frame, Item};

struct Idle;

impl Host for Idle {
    fn start(&mut self, _: StartOrder) {}

    fn end(&mut self, _: TaskId) {}
}

fn cluster() -> ClusterId {
    "test".parse().unwrap()
}

fn name(node: &str) -> NodeId {
    node.parse().unwrap()
}

fn member(node: &str, tag: u32) -> Member {
    Member {
        key: Key {
            tag: Tag::new(tag),
            incarnation: 1,
        },
        node: name(node),
        address: SocketAddr::from(([127, 0, 0, 1], 1)),
        capacity: Resources::new(MilliCpu(1000), MebiBytes(1000)),
        candidate: true,
    }
}

/// A node that is alone in its cluster.
fn actor() -> Actor<Idle> {
    actor_with(ClusterSettings::default())
}

/// The member that a node which has not joined yet knows as its seed.
fn seed() -> Member {
    Member {
        address: SocketAddr::from(([127, 0, 0, 1], 2)),
        ..member("a", 7)
    }
}

/// A founder that has not joined yet, because it has a seed.
fn newcomer() -> Actor<Idle> {
    actor_with(ClusterSettings {
        seeds: vec![seed().address],
        ..ClusterSettings::default()
    })
}

fn actor_with(settings: ClusterSettings) -> Actor<Idle> {
    let me = member("v", 1);
    let settings = Arc::new(settings);
    let metrics = Metrics::new(&Registry::new()).unwrap();
    let links = Links {
        settings: Arc::clone(&settings),
        peers: None,
        cluster: cluster(),
        tls: None,
        hello: Mutex::new(hello(&cluster(), &me, true)),
        events: mpsc::channel(1).0,
        cuts: Cuts::default(),
        delay: None,
        metrics,
        stop: CancellationToken::new(),
        sessions: AtomicU64::new(1),
    };
    let actor = Actor::new(ActorParts {
        cluster: cluster(),
        me,
        settings,
        host: Idle,
        links: Arc::new(links),
        batches: mpsc::channel(1).0,
        rng: ChaCha8Rng::seed_from_u64(1),
        changed: watch::channel(0).0,
        fit: watch::channel(false).0,
    });
    actor.unwrap()
}

/// A stream of a process that is a member elsewhere already.
fn opened(actor: &Actor<Idle>, session: u64, member: Member) -> Opened {
    let metrics = actor.metrics.clone();
    Opened {
        peer: None,
        session: SessionId(session),
        member,
        joined: true,
        dialed: false,
        outbox: Arc::new(Outbox::new(100, 100, None, Cuts::default(), metrics)),
        closer: CancellationToken::new(),
    }
}

/// Lets these messages arrive in one frame.
fn receive<const N: usize>(actor: &mut Actor<Idle>, session: u64, bodies: [Body; N]) {
    let frame = Frame {
        items: bodies.map(Item::from).into(),
    };
    actor.on_link_event(LinkEvent::Frame(SessionId(session), frame));
}

fn rejected(renew: bool) -> Body {
    Body::Rejected(proto::Rejected {
        reason: "for a test".to_owned(),
        renew,
    })
}

/// The list of members that says that a process is none.
fn list_without(key: Key) -> Body {
    Body::Members(convert::encode_gossip(&[Gossip::Gone(key)]))
}

/// Something that runs here: so this node has its next incarnation when it joins anew, and not another tag.
fn run_something(actor: &mut Actor<Idle>) {
    let demand = Resources::new(MilliCpu(100), MebiBytes(100));
    assert!(actor.hold(demand).is_some());
}

#[test]
fn a_stream_under_another_nodes_tag_is_refused_and_that_nodes_own_stays() {
    let mut actor = actor();
    let stream = opened(&actor, 1, member("a", 7));
    let (of_a, key) = (stream.closer.clone(), stream.member.key);
    actor.on_opened(stream);
    assert!(actor.members.get(key).is_some());
    let stream = opened(&actor, 2, member("b", 7));
    let (of_b, outbox) = (stream.closer.clone(), Arc::clone(&stream.outbox));
    actor.on_opened(stream);
    assert!(of_b.is_cancelled() && !of_a.is_cancelled());
    assert_eq!(actor.streams.peer(SessionId(1)), Some(key));
    assert_eq!(actor.streams.peer(SessionId(2)), None);
    let answer = Drain(outbox).next().now_or_never().flatten();
    let answer = answer.and_then(|mut frame| frame.items.pop()?.body);
    assert!(
        matches!(&answer, Some(Body::Rejected(rejected)) if rejected.renew),
        "it may draw another tag: {answer:?}"
    );
    // Nor does a later incarnation make the tag another node's.
    let mut later = member("b", 7);
    later.key.incarnation = 2;
    let stream = opened(&actor, 3, later);
    let of_b = stream.closer.clone();
    actor.on_opened(stream);
    assert!(of_b.is_cancelled() && !of_a.is_cancelled());
}

#[test]
fn a_node_that_is_forgotten_loses_all_its_streams() {
    let mut actor = actor();
    // The second process of that name is no member, but may talk.
    let streams = [(1, 7), (2, 8)].map(|(session, tag)| opened(&actor, session, member("a", tag)));
    let closers = streams.each_ref().map(|stream| stream.closer.clone());
    let other = opened(&actor, 3, member("b", 9));
    let of_b = other.closer.clone();
    for stream in streams {
        actor.on_opened(stream);
    }
    actor.on_opened(other);
    assert!(closers.iter().all(|closer| !closer.is_cancelled()));
    actor.forget(&name("a"));
    assert!(closers.iter().all(CancellationToken::is_cancelled));
    assert!(!of_b.is_cancelled());
    assert!(actor.members.members().all(|one| one.node != name("a")));
}

#[test]
fn a_stream_whose_certificate_was_revoked_before_it_is_looked_at_is_closed() {
    let mut actor = actor();
    for is_welcome in [false, true] {
        let mut stream = opened(&actor, 1, member("a", 7));
        stream.peer = Some(Peer {
            identity: NodeIdentity {
                cluster: cluster(),
                node: name("a"),
            },
            still_welcome: Some(Arc::new(move || is_welcome)),
        });
        let closer = stream.closer.clone();
        actor.on_opened(stream);
        assert_eq!(closer.is_cancelled(), !is_welcome);
        let is_member = actor.members.members().any(|one| one.node == name("a"));
        assert_eq!(is_member, is_welcome);
    }
}

#[test]
fn a_member_that_is_refused_waits_for_the_list_that_says_it_was_given_up() {
    let mut actor = actor();
    run_something(&mut actor);
    let stream = opened(&actor, 1, member("a", 7));
    let closer = stream.closer.clone();
    actor.on_opened(stream);
    let before = actor.me.key;
    receive(&mut actor, 1, [rejected(true)]);
    assert!(actor.members.is_joined() && !closer.is_cancelled());
    assert_eq!(actor.me.key, before);
    receive(&mut actor, 1, [list_without(before)]);
    let next = Key {
        incarnation: 2,
        ..before
    };
    assert_eq!(actor.me.key, next);
    assert!(!actor.members.is_joined() && closer.is_cancelled());
}

#[test]
fn the_list_and_the_refusal_in_one_frame_make_one_incarnation() {
    let mut actor = actor();
    run_something(&mut actor);
    let stream = opened(&actor, 1, member("a", 7));
    actor.on_opened(stream);
    let before = actor.me.key;
    receive(&mut actor, 1, [list_without(before), rejected(true)]);
    assert_eq!(actor.me.key.incarnation, 2);
}

#[test]
fn a_refusal_by_one_that_is_no_member_here_ends_the_stream_so_that_both_try_again() {
    let mut actor = actor();
    // This node has no majority either, so it admits nobody.
    let silent = opened(&actor, 1, member("b", 8));
    actor.on_opened(silent);
    let stream = opened(&actor, 2, member("a", 7));
    let closer = stream.closer.clone();
    actor.on_opened(stream);
    assert!(actor.members.get(member("a", 7).key).is_none());
    receive(&mut actor, 2, [rejected(false)]);
    assert!(closer.is_cancelled() && actor.members.is_joined());
}

#[test]
fn one_that_was_given_up_and_believes_to_be_a_member_is_sent_the_list_before_the_refusal() {
    let mut actor = actor();
    let stream = opened(&actor, 1, member("a", 7));
    let key = stream.member.key;
    actor.on_opened(stream);
    actor.members.left(key, &mut actor.changes);
    actor.apply_changes();
    let stream = opened(&actor, 2, member("a", 7));
    let (closer, outbox) = (stream.closer.clone(), Arc::clone(&stream.outbox));
    actor.on_opened(stream);
    assert!(!closer.is_cancelled());
    let frame = Drain(outbox).next().now_or_never().flatten().unwrap();
    let bodies = frame.items.into_iter().filter_map(|item| item.body);
    let bodies: Vec<Body> = bodies.collect();
    let [Body::Members(list), Body::Rejected(rejected)] = &bodies[..] else {
        panic!("{bodies:?}");
    };
    let gossip = convert::decode_gossip(list).unwrap();
    assert!(gossip.contains(&Gossip::Gone(key)));
    assert!(rejected.renew);
}

#[test]
fn who_drains_still_drains_when_it_joins_anew() {
    let mut actor = actor();
    actor.members.set_draining(true, &mut actor.changes);
    actor.apply_changes();
    actor.rejoin();
    for _ in 0..2 {
        assert!(actor.members.is_draining(actor.me.key));
        assert_eq!(actor.node.free(), Resources::default());
        actor.apply_changes();
    }
    actor.members.set_draining(false, &mut actor.changes);
    actor.apply_changes();
    assert_eq!(actor.node.free(), actor.me.capacity);
}

#[test]
fn who_drains_or_had_no_majority_for_a_lease_is_not_fit_to_be_the_head() {
    let mut actor = actor();
    let fit = actor.fit.subscribe();
    assert!(!*fit.borrow());
    for draining in [false, true, false] {
        actor.members.set_draining(draining, &mut actor.changes);
        actor.tick();
        assert_eq!(*fit.borrow(), !draining);
    }
    // A second member that grants nothing: one of two is no majority.
    let stream = opened(&actor, 1, member("a", 7));
    actor.on_opened(stream);
    actor.tick();
    assert!(!actor.acts() && *fit.borrow(), "it had one a moment ago");
    actor.now += millis(actor.settings.timing.lease.as_duration());
    actor.tick();
    assert!(!*fit.borrow());
}

#[test]
fn the_pause_before_the_next_attempt_grows_while_streams_are_refused() {
    let mut actor = newcomer();
    let most = actor.settings.timing.reconnect_most.as_duration();
    let address = seed().address;
    let mut begun = Instant::now();
    for session in 1..=8 {
        let stream = opened(&actor, session, seed());
        actor.on_opened(stream);
        receive(&mut actor, session, [rejected(false)]);
        begun = Instant::now();
        actor.on_link_event(LinkEvent::Unreached(address));
    }
    let next = actor.streams.next_attempt(address).unwrap();
    assert!(next >= begun + most / 2);
}

#[test]
fn the_pause_before_the_next_attempt_is_short_after_a_grant() {
    let mut actor = actor();
    let stream = opened(&actor, 1, seed());
    let (key, address) = (stream.member.key, stream.member.address);
    actor.on_opened(stream);
    for granted in [false, true] {
        for _ in 0..8 {
            actor.on_link_event(LinkEvent::Unreached(address));
        }
        let answer = (actor.now, granted);
        let (clock, opinions) = (actor.now, Opinions::default());
        actor.on_ack(key, answer, clock, &opinions, HeadView::default());
        let begun = Instant::now();
        actor.on_link_event(LinkEvent::Unreached(address));
        let next = actor.streams.next_attempt(address).unwrap();
        let ended = Instant::now();
        if granted {
            assert!(next <= ended + Duration::from_millis(50));
        } else {
            let most = actor.settings.timing.reconnect_most.as_duration();
            assert!(next >= begun + most / 2);
        }
    }
}

/// It calls its seed, which takes a runtime; nothing waits for what comes of that.
#[tokio::test]
async fn a_founder_founds_no_cluster_while_a_member_of_one_refuses_it() {
    let mut actor = newcomer();
    let found_after = millis(actor.settings.timing.found_after.as_duration());
    let second = millis(Duration::from_secs(1));
    let until = actor.now + found_after * 3.0;
    let mut session = 0;
    while actor.now < until {
        actor.now += second;
        session += 1;
        let stream = opened(&actor, session, seed());
        actor.on_opened(stream);
        receive(&mut actor, session, [rejected(false)]);
        actor.tick();
        assert!(!actor.members.is_joined());
    }
    // From now on nobody answers, the longest pause between two attempts and then as long as without any seed.
    let timing = &actor.settings.timing;
    let longest = timing.reconnect_most.as_duration() + timing.connect.as_duration();
    actor.now += found_after + millis(longest);
    actor.tick();
    assert!(!actor.members.is_joined());
    actor.now += second;
    actor.tick();
    assert!(actor.members.is_joined());
}

/// It calls its seed, which takes a runtime; nothing waits for what comes of that.
#[tokio::test]
async fn a_founder_admits_those_that_had_streams_to_it_before() {
    let mut actor = newcomer();
    let calling = |actor: &Actor<Idle>, session| Opened {
        joined: false,
        ..opened(actor, session, seed())
    };
    let stream = calling(&actor, 1);
    let closer = stream.closer.clone();
    actor.on_opened(stream);
    let found_after = actor.settings.timing.found_after.as_duration();
    actor.now += millis(found_after + Duration::from_secs(1));
    actor.tick();
    assert!(actor.members.is_joined());
    assert!(closer.is_cancelled(), "it calls again then");
    let stream = calling(&actor, 2);
    actor.on_opened(stream);
    assert!(actor.members.get(seed().key).is_some());
}

//! Streams whose other side is not, or no longer, who it says.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

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
use crate::host::{Host, StartOrder};
use crate::identity::{Key, Member, Tag};
use crate::link::cut::Cuts;
use crate::link::outbox::{Drain, Outbox};
use crate::link::{Links, Opened, Peer, SessionId, hello};
use crate::metrics::Metrics;
use crate::settings::ClusterSettings;
use crate::wire::proto::Body;

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
    let me = member("v", 1);
    let settings = Arc::new(ClusterSettings::default());
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

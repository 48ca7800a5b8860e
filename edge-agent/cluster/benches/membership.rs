//! Measures the cost of membership for one node, by the number of members: every member pings every other.
//!
//! `cargo bench -p fdn-cluster --bench membership` prints figures; nothing passes or fails. One interval of one node is measured: a ping to each
//! other member, one from each and its answer, the answers to its own pings, and a tick. The wire is left out.

#![allow(
    clippy::print_stdout,
    reason = "printing figures is what this program is for"
)]

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::Instant;

use fdn_cluster::identity::{Key, Member, Tag};
use fdn_cluster::membership::{Gossip, Membership, Timing};
use fdn_cluster::settings::TimingSettings;
use fdn_core::{Millis, Resources};

const RUNS: usize = 20;

fn member(at: u32) -> Member {
    let [_, a, b, c] = at.to_be_bytes();
    Member {
        key: Key {
            tag: Tag::new(at + 1),
            incarnation: 1,
        },
        node: format!("node-{at}").parse().expect("a name"),
        address: SocketAddr::from(([10, a, b, c], 7000)),
        capacity: Resources::default(),
        candidate: at < 5,
    }
}

/// A cluster from the point of view of its first member: all members are present, and all count.
fn cluster(members: u32, timing: Timing) -> Membership {
    let me = member(0);
    let mut cluster = Membership::new(Millis::ZERO, me.clone(), timing, true);
    let gossip: Vec<Gossip> = (1..members)
        .map(|at| Gossip::Member {
            member: member(at),
            draining: false,
            counts: true,
        })
        .collect();
    cluster.learn(Millis::ZERO, me.key, &gossip, &mut Vec::new());
    cluster
}

fn interval(cluster: &mut Membership, now: Millis, others: &[Key]) {
    let mut changes = Vec::new();
    let mine = cluster.opinions(now);
    for other in others {
        // A separate ping for each member, as the actor sends them.
        black_box(cluster.opinions(now));
        let granted = cluster.on_ping(now, *other, &mine, &mut changes);
        black_box((granted, cluster.opinions(now)));
        cluster.on_ack(now, *other, (now, true), &mine, &mut changes);
    }
    black_box(cluster.acts_until());
    cluster.tick(now, &mut changes);
    assert!(changes.is_empty() && cluster.has_quorum(now), "all is well");
}

fn main() {
    let settings = TimingSettings::default();
    let every = settings.ping_every.as_duration();
    println!("members  us_per_interval  us_per_member  share_of_a_core");
    for members in [10, 100, 300, 1000] {
        let timing = Timing {
            lease: Millis::new(1500.0),
            suspect_after: Millis::new(1000.0),
            dead_after: Millis::new(2000.0),
            fresh: Millis::new(750.0),
            members: members as usize,
        };
        let mut cluster = cluster(members, timing);
        let others: Vec<Key> = (1..members).map(|at| member(at).key).collect();
        let mut now = Millis::ZERO;
        let mut least = f64::INFINITY;
        for _ in 0..RUNS {
            now += Millis::new(every.as_secs_f64() * 1000.0);
            let begin = Instant::now();
            interval(&mut cluster, now, &others);
            least = least.min(begin.elapsed().as_secs_f64());
        }
        println!(
            "{members:7}  {:15.0}  {:13.2}  {:14.2} %",
            least * 1e6,
            least * 1e6 / f64::from(members),
            100.0 * least / every.as_secs_f64(),
        );
    }
}

//! Tests of the metadata store for observations and outgoing messages, the same on both databases.

use fdn_controller::store::billing::owner::node_place;
use fdn_controller::store::cluster::cluster_list;
use fdn_controller::store::cluster_load::{ClusterLoadRow, cluster_load_get, cluster_load_set};
use fdn_controller::store::demand::{DemandRow, demand_add, demand_delete, demand_list};
use fdn_controller::store::network::{network_get, network_set};
use fdn_controller::store::node::{
    StatusRow, Statuses, node_forget, node_observe, node_status_list,
};
use fdn_controller::store::outbox::{outbox_delete, outbox_list, outbox_push, outbox_stats};
use fdn_controller::store::rtt::{
    RttRow, link_delete, link_list, link_upsert, rtt_delete, rtt_list, rtt_upsert,
};
use fdn_core::message::{Message, NetworkDesired};
use fdn_core::{DurationMs, MessageId, Millis, Revision, Timestamp};

use crate::rig::{Backend, node_at, on_both};
use crate::store::{app, desired, name, store};

on_both!(
    demand_is_added_up_and_forgotten,
    links_between_clusters,
    a_status_from_the_future_does_not_keep_out_later_ones,
    nodes_and_what_they_said,
    only_statuses_that_were_written_since_are_read_again,
    round_trips,
    the_network_is_one_row,
    the_outbox_keeps_order_and_one_message_a_topic,
    what_is_asked_is_one_row,
);

async fn demand_is_added_up_and_forgotten(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    app(c, "hello").await;
    let row = |n: u8, last_seen| DemandRow {
        app: name("hello"),
        prefix: format!("192.0.{n}.0/24").parse().expect("prefix"),
        queries: 2,
        recent: 2.0,
        last_seen: Timestamp(last_seen),
    };
    let memory = DurationMs::from_millis(9);
    for n in 0..5u8 {
        demand_add(c, &row(n, u64::from(n)), memory)
            .await
            .expect("added");
    }
    demand_add(c, &row(0, 9), memory).await.expect("added");
    demand_add(
        c,
        &DemandRow {
            app: name("gone"),
            ..row(0, 1)
        },
        memory,
    )
    .await
    .expect("dropped without an error");
    for n in 1..4u8 {
        demand_delete(c, &name("hello"), row(n, 0).prefix)
            .await
            .expect("deleted");
    }
    demand_delete(c, &name("other"), row(4, 0).prefix)
        .await
        .expect("nothing to delete");
    let left = demand_list(c).await.expect("read");
    assert_eq!(
        left,
        [
            DemandRow {
                queries: 4,
                // Queries from 9 ms before count half.
                recent: 3.0,
                ..row(0, 9)
            },
            row(4, 4)
        ]
    );
    assert_eq!(left[0].recent_at(Timestamp(18), memory), 1.5);
    // A late report decays nothing.
    demand_add(c, &row(4, 1), memory).await.expect("added");
    let late = demand_list(c).await.expect("read");
    assert_eq!((late[1].queries, late[1].recent), (4, 4.0));
}

async fn nodes_and_what_they_said(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    let seen = |sequence, at, busy| {
        let mut status = node_at("eu-1", "eu-west", 53.35, -6.26);
        (status.sequence, status.busy) = (sequence, busy);
        StatusRow {
            status,
            seen_at: Timestamp(at),
        }
    };
    node_observe(c, &seen(1, 10, 1)).await.expect("written");
    node_observe(c, &seen(3, 30, 3)).await.expect("written");
    for (boot, sequence, at, why) in [
        (None, 2, 31, "ignored: it is older within its boot"),
        (
            Some(7),
            4,
            20,
            "ignored: it is of another boot, and was heard earlier",
        ),
    ] {
        let mut late = seen(sequence, at, 9);
        if let Some(boot) = boot {
            late.status.boot = MessageId::from_uuid(uuid::Uuid::from_u128(boot));
        }
        late.status.cluster = "us-east".parse().expect("cluster");
        node_observe(c, &late).await.expect(why);
        let place = node_place(c, &late.status.node).await.expect("read");
        assert_eq!(place.0.as_str(), "eu-west", "{why}");
    }
    assert_eq!(node_status_list(c).await.expect("read"), [seen(3, 30, 3)]);
    let mut other = StatusRow {
        status: node_at("us-1", "us-east", 39.04, -77.49),
        seen_at: Timestamp(100),
    };
    other.status.gateway = "[2001:db8::1]:8080".parse().expect("address");
    node_observe(c, &other).await.expect("written");
    let clusters = cluster_list(c).await.expect("read");
    assert_eq!(
        clusters.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(),
        ["eu-west", "us-east"]
    );
    assert_eq!(clusters[0].location, seen(1, 1, 1).status.location);
    assert!(
        !node_forget(c, &"us-1".parse().expect("node"), Timestamp(50))
            .await
            .expect("kept")
    );
    assert!(
        node_forget(c, &"eu-1".parse().expect("node"), Timestamp(50))
            .await
            .expect("forgotten")
    );
    assert_eq!(node_status_list(c).await.expect("read"), [other]);
    assert_eq!(cluster_list(c).await.expect("read").len(), 1);
}

async fn a_status_from_the_future_does_not_keep_out_later_ones(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    let seen = |boot, sequence, seen_at| StatusRow {
        status: fdn_core::message::NodeStatus {
            boot: MessageId::from_uuid(uuid::Uuid::from_u128(boot)),
            sequence,
            ..node_at("eu-1", "eu-west", 50.1, 8.7)
        },
        seen_at,
    };
    let now = fdn_service::now();
    let later = |ms: u64| Timestamp(now.get() + ms);
    // Within a boot the sequence decides; of another boot, a time of receipt that has not come yet proves nothing.
    for (first, second) in [((1, 1), (1, 2)), ((1, 2), (2, 1))] {
        let ahead = seen(first.0, first.1, later(3_600_000));
        node_observe(c, &ahead).await.expect("written");
        assert_eq!(node_status_list(c).await.expect("read"), [ahead]);
        let right = seen(second.0, second.1, now);
        node_observe(c, &right).await.expect("written");
        assert_eq!(node_status_list(c).await.expect("read"), [right]);
    }
    // Clocks may differ a little.
    let little = seen(3, 1, later(5_000));
    node_observe(c, &little).await.expect("written");
    node_observe(c, &seen(4, 1, now)).await.expect("ignored");
    assert_eq!(node_status_list(c).await.expect("read"), [little]);
}

/// In PostgreSQL alone: SQLite has one writer at a time.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_write_a_node_at_once_the_newer_status_has_its_place() {
    let (_folder, store) = store(Backend::Postgres).await;
    let seen = |cluster: &str, sequence| {
        let mut status = node_at("eu-1", cluster, 53.35, -6.26);
        status.sequence = sequence;
        StatusRow {
            status,
            seen_at: Timestamp(sequence),
        }
    };
    let (older, newer) = (seen("eu-west", 2), seen("us-east", 3));
    let mut first = store.begin().await.expect("begun");
    node_observe(&mut first, &seen("eu-west", 1))
        .await
        .expect("written");
    first.commit().await.expect("committed");
    let mut ahead = store.begin().await.expect("begun");
    node_observe(&mut ahead, &newer).await.expect("written");
    let behind = async {
        let mut tx = store.begin().await.expect("begun");
        node_observe(&mut tx, &older).await.expect("ignored");
        tx.commit().await.expect("committed");
    };
    let ahead = async {
        fdn_testkit::wait::until("the older to wait for the newer", async || {
            let c = &mut *store.read().await.map_err(|e| e.to_string())?;
            let waiting: i64 = sqlx::query_scalar(
                "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
            )
            .fetch_one(c)
            .await
            .map_err(|e| e.to_string())?;
            if waiting == 1 {
                Ok(())
            } else {
                Err(format!("{waiting} wait"))
            }
        })
        .await;
        ahead.commit().await.expect("committed");
    };
    tokio::join!(behind, ahead);
    let c = &mut *store.read().await.expect("connected");
    let place = node_place(c, &newer.status.node).await.expect("read");
    assert_eq!(place.0.as_str(), "us-east");
    assert_eq!(node_status_list(c).await.expect("read"), [newer]);
}

async fn only_statuses_that_were_written_since_are_read_again(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    let seen = |n: u16, sequence, at| {
        let mut status = node_at(&format!("n-{n}"), "eu-west", 53.35, -6.26);
        status.sequence = sequence;
        status.stage_calls = n
            .is_multiple_of(2)
            .then(|| ([127, 0, 0, 1], 9000 + n).into());
        StatusRow {
            status,
            seen_at: Timestamp(at),
        }
    };
    let mut statuses = Statuses::default();
    assert_eq!(statuses.read(c).await.expect("read"), 0);
    // More than fit into one statement.
    for n in 0..502 {
        node_observe(c, &seen(n, 1, 10)).await.expect("written");
    }
    assert_eq!(statuses.read(c).await.expect("read"), 502);
    let all: Vec<StatusRow> = statuses.take_new().collect();
    let mut listed = node_status_list(c).await.expect("read");
    listed.sort_by(|a, b| a.status.node.cmp(&b.status.node));
    assert_eq!(all, listed);
    let listening = |statuses: &Statuses| statuses.stage_calls().values().map(Vec::len).sum();
    let there: usize = listening(&statuses);
    assert_eq!(there, 251);
    assert_eq!(statuses.read(c).await.expect("read"), 0, "nothing is new");
    assert_eq!(statuses.take_new().count(), 0);

    // The same status at another time is read; untaken statuses are kept.
    let boot = MessageId::from_uuid(uuid::Uuid::from_u128(2));
    let mut again = seen(3, 1, 20);
    again.status.boot = boot;
    for row in [&seen(1, 1, 20), &seen(2, 2, 20), &again] {
        node_observe(c, row).await.expect("written");
    }
    assert_eq!(statuses.read(c).await.expect("read"), 3);
    let mut moved = seen(2, 3, 30);
    moved.status.stage_calls = None;
    node_observe(c, &moved).await.expect("written");
    assert_eq!(statuses.read(c).await.expect("read"), 1);
    let new: Vec<StatusRow> = statuses.take_new().collect();
    assert_eq!(new, [seen(1, 1, 20), moved, again]);
    let there: usize = listening(&statuses);
    assert_eq!(there, 250);
    // A deleted node is forgotten, and is new when it comes back, whatever its status.
    let gone = "n-4".parse().expect("node");
    assert!(node_forget(c, &gone, Timestamp(15)).await.expect("gone"));
    assert_eq!(statuses.read(c).await.expect("read"), 0);
    let there: usize = listening(&statuses);
    assert_eq!(there, 249);
    node_observe(c, &seen(4, 1, 10)).await.expect("written");
    assert_eq!(statuses.read(c).await.expect("read"), 1);
}

async fn round_trips(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    let row = |rtt: f64, at: u64| RttRow {
        key: (
            "192.0.2.0/24".parse().expect("prefix"),
            "eu-west".parse().expect("cluster"),
        ),
        rtt: Millis::new(rtt),
        samples: 3,
        updated_at: Timestamp(at),
    };
    rtt_upsert(c, &row(1.0, 5)).await.expect("written");
    rtt_upsert(c, &row(0.1 + 0.2, 5)).await.expect("written");
    rtt_upsert(c, &row(9.0, 4)).await.expect("older: left out");
    assert_eq!(
        rtt_list(c, Timestamp(5)).await.expect("read"),
        [row(0.1 + 0.2, 5)],
        "every bit of it"
    );
    assert_eq!(rtt_list(c, Timestamp(6)).await.expect("read"), []);
    rtt_delete(c, &row(1.0, 5).key).await.expect("deleted");
    assert_eq!(rtt_list(c, Timestamp(0)).await.expect("read"), []);
}

async fn links_between_clusters(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    let row = |from: &str, to: &str, rtt: f64, at: u64| RttRow {
        key: (from.parse().expect("cluster"), to.parse().expect("cluster")),
        rtt: Millis::new(rtt),
        samples: 3,
        updated_at: Timestamp(at),
    };
    let (there, back) = (row("a", "b", 80.0, 5), row("b", "a", 81.0, 7));
    for row in [
        &row("a", "b", 70.0, 4),
        &there,
        &back,
        &row("a", "b", 1.0, 3),
    ] {
        link_upsert(c, row).await.expect("written");
    }
    assert_eq!(
        link_list(c, Timestamp(0)).await.expect("read"),
        [there.clone(), back.clone()]
    );
    assert_eq!(link_list(c, Timestamp(6)).await.expect("read"), [back]);
    link_delete(c, &there.key).await.expect("deleted");
    assert_eq!(link_list(c, Timestamp(0)).await.expect("read").len(), 1);
}

async fn what_is_asked_is_one_row(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    assert_eq!(cluster_load_get(c).await.expect("read"), []);
    let row = |cluster: &str, runs: f64| ClusterLoadRow {
        cluster: cluster.parse().expect("cluster"),
        runs,
        erlangs: 0.1 + 0.2,
        in_service_ms: 20.5,
        memory_mib: 512.5,
        gpu_memory_mib: 0.0,
    };
    for runs in [1.0, 2.0] {
        let asked = [row("eu-1", runs), row("us-1", 0.0)];
        cluster_load_set(c, &asked, Timestamp(1))
            .await
            .expect("written");
        assert_eq!(cluster_load_get(c).await.expect("read"), asked);
    }
    cluster_load_set(c, &[], Timestamp(2))
        .await
        .expect("written");
    assert_eq!(cluster_load_get(c).await.expect("read"), []);
}

async fn the_network_is_one_row(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    assert_eq!(network_get(c).await.expect("read"), None);
    for revision in [1, 2] {
        let network = NetworkDesired {
            revision: Revision(revision),
            clusters: vec![],
            locations: vec![],
            measured: vec![],
        };
        network_set(c, &network).await.expect("written");
        assert_eq!(network_get(c).await.expect("read"), Some(network));
    }
}

async fn the_outbox_keeps_order_and_one_message_a_topic(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    assert_eq!(outbox_stats(c).await.expect("read").oldest, None);
    for (revision, app) in [(5, "a"), (5, "b"), (4, "c"), (6, "a")] {
        outbox_push(
            c,
            Revision(revision),
            desired(app, revision),
            Timestamp(revision),
        )
        .await
        .expect("pushed");
    }
    let rows = outbox_list(c, 10).await.expect("read");
    let messages: Vec<Message> = rows
        .iter()
        .map(|row| row.envelope.message.clone())
        .collect();
    assert_eq!(
        messages,
        [desired("c", 4), desired("b", 5), desired("a", 6)]
    );
    assert_eq!(outbox_list(c, 1).await.expect("read").len(), 1);
    let stats = outbox_stats(c).await.expect("read");
    assert_eq!((stats.depth, stats.oldest), (3, Some(Timestamp(4))));
    outbox_delete(c, rows[0].position).await.expect("deleted");
    assert_eq!(outbox_list(c, 10).await.expect("read"), rows[1..]);
}

mod soak {
    use std::io::Write as _;
    use std::time::Instant;

    use fdn_core::message::AppPhase;

    use super::*;
    use crate::explain::told;

    /// The time that a pass of the planner needs for the statuses of 10,000 nodes with 20 apps each, a tenth of which are new.
    #[tokio::test(flavor = "multi_thread")]
    async fn statuses_of_ten_thousand_nodes_are_read_in_a_fraction_of_the_time() {
        const NODES: usize = 10_000;
        let (_folder, store) = store(Backend::Postgres).await;
        let seen = |n: usize, at| {
            let status = node_at(&format!("n-{n}"), &format!("c-{}", n / 50), 53.35, -6.26);
            let mut status = told(status, AppPhase::Ready, 1000, 12.5);
            let app = status.apps[0].clone();
            status.apps = vec![app; 20];
            status.sequence = at;
            StatusRow {
                status,
                seen_at: Timestamp(at),
            }
        };
        let write = async |nodes: std::ops::Range<usize>, at| {
            let mut tx = store.begin().await.expect("begun");
            for n in nodes {
                let row = seen(n, at);
                node_observe(&mut tx, &row).await.expect("written");
            }
            tx.commit().await.expect("committed");
        };
        write(0..NODES, 1).await;
        let c = &mut *store.read().await.expect("connected");
        let mut statuses = Statuses::default();
        assert_eq!(statuses.read(c).await.expect("read"), NODES);
        let (mut all, mut new, mut none) = (Vec::new(), Vec::new(), Vec::new());
        for pass in 0..5 {
            let began = Instant::now();
            let rows = node_status_list(c).await.expect("read");
            assert_eq!(rows.len(), NODES);
            all.push(began.elapsed());
            drop(rows);
            write(0..NODES / 10, pass + 2).await;
            for (told, expected) in [(&mut new, NODES / 10), (&mut none, 0)] {
                let began = Instant::now();
                assert_eq!(statuses.read(c).await.expect("read"), expected);
                told.push(began.elapsed());
            }
        }
        for (what, mut times) in [("all", all), ("a tenth", new), ("none", none)] {
            times.sort();
            let middle = times[times.len() / 2];
            writeln!(std::io::stdout(), "{what}: {middle:?}").expect("written");
        }
    }
}

//! Tests of the metadata store for machines: clusters, join tokens, enrolments, certificates, leases; the same on both databases.

use std::collections::BTreeSet;

use fdn_controller::store::authority::{
    AuthorityRow, authority_insert, authority_list, authority_trim,
};
use fdn_controller::store::cluster::{
    ClusterRow, cluster_create, cluster_forget_empty, cluster_get, cluster_list, region_get,
};
use fdn_controller::store::enrolment::{
    CertificateRow, EnrolmentRow, certificate_get, certificate_insert, certificate_list_revoked,
    certificate_newest, certificate_revoke, cordon_delete, cordon_insert, cordon_list,
    enrolment_get, enrolment_list, enrolment_list_after, enrolment_list_others, enrolment_remove,
    enrolment_trim, enrolment_upsert,
};
use fdn_controller::store::join_token::{
    JoinTokenRow, join_token_count, join_token_get, join_token_insert, join_token_list,
    join_token_revoke, join_token_trim, join_token_use,
};
use fdn_controller::store::lease::{LeaseClaim, lease_acquire, lease_get, lease_release};
use fdn_controller::store::node::{StatusRow, node_delete, node_observe, node_status_list};
use fdn_controller::store::{MIGRATOR, Store};
use fdn_core::enrol::{NodeAddresses, Role};
use fdn_core::fleet::JoinTokenInfo;
use fdn_core::message::Sealed;
use fdn_core::{ClusterId, EnrolmentId, GeoPoint, JoinTokenId, NodeId, Timestamp};
use sqlx::AnyConnection;
use uuid::Uuid;

use crate::rig::{Backend, node_at, on_both};
use crate::store::store;

on_both!(
    a_cluster_that_somebody_made_stays_as_it_is,
    what_nodes_told_before_becomes_regions,
    a_token_lets_in_as_many_as_it_may_whoever_asks_at_once,
    what_a_removed_node_says_is_not_written,
    enrolments_are_read_as_far_as_they_are_new,
    certificates_count_until_they_are_revoked,
    one_node_is_head_however_many_ask,
    an_epoch_grows_with_every_beginning,
    authorities_are_kept_until_they_end,
);

fn node(name: &str) -> NodeId {
    name.parse().expect("node")
}

fn cluster(name: &str) -> ClusterRow {
    ClusterRow {
        id: name.parse().expect("cluster"),
        region: "eu".parse().expect("region"),
        location: GeoPoint::new(53.35, -6.26).expect("position"),
        created_by: Some("admin".to_owned()),
    }
}

async fn made(c: &mut AnyConnection, name: &str) {
    assert!(
        cluster_create(c, &cluster(name), Timestamp(1))
            .await
            .expect("made")
    );
}

async fn a_cluster_that_somebody_made_stays_as_it_is(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    made(c, "made").await;
    assert!(
        !cluster_create(c, &cluster("made"), Timestamp(2))
            .await
            .expect("there already")
    );
    for name in ["made", "told"] {
        let row = StatusRow {
            status: node_at(&format!("{name}-1"), name, 1.0, 2.0),
            seen_at: Timestamp(10),
        };
        node_observe(c, &row).await.expect("written");
    }
    let found = cluster_get(c, &"made".parse().expect("cluster"))
        .await
        .expect("read");
    assert_eq!(found, Some(cluster("made")), "a report does not move it");
    let told = cluster_get(c, &"told".parse().expect("cluster"))
        .await
        .expect("read");
    assert_eq!(told.expect("there").created_by, None);
    let place = region_get(c, &"told".parse().expect("region"))
        .await
        .expect("read");
    assert_eq!(place, Some(GeoPoint::new(1.0, 2.0).expect("position")));
    for name in ["made-1", "told-1"] {
        assert!(node_delete(c, &node(name)).await.expect("deleted"));
    }
    cluster_forget_empty(c).await.expect("forgotten");
    let left: Vec<ClusterId> = cluster_list(c)
        .await
        .expect("read")
        .into_iter()
        .map(|r| r.id)
        .collect();
    assert_eq!(left, ["made".parse().expect("cluster")]);
    // A user takes over a cluster that nodes reported.
    let row = StatusRow {
        status: node_at("told-1", "told", 1.0, 2.0),
        seen_at: Timestamp(20),
    };
    node_observe(c, &row).await.expect("written");
    assert!(
        cluster_create(c, &cluster("told"), Timestamp(30))
            .await
            .expect("adopted")
    );
}

/// The migration with which clusters were rows, but regions were not yet.
const BEFORE_FLEET: i64 = 20_261_121_080_300;

async fn what_nodes_told_before_becomes_regions(backend: Backend) {
    let folder = tempfile::tempdir().expect("folder");
    let store = Store::connect(&backend.database(folder.path()).await)
        .await
        .expect("connected");
    assert!(MIGRATOR.iter().any(|m| m.version > BEFORE_FLEET));
    store
        .migrate_to(Some(BEFORE_FLEET))
        .await
        .expect("the first migrations");
    let c = &mut *store.read().await.expect("connected");
    for (id, region, lat) in [("b", "eu", 2.0), ("a", "eu", 1.0), ("c", "us", 3.0)] {
        sqlx::query(
            "INSERT INTO clusters (id, region, lat, lon, created_at) VALUES ($1, $2, $3, 5, 7)",
        )
        .bind(id)
        .bind(region)
        .bind(lat)
        .execute(&mut *c)
        .await
        .expect("inserted");
    }
    store.migrate().await.expect("the later migrations");
    for (region, lat) in [("eu", 1.0), ("us", 3.0)] {
        let place = region_get(c, &region.parse().expect("region"))
            .await
            .expect("read");
        assert_eq!(
            place,
            Some(GeoPoint::new(lat, 5.0).expect("position")),
            "{region}"
        );
    }
    assert!(
        cluster_list(c)
            .await
            .expect("read")
            .iter()
            .all(|row| row.created_by.is_none())
    );
}

fn token(n: u128, uses: u32, expires_at: u64) -> JoinTokenRow {
    JoinTokenRow {
        info: JoinTokenInfo {
            role: Role::Node,
            id: JoinTokenId::from_uuid(Uuid::from_u128(n)),
            cluster: "eu-1".parse().expect("cluster"),
            region: "eu".parse().expect("region"),
            uses,
            uses_left: uses,
            created_at: Timestamp(n as u64),
            created_by: "admin".to_owned(),
            expires_at: Timestamp(expires_at),
            revoked_at: None,
        },
        hash: "a".repeat(64),
    }
}

async fn a_token_lets_in_as_many_as_it_may_whoever_asks_at_once(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    made(c, "eu-1").await;
    for row in [token(1, 3, 100), token(2, 1, 100), token(3, 1, 50)] {
        join_token_insert(c, &row).await.expect("inserted");
    }
    assert_eq!(
        join_token_get(c, token(1, 3, 100).info.id)
            .await
            .expect("read"),
        Some(token(1, 3, 100))
    );
    let asked = (0..12).map(|_| {
        let store = store.clone();
        async move {
            let mut tx = store.begin().await.expect("begun");
            let id = token(1, 3, 100).info.id;
            let used = join_token_use(&mut tx, id, Timestamp(99))
                .await
                .expect("asked");
            tx.commit().await.expect("committed");
            used
        }
    });
    let used = futures::future::join_all(asked).await;
    assert_eq!(used.into_iter().filter(|used| *used).count(), 3);
    assert!(
        !join_token_use(c, token(3, 1, 50).info.id, Timestamp(50))
            .await
            .expect("over")
    );
    let two = token(2, 1, 100).info.id;
    assert!(
        join_token_revoke(c, two, Timestamp(60))
            .await
            .expect("taken back")
    );
    assert!(
        !join_token_revoke(c, two, Timestamp(61))
            .await
            .expect("once")
    );
    assert!(
        !join_token_use(c, two, Timestamp(60))
            .await
            .expect("taken back")
    );
    assert_eq!(join_token_count(c, Timestamp(1)).await.expect("counted"), 1);
    let list = join_token_list(c).await.expect("read");
    let seen: Vec<(u32, bool)> = list
        .iter()
        .map(|row| (row.info.uses_left, row.info.revoked_at.is_some()))
        .collect();
    assert_eq!(seen, [(1, false), (1, true), (0, false)], "newest first");
    join_token_trim(c, Timestamp(51)).await.expect("trimmed");
    assert_eq!(join_token_list(c).await.expect("read").len(), 2);
    let nowhere = JoinTokenRow {
        info: JoinTokenInfo {
            role: Role::Node,
            cluster: "none".parse().expect("cluster"),
            ..token(4, 1, 9).info
        },
        ..token(4, 1, 9)
    };
    assert!(
        join_token_insert(c, &nowhere).await.is_err(),
        "no such cluster"
    );
}

fn enrolment(name: &str) -> EnrolmentRow {
    EnrolmentRow {
        role: Role::Node,
        node: node(name),
        id: EnrolmentId::from_uuid(Uuid::from_u128(name.len() as u128)),
        cluster: "eu-1".parse().expect("cluster"),
        token: JoinTokenId::from_uuid(Uuid::from_u128(1)),
        addresses: NodeAddresses {
            gateway: "192.0.2.1:8080".parse().expect("address"),
            admin: "[2001:db8::1]:8081".parse().expect("address"),
            peer: Some("192.0.2.1:8082".parse().expect("address")),
            names: vec!["node.example.org".parse().expect("name")],
        },
        enrolled_at: Timestamp(5),
        removed_at: None,
    }
}

async fn enrolments_are_read_as_far_as_they_are_new(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    made(c, "eu-1").await;
    for name in ["a", "bb", "ccc"] {
        enrolment_upsert(c, &enrolment(name))
            .await
            .expect("written");
    }
    let names = |rows: &[EnrolmentRow]| -> Vec<String> {
        rows.iter().map(|row| row.node.to_string()).collect()
    };
    let (all, first) = enrolment_list_after(c, 0).await.expect("read");
    assert_eq!(names(&all), ["a", "bb", "ccc"]);
    let (none, same) = enrolment_list_after(c, first).await.expect("read");
    assert_eq!((none, same), (Vec::new(), first));
    // One is written again, and one removed.
    enrolment_upsert(c, &enrolment("bb"))
        .await
        .expect("written");
    assert!(
        enrolment_remove(c, &node("a"), Timestamp(9))
            .await
            .expect("removed")
    );
    let (new, last) = enrolment_list_after(c, first).await.expect("read");
    assert_eq!(names(&new), ["bb", "a"]);
    assert!(new[1].removed_at.is_some() && last > first);
    let cluster: ClusterId = "eu-1".parse().expect("cluster");
    let beside = enrolment_list_others(c, &cluster, &node("bb"), 9).await;
    assert_eq!(names(&beside.expect("read")), ["ccc"]);
}

async fn what_a_removed_node_says_is_not_written(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    made(c, "eu-1").await;
    enrolment_upsert(c, &enrolment("n")).await.expect("written");
    assert_eq!(
        enrolment_get(c, &node("n")).await.expect("read"),
        Some(enrolment("n"))
    );
    let said = |at| StatusRow {
        status: node_at("n", "eu-1", 1.0, 2.0),
        seen_at: Timestamp(at),
    };
    node_observe(c, &said(10)).await.expect("written");
    assert!(
        enrolment_remove(c, &node("n"), Timestamp(20))
            .await
            .expect("removed")
    );
    assert!(
        !enrolment_remove(c, &node("n"), Timestamp(21))
            .await
            .expect("once")
    );
    assert!(node_delete(c, &node("n")).await.expect("deleted"));
    node_observe(c, &said(30)).await.expect("ignored");
    assert_eq!(node_status_list(c).await.expect("read"), []);
    enrolment_upsert(c, &enrolment("n"))
        .await
        .expect("let in again");
    node_observe(c, &said(40)).await.expect("written");
    assert_eq!(node_status_list(c).await.expect("read").len(), 1);
}

async fn certificates_count_until_they_are_revoked(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    made(c, "eu-1").await;
    let certificate = |serial: &str, node_name: &str, issued_at, expires_at| CertificateRow {
        serial: serial.to_owned(),
        node: node(node_name),
        public_key: "key".to_owned(),
        issued_at: Timestamp(issued_at),
        expires_at: Timestamp(expires_at),
        revoked_at: None,
    };
    let rows = [
        certificate("aa", "n", 1, 10),
        certificate("bb", "n", 5, 20),
        certificate("cc", "other", 5, 20),
    ];
    for name in ["n", "other"] {
        enrolment_upsert(c, &enrolment(name))
            .await
            .expect("written");
    }
    for row in &rows {
        assert!(certificate_insert(c, row).await.expect("written"));
    }
    let again = certificate("aa", "other", 7, 30);
    assert!(!certificate_insert(c, &again).await.expect("it is there"));
    assert!(
        certificate_insert(c, &certificate("dd", "nobody", 1, 2))
            .await
            .is_err()
    );
    assert_eq!(
        certificate_newest(c, &node("n")).await.expect("read"),
        Some(rows[1].clone())
    );
    assert_eq!(
        certificate_get(c, "cc").await.expect("read"),
        Some(rows[2].clone())
    );
    assert_eq!(
        certificate_revoke(c, &node("n"), Timestamp(7))
            .await
            .expect("revoked"),
        2
    );
    assert_eq!(
        certificate_revoke(c, &node("n"), Timestamp(8))
            .await
            .expect("once"),
        0
    );
    let revoked = async |c: &mut AnyConnection, now| {
        let list = certificate_list_revoked(c, Timestamp(now))
            .await
            .expect("read");
        list.into_iter().map(|one| one.serial).collect::<Vec<_>>()
    };
    assert_eq!(revoked(c, 9).await, ["aa", "bb"]);
    assert_eq!(
        revoked(c, 10).await,
        ["bb"],
        "one that has ended need not be told"
    );
    enrolment_remove(c, &node("n"), Timestamp(7))
        .await
        .expect("removed");
    enrolment_trim(c, Timestamp(15)).await.expect("trimmed");
    assert_eq!(
        enrolment_list(c).await.expect("read").len(),
        2,
        "a certificate of it may still count"
    );
    enrolment_trim(c, Timestamp(21)).await.expect("trimmed");
    let left: Vec<NodeId> = enrolment_list(c)
        .await
        .expect("read")
        .into_iter()
        .map(|r| r.node)
        .collect();
    assert_eq!(left, [node("other")]);
    for cordoned in [true, false] {
        assert_eq!(
            cordon_insert(c, &node("n"), "admin", Timestamp(1))
                .await
                .expect("written"),
            cordoned
        );
    }
    assert_eq!(
        cordon_list(c).await.expect("read"),
        BTreeSet::from([node("n")])
    );
    assert!(cordon_delete(c, &node("n")).await.expect("deleted"));
    assert!(!cordon_delete(c, &node("n")).await.expect("once"));
}

/// A request of a node for the lease of `eu-1`; returns holder and epoch.
async fn ask(store: &Store, name: &str, epoch: Option<u64>, until: u64, now: u64) -> (String, u64) {
    let mut tx = store.begin().await.expect("begun");
    let asker = node(name);
    let wish = LeaseClaim {
        node: &asker,
        epoch,
        until: Timestamp(until),
    };
    let cluster = "eu-1".parse().expect("cluster");
    let row = lease_acquire(&mut tx, &cluster, &wish, Timestamp(now))
        .await
        .expect("asked");
    tx.commit().await.expect("committed");
    (row.holder.to_string(), row.epoch)
}

async fn one_node_is_head_however_many_ask(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let first = futures::future::join_all((0..8).map(|n| {
        let store = store.clone();
        async move { ask(&store, &format!("n-{n}"), None, 100, 1).await }
    }))
    .await;
    let heads: BTreeSet<(String, u64)> = first.into_iter().collect();
    assert_eq!(heads.len(), 1, "{heads:?}");
    assert_eq!(heads.first().expect("one").1, 1);
    let next = futures::future::join_all((0..8).map(|n| {
        let store = store.clone();
        async move { ask(&store, &format!("m-{n}"), None, 200, 100).await }
    }))
    .await;
    let heads: BTreeSet<(String, u64)> = next.into_iter().collect();
    assert_eq!(heads.len(), 1, "{heads:?}");
    assert_eq!(heads.first().expect("one").1, 2);
}

async fn an_epoch_grows_with_every_beginning(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let got = |holder: &str, epoch| (holder.to_owned(), epoch);
    assert_eq!(ask(&store, "a", None, 100, 0).await, got("a", 1));
    assert_eq!(
        ask(&store, "a", Some(1), 150, 50).await,
        got("a", 1),
        "kept"
    );
    assert_eq!(
        ask(&store, "b", None, 160, 149).await,
        got("a", 1),
        "not over yet"
    );
    assert_eq!(
        ask(&store, "b", Some(1), 160, 149).await,
        got("a", 1),
        "another's epoch"
    );
    assert_eq!(
        ask(&store, "a", None, 160, 149).await,
        got("a", 2),
        "it began anew"
    );
    assert_eq!(
        ask(&store, "a", Some(1), 999, 150).await,
        got("a", 2),
        "its former life is told"
    );
    assert_eq!(ask(&store, "b", None, 300, 160).await, got("b", 3), "over");
    assert_eq!(ask(&store, "a", Some(2), 999, 200).await, got("b", 3));
    assert_eq!(
        ask(&store, "b", Some(3), 400, 350).await,
        got("b", 3),
        "nobody took it meanwhile"
    );
    let c = &mut *store.read().await.expect("connected");
    lease_release(c, &node("b"), Timestamp(360))
        .await
        .expect("ended");
    assert_eq!(
        ask(&store, "a", Some(2), 500, 360).await,
        got("a", 4),
        "removed nodes lead no longer"
    );
    let lease = lease_get(c, &"eu-1".parse().expect("cluster"))
        .await
        .expect("read");
    assert_eq!(lease.expect("there").expires_at, Timestamp(500));
}

async fn authorities_are_kept_until_they_end(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    let row = |id: &str, created_at, expires_at| AuthorityRow {
        id: id.to_owned(),
        certificate: "PEM".to_owned(),
        sealed_key: Sealed("c2VhbGVk".to_owned()),
        created_at: Timestamp(created_at),
        expires_at: Timestamp(expires_at),
    };
    for row in [row("new", 5, 50), row("old", 1, 10)] {
        authority_insert(c, &row).await.expect("inserted");
    }
    assert_eq!(
        authority_list(c).await.expect("read"),
        [row("old", 1, 10), row("new", 5, 50)]
    );
    authority_trim(c, Timestamp(11)).await.expect("trimmed");
    assert_eq!(authority_list(c).await.expect("read"), [row("new", 5, 50)]);
}

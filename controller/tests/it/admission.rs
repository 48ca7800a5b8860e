//! Machines that connect while the database does not answer are admitted, and checked once it answers again.

use fdn_controller::store::Store;
use fdn_core::enrol::Role;
use fdn_testkit::postgres::PostgresServer;
use serde_json::Value;

use crate::edge_member::{Member, Wire};
use crate::machines::until;
use crate::rig::{Backend, Rig, on_both};

on_both!(whoever_was_let_in_unasked_is_judged_once_the_store_answers);

/// Removes from the database what an earlier backup would lack: the certificate of `m-2`, all of `m-3`, and that `m-4` joined again.
const FORGOTTEN: [&str; 3] = [
    "DELETE FROM certificates WHERE node IN ('m-2', 'm-3', 'm-4')",
    "DELETE FROM enrolments WHERE node = 'm-3'",
    "UPDATE enrolments SET removed_at = 1 WHERE node = 'm-4'",
];

/// The number of connections admitted without asking the database.
fn unjudged(rig: &Rig) -> i64 {
    let gauge = &rig.controller.state().metrics.edge.unjudged;
    gauge.with_label_values(&["node"]).get()
}

fn unknown(rig: &Rig) -> u64 {
    let refused = &rig.controller.state().metrics.edge.refused;
    refused.with_label_values(&["unknown"]).get()
}

/// Four machines, the first of which was connected once: by then the state for machines is loaded.
async fn members(rig: &Rig) -> Vec<Member> {
    rig.cluster("eu-west").await;
    let mut all = Vec::new();
    for name in ["m-1", "m-2", "m-3", "m-4"] {
        all.push(Member::join(rig, Role::Node, "eu-west", name).await);
    }
    all[0].connect(&[rig]).up().await;
    all
}

/// All machines connect while the store is away.
async fn connected(rig: &Rig, members: &[Member]) -> Vec<Wire> {
    let mut wires: Vec<Wire> = members.iter().map(|one| one.connect(&[rig])).collect();
    for wire in &mut wires {
        wire.up().await;
    }
    assert_eq!((unknown(rig), unjudged(rig) >= 3), (0, true));
    wires
}

/// Known machines keep their connections; the others are cut, and refused from then on.
async fn judged(rig: &Rig, wires: &[Wire]) {
    let metrics = &rig.controller.state().metrics.edge;
    until("all to be judged", async || unjudged(rig) == 0).await;
    until("two to be cut", async || metrics.cut.get() == 2).await;
    let before = unknown(rig);
    until("them to try again", async || unknown(rig) > before + 4).await;
    let feeds: Vec<(bool, bool)> = wires
        .iter()
        .map(|wire| {
            let connected = &wire.connection.feed.connected;
            let changed = connected.has_changed().expect("the link lives");
            (*connected.borrow(), changed)
        })
        .collect();
    let (stayed, cut) = ((true, false), (false, true));
    assert_eq!(feeds, [stayed, stayed, cut, cut]);
    assert_eq!(metrics.cut.get(), 2, "no connection of theirs was let in");
    let adopted: Vec<Value> = rig.get("/v1/audit?action=node.adopt").await;
    assert_eq!(adopted.len(), 1, "m-2, by its name");
}

async fn whoever_was_let_in_unasked_is_judged_once_the_store_answers(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let members = members(&rig).await;
    let other = Store::connect(&rig.settings.database).await;
    let other = other.expect("connected");
    let mut tx = other.begin().await.expect("begun");
    for text in FORGOTTEN {
        let done = sqlx::query(text).execute(&mut *tx).await;
        done.expect("forgotten");
    }
    tx.commit().await.expect("committed");
    // The lock stops other writers on SQLite, and readers as well on PostgreSQL.
    let mut held = other.begin().await.expect("begun");
    if matches!(backend, Backend::Postgres) {
        let lock = "LOCK TABLE certificates, enrolments IN ACCESS EXCLUSIVE MODE";
        let done = sqlx::query(lock).execute(&mut *held).await;
        done.expect("held");
    }
    let wires = connected(&rig, &members).await;
    held.rollback().await.expect("let go");
    judged(&rig, &wires).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_as_machines_connect_keeps_no_stranger_in() {
    let mut server = PostgresServer::start()
        .await
        .expect("PostgreSQL must be installed for this test");
    let database = server.database().expect("a database");
    let rig = Rig::start_with(Backend::Sqlite, |settings| {
        settings.database.url.clone_from(&database.url);
        settings.database.acquire_timeout = fdn_core::DurationMs::from_secs(3);
    })
    .await;
    let members = members(&rig).await;
    for text in FORGOTTEN {
        database.execute(text).expect("forgotten");
    }
    server.kill();
    let wires = connected(&rig, &members).await;
    server.restart().await.expect("restarted");
    judged(&rig, &wires).await;
}

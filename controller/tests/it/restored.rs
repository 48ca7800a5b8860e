//! Machines after a restore: those that renewed their certificates since the backup are recognized by name; those unknown to the backup are told to
//! join again.

use std::sync::Arc;

use fdn_controller::backup::{ArchiveLocation, KeyPolicy, backup, restore};
use fdn_core::enrol::{RenewRequest, RenewResponse, Role};
use fdn_testkit::wait;
use reqwest::Method;
use serde_json::Value;

use crate::broker::TestBroker;
use crate::edge_member::Member;
use crate::machines::addresses;
use crate::rig::{Backend, Rig, on_both, settings};

on_both!(machines_that_renewed_since_the_backup_are_known_and_newcomers_join_again);

impl Member {
    /// Renews its certificate over its connection to a controller.
    async fn renew(&mut self, rig: &Rig) {
        let mut wire = self.connect(&[rig]);
        wire.up().await;
        let (serial, at) = (self.answer.identity.serial.clone(), fdn_service::now());
        let text = RenewRequest::signed_text(&serial, at, &addresses(1));
        let wish = RenewRequest {
            serial,
            at,
            addresses: addresses(1),
            signature: self.key.sign(&text).expect("signed"),
        };
        let (status, answer) = wire.post("/edge/v1/renew", &wish).await;
        assert_eq!(status, 200, "{answer}");
        let answer: RenewResponse = serde_json::from_value(answer).expect("a certificate");
        std::fs::write(&self.files.certificate, &answer.identity.certificate).expect("written");
        self.answer.identity = answer.identity;
    }
}

/// The number of refusals of unknown machines.
fn unknown(rig: &Rig) -> u64 {
    let refused = &rig.controller.state().metrics.edge.refused;
    refused.with_label_values(&["unknown"]).get()
}

async fn delete(rig: &Rig, path: &str) {
    let deleted = rig.request(Method::DELETE, path).send().await;
    assert_eq!(deleted.expect("an answer").status(), 204, "{path}");
}

async fn actions(rig: &Rig, action: &str) -> usize {
    let log: Vec<Value> = rig.get(&format!("/v1/audit?action={action}")).await;
    log.len()
}

/// A controller restored from a backup of another one, taken before `since` happened there.
async fn restored(backend: Backend, old: &Rig, since: impl AsyncFnOnce()) -> Rig {
    let archive = ArchiveLocation::File(old.folder.path().join("one.fdn"));
    let made = backup(&old.settings, &archive, KeyPolicy::With).await;
    made.expect("backed up");
    since().await;
    let folder = Arc::new(tempfile::tempdir().expect("folder"));
    let settings = settings(folder.path(), backend).await;
    let restored = restore(&settings, &archive, KeyPolicy::Needed).await;
    restored.expect("restored");
    let broker = Arc::new(TestBroker::default());
    Box::pin(Rig::start_on(settings, broker, folder)).await
}

async fn machines_that_renewed_since_the_backup_are_known_and_newcomers_join_again(
    backend: Backend,
) {
    let old = Rig::start_with(backend, |_| {}).await;
    old.cluster("eu-west").await;
    let mut node = Member::join(&old, Role::Node, "eu-west", "m-1").await;
    let mut dns = Member::join(&old, Role::Dns, "eu-west", "d-1").await;
    // The name `m-3` was free when the backup was made.
    Member::join(&old, Role::Node, "eu-west", "m-3").await;
    delete(&old, "/v1/nodes/m-3").await;
    let (mut late, mut again) = (None, None);
    let new = restored(backend, &old, async || {
        old.age_certificates().await;
        node.renew(&old).await;
        dns.renew(&old).await;
        late = Some(Member::join(&old, Role::Node, "eu-west", "m-2").await);
        again = Some(Member::join(&old, Role::Node, "eu-west", "m-3").await);
    })
    .await;

    // A machine known by name continues with a certificate that the backup lacks, and renews it.
    let mut wires = Vec::new();
    for member in [&node, &dns] {
        for _ in 0..2 {
            let mut wire = member.connect(&[&new]);
            wire.up().await;
            wires.push(wire);
        }
    }
    assert_eq!(actions(&new, "node.adopt").await, 1, "once");
    assert_eq!(actions(&new, "dns.adopt").await, 1);
    assert_eq!(unknown(&new), 0);
    new.age_certificates().await;
    node.renew(&new).await;
    let mut renewed = node.connect(&[&new]);
    renewed.up().await;
    assert_eq!(actions(&new, "node.adopt").await, 1, "it was made here");

    // It is cut when it is removed, whichever certificate it presents.
    delete(&new, "/v1/dns-servers/d-1").await;
    delete(&new, "/v1/nodes/m-1?force=true").await;
    for wire in wires.iter_mut().chain([&mut renewed]) {
        wire.removed().await;
    }

    // An unknown machine gets nothing until it joins again.
    for (member, name) in [(late, "m-2"), (again, "m-3")] {
        let before = unknown(&new);
        let stranger = member.expect("joined");
        let wire = stranger.connect(&[&new]);
        wait::until("it to be refused", async || match unknown(&new) {
            count if count > before => Ok(()),
            _ => Err("not yet"),
        })
        .await;
        assert!(!*wire.connection.feed.connected.borrow());
        drop(wire);
        let member = Member::join(&new, Role::Node, "eu-west", name).await;
        member.connect(&[&new]).up().await;
    }
    new.controller.stop().await;
}

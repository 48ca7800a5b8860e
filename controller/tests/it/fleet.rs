//! Machines over the API: enrolment, lists, draining, removal, renewal, leases.

use fdn_core::account::AuditRecord;
use fdn_core::api::NodeInfo;
use fdn_core::device::{DeviceState, DeviceStatus};
use fdn_core::enrol::{EnrolResponse, NodeAddresses, NodeIdentity, RenewRequest, RenewResponse};
use fdn_core::fleet::{ClusterDetail, FleetDesired, JoinTokenInfo, NodeDetail, NodeState};
use fdn_core::message::{Channel, Message, NodeStatus};
use fdn_core::{DurationMs, NodeId, Timestamp};
use fdn_service::pki::{Facts, NodeKey};
use reqwest::Method;
use serde_json::json;

use crate::broker::next_of;
use crate::machines::{Machine, addresses, until};
use crate::rig::{Backend, Rig, node_at, on_both};

on_both!(
    a_machine_is_let_in_drained_and_removed,
    a_certificate_is_renewed_by_its_key,
    several_controllers_share_one_authority,
    a_device_is_put_back_into_service_once,
    telling_machines_parses_no_status_twice,
);

#[allow(
    clippy::too_many_lines,
    reason = "one machine's life: each step stands on the one before"
)]
async fn a_machine_is_let_in_drained_and_removed(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let mut agents = rig.broker.listen(Channel::Changes).await;
    let made = rig.cluster("eu-1").await;
    assert_eq!((made.region.as_str(), made.nodes_total), ("eu", 0));
    let again = json!({ "cluster": "eu-1", "region": "eu" });
    let again = rig.request(Method::POST, "/v1/clusters").json(&again);
    assert_eq!(rig.code(again).await, "FDN-2004");
    let somewhere = json!({ "cluster": "us-1", "region": "us" });
    let somewhere = rig.request(Method::POST, "/v1/clusters").json(&somewhere);
    assert_eq!(
        rig.code(somewhere).await,
        "FDN-2005",
        "nobody knows where us is"
    );

    let (machine, token) = (Machine::new(), rig.token("eu-1", 1).await);
    let request = machine.request("n-1", &token.token);
    let answer: EnrolResponse = rig.json(rig.enrol(&request)).await;
    assert_eq!(
        (answer.cluster.as_str(), answer.region.as_str()),
        ("eu-1", "eu")
    );
    let facts = Facts::<NodeIdentity>::of_pem(&answer.identity.certificate).expect("a certificate");
    assert_eq!(facts.identity.to_string(), "fdn://cluster/eu-1/node/n-1");
    assert_eq!(answer.identity.authorities.len(), 1);
    assert_eq!(rig.state("n-1").await, NodeState::Joined);
    let list: Vec<JoinTokenInfo> = rig.get("/v1/join-tokens").await;
    assert_eq!(
        (list[0].uses_left, list[0].created_by.as_str()),
        (0, "admin")
    );

    // The node's own token gives no access to the API.
    let own = rig
        .anonymous(Method::GET, "/v1/nodes")
        .bearer_auth(&answer.node_token);
    assert_eq!(rig.code(own).await, "FDN-2001");
    let snapshot = rig.apps_snapshot().await;
    assert_eq!(
        snapshot.fleet.expect("told").authorities,
        answer.identity.authorities
    );

    let status = |draining, busy| NodeStatus {
        draining,
        busy,
        gateway: addresses(1).gateway,
        ..node_at("n-1", "eu-1", 53.35, -6.26)
    };
    rig.node(status(false, 1)).await;
    rig.node(node_at("n-9", "eu-1", 53.35, -6.26)).await;
    until("both nodes in DNS", async || {
        rig.gateways("eu-1").await == 2
    })
    .await;
    let remove = |query: &str| rig.request(Method::DELETE, &format!("/v1/nodes/n-1{query}"));
    assert_eq!(rig.code(remove("")).await, "FDN-7009", "it takes work");

    // Draining: nodes and DNS servers are told at once; the node reports when it is done.
    let drain = || rig.request(Method::POST, "/v1/nodes/n-1/drain");
    for _ in 0..2 {
        let detail: NodeDetail = rig.json(drain()).await;
        assert!(detail.info.cordoned && detail.info.state == NodeState::Alive);
    }
    let Message::FleetDesired(fleet) = next_of(&mut agents, "fleet_desired").await.message else {
        panic!("another message");
    };
    assert_eq!(
        fleet
            .cordoned
            .iter()
            .map(NodeId::as_str)
            .collect::<Vec<_>>(),
        ["n-1"]
    );
    until("DNS without the node", async || {
        rig.gateways("eu-1").await == 1
    })
    .await;
    rig.node(status(true, 1)).await;
    until("the node to drain", async || {
        rig.state("n-1").await == NodeState::Draining
    })
    .await;
    assert_eq!(rig.code(remove("")).await, "FDN-7009", "a call runs");
    rig.node(status(true, 0)).await;
    until("the node to be drained", async || {
        rig.state("n-1").await == NodeState::Drained
    })
    .await;

    // Uncordoned again.
    let detail: NodeDetail = rig
        .json(rig.request(Method::POST, "/v1/nodes/n-1/uncordon"))
        .await;
    assert!(!detail.info.cordoned);
    let Message::FleetDesired(fleet) = next_of(&mut agents, "fleet_desired").await.message else {
        panic!("another message");
    };
    assert!(fleet.cordoned.is_empty());
    rig.node(status(false, 0)).await;
    until("the node in DNS again", async || {
        rig.gateways("eu-1").await == 2
    })
    .await;

    let rig = rig.restart().await;
    rig.node(status(true, 0)).await;
    until("what was kept", async || {
        rig.state("n-1").await == NodeState::Drained
    })
    .await;
    assert_eq!(
        rig.request(Method::DELETE, "/v1/nodes/n-1")
            .send()
            .await
            .expect("an answer")
            .status(),
        204
    );
    let Message::FleetDesired(fleet) = next_of(&mut agents, "fleet_desired").await.message else {
        panic!("another message");
    };
    assert_eq!(fleet.revoked[0].serial, answer.identity.serial);
    assert_eq!(
        rig.code(rig.request(Method::GET, "/v1/nodes/n-1")).await,
        "FDN-2003"
    );
    // It continues to report, as a machine that does not know yet; another node's later report shows that these reports were read.
    let sequence = |status: NodeStatus| NodeStatus {
        sequence: fdn_service::now().get() + 60_000,
        ..status
    };
    rig.report(Message::NodeStatus(Box::new(sequence(status(false, 0)))));
    rig.report(Message::NodeStatus(Box::new(sequence(node_at(
        "n-8", "eu-1", 1.0, 1.0,
    )))));
    until("the later report", async || {
        let nodes: Vec<NodeInfo> = rig.get("/v1/nodes").await;
        assert!(
            nodes.iter().all(|node| node.node.as_str() != "n-1"),
            "a removed node came back"
        );
        nodes.iter().any(|node| node.node.as_str() == "n-8")
    })
    .await;
    let detail: ClusterDetail = rig.get("/v1/clusters/eu-1").await;
    assert_eq!(detail.info.cluster.as_str(), "eu-1");
    // The same machine may join again, with a new token.
    assert_eq!(rig.code(rig.enrol(&request)).await, "FDN-7003");
    let token = rig.token("eu-1", 1).await;
    let _: EnrolResponse = rig
        .json(rig.enrol(&machine.request("n-1", &token.token)))
        .await;
}

async fn a_certificate_is_renewed_by_its_key(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.cluster("eu-1").await;
    let token = rig.token("eu-1", 1).await.token;
    let machine = Machine::new();
    let first: EnrolResponse = rig.json(rig.enrol(&machine.request("n-1", &token))).await;
    let signed_at = |key: &NodeKey, serial: &str, at: Timestamp, addresses: NodeAddresses| {
        let text = RenewRequest::signed_text(serial, at, &addresses);
        RenewRequest {
            serial: serial.to_owned(),
            at,
            addresses,
            signature: key.sign(&text).expect("signed"),
        }
    };
    // At other ports than it joined with.
    let ports = NodeAddresses {
        gateway: "127.0.9.1:8090".parse().expect("address"),
        ..addresses(1)
    };
    let signed =
        |key: &NodeKey, serial: &str, at: Timestamp| signed_at(key, serial, at, ports.clone());
    let serial = &first.identity.serial;
    let now = fdn_service::now;
    let ask = |request: &RenewRequest| rig.anonymous(Method::POST, "/v1/nodes/renew").json(request);
    let why = async |request: &RenewRequest| {
        let (_, problem) = rig.refused(ask(request)).await;
        assert_eq!(problem.code.as_str(), "FDN-7008");
        problem.detail
    };
    let early = why(&signed(&machine.key, serial, now())).await;
    assert!(early.contains("not due"), "{early}");
    rig.age_certificates().await;
    let elsewhere = why(&signed_at(&machine.key, serial, now(), addresses(2))).await;
    assert!(elsewhere.contains("another host"), "{elsewhere}");
    let request = signed(&machine.key, serial, now());
    let next: RenewResponse = rig.json(ask(&request)).await;
    // The same request again, and another one: the holder of the key cannot collect certificates.
    for again in [request, signed(&machine.key, serial, now())] {
        let again = why(&again).await;
        assert!(again.contains("renewed already"), "{again}");
    }
    let facts = Facts::<NodeIdentity>::of_pem(&next.identity.certificate).expect("a certificate");
    assert_eq!(facts.identity.to_string(), "fdn://cluster/eu-1/node/n-1");
    assert_ne!(next.identity.serial, *serial);
    assert_eq!(next.node_token, first.node_token);
    let stranger = Machine::new();
    let old = Timestamp(now().get() - 301_000);
    for refused in [
        signed(&stranger.key, serial, now()),
        signed(&machine.key, &"0".repeat(32), now()),
        signed(&machine.key, serial, old),
        RenewRequest {
            addresses: addresses(3),
            ..signed(&machine.key, serial, now())
        },
    ] {
        assert_eq!(rig.code(ask(&refused)).await, "FDN-7008", "{refused:?}");
    }
    let detail: NodeDetail = rig.get("/v1/nodes/n-1").await;
    assert_eq!(detail.info.gateway, ports.gateway);
    assert_eq!(
        detail.certificate.expect("one").serial,
        next.identity.serial
    );
    let removed = rig
        .request(Method::DELETE, "/v1/nodes/n-1")
        .send()
        .await
        .expect("an answer");
    assert_eq!(removed.status(), 204);
    let late = signed(&machine.key, &next.identity.serial, now());
    assert_eq!(
        rig.code(ask(&late)).await,
        "FDN-7008",
        "the node was removed"
    );
    let snapshot = rig.apps_snapshot().await;
    assert_eq!(
        snapshot.fleet.expect("told").revoked.len(),
        2,
        "both certificates"
    );
}

async fn several_controllers_share_one_authority(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.cluster("eu-1").await;
    let token = rig.token("eu-1", 2).await.token;
    let machine = Machine::new();
    let first: EnrolResponse = rig.json(rig.enrol(&machine.request("n-1", &token))).await;
    let rig = rig.restart().await;
    let other = Machine::new();
    let second: EnrolResponse = rig.json(rig.enrol(&other.request("n-2", &token))).await;
    assert_eq!(first.identity.authorities, second.identity.authorities);
    assert_eq!(second.seeds[0].node.as_str(), "n-1");
    let connection = &mut *rig
        .controller
        .state()
        .store
        .read()
        .await
        .expect("connected");
    let kept = fdn_controller::store::authority::authority_list(connection)
        .await
        .expect("read");
    assert_eq!(kept.len(), 1);
    assert!(
        !kept[0].sealed_key.0.contains("PRIVATE"),
        "the key is sealed"
    );
}

/// A device that its node took out of service.
pub(crate) fn out_of_service(id: &str) -> DeviceStatus {
    serde_json::from_value(json!({
        "id": id, "kind": "gpu", "model": "NVIDIA H200", "memory_mib": 143_000, "bound_mib": 0,
        "state": "out_of_service", "reason": "Xid 79", "since": 5,
    }))
    .expect("a device")
}

async fn a_device_is_put_back_into_service_once(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let mut agents = rig.broker.listen(Channel::Changes).await;
    rig.cluster("eu-1").await;
    let mut status = node_at("n-1", "eu-1", 53.35, -6.26);
    status.devices = vec![out_of_service("GPU-1")];
    rig.node(status.clone()).await;
    let out = async || {
        let detail: NodeDetail = rig.get("/v1/nodes/n-1").await;
        let devices = detail.status.map(|status| status.devices);
        let devices = devices.unwrap_or_default().into_iter();
        devices
            .filter(|device| !device.state.is_in_service())
            .count()
    };
    until("the device to be known", async || out().await == 1).await;
    let restore = |device: &str| {
        let request = rig.request(Method::POST, "/v1/nodes/n-1/restore-device");
        request.json(&json!({ "device": device }))
    };
    assert_eq!(
        rig.code(restore("GPU-2")).await,
        "FDN-2003",
        "no such device"
    );
    let mut before = None;
    for _ in 0..2 {
        let _: NodeDetail = rig.json(restore("GPU-1")).await;
        let Message::FleetDesired(fleet) = next_of(&mut agents, "fleet_desired").await.message
        else {
            panic!("another message");
        };
        let of_node = fleet.restored.get(&"n-1".parse::<NodeId>().expect("name"));
        let said = of_node.and_then(|all| all.values().next().copied());
        assert!(said > before, "it failed again: {said:?} after {before:?}");
        before = said;
    }
    let snapshot = rig.apps_snapshot().await;
    assert_eq!(snapshot.fleet.expect("told").restored.len(), 1);
    status.devices[0].state = DeviceState::InService;
    rig.node(status).await;
    until("the device to be in service", async || out().await == 0).await;
    let _: NodeDetail = rig.json(restore("GPU-1")).await;
    let entries: Vec<AuditRecord> = rig.get("/v1/audit?limit=100").await;
    let restores = entries
        .iter()
        .filter(|one| one.action == "node.restore-device");
    assert_eq!(
        restores.count(),
        2,
        "the third time there was nothing to do"
    );
}

async fn telling_machines_parses_no_status_twice(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| {
        settings.planner.status_write_interval = DurationMs::from_secs(3600);
    })
    .await;
    let mut agents = rig.broker.listen(Channel::Changes).await;
    rig.cluster("eu-1").await;
    let says = |name: &str, port: u16| NodeStatus {
        stage_calls: Some(([127, 0, 1, 1], port).into()),
        ..node_at(name, "eu-1", 53.35, -6.26)
    };
    rig.node(says("n-1", 9001)).await;
    rig.node(says("n-2", 9002)).await;
    let state = rig.controller.state();
    let read = || state.metrics.plans.statuses.get();
    until("both statuses to be read", async || read() == 2).await;
    // Parsing the statuses again would fail from now on.
    let mut connection = state.store.read().await.expect("connected");
    let done = sqlx::query("UPDATE node_status SET status = 'no status'")
        .execute(&mut *connection)
        .await
        .expect("changed");
    assert_eq!(done.rows_affected(), 2);
    drop(connection);

    let drain = rig.request(Method::POST, "/v1/nodes/n-1/drain");
    let _: NodeDetail = rig.json(drain).await;
    let fleet = loop {
        // Stage-call addresses may have been sent before.
        match next_of(&mut agents, "fleet_desired").await.message {
            Message::FleetDesired(fleet) if !fleet.cordoned.is_empty() => break fleet,
            _ => {}
        }
    };
    let ports = |fleet: &FleetDesired| {
        let all = fleet.stage_calls.values().flatten();
        all.map(std::net::SocketAddr::port).collect::<Vec<_>>()
    };
    assert_eq!(ports(&fleet), [9001, 9002]);
    let snapshot = rig.apps_snapshot().await.fleet.expect("told");
    assert_eq!(ports(&snapshot), [9001, 9002]);
    assert_eq!(read(), 2);

    // A new status is read, once for all uses.
    rig.node(says("n-3", 9003)).await;
    // By the planner: a request that began before it was written would show the fleet without it, and the next one read it again.
    until("the third status to be read", async || read() == 3).await;
    let snapshot = rig.apps_snapshot().await.fleet.expect("told");
    assert_eq!(ports(&snapshot), [9001, 9002, 9003]);
    assert_eq!(read(), 3);
}

//! The planner: demand, failures, recovery, restarts; and reports that come twice or out of order.

use fdn_controller::store::node::node_status_list;
use fdn_controller::store::revision::revision_current;
use fdn_core::api::{AppDetail, AppsSnapshot, ClusterInfo, DnsSnapshot};
use fdn_core::message::{AppPhase, Channel, DemandReport, Message, NodeStatus};
use fdn_core::{DurationMs, Revision};
use fdn_testkit::{components, wait};

use crate::broker::next;
use crate::explain::told as ready;
use crate::rig::{Backend, Rig, on_both, two_regions};

on_both!(
    demand_makes_bindings_that_survive_a_restart,
    a_silent_cluster_is_left_and_taken_again,
    a_cluster_that_joins_nearer_to_clients_is_told_ahead_and_gets_them,
    nothing_new_writes_nothing
);

async fn demand(rig: &Rig, prefix: &str) {
    let entries = vec![(
        "hello".parse().expect("app"),
        prefix.parse().expect("prefix"),
        3,
    )];
    rig.report(Message::DemandReport(DemandReport {
        server: "dns-1".to_owned(),
        entries,
    }));
}

async fn bindings(rig: &Rig) -> Vec<(String, String)> {
    let detail: AppDetail = rig.get("/v1/apps/hello").await;
    detail
        .bindings
        .iter()
        .map(|b| (b.prefix.to_string(), b.cluster.to_string()))
        .collect()
}

/// Waits until a prefix is bound to a cluster.
async fn bound(rig: &Rig, prefix: &str, cluster: &str) {
    wait::until(&format!("{prefix} to be sent to {cluster}"), async || {
        let found = bindings(rig).await;
        if found.contains(&(prefix.to_owned(), cluster.to_owned())) {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
}

async fn demand_makes_bindings_that_survive_a_restart(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.two_regions().await;
    rig.deploy("hello", components::hello("x")).await;
    let mut dns = rig.broker.listen(Channel::Changes).await;
    // The location of these clients is unknown; both clusters are equal, and the first by name gets them.
    demand(&rig, "10.1.2.0/24").await;
    bound(&rig, "10.1.2.0/24", "eu-west").await;
    let revision = loop {
        if let Message::BindingsDesired(told) = next(&mut dns).await.message
            && told.state.expect("there").bindings.len() == 3
        {
            break told.revision;
        }
    };
    let before = bindings(&rig).await;
    let rig = rig.restart().await;
    assert_eq!(bindings(&rig).await, before);
    let snapshot: DnsSnapshot = rig.dns_snapshot().await;
    assert_eq!(snapshot.apps[0].revision, revision);
    // After the restart no node has reported yet; no client is moved for that.
    demand(&rig, "10.1.3.0/24").await;
    for status in two_regions() {
        rig.node(status).await;
    }
    bound(&rig, "10.1.3.0/24", "eu-west").await;
    let after = bindings(&rig).await;
    assert!(
        before.iter().all(|binding| after.contains(binding)),
        "{before:?} {after:?}"
    );
}

async fn a_silent_cluster_is_left_and_taken_again(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.two_regions().await;
    rig.deploy("hello", components::hello("x")).await;
    bound(&rig, "192.0.2.0/24", "eu-west").await;
    let (before, leaving) = told(&rig).await;
    assert_eq!(leaving, [""; 0]);
    rig.silence("eu-1");
    bound(&rig, "192.0.2.0/24", "us-east").await;
    // Nodes are told that clients leave, at the revision of the plan that moves them.
    let (after, leaving) = told(&rig).await;
    assert_eq!(leaving, ["eu-west"]);
    let detail: AppDetail = rig.get("/v1/apps/hello").await;
    let moved = detail.bindings.iter().map(|b| b.revision).max();
    assert!(after > before && moved == Some(after), "{after} {moved:?}");
    let clusters: Vec<ClusterInfo> = rig.get("/v1/clusters").await;
    assert_eq!((clusters[0].nodes_alive, clusters[0].nodes_total), (0, 1));
    let [eu, _] = two_regions();
    rig.node(eu).await;
    bound(&rig, "192.0.2.0/24", "eu-west").await;
    assert_eq!(told(&rig).await.1, [""; 0]);
}

/// The clusters that hold the app.
async fn holders(rig: &Rig) -> Vec<String> {
    let snapshot: AppsSnapshot = rig.apps_snapshot().await;
    let app = snapshot.apps.into_iter().next().expect("one app");
    let holders = app.spec.expect("there").holders;
    let named = holders.named().expect("a few").iter();
    named.map(ToString::to_string).collect()
}

async fn a_cluster_that_joins_nearer_to_clients_is_told_ahead_and_gets_them(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| settings.planner.spread = 1).await;
    let [eu, us] = two_regions();
    rig.node(us.clone()).await;
    wait::until("the node to be known", async || {
        let clusters: Vec<ClusterInfo> = rig.get("/v1/clusters").await;
        if clusters.is_empty() {
            Err("no cluster")
        } else {
            Ok(())
        }
    })
    .await;
    rig.deploy("hello", components::hello("x")).await;
    rig.node(ready(us, AppPhase::Ready, 0, 0.0)).await;
    bound(&rig, "192.0.2.0/24", "us-east").await;
    assert_eq!(holders(&rig).await, ["us-east"]);
    // It would serve them better, and lacks only the app.
    rig.node(eu.clone()).await;
    wait::until("the cluster that joined to be told", async || {
        let found = holders(&rig).await;
        if found == ["eu-west", "us-east"] {
            Ok(())
        } else {
            Err(found.join(", "))
        }
    })
    .await;
    rig.node(ready(eu.clone(), AppPhase::Fetching, 0, 0.0))
        .await;
    bound(&rig, "192.0.2.0/24", "us-east").await;
    rig.node(ready(eu, AppPhase::Ready, 0, 0.0)).await;
    bound(&rig, "192.0.2.0/24", "eu-west").await;
    bound(&rig, "198.51.100.0/24", "us-east").await;
}

/// The app's revision for nodes, and the clusters that clients are leaving.
async fn told(rig: &Rig) -> (Revision, Vec<String>) {
    let snapshot: AppsSnapshot = rig.apps_snapshot().await;
    let app = snapshot.apps.into_iter().next().expect("one app");
    let leaving = app.spec.expect("there").leaving;
    (
        app.revision,
        leaving.iter().map(ToString::to_string).collect(),
    )
}

async fn nothing_new_writes_nothing(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| {
        settings.planner.interval = DurationMs::from_millis(20);
        settings.planner.status_write_interval = DurationMs::from_secs(3600);
    })
    .await;
    rig.two_regions().await;
    rig.deploy("hello", components::hello("x")).await;
    let state = rig.controller.state();
    let read = async || {
        let mut connection = state.store.read().await.expect("connected");
        let statuses = node_status_list(&mut connection).await.expect("read");
        (
            revision_current(&mut connection).await.expect("read"),
            statuses
                .iter()
                .map(|s| s.status.sequence)
                .collect::<Vec<_>>(),
        )
    };
    let passes = || state.metrics.plans.seconds.get_sample_count();
    let after = async |count: u64| {
        let start = passes();
        wait::until("passes", async || {
            if passes() >= start + count {
                Ok(())
            } else {
                Err(passes())
            }
        })
        .await;
    };
    after(3).await;
    let before = read().await;
    assert_eq!(before.1.len(), 2);
    // Many passes, statuses that differ in the load alone, and a repeated one.
    for busy in 1..=3 {
        for status in two_regions() {
            rig.node(NodeStatus { busy, ..status }).await;
        }
    }
    after(5).await;
    assert_eq!(read().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_are_taken_in_once_and_in_order() {
    let rig = Rig::start().await;
    let [eu, _] = two_regions();
    let report = async |status: NodeStatus| {
        rig.report(Message::NodeStatus(Box::new(status)));
    };
    let consumed = |result: &str| {
        rig.controller
            .state()
            .metrics
            .consumed
            .with_label_values(&["node_status", result])
            .get()
    };
    let until = async |result: &str, count: u64| {
        wait::until(result, async || {
            if consumed(result) == count {
                Ok(())
            } else {
                Err(consumed(result))
            }
        })
        .await;
    };
    report(NodeStatus {
        busy: 2,
        ..eu.clone()
    })
    .await;
    until("used", 1).await;
    report(NodeStatus {
        busy: 0,
        sequence: eu.sequence - 1,
        ..eu
    })
    .await;
    until("stale", 1).await;
    let clusters: Vec<ClusterInfo> = rig.get("/v1/clusters").await;
    assert_eq!(clusters[0].busy, 2, "an older status changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_a_newer_schema_goes_to_the_dead_letters() {
    use fdn_bus::Broker as _;
    use fdn_core::message::{Envelope, SCHEMA};
    let rig = Rig::start().await;
    let id = fdn_core::MessageId::from_uuid(uuid::Uuid::now_v7());
    let fleet = Message::FleetDesired(fdn_core::fleet::FleetDesired::default());
    let mut envelope = Envelope::new(id, fdn_service::now(), fleet);
    envelope.schema = SCHEMA + 1;
    rig.broker.publish(&envelope).await.expect("published");
    wait::until("a dead letter", async || {
        match rig.broker.dead_letters(Channel::Changes).await {
            Ok(1) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_silent_for_long_is_forgotten() {
    let rig = Rig::start_with(Backend::Sqlite, |settings| {
        settings.planner.forget_after = DurationMs::from_millis(500)
    })
    .await;
    rig.two_regions().await;
    rig.silence("eu-1");
    rig.silence("us-1");
    wait::until("both nodes to be forgotten", async || {
        let clusters: Vec<ClusterInfo> = rig.get("/v1/clusters").await;
        if clusters.is_empty() {
            Ok(())
        } else {
            Err(clusters.len())
        }
    })
    .await;
    let snapshot: DnsSnapshot = rig.dns_snapshot().await;
    assert!(snapshot.network.revision > Revision::NONE);
}

//! Round trips between clusters, and what each of several controllers learns from reports and plans of the others.

use std::sync::Arc;

use fdn_controller::store::Store;
use fdn_controller::store::cluster_load::{ClusterLoadRow, cluster_load_get, cluster_load_set};
use fdn_controller::store::rtt::link_list;
use fdn_core::api::Explanation;
use fdn_core::fleet::{ClusterDetail, ClusterLink};
use fdn_core::latency::LatencySource;
use fdn_core::message::{Message, RttReport};
use fdn_core::{ClusterId, DurationMs, Millis, Timestamp};
use fdn_testkit::{components, wait};

use crate::rig::{Backend, Rig, on_both};

on_both!(
    a_measured_link_counts_before_the_distance_and_is_kept,
    who_does_not_plan_knows_links_and_waits,
);

fn cluster(name: &str) -> ClusterId {
    name.parse().expect("cluster")
}

/// Reports links measured by a node of eu-west.
async fn measured(rig: &Rig, rtt: f64) {
    let report = RttReport {
        cluster: cluster("eu-west"),
        node: "eu-1".parse().expect("node"),
        samples: Vec::new(),
        links: vec![
            (cluster("us-east"), Millis::new(rtt)),
            // Invalid values, its own cluster, and one that does not exist.
            (cluster("us-east"), Millis::new(-1.0)),
            (cluster("eu-west"), Millis::new(1.0)),
            (cluster("gone"), Millis::new(1.0)),
        ],
    };
    rig.report(Message::RttReport(report));
}

async fn link(rig: &Rig, from: &str) -> ClusterLink {
    let detail: ClusterDetail = rig.get(&format!("/v1/clusters/{from}")).await;
    assert_eq!(detail.links.len(), 1, "{:?}", detail.links);
    detail.links.into_iter().next().expect("one")
}

async fn until_measured(rig: &Rig, rtt: f64) {
    wait::until("the link to be measured", async || {
        let link = link(rig, "eu-west").await;
        if link.source == LatencySource::Measured && link.rtt_ms == Millis::new(rtt) {
            Ok(())
        } else {
            Err(format!("{link:?}"))
        }
    })
    .await;
}

async fn a_measured_link_counts_before_the_distance_and_is_kept(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.two_regions().await;
    let far = link(&rig, "eu-west").await;
    assert_eq!(
        (far.cluster.as_str(), far.source),
        ("us-east", LatencySource::Located)
    );
    assert!(far.rtt_ms > Millis::new(50.0), "{far:?}");
    measured(&rig, 33.0).await;
    until_measured(&rig, 33.0).await;
    // It counts for the other direction as well, as long as that has not been measured.
    let back = link(&rig, "us-east").await;
    assert_eq!(
        (back.cluster.as_str(), back.source, back.rtt_ms),
        ("eu-west", LatencySource::Measured, Millis::new(33.0))
    );
    // 33 * 0.75 + 37 * 0.25
    measured(&rig, 37.0).await;
    until_measured(&rig, 34.0).await;
    let store = Store::connect(&rig.settings.database)
        .await
        .expect("connected");
    wait::until("it to be stored", async || {
        let c = &mut *store.read().await.expect("connected");
        let stored = link_list(c, Timestamp(0)).await.expect("read");
        let found = stored
            .iter()
            .any(|row| row.key.1 == cluster("us-east") && row.rtt == Millis::new(34.0));
        if found {
            Ok(())
        } else {
            Err(format!("{stored:?}"))
        }
    })
    .await;
    let rig = rig.restart().await;
    rig.two_regions().await;
    until_measured(&rig, 34.0).await;
}

async fn who_does_not_plan_knows_links_and_waits(backend: Backend) {
    let first = Rig::start_with(backend, |settings| {
        settings.singletons.lease = DurationMs::from_secs(60);
        settings.geo.rtt_interval = DurationMs::from_millis(100);
        settings.planner.interval = DurationMs::from_millis(200);
        // The load of the first plan is stored at once, and not again during the test.
        settings.planner.status_write_interval = DurationMs::from_secs(9);
    })
    .await;
    first.two_regions().await;
    first.deploy("hello", components::hello("x")).await;
    let store = Store::connect(&first.settings.database)
        .await
        .expect("connected");
    let kept = wait::until("what is asked to be kept", async || {
        let c = &mut *store.read().await.expect("connected");
        let kept = cluster_load_get(c).await.expect("read");
        if kept.is_empty() {
            Err("nothing")
        } else {
            Ok(kept)
        }
    })
    .await;
    let names: Vec<&str> = kept.iter().map(|row| row.cluster.as_str()).collect();
    assert_eq!(names, ["eu-west", "us-east"]);
    first.silence("eu-1");
    first.silence("us-1");
    let second = Rig::start_on(
        first.settings.clone(),
        Arc::clone(&first.broker),
        Arc::clone(&first.folder),
    )
    .await;
    second.two_regions().await;
    // Whichever of the two receives the report, both know it.
    measured(&second, 33.0).await;
    until_measured(&first, 33.0).await;
    until_measured(&second, 33.0).await;
    // The plans of another planner ask for all four slots of eu-west, twice over.
    let asks = |cluster_name: &str, erlangs: f64| ClusterLoadRow {
        cluster: cluster(cluster_name),
        runs: 100.0 * erlangs,
        erlangs,
        in_service_ms: 0.0,
        memory_mib: 0.0,
        gpu_memory_mib: 0.0,
    };
    let full = [asks("eu-west", 8.0), asks("us-east", 0.0)];
    let waits = wait::until(
        "the one that does not plan to explain with waits",
        async || {
            let c = &mut *store.read().await.expect("connected");
            cluster_load_set(c, &full, fdn_service::now())
                .await
                .expect("written");
            let found: Explanation = second.get("/v1/apps/hello/explain?client=192.0.2.7").await;
            let work = |name: &str| {
                let mut all = found.candidates.iter();
                all.find(|c| c.cluster.as_str() == name).map(|c| c.work)
            };
            match (work("eu-west"), work("us-east")) {
                (Some(eu), Some(us)) if eu > us + Millis::new(1000.0) => Ok(eu),
                other => Err(format!("{other:?}")),
            }
        },
    )
    .await;
    assert!(waits.is_finite());
}

//! Reads for the console beyond the network's state: figures, client traffic, latencies, DNS answers.

use fdn_core::figures::{Figures, Tally};
use fdn_core::latency::LatencySource;
use fdn_core::message::{AppObserved, AppPhase, DemandReport, Message, NodeStatus, RttReport};
use fdn_core::observe::{
    BindingDetail, ClusterHealth, DnsLookup, LatencyRow, SteerReason, TrafficMap,
};
use fdn_core::rollout::CallCounts;
use fdn_core::{Millis, Revision};
use fdn_testkit::{components, wait};
use reqwest::Method;

use crate::accounts::{hello_changes_hands, people};
use crate::conventions::next;
use crate::rig::{Backend, Rig, on_both, two_regions};

on_both!(
    figures_are_shown_to_those_who_may_see_the_app,
    figures_of_the_owner_before_are_not_shown,
    traffic_shows_where_clients_are_and_are_sent,
    bindings_and_latencies_come_in_pages,
    a_look_up_says_what_dns_answers_and_why,
);

/// The status of a node that has counted so many calls of apps, all of 2 ms.
fn counted(status: NodeStatus, apps: &[(&str, u64)]) -> NodeStatus {
    let bucket = u8::try_from(Tally::bucket(Millis::new(2.0))).expect("few buckets");
    let observed = |(app, calls): &(&str, u64)| AppObserved {
        app: app.parse().expect("app"),
        revision: Revision(1),
        phase: AppPhase::Ready,
        invocations: *calls,
        errors: 0,
        execution_mean: Millis::new(2.0),
        instances: 0,
        degraded: None,
        versions: Vec::new(),
        stages: Vec::new(),
        figures: Some(Box::new(Tally {
            counts: CallCounts {
                calls: *calls,
                failures: calls / 10,
                latency: vec![(bucket, *calls)],
            },
            cold_starts: 1,
        })),
        serves: None,
        phases: None,
        form: None,
    };
    NodeStatus {
        apps: apps.iter().map(observed).collect(),
        ..status
    }
}

/// Reports zero calls of both nodes, then these.
async fn count(rig: &Rig, apps: &[(&str, u64)]) {
    let zero: Vec<(&str, u64)> = apps.iter().map(|(app, _)| (*app, 0)).collect();
    for status in two_regions() {
        rig.node(counted(status, &zero)).await;
    }
    for status in two_regions() {
        rig.node(counted(status, apps)).await;
    }
}

async fn figures(rig: &Rig, token: &str, query: &str) -> Figures {
    let request = rig.anonymous(Method::GET, &format!("/v1/metrics?{query}"));
    rig.json(request.bearer_auth(token)).await
}

fn sums(figures: &Figures) -> Vec<(&str, u64)> {
    let sums = figures
        .series
        .iter()
        .map(|series| (series.key.as_str(), series.sum.calls));
    sums.collect()
}

async fn figures_are_shown_to_those_who_may_see_the_app(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.two_regions().await;
    rig.deploy("hello", components::hello("hello")).await;
    let people = people(&rig).await;
    count(&rig, &[("hello", 100), ("others", 40)]).await;
    let all = wait::until("all calls to be counted", async || {
        let all = figures(&rig, &rig.token, "by=app").await;
        if sums(&all) == [("hello", 200), ("others", 80)] {
            Ok(all)
        } else {
            Err(format!("{all:?}"))
        }
    })
    .await;
    assert_eq!((all.step_ms, all.more), (10_000, false));
    let hello = &all.series[0];
    assert_eq!(hello.sum.errors, 20);
    let median = hello.sum.p50_ms.expect("calls").get();
    assert!((1.5..2.5).contains(&median), "{median}");
    assert_eq!(
        hello.points.iter().map(|point| point.calls).sum::<u64>(),
        200
    );
    assert!(
        hello
            .points
            .iter()
            .all(|point| point.at >= all.from && point.at <= all.to)
    );
    let by = figures(&rig, &rig.token, "by=cluster&app=hello&window=24h").await;
    assert_eq!(
        (by.step_ms, sums(&by)),
        (300_000, vec![("eu-west", 100), ("us-east", 100)])
    );
    let one = figures(&rig, &rig.token, "by=app&limit=1").await;
    assert_eq!((one.series.len(), one.more), (1, true));
    // A member sees the apps of his own tenants; no sum contains calls of others.
    let viewer = people.member(fdn_core::TenantRole::Viewer);
    assert_eq!(sums(&figures(&rig, viewer, "").await), [("total", 200)]);
    assert_eq!(
        sums(&figures(&rig, viewer, "by=app").await),
        [("hello", 200)]
    );
    assert_eq!(
        sums(&figures(&rig, &people.outsider, "").await),
        [("total", 0)]
    );
    let hidden = rig
        .anonymous(Method::GET, "/v1/metrics?app=hello")
        .bearer_auth(&people.outsider);
    assert_eq!(rig.refused(hidden).await.1.code.as_str(), "FDN-2003");
    for bad in ["window=1h", "by=node", "limit=0", "limit=201", "app=No"] {
        let request = rig.request(Method::GET, &format!("/v1/metrics?{bad}"));
        assert_eq!(
            rig.refused(request).await.1.code.as_str(),
            "FDN-2005",
            "{bad}"
        );
    }
}

async fn figures_of_the_owner_before_are_not_shown(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.two_regions().await;
    rig.deploy("hello", components::hello("hello")).await;
    let people = people(&rig).await;
    count(&rig, &[("hello", 100)]).await;
    let (quarter, day) = ("app=hello", "app=hello&window=24h");
    wait::until("all calls to be counted", async || {
        let seen = figures(&rig, &people.viewer, quarter).await;
        if sums(&seen) == [("total", 200)] {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    })
    .await;
    hello_changes_hands(&rig, &people).await;
    for query in [quarter, day] {
        let seen = figures(&rig, &people.outsider, query).await;
        assert_eq!(sums(&seen), [("total", 0)], "{query}");
    }
    // An admin's sums are those of the whole network.
    assert_eq!(sums(&figures(&rig, &rig.token, "").await), [("total", 200)]);
}

/// Reports demand for the app from clients of both regions and of an unknown place.
async fn demand(rig: &Rig) {
    let entry = |prefix: &str, queries| {
        let (app, prefix) = (
            "hello".parse().expect("app"),
            prefix.parse().expect("prefix"),
        );
        (app, prefix, queries)
    };
    let entries = vec![
        entry("192.0.2.0/24", 30),
        entry("198.51.100.0/24", 10),
        entry("203.0.113.0/24", 10),
    ];
    let server = "dns-1".to_owned();
    rig.report(Message::DemandReport(DemandReport { server, entries }));
}

/// An app with demand from three prefixes, all bound.
async fn asked(backend: Backend) -> Rig {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.two_regions().await;
    rig.deploy("hello", components::hello("hello")).await;
    demand(&rig).await;
    wait::until("three bindings", async || {
        let rows: Vec<BindingDetail> = rig.get("/v1/apps/hello/bindings").await;
        if rows.iter().filter(|row| row.queries.is_some()).count() == 3 {
            Ok(())
        } else {
            Err(format!("{rows:?}"))
        }
    })
    .await;
    rig
}

async fn traffic_shows_where_clients_are_and_are_sent(backend: Backend) {
    let rig = asked(backend).await;
    let map: TrafficMap = rig.get("/v1/traffic").await;
    let clusters: Vec<(&str, ClusterHealth)> = map
        .clusters
        .iter()
        .map(|c| (c.cluster.as_str(), c.health))
        .collect();
    assert_eq!(
        clusters,
        [
            ("eu-west", ClusterHealth::Up),
            ("us-east", ClusterHealth::Up)
        ]
    );
    let whole: f64 = map.flows.iter().map(|flow| flow.share).sum();
    assert!((whole - 1.0).abs() < 1e-6, "{whole}");
    let strongest = &map.flows[0];
    assert_eq!(strongest.cluster.as_str(), "eu-west");
    assert!((strongest.share - 0.6).abs() < 0.05, "{}", strongest.share);
    assert_eq!(strongest.example.to_string(), "192.0.2.0/24");
    assert!((strongest.location.expect("configured").lat() - 48.86).abs() < 1e-6);
    assert!(
        map.flows
            .iter()
            .any(|flow| flow.location.is_none() && flow.prefixes == 1)
    );
    let of_one: TrafficMap = rig.get("/v1/traffic?app=hello").await;
    assert_eq!(of_one.flows.len(), 3);
    let people = people(&rig).await;
    let outside = rig
        .anonymous(Method::GET, "/v1/traffic")
        .bearer_auth(&people.outsider);
    let outside: TrafficMap = rig.json(outside).await;
    assert!(
        outside.flows.is_empty() && outside.clusters.len() == 2,
        "{outside:?}"
    );
    rig.silence("us-1");
    wait::until("a silent cluster to be down", async || {
        let map: TrafficMap = rig.get("/v1/traffic").await;
        let down = map
            .clusters
            .iter()
            .find(|c| c.cluster.as_str() == "us-east")
            .map(|c| c.health);
        if down == Some(ClusterHealth::Down) {
            Ok(())
        } else {
            Err(format!("{down:?}"))
        }
    })
    .await;
}

async fn bindings_and_latencies_come_in_pages(backend: Backend) {
    let rig = asked(backend).await;
    let mut prefixes = Vec::new();
    let mut path = Some("/v1/apps/hello/bindings?limit=2".to_owned());
    while let Some(page) = path {
        let answer = rig
            .request(Method::GET, &page)
            .send()
            .await
            .expect("an answer");
        path = next(&answer);
        let rows: Vec<BindingDetail> = answer.json().await.expect("rows");
        assert!(rows.len() <= 2);
        prefixes.extend(rows.iter().map(|row| {
            (
                row.prefix.to_string(),
                row.cluster.to_string(),
                row.location.is_some(),
            )
        }));
    }
    let eu_and_us: Vec<(&str, &str, bool)> = prefixes
        .iter()
        .take(2)
        .map(|(p, c, l)| (p.as_str(), c.as_str(), *l))
        .collect();
    assert_eq!(
        eu_and_us,
        [
            ("192.0.2.0/24", "eu-west", true),
            ("198.51.100.0/24", "us-east", true)
        ]
    );
    assert_eq!((prefixes.len(), prefixes[2].2), (3, false), "{prefixes:?}");
    let report = RttReport {
        cluster: "us-east".parse().expect("cluster"),
        node: "us-1".parse().expect("node"),
        samples: vec![(
            "203.0.113.0/24".parse().expect("prefix"),
            Millis::new(9.0),
            3,
        )],
        links: Vec::new(),
    };
    rig.report(Message::RttReport(report));
    let rows = wait::until("a measurement", async || {
        let rows: Vec<LatencyRow> = rig.get("/v1/latencies").await;
        if rows.len() == 3 {
            Ok(rows)
        } else {
            Err(format!("{rows:?}"))
        }
    })
    .await;
    let nearest: Vec<(String, String, LatencySource)> = rows
        .iter()
        .map(|row| {
            (
                row.prefix.to_string(),
                row.clusters[0].cluster.to_string(),
                row.clusters[0].source,
            )
        })
        .collect();
    let row = |prefix: &str, cluster: &str, source| (prefix.to_owned(), cluster.to_owned(), source);
    assert_eq!(
        nearest,
        [
            row("192.0.2.0/24", "eu-west", LatencySource::Located),
            row("198.51.100.0/24", "us-east", LatencySource::Located),
            row("203.0.113.0/24", "us-east", LatencySource::Measured),
        ]
    );
    let first = rig
        .request(Method::GET, "/v1/latencies?limit=1")
        .send()
        .await
        .expect("an answer");
    assert!(first.headers().contains_key("link"));
}

async fn a_look_up_says_what_dns_answers_and_why(backend: Backend) {
    let rig = asked(backend).await;
    let look =
        async |query: &str| -> DnsLookup { rig.get(&format!("/v1/dns/lookup?{query}")).await };
    let found = look("name=hello.fn.test&client=192.0.2.7").await;
    assert_eq!(
        (found.why, found.cluster.expect("one").as_str()),
        (SteerReason::Bound, "eu-west")
    );
    assert_eq!(found.matched.expect("bound").to_string(), "192.0.2.0/24");
    assert_eq!(
        found
            .addresses
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["127.0.1.1"]
    );
    assert_eq!(
        (found.ttl_s, found.scope, found.clusters.len()),
        (20, 24, 2)
    );
    assert!(
        found.revision.is_some() && found.reason.contains("192.0.2.0/24"),
        "{}",
        found.reason
    );
    let other = look("name=hello.fn.test&client=10.1.2.3").await;
    assert_eq!((other.why, other.matched), (SteerReason::Nearest, None));
    let six = look("name=hello.fn.test&client=192.0.2.7&type=AAAA").await;
    assert_eq!((six.why, six.addresses.len()), (SteerReason::NoAddress, 0));
    rig.silence("eu-1");
    // The bound cluster is dead; DNS falls back until the next plan binds anew.
    wait::until("the client to be sent elsewhere", async || {
        let found = look("name=hello.fn.test&client=192.0.2.7").await;
        let us = found
            .cluster
            .as_ref()
            .is_some_and(|cluster| cluster.as_str() == "us-east");
        if us && [SteerReason::BoundIsDead, SteerReason::Bound].contains(&found.why) {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
    let people = people(&rig).await;
    let ask = |token: &str, name: &str| {
        let path = format!("/v1/dns/lookup?name={name}&client=192.0.2.7");
        rig.anonymous(Method::GET, &path).bearer_auth(token)
    };
    let hidden = rig.refused(ask(&people.outsider, "hello.fn.test")).await.1;
    let absent = rig.refused(ask(&rig.token, "absent.fn.test")).await.1;
    assert_eq!(
        (hidden.code, hidden.detail.replace("hello", "absent")),
        (absent.code, absent.detail)
    );
}

//! Custom domains on both databases, verified by records of a real DNS server: one name for one app, with a grace period when the proof is gone.

use fdn_controller::app::actor::Actor;
use fdn_controller::app::domain::{apply_lookup, watch};
use fdn_controller::proofs::ProofLookup;
use fdn_controller::store::domain::{DomainRow, domain_get};
use fdn_core::api::AppsSnapshot;
use fdn_core::domain::{DomainInfo, DomainState};
use fdn_core::{AppName, Coded as _, DurationMs, HostName, Timestamp};
use fdn_testkit::components;
use fdn_testkit::dns::DnsServer;
use reqwest::Method;
use serde_json::json;

use crate::accounts::{hello_changes_hands, people};
use crate::rig::{Backend, Rig, on_both};

on_both!(
    a_domain_is_proven_and_told_to_nodes,
    a_missing_proof_ends_it_after_grace,
    a_lost_name_is_a_claim_again,
    a_name_is_one_apps_alone,
    what_is_added_again_is_proven_by_the_same_record,
    a_proof_counts_for_the_claim_that_was_looked_up,
);

const HOST: &str = "shop.example.org";

async fn rig(backend: Backend, dns: &DnsServer) -> Rig {
    let resolver = dns.address();
    Rig::start_with(backend, |settings| {
        settings.domains.resolvers = vec![resolver];
        settings.domains.per_app = 2;
        // The controller's own loop does not run: the tests call it, at times of their choice.
        settings.domains.interval = DurationMs::from_secs(86_400);
        settings.domains.recheck = DurationMs::from_secs(3600);
        settings.domains.retry = DurationMs::from_secs(60);
        settings.domains.grace = DurationMs::from_secs(7200);
    })
    .await
}

async fn added(rig: &Rig, app: &str, host: &str) -> DomainInfo {
    let request = rig.request(Method::POST, &format!("/v1/apps/{app}/domains"));
    rig.json(request.json(&json!({ "host": host }))).await
}

fn verify(rig: &Rig, app: &str) -> reqwest::RequestBuilder {
    rig.request(
        Method::POST,
        &format!("/v1/apps/{app}/domains/{HOST}/verify"),
    )
}

/// Sets the records that the owner has to set.
fn prove(dns: &DnsServer, infos: &[&DomainInfo]) {
    let texts: Vec<&str> = infos
        .iter()
        .map(|info| info.records[0].value.as_str())
        .collect();
    dns.set(&infos[0].records[0].name, &texts);
}

/// The host names that nodes are told of an app, and the app's revision.
async fn told(rig: &Rig, app: &str) -> (u64, Vec<String>) {
    let snapshot: AppsSnapshot = rig.apps_snapshot().await;
    let found = snapshot
        .apps
        .into_iter()
        .find(|one| one.app.as_str() == app)
        .expect("the app");
    let hosts = found.spec.expect("there").gateway.hosts;
    (
        found.revision.get(),
        hosts.iter().map(ToString::to_string).collect(),
    )
}

async fn listed(rig: &Rig, app: &str) -> Vec<DomainInfo> {
    rig.get(&format!("/v1/apps/{app}/domains")).await
}

/// Runs the loop once, `seconds` from now.
async fn look(rig: &Rig, seconds: u64) {
    let at = Timestamp(fdn_service::now().get() + seconds * 1000);
    watch::round(rig.controller.state(), at)
        .await
        .expect("looked");
}

async fn a_domain_is_proven_and_told_to_nodes(backend: Backend) {
    let dns = DnsServer::start().await;
    let rig = rig(backend, &dns).await;
    let deployed = rig.deploy("shop", components::hello("hi")).await;
    for (bad, code) in [
        ("shop.fn.test", "FDN-2023"),
        ("localhost", "FDN-2023"),
        ("a..b", "FDN-2005"),
    ] {
        let request = rig.request(Method::POST, "/v1/apps/shop/domains");
        let (_, problem) = rig.refused(request.json(&json!({ "host": bad }))).await;
        assert_eq!(problem.code.as_str(), code, "{}", problem.detail);
    }
    let info = added(&rig, "shop", HOST).await;
    assert_eq!(info.state, DomainState::Pending);
    assert_eq!(
        (
            info.records[1].kind.as_str(),
            info.records[1].value.as_str()
        ),
        ("CNAME", "shop.fn.test")
    );
    assert_eq!(
        added(&rig, "shop", HOST).await,
        info,
        "asked again, it is as it was"
    );
    let (status, problem) = rig.refused(verify(&rig, "shop")).await;
    assert_eq!((status.as_u16(), problem.code.as_str()), (409, "FDN-2025"));
    assert!(
        problem
            .detail
            .contains("_fdn-challenge.shop.example.org has no TXT record"),
        "{}",
        problem.detail
    );
    dns.set(
        "_fdn-challenge.shop.example.org",
        &["v=spf1 -all", "fdn-domain=somebody-elses"],
    );
    let (_, problem) = rig.refused(verify(&rig, "shop")).await;
    assert!(
        problem.detail.contains("2 TXT records"),
        "{}",
        problem.detail
    );
    dns.broken(true);
    let (status, problem) = rig.refused(verify(&rig, "shop")).await;
    assert_eq!(
        (status.as_u16(), problem.code.as_str()),
        (503, "FDN-2026"),
        "{}",
        problem.detail
    );
    dns.broken(false);
    assert_eq!(
        told(&rig, "shop").await,
        (deployed.revision.get(), Vec::new())
    );

    prove(&dns, &[&info]);
    let proven: DomainInfo = rig.json(verify(&rig, "shop")).await;
    assert_eq!(
        (proven.state, proven.problem),
        (DomainState::Verified, None)
    );
    let (revision, hosts) = told(&rig, "shop").await;
    assert!(revision > deployed.revision.get());
    assert_eq!(hosts, [HOST]);
    // A new version of the app keeps the domain, and the app's details show it.
    rig.deploy("shop", components::hello("two")).await;
    assert_eq!(told(&rig, "shop").await.1, [HOST]);
    let detail: fdn_core::api::AppDetail = rig.get("/v1/apps/shop").await;
    assert_eq!(detail.domains.len(), 1);

    added(&rig, "shop", "second.example.org").await;
    let request = rig.request(Method::POST, "/v1/apps/shop/domains");
    let (_, problem) = rig
        .refused(request.json(&json!({ "host": "third.example.org" })))
        .await;
    assert!(problem.detail.contains("2 domains"), "{}", problem.detail);
    let path = format!("/v1/apps/shop/domains/{HOST}");
    let gone = rig
        .request(Method::DELETE, &path)
        .send()
        .await
        .expect("an answer");
    assert_eq!(gone.status(), 204);
    assert!(told(&rig, "shop").await.1.is_empty());
    let (_, problem) = rig.refused(rig.request(Method::DELETE, &path)).await;
    assert_eq!(problem.code.as_str(), "FDN-2003");
    // A claim that is never verified is deleted in the end.
    look(&rig, 8 * 86_400).await;
    assert!(listed(&rig, "shop").await.is_empty());
}

async fn a_missing_proof_ends_it_after_grace(backend: Backend) {
    let dns = DnsServer::start().await;
    let rig = rig(backend, &dns).await;
    rig.deploy("shop", components::hello("hi")).await;
    let info = added(&rig, "shop", HOST).await;
    // The loop finds the proof by itself.
    prove(&dns, &[&info]);
    look(&rig, 0).await;
    assert_eq!(told(&rig, "shop").await.1, [HOST]);
    dns.set(&info.records[0].name, &[]);
    look(&rig, 1800).await;
    assert_eq!(
        listed(&rig, "shop").await[0].state,
        DomainState::Verified,
        "not due yet"
    );
    look(&rig, 3700).await;
    let failing = listed(&rig, "shop").await.remove(0);
    assert_eq!(failing.state, DomainState::Failing);
    assert!(failing.ends_at.is_some() && failing.problem.is_some());
    assert_eq!(told(&rig, "shop").await.1, [HOST], "within its grace");
    // An unreachable resolver removes nothing, however long it lasts.
    dns.broken(true);
    look(&rig, 3700 + 9000).await;
    assert_eq!(told(&rig, "shop").await.1, [HOST]);
    dns.broken(false);
    look(&rig, 3700 + 9100).await;
    assert!(told(&rig, "shop").await.1.is_empty());
    assert_eq!(listed(&rig, "shop").await[0].state, DomainState::Pending);
    prove(&dns, &[&info]);
    look(&rig, 3700 + 9200).await;
    assert_eq!(told(&rig, "shop").await.1, [HOST]);
    let log: Vec<serde_json::Value> = rig.get("/v1/audit?limit=1000").await;
    let actions: Vec<&str> = log
        .iter()
        .filter_map(|e| e["action"].as_str())
        .filter(|a| a.starts_with("domain"))
        .collect();
    assert_eq!(
        actions,
        [
            "domain.verify",
            "domain.lost",
            "domain.verify",
            "domain.add"
        ]
    );
}

async fn a_lost_name_is_a_claim_again(backend: Backend) {
    const DAY: u64 = 86_400;
    let dns = DnsServer::start().await;
    let rig = rig(backend, &dns).await;
    rig.deploy("shop", components::hello("hi")).await;
    let info = added(&rig, "shop", HOST).await;
    prove(&dns, &[&info]);
    look(&rig, 0).await;
    // It loses its proof when it has been there for longer than claims are kept.
    dns.set(&info.records[0].name, &[]);
    look(&rig, 8 * DAY).await;
    assert_eq!(listed(&rig, "shop").await[0].state, DomainState::Failing);
    look(&rig, 8 * DAY + 7200).await;
    assert!(told(&rig, "shop").await.1.is_empty(), "its grace is over");
    look(&rig, 14 * DAY).await;
    let lost = listed(&rig, "shop").await.remove(0);
    assert_eq!((lost.state, lost.ends_at), (DomainState::Pending, None));
    assert_eq!(
        (lost.records, lost.created_at),
        (info.records, info.created_at)
    );
    look(&rig, 16 * DAY).await;
    assert!(listed(&rig, "shop").await.is_empty());
}

async fn a_name_is_one_apps_alone(backend: Backend) {
    let dns = DnsServer::start().await;
    let rig = rig(backend, &dns).await;
    rig.deploy("shop", components::hello("hi")).await;
    rig.deploy("other", components::hello("hi")).await;
    // A claim does not block the name for others.
    let claim = added(&rig, "other", HOST).await;
    let own = added(&rig, "shop", HOST).await;
    assert_ne!(claim.records[0].value, own.records[0].value);
    prove(&dns, &[&own]);
    let _: DomainInfo = rig.json(verify(&rig, "shop")).await;
    // With both proofs present, the present owner keeps the name.
    prove(&dns, &[&own, &claim]);
    let (status, problem) = rig.refused(verify(&rig, "other")).await;
    assert_eq!((status.as_u16(), problem.code.as_str()), (409, "FDN-2024"));
    assert_eq!(
        (
            told(&rig, "shop").await.1.len(),
            told(&rig, "other").await.1.len()
        ),
        (1, 0)
    );
    // The owner moves it to the other app: once the old proof is seen to be gone, the new one is effective at once.
    prove(&dns, &[&claim]);
    look(&rig, 3700).await;
    let _: DomainInfo = rig.json(verify(&rig, "other")).await;
    assert_eq!(
        (
            told(&rig, "shop").await.1.len(),
            told(&rig, "other").await.1.len()
        ),
        (0, 1)
    );
    assert_eq!(listed(&rig, "shop").await[0].state, DomainState::Pending);
}

async fn what_is_added_again_is_proven_by_the_same_record(backend: Backend) {
    let dns = DnsServer::start().await;
    let rig = rig(backend, &dns).await;
    rig.deploy("hello", components::hello("x")).await;
    let info = added(&rig, "hello", HOST).await;
    prove(&dns, &[&info]);
    let _: DomainInfo = rig.json(verify(&rig, "hello")).await;
    let path = format!("/v1/apps/hello/domains/{HOST}");
    let gone = rig.request(Method::DELETE, &path).send().await;
    assert_eq!(gone.expect("an answer").status(), 204);
    let again = added(&rig, "hello", HOST).await;
    assert_eq!(
        (again.state, &again.records),
        (DomainState::Pending, &info.records)
    );
    let proven: DomainInfo = rig.json(verify(&rig, "hello")).await;
    assert_eq!(proven.state, DomainState::Verified);
    // Another tenant whose app has the name later proves nothing with a record that was left.
    let people = people(&rig).await;
    hello_changes_hands(&rig, &people).await;
    let add = rig.anonymous(Method::POST, "/v1/apps/hello/domains");
    let add = add
        .bearer_auth(&people.outsider)
        .json(&json!({ "host": HOST }));
    let theirs: DomainInfo = rig.json(add).await;
    assert_ne!(theirs.records[0].value, info.records[0].value);
    let verify = rig.anonymous(Method::POST, &format!("{path}/verify"));
    let (_, problem) = rig.refused(verify.bearer_auth(&people.outsider)).await;
    assert_eq!(problem.code.as_str(), "FDN-2025");
}

async fn a_proof_counts_for_the_claim_that_was_looked_up(backend: Backend) {
    let dns = DnsServer::start().await;
    let rig = rig(backend, &dns).await;
    rig.deploy("shop", components::hello("hi")).await;
    added(&rig, "shop", HOST).await;
    let (app, host): (AppName, HostName) =
        ("shop".parse().expect("app"), HOST.parse().expect("host"));
    let state = rig.controller.state();
    let mut connection = state.store.read().await.expect("connected");
    let there = domain_get(&mut connection, &app, &host).await;
    let there = there.expect("read").expect("a row");
    drop(connection);
    // The claim that was looked up has made room for this one meanwhile.
    let before = DomainRow {
        token: "0".repeat(32),
        ..there.clone()
    };
    let (actor, now) = (Actor::named("ann"), fdn_service::now());
    let applied = apply_lookup(state, &actor, &before, &ProofLookup::Proof, now).await;
    let error = applied.expect_err("the proof of another claim");
    assert_eq!(error.code().as_str(), "FDN-2003", "{error}");
    let left = listed(&rig, "shop").await.remove(0);
    assert_eq!((left.state, left.checked_at), (DomainState::Pending, None));
    let applied = apply_lookup(state, &actor, &there, &ProofLookup::Proof, now).await;
    assert!(applied.expect("its own proof").proven);
}

//! Calls split between versions of an app, over real sockets.

use fdn_core::manifest::Manifest;
use fdn_core::policy::traffic::{Share, Sticky};
use fdn_core::policy::{GatewaySpec, Traffic};
use fdn_core::{ErrorCode, VersionNumber};
use fdn_edge_agent::Agent;
use fdn_testkit::components;
use reqwest::StatusCode;

use crate::support::{Network, problem};

fn split(shares: &[(u32, u32)], sticky: Sticky, pin: bool) -> GatewaySpec {
    let share = |&(version, weight): &(u32, u32)| Share {
        version: VersionNumber::try_from(version).expect("version"),
        weight,
    };
    let traffic = Traffic {
        split: shares.iter().map(share).collect(),
        sticky,
        pin,
    };
    traffic.check().expect("a valid split");
    GatewaySpec {
        traffic,
        ..GatewaySpec::default()
    }
}

/// A node with two versions of an app, of which the second is current and gets no call yet.
async fn two_versions() -> (Network, Agent) {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    let (one, two) = (components::hello("one"), components::hello("two"));
    let first = network.desired("hello", 1, &one, Manifest::default(), true);
    network.deploy("hello", 2, &two, Manifest::default()).await;
    network.until_text(&agent, "hello", "two").await;
    network.controller.store(&one);
    let mut both = network.controller.desired("hello").expect("deployed");
    both.revision = network.next_revision();
    let old = first.spec.expect("there").functions;
    let spec = both.spec.as_mut().expect("there");
    spec.functions.extend(old);
    *spec.gateway = split(&[(1, 100), (2, 0)], Sticky::None, false);
    network.demand(both).await;
    network.until_text(&agent, "hello", "one").await;
    (network, agent)
}

/// Changes weights and waits until they take effect.
async fn weigh(network: &Network, spec: GatewaySpec) {
    network.regulate("hello", spec).await;
    let revision = network.controller.desired("hello").expect("there").revision;
    let ready = |phase: &fdn_core::message::AppPhase| *phase == fdn_core::message::AppPhase::Ready;
    network.until_phase("hello", revision, ready).await;
}

async fn counts(network: &Network, agent: &Agent, calls: usize) -> [usize; 2] {
    let mut counts = [0; 2];
    for _ in 0..calls {
        match network.text(agent, "hello").await.as_str() {
            "one" => counts[0] += 1,
            "two" => counts[1] += 1,
            other => panic!("{other}"),
        }
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn weights_send_calls_and_bring_them_back() {
    let (network, agent) = Box::pin(two_versions()).await;
    assert_eq!(counts(&network, &agent, 20).await, [20, 0]);
    weigh(&network, split(&[(1, 50), (2, 50)], Sticky::None, false)).await;
    // The chance that all of 200 calls go to one side is 2 in 2^200.
    let mixed = counts(&network, &agent, 200).await;
    assert!(mixed[0] > 0 && mixed[1] > 0, "{mixed:?}");
    weigh(&network, split(&[(1, 100), (2, 0)], Sticky::None, false)).await;
    assert_eq!(counts(&network, &agent, 20).await, [20, 0]);
    // Without a split all calls go to the current version.
    weigh(&network, GatewaySpec::default()).await;
    assert_eq!(counts(&network, &agent, 20).await, [0, 20]);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_stays_with_its_version() {
    let (network, agent) = Box::pin(two_versions()).await;
    weigh(&network, split(&[(1, 50), (2, 50)], Sticky::Cookie, false)).await;
    let mut seen = [false; 2];
    for _ in 0..40 {
        let answer = network.get(&agent, "hello", "/").send().await;
        let answer = answer.expect("an answer");
        let cookie = answer.headers()["set-cookie"]
            .to_str()
            .expect("text")
            .to_owned();
        let pair = cookie.split(';').next().expect("a pair").to_owned();
        let text = answer.text().await.expect("a body");
        for _ in 0..5 {
            let again = network.get(&agent, "hello", "/").header("cookie", &pair);
            let again = again.send().await.expect("an answer");
            assert!(!again.headers().contains_key("set-cookie"));
            assert_eq!(again.text().await.expect("a body"), text);
        }
        seen[usize::from(text == "two")] = true;
    }
    assert_eq!(seen, [true, true]);
    // By address there is only one client, which stays with its version without a cookie.
    weigh(&network, split(&[(1, 50), (2, 50)], Sticky::Address, false)).await;
    let counts = counts(&network, &agent, 20).await;
    assert!(counts.contains(&20), "{counts:?}");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_may_name_its_version_where_that_is_allowed() {
    let (network, agent) = Box::pin(two_versions()).await;
    let pinned = async |version: &str| {
        let call = network
            .get(&agent, "hello", "/")
            .header("x-fdn-pin", version);
        let answer = call.send().await.expect("an answer");
        answer.text().await.expect("a body")
    };
    assert_eq!(pinned("v2").await, "one", "it is not allowed");
    weigh(&network, split(&[(1, 100), (2, 0)], Sticky::None, true)).await;
    assert_eq!(pinned("v2").await, "two");
    assert_eq!(pinned("v9").await, "one", "there is none");
    // A policy applies to every version.
    let mut guarded = split(&[(1, 100), (2, 0)], Sticky::None, true);
    guarded.policy = toml::from_str("authentication.kind = \"api_key\"").expect("a policy");
    weigh(&network, guarded).await;
    let call = network.get(&agent, "hello", "/").header("x-fdn-pin", "v2");
    let answer = call.send().await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(problem(answer).await.code, ErrorCode::CredentialsMissing);
    agent.stop().await;
}

//! Tokens of an identity provider at the gateway: rotation and outage of its keys, and a restart without provider and controller.

use fdn_core::manifest::Manifest;
use fdn_core::policy::GatewaySpec;
use fdn_core::{DurationMs, ErrorCode};
use fdn_edge_agent::{Agent, Settings};
use fdn_testkit::{components, wait};
use reqwest::StatusCode;
use serde_json::json;

use crate::support::identity::{Provider, Signer};
use crate::support::{Network, problem};

fn spec(url: &str) -> GatewaySpec {
    let policy = json!({ "authentication": {
        "kind": "jwt", "jwks_url": url, "issuers": ["https://id.test"], "audiences": ["api"],
        "required_claims": { "role": ["user"] },
    }});
    GatewaySpec {
        policy: serde_json::from_value(policy).expect("a policy"),
        ..GatewaySpec::default()
    }
}

fn settings(network: &Network, least: DurationMs) -> Settings {
    let mut settings = network.settings("eu-west-1");
    settings.policy.jwks_http = true;
    settings.runtime.private_networks = vec!["127.0.0.0/8".parse().expect("prefix")];
    settings.policy.jwks_least = least;
    settings.policy.jwks_interval = DurationMs::from_secs(3600);
    settings
}

async fn started(provider: &Provider, least: DurationMs) -> (Network, Agent) {
    let network = Network::start().await;
    let settings = settings(&network, least);
    Box::pin(serving(network, settings, provider)).await
}

async fn serving(network: Network, settings: Settings, provider: &Provider) -> (Network, Agent) {
    let agent = network.agent(settings).await;
    let hello = components::hello("hi");
    network
        .deploy("hello", 1, &hello, Manifest::default())
        .await;
    network.until_text(&agent, "hello", "hi").await;
    network.regulate("hello", spec(provider.url())).await;
    (network, agent)
}

/// The error of a call with this token; `None` if the function answers it.
async fn call(network: &Network, agent: &Agent, token: &str) -> Option<ErrorCode> {
    let sent = network.get(agent, "hello", "/").bearer_auth(token).send();
    let answer = sent.await.expect("an answer");
    if answer.status() == StatusCode::OK {
        return None;
    }
    Some(problem(answer).await.code)
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_rotated_and_what_is_known_outlives_its_provider() {
    let (old, new, foreign) = (Signer::new("k1"), Signer::new("k2"), Signer::new("k1"));
    let provider = Provider::start(&[&old]).await;
    let (network, agent) = Box::pin(started(&provider, DurationMs::from_millis(10))).await;
    let user = json!({ "role": "user", "sub": "me" });
    assert_eq!(call(&network, &agent, &old.token(user.clone())).await, None);
    for (token, code) in [
        // The same key id, but another key.
        (foreign.token(user.clone()), ErrorCode::CredentialsInvalid),
        (
            old.token(json!({ "role": "user", "exp": 1 })),
            ErrorCode::CredentialsInvalid,
        ),
        (
            old.token(json!({ "role": "user", "aud": "other" })),
            ErrorCode::CredentialsInvalid,
        ),
        (
            old.token(json!({ "role": "guest" })),
            ErrorCode::TokenForbidden,
        ),
        ("not.a.token".to_owned(), ErrorCode::CredentialsInvalid),
        // No signature at all: {"alg":"none"}.{}.
        (
            "eyJhbGciOiJub25lIn0.e30.".to_owned(),
            ErrorCode::CredentialsInvalid,
        ),
    ] {
        assert_eq!(call(&network, &agent, &token).await, Some(code), "{token}");
    }
    // Rotation: an unknown key is fetched when the first token names it.
    provider.publish(&[&new]);
    wait::until("the new key to be known", async || {
        match call(&network, &agent, &new.token(user.clone())).await {
            None => Ok(()),
            Some(code) => Err(code),
        }
    })
    .await;
    assert_eq!(
        call(&network, &agent, &old.token(user.clone())).await,
        Some(ErrorCode::CredentialsInvalid)
    );
    // Outage: known keys remain valid, and unknown ones cannot be fetched.
    provider.away(true);
    assert_eq!(
        call(&network, &agent, &old.token(user.clone())).await,
        Some(ErrorCode::CredentialsInvalid)
    );
    assert_eq!(call(&network, &agent, &new.token(user.clone())).await, None);
    // A restart without provider and controller.
    provider.kill().await;
    network.controller.kill().await;
    agent.stop().await;
    let agent = network
        .agent(settings(&network, DurationMs::from_millis(10)))
        .await;
    assert_eq!(call(&network, &agent, &new.token(user)).await, None);
    let sent = network.get(&agent, "hello", "/").send().await;
    assert_eq!(sent.expect("an answer").status(), StatusCode::UNAUTHORIZED);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_unknown_keys_does_not_reach_the_provider() {
    let known = Signer::new("k1");
    let provider = Provider::start(&[&known]).await;
    let (network, agent) = Box::pin(started(&provider, DurationMs::from_secs(3600))).await;
    let user = json!({ "role": "user" });
    wait::until("the keys to be known", async || {
        match call(&network, &agent, &known.token(user.clone())).await {
            None => Ok(()),
            Some(code) => Err(code),
        }
    })
    .await;
    for n in 0..20 {
        let stranger = Signer::new(&format!("x{n}"));
        let ended = call(&network, &agent, &stranger.token(user.clone())).await;
        assert_eq!(ended, Some(ErrorCode::CredentialsInvalid));
    }
    assert_eq!(provider.asked(), 1);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_keys_no_token_counts() {
    let signer = Signer::new("k1");
    let provider = Provider::start(&[&signer]).await;
    provider.away(true);
    let (network, agent) = Box::pin(started(&provider, DurationMs::from_millis(10))).await;
    let token = signer.token(json!({ "role": "user" }));
    assert_eq!(
        call(&network, &agent, &token).await,
        Some(ErrorCode::KeysUnavailable)
    );
    provider.away(false);
    wait::until("the keys to be known", async || {
        match call(&network, &agent, &token).await {
            None => Ok(()),
            Some(code) => Err(code),
        }
    })
    .await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_not_fetched_from_inside_the_nodes_network() {
    let signer = Signer::new("k1");
    let provider = Provider::start(&[&signer]).await;
    let network = Network::start().await;
    let mut settings = settings(&network, DurationMs::from_millis(10));
    settings.runtime.private_networks = Vec::new();
    let (network, agent) = Box::pin(serving(network, settings, &provider)).await;
    // The call waits for a fetch, which fails before any connection is made.
    let token = signer.token(json!({ "role": "user" }));
    assert_eq!(
        call(&network, &agent, &token).await,
        Some(ErrorCode::KeysUnavailable)
    );
    assert_eq!(provider.asked(), 0);
    agent.stop().await;
}

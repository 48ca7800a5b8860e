//! Join tokens over the API: their limits, and refusals out of time, place and number.

use fdn_controller::app::actor::Actor;
use fdn_controller::app::enrol;
use fdn_core::api::NodeInfo;
use fdn_core::enrol::{EnrolRequest, EnrolResponse, JoinToken};
use fdn_core::fleet::NodeState;
use fdn_core::{Coded as _, ErrorCode, JoinTokenId, Problem, Timestamp};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::machines::{Machine, until};
use crate::rig::{Backend, Rig, node_at, on_both};

on_both!(the_last_use_of_a_token_goes_to_one);

async fn the_last_use_of_a_token_goes_to_one(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.cluster("eu-1").await;
    let token = rig.token("eu-1", 3).await.token;
    let machines: Vec<Machine> = (0..8).map(|_| Machine::new()).collect();
    let asked = machines.iter().enumerate().map(|(n, machine)| {
        let request = rig.enrol(&machine.request(&format!("n-{n}"), &token));
        async move {
            let answer = request.send().await.expect("an answer");
            match answer.status() {
                StatusCode::OK => None,
                _ => Some(answer.json::<Problem>().await.expect("a problem").code),
            }
        }
    });
    let refused: Vec<Option<ErrorCode>> = futures::future::join_all(asked).await;
    assert_eq!(
        refused.iter().filter(|one| one.is_none()).count(),
        3,
        "{refused:?}"
    );
    assert_eq!(
        refused
            .iter()
            .filter(|one| **one == Some(ErrorCode::JoinTokenUsedUp))
            .count(),
        5,
        "{refused:?}"
    );
    let nodes: Vec<NodeInfo> = rig.get("/v1/nodes").await;
    assert_eq!(nodes.len(), 3);
    // A machine whose response was lost asks again with its key, and consumes no use.
    let (n, _) = refused
        .iter()
        .enumerate()
        .find(|(_, one)| one.is_none())
        .expect("one");
    let again = machines[n].request(&format!("n-{n}"), &token);
    let answer: EnrolResponse = rig.json(rig.enrol(&again)).await;
    assert_eq!(answer.node.as_str(), format!("n-{n}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_refused_out_of_its_time_and_place() {
    let rig = Rig::start().await;
    rig.cluster("eu-1").await;
    rig.cluster("eu-2").await;
    let (made, machine) = (rig.token("eu-1", 1).await, Machine::new());
    let state = rig.controller.state();
    let code = async |request: &EnrolRequest, now: Timestamp| {
        enrol::enrol(state, request, &Actor::named("a test"), now)
            .await
            .map(|_| ())
            .map_err(|error| {
                let text = error.to_string();
                assert!(
                    text.contains("fdn node token") || text.contains("--"),
                    "it says what to do: {text}"
                );
                error.code()
            })
    };
    let now = fdn_service::now();
    let request = machine.request("n-1", &made.token);
    assert_eq!(
        code(&request, made.info.expires_at).await,
        Err(ErrorCode::JoinTokenExpired)
    );
    for (cluster, region) in [
        (Some("eu-2"), None),
        (None, Some("us")),
        (Some("eu-1"), Some("us")),
    ] {
        let elsewhere = EnrolRequest {
            cluster: cluster.map(|c| c.parse().expect("cluster")),
            region: region.map(|r| r.parse().expect("region")),
            ..request.clone()
        };
        assert_eq!(code(&elsewhere, now).await, Err(ErrorCode::JoinElsewhere));
    }
    let token: JoinToken = made.token.parse().expect("a token");
    let other_secret = JoinToken::new(token.id, &"0".repeat(64)).expect("a token");
    let other_id = JoinToken::new(JoinTokenId::from_uuid(Uuid::from_u128(1)), token.secret());
    for unknown in [other_secret, other_id.expect("a token")] {
        let request = machine.request("n-1", &unknown.expose());
        assert_eq!(code(&request, now).await, Err(ErrorCode::JoinTokenUnknown));
    }
    let no_request = EnrolRequest {
        csr: "rubbish".to_owned(),
        ..request.clone()
    };
    let refused = enrol::enrol(state, &no_request, &Actor::named("a test"), now)
        .await
        .map(|_| ())
        .expect_err("refused");
    assert_eq!(refused.code(), ErrorCode::CsrInvalid);
    // One millisecond before its end it is valid; nothing above consumed its use.
    let last = Timestamp(made.info.expires_at.get() - 1);
    assert_eq!(code(&request, last).await, Ok(()));
    // A name in use is refused to machines without its key.
    let (more, stranger) = (rig.token("eu-1", 5).await, Machine::new());
    rig.node(node_at("n-1", "eu-1", 1.0, 1.0)).await;
    until("the node to live", async || {
        rig.state("n-1").await == NodeState::Alive
    })
    .await;
    assert_eq!(
        code(&stranger.request("n-1", &more.token), fdn_service::now()).await,
        Err(ErrorCode::NodeNameTaken)
    );
    let elsewhere = rig.token("eu-2", 1).await;
    let long_after = Timestamp(now.get() + 600_000);
    assert_eq!(
        code(&stranger.request("n-1", &elsewhere.token), long_after).await,
        Err(ErrorCode::NodeNameTaken),
        "it belongs to another cluster, living or not"
    );
    let revoke = rig.request(Method::DELETE, &format!("/v1/join-tokens/{}", more.info.id));
    assert_eq!(revoke.send().await.expect("an answer").status(), 204);
    let request = stranger.request("n-2", &more.token);
    assert_eq!(
        code(&request, fdn_service::now()).await,
        Err(ErrorCode::JoinTokenRevoked)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_have_bounds_and_no_secret_is_kept_or_listed() {
    let rig = Rig::start().await;
    rig.cluster("eu-1").await;
    for (cluster, ttl, uses, code) in [
        ("none", "1h", 1, "FDN-2003"),
        ("eu-1", "1h", 0, "FDN-2005"),
        ("eu-1", "1h", 1001, "FDN-2005"),
        ("eu-1", "721h", 1, "FDN-2005"),
        ("eu-1", "0s", 1, "FDN-2005"),
    ] {
        let body = json!({ "cluster": cluster, "ttl": ttl, "uses": uses });
        let request = rig.request(Method::POST, "/v1/join-tokens").json(&body);
        assert_eq!(rig.code(request).await, code, "{body}");
    }
    let made = rig.token("eu-1", 1).await;
    let secret = made.token.rsplit('.').next().expect("a secret").to_owned();
    let list: Value = rig.get("/v1/join-tokens").await;
    assert!(!list.to_string().contains(&secret));
    let mut bytes = Vec::new();
    for name in ["controller.db", "controller.db-wal"] {
        bytes.extend(std::fs::read(rig.folder.path().join(name)).unwrap_or_default());
    }
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains(&made.info.id.to_string()) && !text.contains(&secret));
    let gone = rig.request(
        Method::DELETE,
        &format!("/v1/join-tokens/jtk_{}", "0".repeat(32)),
    );
    assert_eq!(rig.code(gone).await, "FDN-2003");
}

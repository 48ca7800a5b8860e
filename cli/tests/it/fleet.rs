//! `fdn cluster` and `fdn node` against a fake controller: their requests, output and exit codes.

use fdn_cli::exit::Exit;
use fdn_core::ErrorCode;
use fdn_core::fleet::{CreatedJoinToken, NodeDetail, NodeState};
use http::Method;
use serde_json::{Value, json};

use crate::support::{Fake, Home, Reply, sample};

fn node(state: NodeState) -> NodeDetail {
    let mut detail = sample::node_detail();
    detail.info.state = state;
    detail
}

#[tokio::test]
async fn a_token_stands_alone_on_standard_output() {
    let fake = Fake::start(|request, _| match request.method {
        Method::POST => Reply::json(&CreatedJoinToken {
            token: "fdn-join.jtk_1.secret".to_owned(),
            info: sample::join_tokens().remove(0),
        }),
        Method::GET => Reply::json(&sample::join_tokens()),
        _ => Reply::Full(204, vec![], vec![]),
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let ran = home
        .fdn(&[
            "node",
            "token",
            "--cluster",
            "eu-west",
            "--ttl",
            "30m",
            "--uses",
            "3",
        ])
        .await;
    assert_eq!(
        (ran.exit, ran.out.as_str()),
        (Exit::Ok, "fdn-join.jtk_1.secret\n")
    );
    assert!(
        ran.err.contains("3 machines") && ran.err.contains("not shown again"),
        "{}",
        ran.err
    );
    assert!(
        ran.err
            .contains(&format!("fdn-edge-agent join {}", fake.url())),
        "{}",
        ran.err
    );
    let sent: Value = serde_json::from_slice(&fake.requests()[0].body).expect("JSON");
    assert_eq!(
        sent,
        json!({ "cluster": "eu-west", "role": "node", "ttl": "30m", "uses": 3 })
    );
    let ran = home.fdn(&["node", "token", "--list", "-o", "name"]).await;
    assert_eq!(
        (ran.exit, ran.out.lines().count()),
        (Exit::Ok, 4),
        "{}",
        ran.err
    );
    let id = sample::join_tokens()[0].id.to_string();
    let ran = home.fdn(&["node", "token", "--revoke", &id]).await;
    assert_eq!(ran.exit, Exit::Ok, "{}", ran.err);
    let last = fake.requests().pop().expect("a request");
    assert_eq!(
        (last.method, last.path),
        (Method::DELETE, format!("/v1/join-tokens/{id}"))
    );
    let ran = home
        .fdn(&[
            "cluster",
            "create",
            "eu-1",
            "--region",
            "eu",
            "--location",
            "53.35,-6.26",
        ])
        .await;
    assert_ne!(ran.exit, Exit::Ok, "a token is no cluster");
    let sent: Value =
        serde_json::from_slice(&fake.requests().pop().expect("one").body).expect("JSON");
    assert_eq!(
        sent,
        json!({ "cluster": "eu-1", "region": "eu", "location": { "lat": 53.35, "lon": -6.26 } })
    );
}

#[tokio::test]
async fn draining_waits_until_nothing_runs() {
    let fake = Fake::start(|request, before| match (request.path.as_str(), before) {
        ("/v1/nodes/eu-west-1/drain", _) => Reply::json(&node(NodeState::Alive)),
        (_, 1..3) => Reply::json(&node(NodeState::Draining)),
        _ => Reply::json(&node(NodeState::Drained)),
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let ran = home.fdn(&["node", "drain", "eu-west-1"]).await;
    assert_eq!(
        (ran.exit, ran.out.as_str()),
        (Exit::Ok, "eu-west-1 is drained\n"),
        "{}",
        ran.err
    );
    assert_eq!(fake.requests().len(), 4);
    let ran = home.fdn(&["node", "drain", "eu-west-1", "--no-wait"]).await;
    assert_eq!(
        (ran.exit, ran.out.as_str()),
        (Exit::Ok, "eu-west-1 is alive\n"),
        "{}",
        ran.err
    );
    let never = Fake::start(|_, _| Reply::json(&node(NodeState::Draining))).await;
    let ran = Home::logged_in(&never.url())
        .fdn(&["node", "drain", "eu-west-1", "--timeout", "1ms"])
        .await;
    assert_eq!(ran.exit, Exit::Timeout);
    assert!(ran.err.contains("1 calls run"), "{}", ran.err);
}

#[tokio::test]
async fn removing_says_what_stands_against_it() {
    let fake = Fake::start(|request, _| {
        if request.path.contains("/busy") {
            Reply::problem(ErrorCode::NodeAtWork, "node busy is alive; drain it first")
        } else {
            Reply::Full(204, vec![], vec![])
        }
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let ran = home.fdn(&["node", "remove", "n-1", "n-2", "-y"]).await;
    assert_eq!(
        (ran.exit, ran.out.as_str()),
        (Exit::Ok, "removed n-1\nremoved n-2\n")
    );
    let ran = home
        .fdn(&["node", "remove", "busy", "--yes", "--force"])
        .await;
    assert_eq!(ran.exit, Exit::Conflict);
    assert!(ran.err.contains("FDN-7009"), "{}", ran.err);
}

#[tokio::test]
async fn pages_come_from_their_own_operations() {
    let fake = Fake::start(|request, _| match request.path.as_str() {
        "/v1/clusters/eu-west" => Reply::json(&sample::cluster_detail()),
        "/v1/nodes/eu-west-1"
        | "/v1/nodes/eu-west-1/uncordon"
        | "/v1/nodes/eu-west-1/restore-device" => Reply::json(&sample::node_detail()),
        "/v1/clusters" => Reply::json(&sample::clusters()),
        "/v1/nodes" => Reply::json(&sample::nodes()),
        path => panic!("{path}"),
    })
    .await;
    let home = Home::logged_in(&fake.url());
    for (args, expected) in [
        (["cluster", "describe", "eu-west"].as_slice(), "eu-west\n"),
        (&["node", "describe", "eu-west-1"], "eu-west-1\n"),
        (&["node", "uncordon", "eu-west-1"], "eu-west-1\n"),
        (&["node", "restore", "eu-west-1", "GPU-1"], "eu-west-1\n"),
        (&["cluster", "list"], "eu-west\nus-east\n"),
        (&["node", "list"], "eu-west-1\neu-west-2\n"),
    ] {
        let mut args = args.to_vec();
        args.extend(["-o", "name"]);
        let ran = home.fdn(&args).await;
        assert_eq!(
            (ran.exit, ran.out.as_str()),
            (Exit::Ok, expected),
            "{args:?}: {}",
            ran.err
        );
    }
}

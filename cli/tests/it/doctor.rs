//! `fdn doctor`: its findings and exit codes.

use std::net::SocketAddr;

use fdn_cli::exit::Exit;
use fdn_core::ErrorCode;
use hickory_proto::rr::rdata::SOA;
use hickory_proto::rr::{Name, RData, Record};
use tokio::net::TcpListener;

use crate::resolver::serve;
use crate::support::{Fake, Home, Recorded, Reply, sample};

async fn dns() -> SocketAddr {
    serve(|question, _, _| {
        let mut reply = question.clone().into_response();
        reply.metadata.authoritative = true;
        let ns = Name::from_ascii("ns1.fn.test.").expect("name");
        let soa = RData::SOA(SOA::new(ns.clone(), ns, 5, 1, 1, 1, 1));
        reply.add_answer(Record::from_rdata(
            question.queries[0].name().clone(),
            10,
            soa,
        ));
        Some(reply)
    })
    .await
}

fn controller(
    dns: SocketAddr,
    gateway: SocketAddr,
) -> impl Fn(&Recorded, usize) -> Reply + Send + Sync {
    move |request, _| match (request.path.as_str(), &request.authorization) {
        (_, None) => Reply::problem(ErrorCode::Unauthenticated, "no token"),
        ("/v1/network", _) => {
            let mut network = sample::network();
            network.dns = Some(dns);
            Reply::json(&network)
        }
        _ => {
            let mut clusters = sample::clusters();
            clusters.truncate(1);
            clusters[0].gateways = vec![gateway];
            Reply::json(&clusters)
        }
    }
}

#[tokio::test]
async fn a_healthy_network_passes() {
    let gateway = TcpListener::bind("127.0.0.1:0").await.expect("free port");
    let address = gateway.local_addr().expect("address");
    let fake = Fake::start(controller(dns().await, address)).await;
    let ran = Home::logged_in(&fake.url()).fdn(&["doctor"]).await;
    assert_eq!(ran.exit, Exit::Ok, "{ran:?}");
    for expected in [
        "controller",
        "token",
        "DNS",
        "with authority (serial 5)",
        "2 of 2 alive",
        "1 of 1 accept",
        "open files",
    ] {
        assert!(ran.out.contains(expected), "{expected}: {}", ran.out);
    }
    assert!(!ran.out.contains("FAIL"), "{}", ran.out);
}

#[tokio::test]
async fn each_thing_that_is_broken_is_named_with_a_remedy() {
    let nobody = SocketAddr::from(([127, 0, 9, 9], 9));
    let fake = Fake::start(controller(nobody, nobody)).await;
    let ran = Home::logged_in(&fake.url())
        .fdn(&["doctor", "-o", "json"])
        .await;
    assert_eq!(ran.exit, Exit::Failed, "{ran:?}");
    let checks: Vec<serde_json::Value> = serde_json::from_str(&ran.out).expect("JSON");
    let status = |name: &str| {
        let check = checks
            .iter()
            .find(|c| c["check"] == name)
            .unwrap_or_else(|| panic!("{name} in {}", ran.out));
        (
            check["status"].as_str().unwrap_or_default().to_owned(),
            check["advice"].is_string(),
        )
    };
    assert_eq!(status("controller"), ("ok".into(), false));
    assert_eq!(status("DNS"), ("fail".into(), true));
    assert_eq!(status("gateways"), ("fail".into(), true));
    assert!(ran.err.contains("checks failed"), "{}", ran.err);
}

#[tokio::test]
async fn nothing_running_is_one_clear_message() {
    let ran = Home::new()
        .fdn(&["doctor", "--controller", "http://127.0.0.1:1"])
        .await;
    assert_eq!(ran.exit, Exit::Failed);
    assert!(
        ran.out.contains("start a network with `fdn up`"),
        "{}",
        ran.out
    );
}

#[tokio::test]
async fn a_missing_token_and_an_open_token_file_are_found() {
    let nobody = SocketAddr::from(([127, 0, 9, 9], 9));
    let fake = Fake::start(controller(nobody, nobody)).await;
    let ran = Home::new()
        .fdn(&["doctor", "--controller", &fake.url()])
        .await;
    assert!(
        ran.out.contains(&format!("run fdn login {}", fake.url())),
        "{}",
        ran.out
    );
    let home = Home::new();
    home.file(
        ".config/fdn/config.toml",
        format!(
            "current = \"x\"\n[contexts.x]\ncontroller = \"{}\"\n",
            fake.url()
        ),
    );
    home.file(".config/fdn/tokens/x", "token");
    let ran = home.fdn(&["doctor"]).await;
    assert!(
        ran.out.contains("others can read it") && ran.out.contains("chmod 600"),
        "{}",
        ran.out
    );
}

#[tokio::test]
async fn a_broken_configuration_is_a_failed_check() {
    let home = Home::new();
    home.file(".config/fdn/config.toml", "nonsense");
    let ran = home.fdn(&["doctor"]).await;
    assert_eq!(ran.exit, Exit::Failed);
    assert!(
        ran.out.contains("FAIL  config") && ran.out.contains("config.toml"),
        "{}",
        ran.out
    );
}

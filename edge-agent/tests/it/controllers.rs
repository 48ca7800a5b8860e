//! Requests that only controllers may make of a node: they are answered, and all others are refused, counted and named.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use fdn_core::Timestamp;
use fdn_core::fleet::{FleetDesired, Revoked};
use fdn_core::manifest::Manifest;
use fdn_edge_agent::Agent;
use fdn_service::pki::tls::Credentials;
use fdn_service::pki::{Bearer, Facts};
use fdn_testkit::{components, wait};
use reqwest::{Client, StatusCode};
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;

use crate::support::killable::Killable;
use crate::support::{FakeController, Network, asker};

/// The requests of controllers.
const TARGETS: [&str; 2] = ["/logs/hello?tail=1", "/calls/hello?limit=1"];
const DAY: i64 = 86_400_000;

/// A network with one node that serves an app.
async fn one() -> (Network, Agent) {
    let network = Network::start().await;
    let agent = Box::pin(network.agent(network.settings("eu-west-1"))).await;
    let hello = components::hello("hi");
    network
        .deploy("hello", 1, &hello, Manifest::default())
        .await;
    network.until_text(&agent, "hello", "hi").await;
    (network, agent)
}

fn machine(text: &str) -> Bearer {
    Bearer::Machine(text.parse().expect("a machine"))
}

/// Credentials of a member of this network, valid for `days` from now.
fn shown(of: &FakeController, bearer: Bearer, days: i64) -> Credentials {
    let end = fdn_service::now().get().saturating_add_signed(days * DAY);
    of.credentials(bearer, Timestamp(end))
}

fn controller() -> Bearer {
    Bearer::Controller("fdn://controller/other".parse().expect("a controller"))
}

/// How often requests of this kind had this outcome.
async fn counted(network: &Network, agent: &Agent, about: &str, outcome: &str) -> f64 {
    let line = format!(
        "fdn_agent_controller_requests_total{{about=\"{about}\",node=\"eu-west-1\",outcome=\"{outcome}\"}}"
    );
    network.metric(agent, &line).await.unwrap_or_default()
}

/// The number of refused connections.
async fn strangers(network: &Network, agent: &Agent) -> f64 {
    let line = "fdn_agent_stage_calls_served_total{node=\"eu-west-1\",outcome=\"forbidden\"}";
    network.metric(agent, line).await.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn any_controller_of_the_network_is_answered() {
    let (network, agent) = one().await;
    let other = asker(&shown(&network.controller, controller(), 1));
    for target in TARGETS {
        let asked = network.ask(&agent, target).send().await;
        assert_eq!(asked.expect("an answer").status(), StatusCode::OK);
        let asked = other.get(network.asked_at(&agent, target)).send().await;
        assert_eq!(asked.expect("an answer").status(), StatusCode::OK);
    }
    let call = network.ask(&agent, "/logs/hello");
    let call = call.header("fdn-call-host", "hello.fn.test").send().await;
    let call = call.expect("an answer");
    assert_eq!(call.headers()["x-fdn-node"], "eu-west-1");
    let own = |name: &&reqwest::header::HeaderName| name.as_str().starts_with("fdn-call-");
    assert_eq!(call.headers().keys().find(own), None);
    assert_eq!(call.text().await.expect("text"), "hi", "whatever the path");
    for about in ["logs", "calls"] {
        assert_eq!(counted(&network, &agent, about, "answered").await, 2.0);
    }
    assert_eq!(counted(&network, &agent, "call", "answered").await, 1.0);

    // The listener for operators serves health and metrics only.
    for target in TARGETS {
        let url = format!("http://{}{target}", agent.admin_address());
        let answer = network.client.get(url).send().await;
        assert_eq!(answer.expect("an answer").status(), StatusCode::NOT_FOUND);
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_no_controller() {
    let (network, agent) = one().await;
    for name in ["eu-west-2", "eu-west-1"] {
        let node = machine(&format!("fdn://cluster/eu-west/node/{name}"));
        let node = asker(&shown(&network.controller, node, 1));
        for target in TARGETS {
            let asked = node.get(network.asked_at(&agent, target)).send().await;
            assert_eq!(asked.expect("an answer").status(), StatusCode::FORBIDDEN);
        }
        let call = node.get(network.asked_at(&agent, "/"));
        let call = call
            .header("fdn-call-host", "hello.fn.test")
            .header("x-fdn-job", format!("job_{};1", "0".repeat(32)));
        let call = call.send().await.expect("an answer");
        assert_eq!(call.status(), StatusCode::FORBIDDEN);
        // Nor does this node accept stage calls.
        let stage = network.asked_at(&agent, "/fdn.stage.v1/hello/a");
        let stage = node.post(stage).send().await.expect("an answer");
        assert_eq!(stage.status(), StatusCode::FORBIDDEN);
    }
    for about in ["logs", "calls", "call"] {
        assert_eq!(counted(&network, &agent, about, "forbidden").await, 2.0);
    }
    assert_eq!(strangers(&network, &agent).await, 2.0);
    agent.stop().await;
}

/// Presents no certificate.
#[derive(Debug)]
struct Nothing;

impl ResolvesClientCert for Nothing {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// A client without a certificate.
fn nobody(credentials: &Credentials) -> Client {
    let tls = credentials.client_of_nodes(Arc::new(|_| false));
    let mut tls = tls.expect("certificates");
    tls.client_auth_cert_resolver = Arc::new(Nothing);
    fdn_service::http_client::of_nodes(tls, wait::PATIENCE, (1 << 20, 1 << 20)).expect("a client")
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_get_no_connection() {
    let (network, agent) = one().await;
    let dns = shown(
        &network.controller,
        machine("fdn://cluster/eu-west/dns/ns"),
        1,
    );
    let ended = shown(&network.controller, controller(), -1);
    let elsewhere = FakeController::start().await;
    let foreign = Credentials {
        authorities: network.credentials.authorities.clone(),
        ..shown(&elsewhere, controller(), 1)
    };
    let clients = [
        asker(&dns),
        asker(&ended),
        asker(&foreign),
        nobody(&network.credentials),
    ];
    let mut refused = 0.0;
    for client in clients {
        let asked = client.get(network.asked_at(&agent, TARGETS[0])).send();
        assert!(asked.await.is_err());
        refused += 1.0;
        wait::until("the refusal to be counted", async || {
            let counted = strangers(&network, &agent).await;
            if counted >= refused {
                Ok(())
            } else {
                Err(counted)
            }
        })
        .await;
    }
    // Without TLS there is no answer either.
    let port = agent.controller_port().expect("a port");
    let plain = network
        .client
        .get(format!("http://127.0.0.1:{port}/logs/hello"));
    assert!(plain.send().await.is_err());
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controllers_certificate_that_was_revoked_counts_no_more() {
    let (network, agent) = one().await;
    let ask = || network.ask(&agent, TARGETS[0]).send();
    assert_eq!(ask().await.expect("an answer").status(), StatusCode::OK);
    let serial =
        Facts::<fdn_core::enrol::ControllerIdentity>::of_pem(&network.credentials.certificate);
    let fleet = FleetDesired {
        revision: network.next_revision(),
        revoked: vec![Revoked {
            serial: serial.expect("facts").serial,
            node: "test".parse().expect("a name"),
            expires_at: Timestamp(u64::MAX),
        }],
        ..FleetDesired::default()
    };
    network.tell_fleet(fleet).await;
    wait::until("the controller to be refused", async || {
        match ask().await.expect("an answer").status() {
            StatusCode::FORBIDDEN => Ok(()),
            other => Err(other),
        }
    })
    .await;
    assert!(counted(&network, &agent, "logs", "forbidden").await >= 1.0);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_agents_at_one_port_for_controllers_are_told_what_to_change() {
    let network = Network::start().await;
    let first = Box::pin(network.agent(network.settings("eu-west-2"))).await;
    let port = first.controller_port().expect("it listens");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // Listening on all addresses, as by default, includes this one.
    for listen in [address, SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))] {
        let second = Killable::with(&network, |settings| settings.workflows.listen = listen);
        let mut process = second.spawn();
        let status = wait::until("the second agent to end", async || {
            process.ended().ok_or_else(|| process.log())
        })
        .await;
        let log = process.log();
        assert_eq!(status.code(), Some(1), "{log}");
        let taken = format!(
            "{listen} is already taken by another program; stop it or choose another address with workflows.listen, the port for controllers"
        );
        assert!(log.contains(&taken), "{log}");
    }
    first.stop().await;
}

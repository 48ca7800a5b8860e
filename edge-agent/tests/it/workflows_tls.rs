//! Stage calls with the certificates of enrolment: nodes of other clusters are accepted, others and revoked ones are not.

use std::net::SocketAddr;

use fdn_core::feed::Frame;
use fdn_core::fleet::{FleetDesired, Revoked};
use fdn_core::{DurationMs, Timestamp};
use fdn_edge_agent::{Agent, Settings};
use fdn_service::pki::Facts;
use fdn_testkit::{components, wait};
use tokio::task::JoinHandle;

use crate::peers_tls::{Authority, authority, certify};
use crate::support::Network;
use crate::support::workflows::{deploy, desired, settings, tell_addresses};

const TWO: &str = "
stages:
  - { name: in, function: echo }
  - { name: far, function: echo, needs: [in] }
";

const SLOW: &str = "
stages:
  - { name: in, function: echo }
  - { name: far, function: slow, needs: [in] }
";

fn secured(network: &Network, node: &str, cluster: &str, ca: &Authority) -> Settings {
    let mut settings = settings(network, node, cluster);
    certify(&mut settings, network.folder.path(), ca);
    settings.workflows.plaintext = false;
    settings
}

/// The cluster where the second stage ran.
async fn ran(network: &Network, eu: &Agent) -> String {
    let answer = network.post(eu, "two", "/").body("x").send().await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status(), 200);
    let told = answer.headers()["x-fdn-stages"].to_str().expect("text");
    told.rsplit('=').next().expect("a cluster").to_owned()
}

async fn until_ran(network: &Network, eu: &Agent, cluster: &str) {
    wait::until(&format!("the stage to run in {cluster}"), async || {
        let place = ran(network, eu).await;
        if place == cluster { Ok(()) } else { Err(place) }
    })
    .await;
}

/// A node of eu-west that calls stages of a workflow in us-east, and the one there.
struct Two {
    network: Network,
    ca: Authority,
    eu: Agent,
    us: Agent,
    /// The serial number of the first one's certificate.
    serial: String,
    address: SocketAddr,
}

impl Two {
    async fn start() -> Self {
        let network = Network::start().await;
        let ca = authority();
        let settings = |node, cluster| {
            let mut settings = secured(&network, node, cluster, &ca);
            settings.apps.warm_call = false;
            // Longer than any call here runs.
            settings.stop.grace = DurationMs::from_secs(60);
            settings
        };
        let eu_settings = settings("n-1", "eu-west");
        let path = eu_settings.tls.certificate.clone().expect("there is one");
        let text = std::fs::read_to_string(path).expect("read");
        let serial = <Facts>::of_pem(&text).expect("facts").serial;
        let eu = network.agent(eu_settings).await;
        let us = network.agent(settings("n-2", "us-east")).await;
        let address = us.stage_address().expect("it takes stage calls");
        tell_addresses(&network, &[address], vec![ca.pem()]).await;
        let functions = [("echo", components::echo(), false)];
        let wanted = desired(&network, "two", TWO, &functions, &[("far", "us-east")]);
        deploy(&network, "n-2", wanted).await;
        until_ran(&network, &eu, "us-east").await;
        Self {
            network,
            ca,
            eu,
            us,
            serial,
            address,
        }
    }

    /// Begins a call whose second stage takes long, and waits until that runs in us-east.
    async fn call_slow(&self) -> JoinHandle<reqwest::Result<reqwest::Response>> {
        let network = &self.network;
        let functions = [
            ("echo", components::echo(), false),
            ("slow", components::sleeping(50_000), false),
        ];
        let mut wanted = desired(network, "slow", SLOW, &functions, &[("far", "us-east")]);
        let functions = wanted.spec.iter_mut().flat_map(|spec| &mut spec.functions);
        for function in functions {
            function.manifest.timeout = DurationMs::from_secs(55);
        }
        deploy(network, "n-2", wanted).await;
        let running = tokio::spawn(network.post(&self.eu, "slow", "/").body("x").send());
        wait::until("the stage to run in us-east", async || {
            let busy = "fdn_agent_calls_busy{node=\"n-2\"}";
            match network.metric(&self.us, busy).await {
                Some(calls) if calls > 0.0 => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        running
    }

    /// That the caller's certificate is revoked.
    fn revocation(&self) -> Frame {
        Frame::Fleet(FleetDesired {
            revision: self.network.next_revision(),
            revoked: vec![Revoked {
                serial: self.serial.clone(),
                node: "n-1".parse().expect("node"),
                expires_at: Timestamp(u64::MAX),
            }],
            authorities: vec![self.ca.pem()],
            stage_calls: [("us-east".parse().expect("cluster"), vec![self.address])].into(),
            ..FleetDesired::default()
        })
    }

    /// The caller's certificate is revoked, which only us-east hears of.
    fn revoke(&self) {
        let revocation = self.revocation();
        self.network.controller.tell_to("n-2", &revocation);
    }

    async fn stop(self) {
        self.eu.stop().await;
        self.us.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stages_are_called_across_clusters_until_a_certificate_is_revoked() {
    let two = Two::start().await;

    // Without a certificate there is no answer at all.
    let client = fdn_service::http_client::builder().expect("a client");
    let client = client.http2_prior_knowledge().build();
    let plain = client
        .expect("a client")
        .get(format!("http://{}/", two.address));
    assert!(plain.send().await.is_err());

    // us-east refuses its further calls.
    two.revoke();
    until_ran(&two.network, &two.eu, "eu-west").await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stage_that_runs_ends_soon_after_the_certificate_of_its_caller_is_revoked() {
    let two = Two::start().await;
    let running = two.call_slow().await;
    two.revoke();
    let answer = running.await.expect("no panic").expect("an answer");
    assert_ne!(answer.status(), 200, "the stage is lost");
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stage_at_a_node_that_stops_ends_as_soon_after_the_certificate_of_its_caller_is_revoked()
{
    let two = Two::start().await;
    // The slow call takes one of the connections; the other is idle, and ends as soon as us-east takes no more calls.
    let connections = "fdn_agent_stage_connections{node=\"n-1\"}";
    wait::until("two connections to us-east", async || {
        ran(&two.network, &two.eu).await;
        match two.network.metric(&two.eu, connections).await {
            Some(open) if open > 1.0 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let running = two.call_slow().await;
    let revocation = two.revocation();
    let Two {
        network, eu, us, ..
    } = two;
    let stopping = tokio::spawn(us.stop());
    wait::until("us-east to take no more calls", async || {
        match network.metric(&eu, connections).await {
            Some(open) if open < 2.0 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert!(!running.is_finished(), "the stage goes on");
    network.controller.tell_to("n-2", &revocation);
    let answer = running.await.expect("no panic").expect("an answer");
    assert_ne!(answer.status(), 200, "the stage is lost");
    stopping.await.expect("no panic");
    eu.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_authority_is_not_talked_with() {
    let network = Network::start().await;
    let (ours, theirs) = (authority(), authority());
    let eu = network
        .agent(secured(&network, "n-1", "eu-west", &ours))
        .await;
    let us = network
        .agent(secured(&network, "n-2", "us-east", &theirs))
        .await;
    let address = us.stage_address().expect("it takes stage calls");
    tell_addresses(&network, &[address], Vec::new()).await;
    let functions = [("echo", components::echo(), false)];
    let wanted = desired(&network, "two", TWO, &functions, &[("far", "us-east")]);
    deploy(&network, "n-2", wanted).await;
    assert_eq!(ran(&network, &eu).await, "eu-west");
    let refused = "fdn_agent_stage_calls_served_total{node=\"n-2\",outcome=\"forbidden\"}";
    wait::until("the stranger to be refused", async || {
        match network.metric(&us, refused).await {
            Some(times) if times >= 1.0 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    eu.stop().await;
    us.stop().await;
}

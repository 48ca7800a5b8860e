//! Machines become nodes with one command, are drained without losing a call, and are removed for good; all as separate processes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use fdn_core::enrol::{NodeAddresses, RenewRequest};
use fdn_core::{ErrorCode, Problem};
use fdn_e2e::{Cli, Deadlines, Held, Network, dns};
use fdn_service::pki::{Facts, NodeKey};
use fdn_testkit::proxy::Proxy;
use fdn_testkit::{components, wait};
use serde_json::Value;

const HOST: &str = "held.fn.test";
const CLIENT: &str = "192.0.2.0/24";
/// How long a call may be held, which is until the test has seen all it wants to see.
const LONG: Duration = Duration::from_secs(600);

/// Waits until DNS answers the client with exactly these gateways.
async fn answers(network: &Network, expected: &[IpAddr]) {
    let expected: BTreeSet<IpAddr> = expected.iter().copied().collect();
    wait::until("DNS to answer with these gateways", async || {
        let answer = dns::ask(network.dns_address, HOST, Some(CLIENT), false)?;
        ensure!(answer.addresses == expected, "{answer:?}, not {expected:?}");
        Ok(())
    })
    .await;
}

/// A call to one node's gateway.
async fn call(address: IpAddr, port: u16) -> Result<u16> {
    let client = fdn_service::http_client::build(LONG)?;
    let url = format!("http://{address}:{port}/");
    let answer = client.get(url).header("host", HOST).send().await?;
    let status = answer.status().as_u16();
    answer.bytes().await?;
    Ok(status)
}

/// What a node says of its readiness.
async fn readiness(network: &Network, address: IpAddr) -> Result<(u16, String)> {
    let client = fdn_service::http_client::build(wait::PATIENCE)?;
    let url = format!("http://{address}:{}/readyz", network.admin_port);
    let answer = client.get(url).send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

async fn ready(network: &Network, address: IpAddr, expected: u16, because: &str) {
    wait::until("the node's readiness", async || {
        let (status, text) = readiness(network, address).await?;
        ensure!(
            status == expected && text.contains(because),
            "{status}: {text}"
        );
        Ok::<_, anyhow::Error>(())
    })
    .await;
}

fn state(cli: &Cli, node: &str) -> String {
    let detail = cli.json(["node", "describe", node]);
    detail["info"]["state"]
        .as_str()
        .expect("a state")
        .to_owned()
}

async fn becomes(cli: &Cli, node: &str, expected: &str) {
    wait::until("the node's state", async || {
        let found = state(cli, node);
        ensure!(found == expected, "{node} is {found}, not {expected}");
        Ok(())
    })
    .await;
}

fn token(cli: &Cli, uses: &str) -> String {
    cli.ok(["node", "token", "--cluster", "eu-west", "--uses", uses])
}

/// Asks for the next certificate of a node as its agent would.
async fn renew(network: &Network, name: &str) -> Result<Problem> {
    let folder = network.folder().join(name).join("identity");
    let facts = <Facts>::of_pem(&std::fs::read_to_string(folder.join("node.pem"))?)?;
    let key = NodeKey::read(&folder.join("node.key"))?;
    let addresses = NodeAddresses {
        gateway: "127.0.0.1:1".parse()?,
        admin: "127.0.0.1:2".parse()?,
        peer: None,
        names: Vec::new(),
    };
    let at = fdn_service::now();
    let text = RenewRequest::signed_text(&facts.serial, at, &addresses);
    let request = RenewRequest {
        serial: facts.serial,
        at,
        addresses,
        signature: key.sign(&text)?,
    };
    let client = fdn_service::http_client::build(wait::PATIENCE)?;
    let url = format!("http://{}/v1/nodes/renew", network.api());
    Ok(client.post(url).json(&request).send().await?.json().await?)
}

/// Deploys an app whose calls take until the test lets them go.
async fn deployed(network: &Network, cli: &Cli) -> Held {
    let held = Held::start().await;
    let authority = held.address().to_string();
    let file = |name: &str, bytes: &[u8]| {
        let path = network.folder().join(name);
        std::fs::write(&path, bytes).expect("written");
        path.display().to_string()
    };
    let component = file("held.wasm", &components::outbound(&authority));
    let settings = format!(
        "timeout = \"{}s\"\nallowed_hosts = [\"{authority}\"]\n",
        LONG.as_secs()
    );
    let manifest = file("held.toml", settings.as_bytes());
    let deploy = ["deploy", "held", &component, "--manifest", &manifest];
    cli.ok(deploy.iter().chain(&["--wait", "--timeout", "120s"]));
    held
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_join_drain_and_are_removed() {
    let mut network = Network::without_nodes(Deadlines::Long)
        .await
        .expect("controller and DNS start");
    let cli = network.cli().expect("logged in");
    let (one, two) = (network.node(0, 0), network.node(0, 1));
    cli.ok([
        "cluster",
        "create",
        "eu-west",
        "--region",
        "eu",
        "--location",
        "53.35,-6.26",
    ]);
    let two_uses = token(&cli, "2");

    // For elsewhere, then for here, then once too often.
    let refused = network.join("edge-1", (0, 0), &two_uses, &["--region", "us"]);
    let refused = refused.expect_err("for another region").to_string();
    assert!(
        refused.contains("FDN-7005") && refused.contains("eu-west"),
        "{refused}"
    );
    // The second one stands in a network that lets connections out through a proxy only.
    let proxy = Proxy::start(|_| true).await.expect("a proxy");
    let way = proxy.url();
    for (name, n, more) in [
        ("edge-1", 0, &[][..]),
        ("edge-2", 1, &["--proxy", &way][..]),
    ] {
        let more: Vec<&str> = ["--region", "eu"].iter().chain(more).copied().collect();
        let out = network
            .join(name, (0, n), &two_uses, &more)
            .expect("let in");
        assert!(
            out.contains(&format!("node {name} has joined cluster eu-west")),
            "{out}"
        );
    }
    let again = network
        .join("edge-1", (0, 0), &two_uses, &[])
        .expect("harmless");
    assert!(again.contains("had joined"), "{again}");
    let refused = network
        .join("edge-3", (0, 1), &two_uses, &[])
        .expect_err("used up")
        .to_string();
    assert!(
        refused.contains("FDN-7003") && refused.contains("fdn node token"),
        "{refused}"
    );
    assert_eq!(state(&cli, "edge-1"), "joined");
    for name in ["edge-1", "edge-2"] {
        network
            .start_agent(name)
            .await
            .expect("it starts with the configuration that joining wrote");
        becomes(&cli, name, "alive").await;
    }
    // It joined by the proxy, and its connection to the controller goes there too.
    goes_by(&proxy, &network);
    // Nothing was said about peers: the two are one cluster, by the certificates that joining brought.
    for node in [one, two] {
        network.together(node, 2.0).await;
    }
    let held = deployed(&network, &cli).await;
    answers(&network, &[one, two]).await;
    let cluster = cli.ok(["cluster", "describe", "eu-west"]);
    assert!(
        cluster.contains("2 of 2 alive") && cluster.contains("edge-2"),
        "{cluster}"
    );

    drained_under_calls(&network, &cli, (one, two), &held).await;

    // Started anew with the controller away, it serves what it had and still takes no new work.
    network.kill_controller();
    network.kill_agent("edge-1");
    network
        .start_agent("edge-1")
        .await
        .expect("it starts alone");
    ready(&network, one, 503, "drains").await;
    let answer = call(one, network.gateway_port).await;
    assert_eq!(answer.expect("an answer"), 200);
    network.start_controller().await.expect("back");
    cli_again(&cli).await;
    cli.ok(["node", "uncordon", "edge-1"]);
    ready(&network, one, 200, "").await;
    answers(&network, &[one, two]).await;

    removed(&mut network, &cli, one).await;
    answers(&network, &[two]).await;
    network.stop().expect("everything stops cleanly");
}

/// Drains a node while a call runs: the call ends well, new ones are sent elsewhere, one that comes all the same is served.
async fn drained_under_calls(
    network: &Network,
    cli: &Cli,
    (one, two): (IpAddr, IpAddr),
    held: &Held,
) {
    let port = network.gateway_port;
    held.hold();
    let running = tokio::spawn(call(one, port));
    held.waiting(1).await;
    busy(cli, "edge-1").await;
    cli.ok(["node", "drain", "edge-1", "--no-wait"]);
    answers(network, &[two]).await;
    ready(network, one, 503, "drains").await;
    let late = tokio::spawn(call(one, port));
    held.waiting(2).await;
    becomes(cli, "edge-1", "draining").await;
    held.release();
    let drained = cli.ok(["node", "drain", "edge-1", "--timeout", "60s"]);
    assert!(drained.contains("edge-1 is drained"), "{drained}");
    for call in [running, late] {
        assert_eq!(call.await.expect("no panic").expect("an answer"), 200);
    }
}

/// Waits until a call runs on a node.
async fn busy(cli: &Cli, node: &str) {
    wait::until("a call to run", async || {
        let detail = cli.json(["node", "describe", node]);
        let busy = detail["info"]["busy"].as_u64();
        ensure!(busy.is_some_and(|busy| busy > 0), "{busy:?}");
        Ok(())
    })
    .await;
}

/// Waits until the controller answers the command line.
async fn cli_again(cli: &Cli) {
    wait::until("the controller to answer", async || {
        let typed = cli.run(["node", "list"]);
        ensure!(typed.code == 0, "{}", typed.err);
        Ok(())
    })
    .await;
}

/// Removes `edge-1`: not while it works, then for good.
async fn removed(network: &mut Network, cli: &Cli, address: IpAddr) {
    let token_file = network.folder().join("edge-1/identity/node.token");
    let typed = cli.run(["node", "remove", "edge-1", "--yes"]);
    assert_eq!(typed.code, 5, "{}", typed.err);
    assert!(typed.err.contains("FDN-7009"), "{}", typed.err);
    cli.ok(["node", "drain", "edge-1", "--timeout", "60s"]);
    cli.ok(["node", "remove", "edge-1", "--yes"]);
    ready(network, address, 503, "removed").await;
    let nodes: Value = cli.json(["node", "list"]);
    let names: Vec<&str> = nodes
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|n| n["node"].as_str())
        .collect();
    assert_eq!(names, ["edge-2"]);
    let problem = renew(network, "edge-1").await.expect("a problem");
    assert_eq!(problem.code, ErrorCode::CertificateRefused);
    assert_eq!(mode(&token_file), 0o600);
    // The machine may come again, with a new token: it knows that it was removed.
    network.kill_agent("edge-1");
    let out = network
        .join("edge-1", (0, 0), &token(cli, "1"), &[])
        .expect("let in again");
    assert!(out.contains("has joined"), "{out}");
    cli.ok(["node", "remove", "edge-1", "--yes"]);
}

/// Whether the API was asked by a proxy, and another port of the controller is connected by it.
fn goes_by(proxy: &Proxy, network: &Network) {
    let (carried, api) = (proxy.forwarded(), network.api().to_string());
    assert!(carried.contains(&api), "{carried:?}");
    assert!(carried.iter().any(|to| *to != api), "{carried:?}");
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).expect("there").permissions().mode() & 0o777
}

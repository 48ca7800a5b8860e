//! Machines that joined with one command form a cluster by the certificates they were given: instances run where an engine is, calls are
//! answered at every gateway, also when the node that is head and runs instances is killed; all as separate processes.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fdn_e2e::{Cli, Deadlines, Network};
use fdn_testkit::{docker, wait};
use tokio::task::JoinSet;

/// Calls under way at the same time.
const CALLS: usize = 20;

/// Calls the app at one gateway.
async fn ask(gateway: SocketAddr, path: &str) -> Result<String> {
    let client = fdn_service::http_client::build(Duration::from_secs(60))?;
    let url = format!("http://{gateway}{path}");
    let answer = client
        .get(url)
        .header("host", "saved.fn.test")
        .send()
        .await?;
    let (status, text) = (answer.status(), answer.text().await?);
    ensure!(status == 200, "{status}: {text}");
    Ok(text)
}

/// Makes so many calls at once at one gateway; every one has to be answered.
async fn burst(gateway: SocketAddr, path: &'static str) -> Result<()> {
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        calls.spawn(ask(gateway, path));
    }
    while let Some(call) = calls.join_next().await {
        call??;
    }
    Ok(())
}

/// Waits until the controller hears of this head, or of any other than `not`; its name.
async fn head(cli: &Cli, not: Option<&str>) -> String {
    let mut found = String::new();
    wait::until("a head", async || {
        let cluster = cli.json(["cluster", "describe", "eu-west"]);
        let head = cluster["head"]["node"].as_str().context("none")?;
        ensure!(Some(head) != not, "still {head}");
        head.clone_into(&mut found);
        Ok::<_, anyhow::Error>(())
    })
    .await;
    found
}

/// Joins three machines, two of which have an engine.
async fn joined(network: &mut Network, cli: &Cli) {
    let place = ["--region", "eu", "--location", "53.35,-6.26"];
    cli.ok(["cluster", "create", "eu-west"].iter().chain(&place));
    let token = cli.ok(["node", "token", "--cluster", "eu-west", "--uses", "3"]);
    let socket = docker::socket().await.display().to_string();
    for n in 0..3 {
        let name = format!("edge-{}", n + 1);
        network.join(&name, (0, n), &token, &[]).expect("let in");
        let config = network.folder().join(format!("{name}.toml"));
        let mut text = std::fs::read_to_string(&config).expect("what joining wrote");
        assert!(
            text.contains("[peers]") && !text.contains("plaintext"),
            "{text}"
        );
        text.push_str("\n[reports]\nstatus_interval = \"200ms\"\n");
        if n > 0 {
            // Room for some instances each, so that a burst needs both.
            text.push_str("[capacity]\ncpu_milli = 600\n");
            text.push_str(&format!(
                "[docker]\nenabled = true\nsocket = \"{socket}\"\n"
            ));
        }
        std::fs::write(&config, text).expect("written");
        network
            .start_agent(&name)
            .await
            .expect("it starts with the configuration that joining wrote");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enrolled_machines_are_one_cluster_and_outlive_its_head() {
    let mut network = Network::without_nodes(Deadlines::Shipped)
        .await
        .expect("it starts");
    let cli = network.cli().expect("logged in");
    joined(&mut network, &cli).await;
    let nodes = [0, 1, 2].map(|n| network.node(0, n));
    for node in nodes {
        network.together(node, 3.0).await;
    }
    let manifest = network.folder().join("fdn.toml");
    let settings = "runtime = \"docker\"\nmemory = \"32MiB\"\ncpu_milli = 100\n";
    std::fs::write(&manifest, settings).expect("written");
    let archive = docker::saved_image("cluster").display().to_string();
    let manifest = manifest.display().to_string();
    let deploy = ["deploy", "saved", &archive, "--manifest", &manifest];
    let printed = cli.ok(deploy.iter().chain(&["--wait", "--timeout", "120s"]));
    assert!(printed.contains("ready on 3 nodes"), "{printed}");

    // The first node has no engine: its calls are answered by instances of the others.
    let port = network.gateway_port;
    let gateways = nodes.map(|node| SocketAddr::new(node, port));
    assert_eq!(ask(gateways[0], "/").await.expect("an answer"), "hello");
    let answered = burst(gateways[0], "/sleep/500").await;
    answered.unwrap_or_else(|error| panic!("{error:#}\n{}", network.logs()));
    for node in &nodes[1..] {
        let instances = network.metric(*node, "fdn_instances_live", "").await;
        let instances = instances.expect("shown");
        assert!(instances >= 1.0, "{node}: {instances}\n{}", network.logs());
    }
    let described = cli.ok(["cluster", "describe", "eu-west"]);
    assert!(described.contains("3 of 3 alive"), "{described}");

    // Whoever is head is killed under calls at a gateway that is left.
    let killed = head(&cli, None).await;
    let left: Vec<usize> = (0..3)
        .filter(|n| format!("edge-{}", n + 1) != killed)
        .collect();
    let calls = tokio::spawn(burst(gateways[left[0]], "/sleep/500"));
    wait::until("calls to run", async || {
        let running = "fdn_agent_instance_calls";
        let running = network.metric(nodes[left[0]], running, "running").await?;
        ensure!(running >= 1.0, "{running}");
        Ok::<_, anyhow::Error>(())
    })
    .await;
    network.kill_agent(&killed);
    let answered = calls.await.expect("no panic");
    answered.unwrap_or_else(|error| panic!("{error:#}\n{}", network.logs()));
    for n in left {
        let answered = burst(gateways[n], "/sleep/50").await;
        answered.unwrap_or_else(|error| panic!("{error:#}\n{}", network.logs()));
    }
    let next = head(&cli, Some(&killed)).await;
    assert_ne!(next, killed);
    network.stop().expect("everything stops cleanly");
}

//! The whole network as separate processes on PostgreSQL and RabbitMQ: deploy, resolve, call, go on without the centre, of which machines at the edge
//! reach one listener; in soak everything behind it dies under load, and gateways.

#![allow(
    clippy::print_stderr,
    reason = "figures that a reader of the test wants to see"
)]

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use fdn_core::api::header;
use fdn_e2e::network::{NODES, REGIONS};
use fdn_e2e::{Cli, Deadlines, Network, dns};
use fdn_testkit::{components, wait};

const HOST: &str = "hello.fn.test";
const CHALLENGE: &str = "_acme-challenge.hello.fn.test";

fn component(network: &Network, text: &str) -> PathBuf {
    let path = network.folder().join(format!("{text}.wasm"));
    std::fs::write(&path, components::hello(text)).expect("the folder takes a file");
    path
}

fn deploy(network: &Network, cli: &Cli, text: &str) -> serde_json::Value {
    let path = component(network, text).display().to_string();
    cli.json(["deploy", "hello", &path, "--wait", "--timeout", "120s"])
}

async fn steered(network: &Network, region: usize) {
    let (server, subnet) = (network.dns_address, REGIONS[region].subnet);
    let expected = network.gateways(region);
    wait::until("the nearest region's gateways in the answer", async || {
        let answer = dns::ask(server, HOST, Some(subnet), false)?;
        ensure!(answer.addresses == expected, "{subnet}: {answer:?}");
        Ok(())
    })
    .await;
}

async fn body(network: &Network, address: IpAddr) -> Result<String> {
    let url = format!("http://{}:{}/", address, network.gateway_port);
    let client = fdn_service::http_client::build(wait::PATIENCE)?;
    let response = client.get(url).header("host", HOST).send().await?;
    ensure!(response.status() == 200, "{}", response.status());
    Ok(response.text().await?)
}

/// Every node of every region answers with `text`.
async fn everywhere(network: &Network, text: &str) {
    for region in 0..REGIONS.len() {
        for address in network.gateways(region) {
            wait::until("the new version on every node", async || {
                let got = body(network, address).await?;
                ensure!(got.starts_with(text), "{address} answers {got:?}");
                Ok::<_, anyhow::Error>(())
            })
            .await;
        }
    }
}

/// Two values that a certificate authority may ask for, one after the other; the values that are there then.
async fn text_records(network: &Network, cli: &Cli) -> BTreeSet<String> {
    let mut expected = BTreeSet::new();
    for value in ["first", "second"] {
        cli.ok(["dns", "txt", "add", CHALLENGE, value, "--expires-in", "1h"]);
        expected.insert(value.to_owned());
        let begin = std::time::Instant::now();
        wait::until("the value in the answer", async || {
            let got = dns::texts(network.dns_address, CHALLENGE)?;
            ensure!(got == expected, "{got:?}");
            Ok(())
        })
        .await;
        eprintln!("a text record was answered after {:?}", begin.elapsed());
    }
    expected
}

/// The numbers of all versions, newest first.
fn versions(cli: &Cli) -> Vec<u64> {
    let detail = cli.json(["describe", "hello"]);
    let versions = detail["versions"].as_array().expect("versions");
    versions
        .iter()
        .map(|v| v["version"].as_u64().expect("a number"))
        .collect()
}

/// A deploy as soon as the controller can take it again.
async fn deploy_when_possible(network: &Network, cli: &Cli, text: &str) {
    let path = component(network, text).display().to_string();
    wait::until("a deploy to work again", async || {
        let typed = cli.run(["deploy", "hello", &path, "--wait", "--timeout", "120s"]);
        ensure!(typed.code == 0, "fdn deploy: {} {}", typed.out, typed.err);
        Ok(())
    })
    .await;
}

/// Deploys version one, and looks for it wherever a client may: in DNS, at every gateway, through the controller.
async fn version_one(network: &Network, cli: &Cli) {
    let deployed = deploy(network, cli, "one");
    assert_eq!(
        (deployed["version"].as_u64(), deployed["host"].as_str()),
        (Some(1), Some(HOST))
    );
    everywhere_at_once(network, "one").await;
    let answer = dns::ask(network.dns_address, HOST, Some(REGIONS[0].subnet), true)
        .expect("an answer over TCP");
    assert_eq!(answer.addresses, network.gateways(0));
    assert!(
        answer
            .subnet
            .is_some_and(|s| s.starts_with("192.0.2.0/24/")),
        "the scope is told"
    );
    let invoked = cli.ok(["invoke", "hello"]);
    assert!(invoked.starts_with("one"), "{invoked}");
}

/// What DNS says in its answer, a gateway in a header and the controller where it traces the call is one revision.
async fn one_revision(network: &Network, cli: &Cli) {
    let (region, place) = (0, &REGIONS[0]);
    let address = *network.gateways(region).first().expect("a gateway");
    let client = fdn_service::http_client::build(wait::PATIENCE).expect("a client");
    wait::until("one revision at DNS, gateway and controller", async || {
        let answered = dns::revision(network.dns_address, HOST, place.subnet)?;
        let url = format!("http://{}:{}/", address, network.gateway_port);
        let asking = client.get(url).header("host", HOST);
        let answer = asking.header(header::EXPLAIN, "1").send().await?;
        let said = |name: &str| {
            let value = answer.headers().get(name).and_then(|v| v.to_str().ok());
            value.map(str::to_owned)
        };
        let served: Option<u64> = said(header::REVISION).and_then(|text| text.parse().ok());
        let request = said(header::REQUEST_ID).expect("a request id");
        // The node keeps a call once it is over.
        answer.bytes().await?;
        let of = ["--app", "hello", "--client", place.subnet, "-o", "json"];
        let traced = cli.run(["trace", &request].into_iter().chain(of));
        ensure!(traced.code == 0, "{}", traced.err);
        let traced: serde_json::Value = serde_json::from_str(&traced.out)?;
        let told = |to: &str| traced["told"][to].as_u64();
        ensure!(
            answered.is_some() && answered == told("dns"),
            "DNS {answered:?}: {traced}"
        );
        ensure!(
            served.is_some() && served == told("nodes"),
            "gateway {served:?}: {traced}"
        );
        // A plan and the binding that it brought are of one revision, and DNS answers with no earlier one.
        let why = &traced["explained"];
        let (plan, bound) = (&why["plan"]["revision"], &why["bound"]["revision"]);
        ensure!(
            plan.is_u64() && plan == bound && plan.as_u64() <= answered,
            "{traced}"
        );
        eprintln!("planned {plan}, DNS {answered:?}, gateway {served:?}");
        Ok::<_, anyhow::Error>(())
    })
    .await;
}

/// DNS sends each region's clients to its own gateways, and each of them answers the first call with `text`.
async fn everywhere_at_once(network: &Network, text: &str) {
    for region in 0..REGIONS.len() {
        steered(network, region).await;
        for address in network.gateways(region) {
            let got = body(network, address).await.expect("an answer");
            assert!(got.starts_with(text), "{address} answers {got:?}");
        }
    }
}

/// The next version is deployed after a death; none is lost or doubled.
async fn next_version(network: &Network, cli: &Cli, text: &str, expected: &[u64]) {
    deploy_when_possible(network, cli, text).await;
    everywhere(network, text).await;
    assert_eq!(versions(cli), expected, "no version is lost or doubled");
}

/// Of all that listens in the centre, machines at the edge reach the listener for machines, and nothing else.
async fn only_the_edge_listener_is_reached(network: &Network) {
    let port_of = |url: &str| {
        let url = reqwest::Url::parse(url).expect("the address of a server");
        url.port().expect("a port of its own")
    };
    let reached = |port| network.is_reached_from_the_edge(port).expect("asked there");
    // A controller that answers to people may be about to listen for machines.
    wait::until("the listener for machines", async || {
        ensure!(reached(network.edge.port()), "it is not reached");
        Ok(())
    })
    .await;
    for (what, port) in [
        ("RabbitMQ", port_of(&network.rabbit.url())),
        ("PostgreSQL", port_of(&network.postgres.url())),
        ("the API", network.api().port()),
    ] {
        assert!(!reached(port), "{what} is reached from the edge");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deploy_resolve_call_and_go_on_without_the_centre() {
    let mut network = Network::start_apart(Deadlines::Long)
        .await
        .expect("the network starts");
    only_the_edge_listener_is_reached(&network).await;
    let cli = network.cli().expect("logged in");
    version_one(&network, &cli).await;
    let texts = text_records(&network, &cli).await;

    let plans = network.record_plans().expect("settings are written");
    network.kill_controller();
    network.rabbit.kill();
    everywhere_at_once(&network, "one").await;
    let kept = dns::texts(network.dns_address, CHALLENGE).expect("an answer");
    assert_eq!(kept, texts);
    // An agent that dies meanwhile serves from its own disk, and keeps what it has counted.
    network.kill_agent("ap-south-1");
    let started = network.start_agent("ap-south-1").await;
    started.expect("it starts again");
    let address = *network.gateways(2).first().expect("a gateway");
    wait::until("an answer from the disk", async || {
        let got = body(&network, address).await?;
        ensure!(got.starts_with("one"), "{got}");
        Ok::<_, anyhow::Error>(())
    })
    .await;

    let started = network.rabbit.restart().await;
    started.expect("RabbitMQ starts again");
    let started = network.start_controller().await;
    started.expect("the controller starts again");
    only_the_edge_listener_is_reached(&network).await;
    // At every node before and meanwhile, once through the controller, and once from the disk.
    let calls = 2 * REGIONS.len() * NODES + 2;
    cli.bills("hello", calls as u64).await;
    next_version(&network, &cli, "after-centre", &[2, 1]).await;
    nothing_is_left_over(&network, &cli).await;
    one_revision(&network, &cli).await;
    calls_are_recorded(&network, &cli, &plans).await;
    network.stop().expect("everything stops cleanly");
    replayed(&cli, &plans);
}

fn replay(cli: &Cli, plans: &Path, args: &[&str]) -> String {
    let plans = plans.display().to_string();
    let head = ["sim", "replay", &plans, "--policy", "nearest"];
    cli.ok(head.iter().chain(args))
}

/// Calls until the planner has planned with them, read while it records.
async fn calls_are_recorded(network: &Network, cli: &Cli, plans: &Path) {
    wait::until("calls in the records of the planner", async || {
        for region in 0..REGIONS.len() {
            for address in network.gateways(region) {
                body(network, address).await?;
            }
        }
        let replayed: serde_json::Value =
            serde_json::from_str(&replay(cli, plans, &["-o", "json"]))?;
        ensure!(replayed["costs"][0]["mean_ms"].is_number(), "{replayed}");
        Ok(())
    })
    .await;
}

/// Every pass that the planner recorded comes out as it was, to the last bit.
fn replayed(cli: &Cli, plans: &Path) {
    eprintln!("{}", replay(cli, plans, &["--policy", "round-robin"]));
    let replayed = replay(cli, plans, &["-o", "json"]);
    let replayed: serde_json::Value = serde_json::from_str(&replayed).expect("JSON");
    let count = |what: &str| replayed[what].as_u64();
    assert!(count("passes") > Some(0) && count("decisions") > Some(0));
    assert_eq!(
        (count("passes_differing"), count("damages")),
        (Some(0), Some(0))
    );
    let costs = replayed["costs"].as_array().expect("costs");
    assert_eq!(
        (&costs[0]["policy"], &costs[1]["policy"]),
        (&"decided".into(), &"nearest".into())
    );
    assert!(
        costs.iter().all(|cost| cost["mean_ms"].is_number()),
        "{costs:?}"
    );
}

/// Every node is known and nothing waits to be sent.
async fn nothing_is_left_over(network: &Network, cli: &Cli) {
    wait::until("every node", async || {
        let detail = cli.json(["describe", "hello"]);
        let nodes = detail["nodes"].as_array().map(Vec::len);
        ensure!(nodes == Some(REGIONS.len() * NODES), "{nodes:?} nodes");
        Ok(())
    })
    .await;
    wait::until("an empty outbox", async || {
        let client = fdn_service::http_client::build(wait::PATIENCE)?;
        let text = client
            .get(format!("http://{}/metrics", network.api()))
            .send()
            .await?
            .text()
            .await?;
        let depth = text
            .lines()
            .find(|l| l.starts_with("fdn_controller_outbox_depth"));
        ensure!(depth.is_some_and(|l| l.ends_with(" 0")), "{depth:?}");
        Ok::<_, anyhow::Error>(())
    })
    .await;
}

/// Outages of all that stands behind the network, and of gateways, with the deadlines of the product.
mod soak {
    use fdn_e2e::load::Load;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_death_behind_the_network_is_survived_under_load() {
        let mut network = Network::start_apart(Deadlines::Shipped)
            .await
            .expect("the network starts");
        only_the_edge_listener_is_reached(&network).await;
        let cli = network.cli().expect("logged in");
        version_one(&network, &cli).await;
        let mut before = "one".to_owned();
        let mut expected = vec![1];
        for deaths in [
            ["controller"].as_slice(),
            &["rabbit"],
            &["postgres"],
            &["controller", "rabbit", "postgres"],
        ] {
            outage(&mut network, deaths, &before).await;
            before = format!("after-{}", deaths.join("-"));
            expected.insert(0, expected.len() as u64 + 1);
            next_version(&network, &cli, &before, &expected).await;
        }
        nothing_is_left_over(&network, &cli).await;
        network.stop().expect("everything stops cleanly");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn three_subnets_three_regions_and_a_dead_gateway_leaves_the_answers() {
        let mut network = Network::start(Deadlines::Shipped)
            .await
            .expect("the network starts");
        let cli = network.cli().expect("logged in");
        deploy(&network, &cli, "here");
        let mut seen = BTreeSet::new();
        for region in 0..REGIONS.len() {
            steered(&network, region).await;
            seen.extend(network.gateways(region));
        }
        assert_eq!(
            seen.len(),
            REGIONS.len() * NODES,
            "three regions, each with its own addresses"
        );

        let texts = text_records(&network, &cli).await;

        // One node dies: the other one of its region stays.
        let [dead, left] = ["eu-west-1", "eu-west-2"];
        let one: BTreeSet<IpAddr> = network.gateways(0).into_iter().skip(1).collect();
        network.kill_agent(dead);
        let begin = std::time::Instant::now();
        answers(&network, 0, &one).await;
        eprintln!(
            "a dead gateway left the answers after {:?}",
            begin.elapsed()
        );

        // The whole region dies: its clients are sent to a living one.
        network.kill_agent(left);
        let begin = std::time::Instant::now();
        wait::until("another region in the answer", async || {
            let answer = dns::ask(network.dns_address, HOST, Some(REGIONS[0].subnet), false)?;
            ensure!(
                !answer.addresses.is_empty() && answer.addresses.is_disjoint(&network.gateways(0)),
                "{answer:?}"
            );
            Ok(())
        })
        .await;
        eprintln!("a dead region left the answers after {:?}", begin.elapsed());
        for address in dns::ask(network.dns_address, HOST, Some(REGIONS[0].subnet), false)
            .expect("an answer")
            .addresses
        {
            assert!(
                body(&network, address)
                    .await
                    .expect("an answer")
                    .starts_with("here")
            );
        }

        network.start_agent(dead).await.expect("it starts again");
        network.start_agent(left).await.expect("it starts again");
        steered(&network, 0).await;

        // DNS started again without the controller answers from its own disk.
        network.kill_controller();
        network.kill_dns();
        network.start_dns().await.expect("DNS starts again");
        steered(&network, 0).await;
        steered(&network, 2).await;
        let kept = dns::texts(network.dns_address, CHALLENGE).expect("an answer");
        assert_eq!(kept, texts, "text records too");

        // An agent started again without the controller serves from its own disk.
        network.kill_agent("ap-south-1");
        network
            .start_agent("ap-south-1")
            .await
            .expect("it starts again");
        let address = *network.gateways(2).first().expect("a gateway");
        wait::until("an answer from the disk", async || {
            let got = body(&network, address).await?;
            ensure!(got.starts_with("here"), "{got}");
            Ok::<_, anyhow::Error>(())
        })
        .await;
    }

    /// Waits until both DNS servers answer this for every region's clients: its gateways, for so many seconds, with the same scope.
    async fn alike(network: &Network, ttl: u32, texts: &BTreeSet<String>) {
        for (region, place) in REGIONS.iter().enumerate() {
            let expected = network.gateways(region);
            wait::until("both servers to answer alike", async || {
                let ask = |server| dns::ask(server, HOST, Some(place.subnet), false);
                let first = ask(network.dns_address)?;
                let second = ask(network.second_dns_address)?;
                ensure!(first == second, "{first:?} and {second:?}");
                ensure!(first.addresses == expected, "{first:?}");
                ensure!(first.ttl == Some(ttl), "{first:?}");
                Ok(())
            })
            .await;
        }
        for server in [network.dns_address, network.second_dns_address] {
            wait::until("the text records at both servers", async || {
                let got = dns::texts(server, CHALLENGE)?;
                ensure!(&got == texts, "{server}: {got:?}");
                Ok(())
            })
            .await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn two_dns_servers_answer_alike_and_one_that_was_killed_learns_what_it_missed() {
        let mut network = Network::start(Deadlines::Long)
            .await
            .expect("the network starts");
        let cli = network.cli().expect("logged in");
        version_one(&network, &cli).await;
        network.start_second_dns().await.expect("it starts");
        let mut texts = BTreeSet::new();
        alike(&network, 20, &texts).await;

        // A change reaches both.
        cli.ok(["dns", "ttl", "hello", "60s"]);
        cli.ok(["dns", "txt", "add", CHALLENGE, "first"]);
        texts.insert("first".to_owned());
        alike(&network, 60, &texts).await;

        // One is killed, and misses a change; the other one answers every question from here on.
        let subnets = REGIONS.map(|region| region.subnet);
        let (server, port) = (network.dns_address, network.gateway_port);
        let load = Load::start(server, HOST, port, &subnets, "one");
        network.kill_second_dns();
        cli.ok(["dns", "ttl", "hello", "90s"]);
        cli.ok(["dns", "txt", "add", CHALLENGE, "missed"]);
        texts.insert("missed".to_owned());
        wait::until("the change at the server that lives", async || {
            let got = dns::texts(network.dns_address, CHALLENGE)?;
            ensure!(got == texts, "{got:?}");
            let answer = dns::ask(network.dns_address, HOST, Some(REGIONS[0].subnet), false)?;
            ensure!(answer.ttl == Some(90), "{answer:?}");
            Ok(())
        })
        .await;
        network.start_second_dns().await.expect("it starts again");
        alike(&network, 90, &texts).await;
        let (calls, questions) = load.stop().await;
        eprintln!(
            "one of two servers killed: {calls} calls and {questions} questions, none failed"
        );
        network.stop().expect("everything stops cleanly");
    }

    async fn answers(network: &Network, region: usize, expected: &BTreeSet<IpAddr>) {
        let (server, subnet) = (network.dns_address, REGIONS[region].subnet);
        wait::until("the dead gateway to leave the answers", async || {
            let answer = dns::ask(server, HOST, Some(subnet), false)?;
            ensure!(&answer.addresses == expected, "{answer:?}");
            Ok(())
        })
        .await;
    }

    /// Kills `deaths`, calls and asks on, and starts them again; not one call or question may fail, and every answer is the version that
    /// was deployed before.
    async fn outage(network: &mut Network, deaths: &[&str], before: &str) {
        let subnets = REGIONS.map(|r| r.subnet);
        let load = Load::start(
            network.dns_address,
            HOST,
            network.gateway_port,
            &subnets,
            before,
        );
        for death in deaths {
            match *death {
                "controller" => network.kill_controller(),
                "rabbit" => network.rabbit.kill(),
                _ => network.postgres.kill(),
            }
        }
        let (calls, questions) = load.counts();
        // So many calls are a matter of the machine's speed, not of anything that was killed.
        wait::within(
            4 * wait::PATIENCE,
            "calls and questions without them",
            async || {
                let (now_calls, now_questions) = load.counts();
                ensure!(
                    now_calls >= calls + 200 && now_questions >= questions + 60,
                    "{now_calls} calls"
                );
                Ok(())
            },
        )
        .await;
        for death in deaths.iter().rev() {
            match *death {
                "controller" => network
                    .start_controller()
                    .await
                    .expect("the controller starts again"),
                "rabbit" => network
                    .rabbit
                    .restart()
                    .await
                    .expect("RabbitMQ starts again"),
                _ => network
                    .postgres
                    .restart()
                    .await
                    .expect("PostgreSQL starts again"),
            }
        }
        let (calls, questions) = load.stop().await;
        eprintln!("{deaths:?} killed: {calls} calls and {questions} questions, none failed");
    }
}

//! An agent as a process of its own, which can be killed.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use fdn_core::DurationMs;
use fdn_edge_agent::Settings;
use fdn_testkit::process::{Process, Program};
use fdn_testkit::{ports, wait};
use reqwest::header::HOST;
use reqwest::{Client, RequestBuilder};

use super::{Network, host};

/// The configuration of such an agent, the same at each start.
pub(crate) struct Killable {
    config: PathBuf,
    log: PathBuf,
    pub(crate) gateway: SocketAddr,
}

impl Killable {
    pub(crate) fn new(network: &Network) -> Self {
        Self::with(network, |_| {})
    }

    /// The same with changed settings.
    pub(crate) fn with(network: &Network, change: impl FnOnce(&mut Settings)) -> Self {
        let local = std::net::IpAddr::V4(Ipv4Addr::LOCALHOST);
        let gateway = SocketAddr::new(local, ports::local());
        let mut settings: Settings = network.settings("eu-west-1");
        settings.gateway.listen = gateway;
        settings.admin.listen = SocketAddr::new(local, ports::local());
        let folder = network.folder.path().join("eu-west-1");
        let known = &network.controller;
        let files = known.identity(&folder, &settings.node, &settings.cluster);
        settings.tls.ca = Some(files.ca);
        settings.tls.certificate = Some(files.certificate);
        settings.tls.key = Some(files.key);
        settings.usage.seal_after = DurationMs::from_millis(20);
        change(&mut settings);
        let config = network.folder.path().join("agent.toml");
        std::fs::write(&config, toml::to_string(&settings).expect("TOML")).expect("written");
        Self {
            config,
            log: network.folder.path().join("agent.log"),
            gateway,
        }
    }

    /// Starts the process without waiting for anything.
    pub(crate) fn spawn(&self) -> Process {
        let exe = env!("CARGO_BIN_EXE_fdn-edge-agent");
        let program = Program::new(exe, ["--config".as_ref(), self.config.as_os_str()]);
        program.start(&self.log).expect("it starts")
    }

    /// Starts the process and waits until it listens.
    pub(crate) async fn start(&self) -> Process {
        let mut process = self.spawn();
        wait::until("the agent to listen", async || {
            if let Some(status) = process.ended() {
                panic!("it ended with {status}: {}", process.log());
            }
            tokio::net::TcpStream::connect(self.gateway).await.map(drop)
        })
        .await;
        process
    }

    /// A request to an app.
    pub(crate) fn post(&self, client: &Client, app: &str) -> RequestBuilder {
        let url = format!("http://{}/", self.gateway);
        client.post(url).header(HOST, host(app))
    }

    pub(crate) async fn until_it_answers(&self, client: &Client, app: &str) {
        wait::until("the app to answer", async || {
            match self.post(client, app).send().await {
                Ok(answer) if answer.status() == 200 => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
}

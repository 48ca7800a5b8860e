//! The processes of the network: how they start, end as after a power loss, and stop.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fdn_testkit::process::{Process, Program};
use fdn_testkit::wait;

use super::Network;
use crate::binary;

impl Network {
    pub(crate) fn spawn(&self, program: &str, name: &str) -> Result<Process> {
        let config = self.path(&format!("{name}.toml"));
        let of_edge = program != "fdn-controller";
        let program = Program::new(binary(program), ["--config".as_ref(), config.as_os_str()]);
        let program = match &self.namespace {
            Some(namespace) if of_edge => namespace.inside(program),
            _ => program,
        };
        let mut program = program.env("FDN_LOG", "info");
        let clock = self.path(&format!("{name}.clock"));
        if clock.exists() {
            program = program
                .env("LD_PRELOAD", faketime()?)
                .env("FAKETIME_TIMESTAMP_FILE", clock)
                .env("FAKETIME_NO_CACHE", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        program.start(&self.path(&format!("{name}.log")))
    }

    /// Sets the clock of a process ahead, or behind if that is negative; it must be set before the process starts and can be changed while it runs.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn set_clock(&self, name: &str, ahead_s: i64) -> Result<()> {
        // Moved into its place, so that it is never read half written.
        let fresh = format!("{name}.clock.new");
        self.write(&fresh, &format!("{ahead_s:+}\n"))?;
        std::fs::rename(self.path(&fresh), self.path(&format!("{name}.clock")))?;
        Ok(())
    }

    /// Starts the controller and waits until it answers. It need not be ready: database and broker may be away.
    ///
    /// # Errors
    /// When it ends instead.
    pub async fn start_controller(&mut self) -> Result<()> {
        let mut process = self.spawn("fdn-controller", "controller")?;
        answering(&mut process, self.api).await?;
        self.controller = Some(process);
        Ok(())
    }

    /// Starts DNS and waits until it answers.
    ///
    /// # Errors
    /// When it ends instead.
    pub async fn start_dns(&mut self) -> Result<()> {
        let mut process = self.spawn("fdn-dns", "dns")?;
        answering(&mut process, self.dns_address).await?;
        self.dns = Some(process);
        Ok(())
    }

    /// Starts a second DNS server, fed by the same controller, and waits until it answers.
    ///
    /// # Errors
    /// When it ends instead.
    pub async fn start_second_dns(&mut self) -> Result<()> {
        let mut process = self.spawn("fdn-dns", "dns-2")?;
        answering(&mut process, self.second_dns_address).await?;
        self.second_dns = Some(process);
        Ok(())
    }

    /// Starts an agent and waits until its gateway answers.
    ///
    /// # Errors
    /// When it ends instead.
    pub async fn start_agent(&mut self, name: &str) -> Result<()> {
        let mut process = self.spawn("fdn-edge-agent", name)?;
        let port = self.gateway_port;
        let agent = self
            .agents
            .iter_mut()
            .find(|a| a.name == name)
            .with_context(|| format!("no agent {name}"))?;
        answering(&mut process, SocketAddr::new(agent.gateway, port)).await?;
        agent.process = Some(process);
        Ok(())
    }

    /// Kills the controller as a power loss would.
    pub fn kill_controller(&mut self) {
        self.controller = None;
    }

    /// Kills DNS as a power loss would.
    pub fn kill_dns(&mut self) {
        self.dns = None;
    }

    /// Kills the second DNS server as a power loss would.
    pub fn kill_second_dns(&mut self) {
        self.second_dns = None;
    }

    /// Kills an agent as a power loss would.
    pub fn kill_agent(&mut self, name: &str) {
        for agent in &mut self.agents {
            if agent.name == name {
                agent.process = None;
            }
        }
    }

    /// Stops an agent with SIGTERM.
    ///
    /// # Errors
    /// When it does not stop in time or ends with a failure.
    pub fn stop_agent(&mut self, name: &str) -> Result<()> {
        let agent = self.agents.iter_mut().find(|agent| agent.name == name);
        let process = agent.and_then(|agent| agent.process.take());
        let mut process = process.with_context(|| format!("{name} does not run"))?;
        let status = process.stop(Duration::from_secs(60))?;
        ensure!(status.success(), "ended with {status}: {}", process.log());
        Ok(())
    }

    /// Stops everything that runs with SIGTERM and checks that each process ends well.
    ///
    /// # Errors
    /// When a process does not stop in time or ends with a failure.
    pub fn stop(&mut self) -> Result<()> {
        let agents = self.agents.iter_mut().filter_map(|a| a.process.take());
        let processes: Vec<Process> = agents
            .chain(self.dns.take())
            .chain(self.second_dns.take())
            .chain(self.controller.take())
            .collect();
        for process in &processes {
            process.signal(rustix::process::Signal::TERM)?;
        }
        for mut process in processes {
            let status = process.stop(Duration::from_secs(60))?;
            ensure!(status.success(), "ended with {status}: {}", process.log());
        }
        Ok(())
    }
}

/// The library that shows a process another time of day.
fn faketime() -> Result<PathBuf> {
    std::fs::read_dir("/usr/lib")?
        .filter_map(|entry| Some(entry.ok()?.path().join("faketime/libfaketimeMT.so.1")))
        .find(|library| library.is_file())
        .context("libfaketime must be installed (Debian's faketime)")
}

pub(crate) async fn answering(process: &mut Process, address: SocketAddr) -> Result<()> {
    wait::until("a process to listen", async || {
        if let Some(status) = process.ended() {
            panic!("it ended with {status}: {}", process.log());
        }
        tokio::net::TcpStream::connect(address).await.map(drop)
    })
    .await;
    Ok(())
}

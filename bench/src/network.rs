//! A network of one node on the first core, or of six on all of them, run by `fdn up`.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fdn_testkit::ports;
use fdn_testkit::process::{Process, Program};
use tempfile::TempDir;

use crate::Options;

/// The gateway's address: the first node of the first region.
const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 1, 1));

pub(crate) struct Network {
    folder: TempDir,
    fdn: OsString,
    /// Whether it runs on the first core alone.
    pinned: bool,
    args: Vec<String>,
    process: Option<Process>,
    pub(crate) gateway: SocketAddr,
    pub(crate) dns: SocketAddr,
}

impl Network {
    /// Starts the network of the options' binaries, pinned to core 0.
    pub(crate) fn start(options: &Options) -> Result<Self> {
        Self::of(&options.binaries)
    }

    /// Starts the network of a folder of binaries, pinned to core 0.
    pub(crate) fn of(binaries: &Path) -> Result<Self> {
        Self::begin(
            binaries,
            true,
            &["--nodes=1", "--region=eu-west=53.35,-6.26"],
        )
    }

    /// Starts a network of the options' binaries as `fdn up` does: three regions of two nodes, on all cores.
    pub(crate) fn six(options: &Options) -> Result<Self> {
        Self::begin(&options.binaries, false, &["--nodes=2"])
    }

    fn begin(binaries: &Path, pinned: bool, shape: &[&str]) -> Result<Self> {
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (gateway, admin) = (
            ports::free(&[GATEWAY, local]),
            ports::free(&[GATEWAY, local]),
        );
        let folder = tempfile::tempdir()?;
        let args = [
            "up".to_owned(),
            format!("--data-dir={}", folder.path().join("network").display()),
            format!("--listen=127.0.0.1:{}", ports::free(&[local])),
            format!("--dns-admin=127.0.0.1:{}", ports::free(&[local])),
            "--no-docker".to_owned(),
            format!("--gateway-port={gateway}"),
            format!("--admin-port={admin}"),
        ];
        let dns = SocketAddr::new(local, ports::free(&[local]));
        let mut network = Self {
            fdn: binaries.join("fdn").into_os_string(),
            pinned,
            args: args
                .into_iter()
                .chain([format!("--dns={dns}")])
                .chain(shape.iter().map(|arg| (*arg).to_owned()))
                .collect(),
            process: None,
            gateway: SocketAddr::new(GATEWAY, gateway),
            dns,
            folder,
        };
        network.run()?;
        Ok(network)
    }

    /// Stops it and starts it again on the same data.
    pub(crate) fn restart(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.stop(Duration::from_secs(60))?;
        }
        self.run()
    }

    fn run(&mut self) -> Result<()> {
        let (program, mut args) = if self.pinned {
            let args: Vec<OsString> = vec!["-c".into(), "0".into(), self.fdn.clone()];
            (OsString::from("taskset"), args)
        } else {
            (self.fdn.clone(), Vec::new())
        };
        args.extend(self.args.iter().map(OsString::from));
        let log = self.folder.path().join("log");
        drop(std::fs::remove_file(&log));
        let mut process = home(Program::new(program, args), self.folder.path()).start(&log)?;
        let deadline = Instant::now() + Duration::from_secs(60);
        while !process.log().contains("fdn deploy") {
            ensure!(process.ended().is_none(), "fdn up ended: {}", process.log());
            ensure!(
                Instant::now() < deadline,
                "fdn up is not ready: {}",
                process.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        self.process = Some(process);
        Ok(())
    }

    /// Types a command that must succeed.
    pub(crate) fn fdn(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.fdn);
        let at = self.folder.path();
        command
            .args(args)
            .env("HOME", at)
            .env("XDG_CONFIG_HOME", at.join("config"))
            .env("XDG_DATA_HOME", at.join("data"));
        let output = command.output().context("fdn can be started")?;
        if !output.status.success() {
            bail!("fdn {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Deploys a component with a manifest.
    pub(crate) fn deploy(&self, name: &str, component: &Path, manifest: &str) -> Result<()> {
        let path = self.folder.path().join(format!("{name}.toml"));
        std::fs::write(&path, manifest)?;
        let (component, manifest) = (component.display().to_string(), path.display().to_string());
        self.fdn(&["deploy", name, &component, "--manifest", &manifest])
            .map(drop)
    }

    /// A folder for files of the benchmark.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

fn home(program: Program, at: &Path) -> Program {
    program
        .env("HOME", at)
        .env("XDG_CONFIG_HOME", at.join("config"))
        .env("XDG_DATA_HOME", at.join("data"))
        .env("FDN_LOG", "warn")
}

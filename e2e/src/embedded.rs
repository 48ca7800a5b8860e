//! `fdn up` with one node in one process, as a newcomer starts it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::ensure;
use fdn_testkit::process::{Process, Program};
use fdn_testkit::{exclusive, ports, wait};
use tempfile::TempDir;
use tokio::sync::MutexGuard;

use crate::{Cli, binary};

/// The gateway of the only node.
const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 1, 1));

/// A network of one node in one process. It waits for its turn, as it compiles on all cores.
pub struct Embedded {
    folder: TempDir,
    gateway: SocketAddr,
    _process: Process,
    /// Dropped last, when the process has ended.
    _turn: MutexGuard<'static, ()>,
}

impl Embedded {
    /// Starts it and waits until it says what to try.
    ///
    /// # Panics
    /// When it does not start; the message holds what it printed.
    pub async fn start() -> Self {
        let turn = exclusive::lock().await;
        let folder = tempfile::tempdir().expect("a folder");
        let gateway = SocketAddr::new(GATEWAY, ports::free(&[GATEWAY]));
        let args = [
            "up".to_owned(),
            format!("--data-dir={}", folder.path().join("network").display()),
            format!("--listen=127.0.0.1:{}", ports::local()),
            format!("--dns=127.0.0.1:{}", ports::local()),
            format!("--gateway-port={}", gateway.port()),
            format!("--admin-port={}", ports::free(&[GATEWAY])),
            format!("--dns-admin=127.0.0.1:{}", ports::local()),
            "--nodes=1".to_owned(),
            "--no-docker".to_owned(),
            "--region=eu-west=53.35,-6.26".to_owned(),
        ];
        let program = Program::new(binary("fdn"), args)
            .env("HOME", folder.path())
            .env("XDG_CONFIG_HOME", folder.path().join("config"))
            .env("XDG_DATA_HOME", folder.path().join("data"));
        let mut process = program
            .start(&folder.path().join("log"))
            .expect("fdn starts");
        wait::until("fdn up to be ready", async || {
            assert!(process.ended().is_none(), "it ended: {}", process.log());
            ensure!(process.log().contains("fdn deploy"), "{}", process.log());
            Ok(())
        })
        .await;
        Self {
            folder,
            gateway,
            _process: process,
            _turn: turn,
        }
    }

    /// The user for whom `fdn up` wrote the settings.
    #[must_use]
    pub fn cli(&self) -> Cli {
        Cli::new(self.folder.path())
    }

    /// The gateway's address.
    #[must_use]
    pub const fn gateway(&self) -> SocketAddr {
        self.gateway
    }

    /// A folder for a test's own files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The network's data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("network")
    }
}

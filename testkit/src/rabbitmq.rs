//! A throw-away RabbitMQ, or the one that `FDN_TEST_AMQP_URL` names.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;

use crate::folder::OwnedFolder;
use crate::process::{Process, Program, STARTS};
use crate::{names, ports};

/// The variable with the address of a server to use, such as `amqp://guest:guest@127.0.0.1:5672/%2f`.
pub const URL_VARIABLE: &str = "FDN_TEST_AMQP_URL";

/// The start script of Debian's package, without the wrapper that changes to another user.
const SCRIPT: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

/// Between two tries to start it again on the same port.
const PAUSE: Duration = Duration::from_millis(500);

/// Where to find a broker, and a name that no other test uses on it.
#[derive(Clone, Debug)]
pub struct Broker {
    /// `amqp://…`
    pub url: String,
    /// The first part of every name to be declared there.
    pub namespace: String,
}

/// A namespace of one's own on the test server of this run, or of this process.
///
/// # Panics
/// When there is no RabbitMQ: a test that needs one must fail without it.
pub async fn broker() -> Broker {
    static SERVER: OnceCell<Option<RabbitServer>> = OnceCell::const_new();
    let server = SERVER
        .get_or_init(|| async {
            if std::env::var_os(URL_VARIABLE).is_some() {
                return None;
            }
            Some(
                RabbitServer::start()
                    .await
                    .expect("RabbitMQ must be installed for this test (make test installs it)"),
            )
        })
        .await;
    let url = match server {
        Some(server) => server.url(),
        None => std::env::var(URL_VARIABLE).expect("checked above"),
    };
    Broker {
        url,
        namespace: names::unique('-'),
    }
}

/// A server of one's own, which can be killed and started again on the same data.
#[derive(Debug)]
pub struct RabbitServer {
    folder: OwnedFolder,
    port: u16,
    distribution_port: u16,
    epmd_port: u16,
    epmd: Process,
    process: Option<Process>,
}

impl RabbitServer {
    /// Starts a server on a free port of 127.0.0.1, with an Erlang port mapper of its own.
    ///
    /// # Errors
    /// When RabbitMQ is not installed or does not start; the message holds its log.
    pub async fn start() -> Result<Self> {
        ensure!(
            Path::new(SCRIPT).is_file(),
            "{SCRIPT} not found; install Debian's package rabbitmq-server"
        );
        for _ in 1..STARTS {
            let mut server = Self::prepare()?;
            match server.launch().await {
                // Each try has a folder and ports of its own: the name of the node is in its data.
                Err(_) if server.died() => {}
                outcome => return outcome.map(|()| server),
            }
        }
        let mut server = Self::prepare()?;
        server.launch().await?;
        Ok(server)
    }

    /// The port mapper and the settings; the server itself is not started yet.
    fn prepare() -> Result<Self> {
        let folder = OwnedFolder::new("fdn-rabbitmq-")?;
        let (port, distribution_port, epmd_port) = (ports::local(), ports::local(), ports::local());
        let epmd = Program::new(
            "epmd",
            ["-address", "127.0.0.1", "-port", &epmd_port.to_string()],
        )
        .start(&folder.path().join("epmd.log"))?;
        let config = format!(
            "listeners.tcp.default = 127.0.0.1:{port}\nvm_memory_high_watermark.absolute = 1GB\ndisk_free_limit.absolute = 50MB\n\
             loopback_users = none\nlog.console = true\nlog.file = false\n\
             # The log of the queues is kept in memory until it is full: a run shares this server.\nraft.wal_max_size_bytes = 64000000\n"
        );
        std::fs::write(folder.path().join("rabbitmq.conf"), config)?;
        std::fs::write(folder.path().join("enabled_plugins"), "[].\n")?;
        Ok(Self {
            folder,
            port,
            distribution_port,
            epmd_port,
            epmd,
            process: None,
        })
    }

    /// Starts the server again on the same data and port.
    ///
    /// # Errors
    /// When it does not start; the message holds its log.
    pub async fn restart(&mut self) -> Result<()> {
        for _ in 1..STARTS {
            match self.launch().await {
                // A stranger on its port may be gone in a moment.
                Err(_) if self.died() => tokio::time::sleep(PAUSE).await,
                outcome => return outcome,
            }
        }
        self.launch().await
    }

    /// Starts the process and waits until it answers.
    async fn launch(&mut self) -> Result<()> {
        ensure!(
            self.epmd.ended().is_none(),
            "epmd ended: {}",
            self.epmd.log()
        );
        let program = self.environment().into_iter().fold(
            Program::new(SCRIPT, Vec::<String>::new()),
            |program, (name, value)| program.env(name, value),
        );
        let folder = self.folder.path();
        let log = folder.join("server.log");
        let before = std::fs::read(&log).map_or(0, |bytes| bytes.len());
        let process = program.start(&log)?;
        let port = self.port;
        let listens = format!("started TCP listener on 127.0.0.1:{port}");
        let process = self.process.insert(process);
        process
            .ready(async || {
                // A server of somebody else on this port would answer as well.
                let written = std::fs::read(&log).unwrap_or_default();
                let new = String::from_utf8_lossy(written.get(before..).unwrap_or_default());
                ensure!(new.contains(&listens), "it does not listen yet");
                greet(port).await
            })
            .await
            .context("RabbitMQ does not start")
    }

    /// The variables by which RabbitMQ's own commands mean this server, and by which another one is started in its place.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let inside = |name: &str| self.folder.path().join(name).into_os_string();
        vec![
            ("HOME", self.folder.path().into()),
            (
                "RABBITMQ_NODENAME",
                format!("fdn{}@localhost", self.port).into(),
            ),
            ("RABBITMQ_CONFIG_FILE", inside("rabbitmq.conf")),
            ("RABBITMQ_CONF_ENV_FILE", inside("none.conf")),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", inside("enabled_plugins")),
            ("RABBITMQ_MNESIA_BASE", inside("mnesia")),
            ("RABBITMQ_LOG_BASE", inside("log")),
            ("RABBITMQ_GENERATED_CONFIG_DIR", inside("generated")),
            ("RABBITMQ_PID_FILE", inside("pid")),
            (
                "RABBITMQ_DIST_PORT",
                self.distribution_port.to_string().into(),
            ),
            ("ERL_EPMD_PORT", self.epmd_port.to_string().into()),
            ("ERL_EPMD_ADDRESS", "127.0.0.1".into()),
            // Two schedulers that do not spin while idle: tests share a small machine.
            (
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "+S 2:2 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}".into(),
            ),
            // Lets the script become the Erlang machine instead of waiting for it, so that the child's id is the server's.
            ("RUNNING_UNDER_SYSTEMD", "true".into()),
        ]
    }

    /// Whether the server or its port mapper, as they were started last, has ended.
    fn died(&mut self) -> bool {
        let ended = |process: &mut Process| process.ended().is_some();
        self.process.as_mut().is_some_and(ended) || ended(&mut self.epmd)
    }

    /// How the server ended, if it did so by itself.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.as_mut()?.ended()
    }

    /// Kills the server as a power loss would.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// `amqp://…`
    #[must_use]
    pub fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.port)
    }
}

impl Drop for RabbitServer {
    fn drop(&mut self) {
        if let Some(process) = &self.process {
            drop(process.signal(Signal::KILL));
        }
    }
}

/// A broker that is up answers the AMQP protocol header with `connection.start` (AMQP 0-9-1, section 2.2.4).
async fn greet(port: u16) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"AMQP\x00\x00\x09\x01").await?;
    let mut first = [0; 1];
    tokio::time::timeout(Duration::from_secs(2), stream.read_exact(&mut first))
        .await
        .context("no greeting yet")??;
    ensure!(first[0] == 1, "not an AMQP 0-9-1 method frame");
    Ok(())
}

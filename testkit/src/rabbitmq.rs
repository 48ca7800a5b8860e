//! A temporary RabbitMQ, or the one that `FDN_TEST_AMQP_URL` names.

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

/// The variable with the URL of an existing server, such as `amqp://guest:guest@127.0.0.1:5672/%2f`.
pub const URL_VARIABLE: &str = "FDN_TEST_AMQP_URL";

/// The start script of Debian's package, without the wrapper that changes the user.
const SCRIPT: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

/// The pause between attempts to restart the server on the same port.
const PAUSE: Duration = Duration::from_millis(500);

/// A broker, and a namespace that no other test uses on it.
#[derive(Clone, Debug)]
pub struct Broker {
    /// The URL: `amqp://…`
    pub url: String,
    /// The prefix of every name to be declared there.
    pub namespace: String,
}

/// A new namespace on the test server of this run, or of this process.
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

/// A separate server, which can be killed and restarted with the same data.
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
    /// Starts a server on a free port of 127.0.0.1, with its own Erlang port mapper.
    ///
    /// # Errors
    /// When RabbitMQ is not installed or does not start; the message contains its log.
    pub async fn start() -> Result<Self> {
        ensure!(
            Path::new(SCRIPT).is_file(),
            "{SCRIPT} not found; install Debian's package rabbitmq-server"
        );
        for _ in 1..STARTS {
            let mut server = Self::prepare()?;
            match server.launch().await {
                // Each attempt has its own folder and ports: the node name is stored in its data.
                Err(_) if server.died() => {}
                outcome => return outcome.map(|()| server),
            }
        }
        let mut server = Self::prepare()?;
        server.launch().await?;
        Ok(server)
    }

    /// Starts the port mapper and writes the settings, without starting the server itself.
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

    /// Restarts the server with the same data and port.
    ///
    /// # Errors
    /// When it does not start; the message contains its log.
    pub async fn restart(&mut self) -> Result<()> {
        for _ in 1..STARTS {
            match self.launch().await {
                // Another program on its port may soon be gone.
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
                // Another server on this port would answer as well.
                let written = std::fs::read(&log).unwrap_or_default();
                let new = String::from_utf8_lossy(written.get(before..).unwrap_or_default());
                ensure!(new.contains(&listens), "it does not listen yet");
                handshake(port).await
            })
            .await
            .context("RabbitMQ does not start")
    }

    /// The environment variables that direct RabbitMQ's own commands to this server, and that start another one in its place.
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
            // Two schedulers without busy waiting: tests share a small machine.
            (
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "+S 2:2 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}".into(),
            ),
            // Makes the script exec the Erlang VM instead of waiting for it, so that the child's id is the server's.
            ("RUNNING_UNDER_SYSTEMD", "true".into()),
        ]
    }

    /// Whether the server or its port mapper of the last start has ended.
    fn died(&mut self) -> bool {
        let ended = |process: &mut Process| process.ended().is_some();
        self.process.as_mut().is_some_and(ended) || ended(&mut self.epmd)
    }

    /// The exit status of the server, if it ended by itself.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.as_mut()?.ended()
    }

    /// Kills the server, like a power failure.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// The URL `amqp://…`.
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

/// A running broker answers the AMQP protocol header with `connection.start` (AMQP 0-9-1, section 2.2.4).
async fn handshake(port: u16) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"AMQP\x00\x00\x09\x01").await?;
    let mut first = [0; 1];
    tokio::time::timeout(Duration::from_secs(2), stream.read_exact(&mut first))
        .await
        .context("no greeting yet")??;
    ensure!(first[0] == 1, "not an AMQP 0-9-1 method frame");
    Ok(())
}

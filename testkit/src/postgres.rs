//! A throw-away PostgreSQL, or the one that `FDN_TEST_POSTGRES_URL` names.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use tokio::sync::OnceCell;

use crate::folder::ServerFolder;
use crate::process::{Process, Program};
use crate::{ports, wait};

/// The variable with the address of a server to use, such as `postgres://postgres@127.0.0.1:5432`.
pub const URL_VARIABLE: &str = "FDN_TEST_POSTGRES_URL";

/// A fresh, empty database.
#[derive(Clone, Debug)]
pub struct Database {
    /// `postgres://…/NAME`
    pub url: String,
}

/// Makes a fresh database on the test server of this process.
///
/// # Panics
/// When there is no PostgreSQL: a test that needs one must fail without it.
pub async fn database() -> Database {
    static SERVER: OnceCell<Option<PostgresServer>> = OnceCell::const_new();
    let server = SERVER
        .get_or_init(|| async {
            if std::env::var_os(URL_VARIABLE).is_some() {
                return None;
            }
            Some(
                PostgresServer::start()
                    .await
                    .expect("PostgreSQL must be installed for this test (make test installs it)"),
            )
        })
        .await;
    match server {
        Some(server) => server.database().expect("a database can be made"),
        None => {
            let base = std::env::var(URL_VARIABLE).expect("checked above");
            create_database(&base).expect("a database can be made on the given server")
        }
    }
}

/// A server of one's own, which can be killed and started again on the same data.
#[derive(Debug)]
pub struct PostgresServer {
    folder: ServerFolder,
    port: u16,
    process: Option<Process>,
}

impl PostgresServer {
    /// Makes a data directory and starts a server on it, on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When PostgreSQL is not installed or does not start; the message holds its log.
    pub async fn start() -> Result<Self> {
        let folder = ServerFolder::new("fdn-postgres-")?;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
        let data = folder.path().join("data");
        std::fs::create_dir(&data)?;
        if let Some(user) = unprivileged() {
            let status = Command::new("chown").arg(user).arg(&data).status()?;
            ensure!(status.success(), "chown failed");
        }
        let mut command = as_user(&find("initdb")?);
        command
            .args([
                "--auth=trust",
                "--username=postgres",
                "--encoding=UTF8",
                "--no-sync",
                "-D",
            ])
            .arg(&data);
        let output = command.output().context("running initdb")?;
        ensure!(
            output.status.success(),
            "initdb: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let mut server = Self {
            folder,
            port: ports::local(),
            process: None,
        };
        server.restart().await?;
        Ok(server)
    }

    /// Starts the server again on the same data and port.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn restart(&mut self) -> Result<()> {
        let data = self.folder.path().join("data");
        let args = [
            "-D".to_owned(),
            data.display().to_string(),
            "-p".to_owned(),
            self.port.to_string(),
            "-c".to_owned(),
            "listen_addresses=127.0.0.1".to_owned(),
            "-c".to_owned(),
            "unix_socket_directories=".to_owned(),
            "-c".to_owned(),
            "max_connections=200".to_owned(),
            "-c".to_owned(),
            "shared_buffers=32MB".to_owned(),
        ];
        let mut program = Program::new(find("postgres")?, args);
        program.user = unprivileged().map(str::to_owned);
        let mut process = program.start(&self.folder.path().join("log"))?;
        let (port, psql) = (self.port, find("psql")?);
        wait::until("PostgreSQL to answer", async || {
            ensure!(process.ended().is_none(), "it ended: {}", process.log());
            query(&psql, &server_url(port), "SELECT 1")
        })
        .await;
        self.process = Some(process);
        Ok(())
    }

    /// Kills the server as a power loss would.
    pub fn kill(&mut self) {
        // The postmaster's children notice its death and end by themselves.
        self.process = None;
        while TcpStream::connect_timeout(
            &([127, 0, 0, 1], self.port).into(),
            Duration::from_secs(1),
        )
        .is_ok()
        {
            std::thread::yield_now();
        }
    }

    /// A fresh database on it.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn database(&self) -> Result<Database> {
        create_database(&server_url(self.port))
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // SIGINT is PostgreSQL's fast shutdown: it also ends the children before the data directory is removed.
        if let Some(process) = &mut self.process
            && process.signal(Signal::INT).is_ok()
        {
            for _ in 0..500 {
                if process.ended().is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

fn server_url(port: u16) -> String {
    format!("postgres://postgres@127.0.0.1:{port}")
}

fn create_database(server: &str) -> Result<Database> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!(
        "fdn_{}_{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    );
    let server = server.trim_end_matches('/');
    query(
        &find("psql")?,
        &format!("{server}/postgres"),
        &format!("CREATE DATABASE {name}"),
    )?;
    Ok(Database {
        url: format!("{server}/{name}"),
    })
}

fn query(psql: &Path, url: &str, sql: &str) -> Result<()> {
    let url = if url
        .rsplit('/')
        .next()
        .is_some_and(|last| last.contains('@'))
    {
        format!("{url}/postgres")
    } else {
        url.to_owned()
    };
    let output = Command::new(psql)
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", &url, "-c", sql])
        .output()?;
    ensure!(
        output.status.success(),
        "psql: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// PostgreSQL refuses to run as root; Debian's package brings this user.
fn unprivileged() -> Option<&'static str> {
    rustix::process::geteuid().is_root().then_some("postgres")
}

fn as_user(exe: &Path) -> Command {
    match unprivileged() {
        Some(user) => {
            let mut command = Command::new("setpriv");
            command
                .args(["--reuid", user, "--regid", user, "--clear-groups", "--"])
                .arg(exe);
            command
        }
        None => Command::new(exe),
    }
}

/// Debian keeps the server's programs outside the search path, in a folder for each version.
fn find(program: &str) -> Result<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut candidates: Vec<PathBuf> = versions
        .map(|entry| entry.path().join("bin").join(program))
        .collect();
    candidates.sort();
    candidates.reverse();
    let path = std::env::var_os("PATH").unwrap_or_default();
    candidates.extend(std::env::split_paths(&path).map(|folder| folder.join(program)));
    candidates
        .into_iter()
        .find(|candidate| candidate.is_file())
        .with_context(|| format!("{program} not found; install Debian's package postgresql"))
}

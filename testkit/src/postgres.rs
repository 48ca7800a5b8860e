//! A temporary PostgreSQL, or the one that `FDN_TEST_POSTGRES_URL` names.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use tokio::sync::OnceCell;

use crate::folder::OwnedFolder;
use crate::process::{Process, Program, STARTS};
use crate::{names, ports};

/// The variable with the URL of an existing server, such as `postgres://postgres@127.0.0.1:5432`.
pub const URL_VARIABLE: &str = "FDN_TEST_POSTGRES_URL";

/// A new, empty database.
#[derive(Clone, Debug)]
pub struct Database {
    /// The URL: `postgres://…/NAME`
    pub url: String,
}

impl Database {
    /// Runs statements on it.
    ///
    /// # Errors
    /// The error of the database.
    pub fn execute(&self, sql: &str) -> Result<()> {
        query(&find("psql")?, &self.url, sql)
    }
}

/// The pause between attempts to restart the server on the same port.
const PAUSE: Duration = Duration::from_millis(500);

/// Creates a database on the test server of this run, or of this process. It is not dropped: it is removed with the server.
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

/// A separate server, which can be killed and restarted with the same data.
#[derive(Debug)]
pub struct PostgresServer {
    folder: OwnedFolder,
    port: u16,
    process: Option<Process>,
}

impl PostgresServer {
    /// Creates a data directory and starts a server on it, on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When PostgreSQL is not installed or does not start; the message contains its log.
    pub async fn start() -> Result<Self> {
        let folder = OwnedFolder::in_memory("fdn-postgres-")?;
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
        for _ in 1..STARTS {
            match server.launch().await {
                Err(_) if server.died() => server.port = ports::local(),
                outcome => return outcome.map(|()| server),
            }
        }
        server.launch().await?;
        Ok(server)
    }

    /// Restarts the server with the same data and port.
    ///
    /// # Errors
    /// When it does not start; the message contains its log.
    pub async fn restart(&mut self) -> Result<()> {
        for _ in 1..STARTS {
            match self.launch().await {
                // Leftovers of the previous server, or another program on its port, may soon be gone.
                Err(_) if self.died() => tokio::time::sleep(PAUSE).await,
                outcome => return outcome,
            }
        }
        self.launch().await
    }

    /// Starts the process and waits until it answers.
    async fn launch(&mut self) -> Result<()> {
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
            // Enough for all test programs of a run.
            "max_connections=500".to_owned(),
            "-c".to_owned(),
            "shared_buffers=32MB".to_owned(),
            "-c".to_owned(),
            // A run creates hundreds of databases: visiting each once a minute would start several workers per second.
            "autovacuum_naptime=10min".to_owned(),
        ];
        let mut program = Program::new(find("postgres")?, args);
        program.user = unprivileged().map(str::to_owned);
        let (url, psql) = (self.url(), find("psql")?);
        // Fails on a server with a different data directory.
        let ours = data.display().to_string().replace('\'', "''");
        let question = format!("SELECT 1 / (current_setting('data_directory') = '{ours}')::int");
        let process = program.start(&self.folder.path().join("log"))?;
        let process = self.process.insert(process);
        process
            .ready(async || query(&psql, &url, &question))
            .await
            .context("PostgreSQL does not start")
    }

    /// Whether the process of the last start has ended.
    fn died(&mut self) -> bool {
        self.process
            .as_mut()
            .is_some_and(|process| process.ended().is_some())
    }

    /// The exit status of the server, if it ended by itself.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.as_mut()?.ended()
    }

    /// Kills the server, like a power failure.
    pub fn kill(&mut self) {
        self.process = None;
        // The postmaster's children notice its death and exit by themselves, which takes some time on a busy machine. Until then they answer on
        // existing connections.
        let data = self.folder.path().join("data");
        while is_worked_in(&data) {
            std::thread::yield_now();
        }
        while TcpStream::connect_timeout(
            &([127, 0, 0, 1], self.port).into(),
            Duration::from_secs(1),
        )
        .is_ok()
        {
            std::thread::yield_now();
        }
    }

    /// Creates a new database on this server.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn database(&self) -> Result<Database> {
        create_database(&self.url())
    }

    /// The URL `postgres://…`, without a database.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}", self.port)
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

/// Whether a process has this folder as its working directory: a server's processes have their data directory.
fn is_worked_in(folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else {
        return false;
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    // This fails for zombies.
    processes
        .filter_map(|process| std::fs::read_link(process.path().join("cwd")).ok())
        .any(|working| working == folder)
}

fn create_database(server: &str) -> Result<Database> {
    let name = names::unique('_');
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

/// PostgreSQL refuses to run as root; Debian's package creates this user.
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

/// The shell command that runs one of PostgreSQL's programs as a user that it accepts.
///
/// # Errors
/// When it is not installed.
pub fn shell_command(program: &str) -> Result<String> {
    let exe = find(program)?;
    let exe = exe.display();
    Ok(match unprivileged() {
        // The signal is set last, because changing the user resets it.
        Some(user) => format!(
            "setpriv --reuid {user} --regid {user} --clear-groups --pdeathsig KILL -- {exe}"
        ),
        None => exe.to_string(),
    })
}

/// Debian keeps the server's programs outside the search path, in a folder per version.
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

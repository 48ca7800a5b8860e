//! Finds the Docker engine of this machine, if it runs: then the nodes of `fdn up` also run container images.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::environment::Environment;

/// The default socket of the engine, unless `DOCKER_HOST` is set.
const SOCKET: &str = "/var/run/docker.sock";
/// How long an engine may take to answer before the network starts without it.
const PATIENCE: Duration = Duration::from_secs(2);
/// In HTTP/1.0 the answer ends with the connection.
const PING: &[u8] = b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n";
/// An upper bound for the head of the answer to a ping, in bytes.
const ANSWER: u64 = 4096;
/// The number of `CAP_SYS_ADMIN`, which is needed to reach containers without a network (capabilities(7)).
const SYS_ADMIN: u32 = 21;

/// A running engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// The path of its socket.
    pub socket: PathBuf,
    /// Whether this process may enter containers without a network; otherwise they get a bridge network.
    pub isolates: bool,
}

/// Finds the engine that `docker` would use. One that is not reached by a socket on this machine is ignored: calls go from here directly to the
/// containers.
pub async fn find(env: &Environment) -> Option<Engine> {
    let socket = socket(env.get("DOCKER_HOST"))?;
    let answers = timeout(PATIENCE, ping(&socket)).await;
    if !matches!(answers, Ok(Ok(true))) {
        return None;
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    Some(Engine {
        socket,
        isolates: has_capability(&status, SYS_ADMIN),
    })
}

fn socket(host: Option<&str>) -> Option<PathBuf> {
    let path = match host {
        None => SOCKET,
        Some(host) => host.strip_prefix("unix://")?,
    };
    Some(PathBuf::from(path)).filter(|path| path.is_absolute())
}

/// Whether a Docker engine listens on the socket.
async fn ping(socket: &Path) -> std::io::Result<bool> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(PING).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER).read_to_end(&mut answer).await?;
    let line = answer.split(|byte| *byte == b'\r').next();
    Ok(line.is_some_and(|line| line.starts_with(b"HTTP/1.") && line.ends_with(b" 200 OK")))
}

/// Whether a process with this `/proc/PID/status` has a capability.
fn has_capability(status: &str, capability: u32) -> bool {
    let mut lines = status.lines();
    let found = lines.find_map(|line| line.strip_prefix("CapEff:"));
    let all = found.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    all.is_some_and(|all| all & (1 << capability) != 0)
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    #[test]
    fn only_sockets_of_this_machine_are_looked_at() {
        assert_eq!(socket(None), Some(PathBuf::from(SOCKET)));
        let own = socket(Some("unix:///run/user/1000/docker.sock"));
        assert_eq!(own, Some(PathBuf::from("/run/user/1000/docker.sock")));
        for elsewhere in [
            "tcp://192.0.2.1:2375",
            "ssh://me@host",
            "unix://",
            "unix://a",
        ] {
            assert_eq!(socket(Some(elsewhere)), None, "{elsewhere}");
        }
    }

    #[tokio::test]
    async fn an_engine_is_one_that_answers_a_ping() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("engine.sock");
        let host = format!("unix://{}", path.display());
        let env = Environment::of([("DOCKER_HOST", host)]);
        assert_eq!(find(&env).await, None, "nobody listens");
        let listener = UnixListener::bind(&path).expect("bound");
        let server = tokio::spawn(async move {
            for status in ["200 OK", "500 Internal Server Error"] {
                let (mut stream, _) = listener.accept().await.expect("a client");
                let mut asked = [0; PING.len()];
                stream.read_exact(&mut asked).await.expect("a question");
                assert_eq!(asked, PING);
                let answer = format!("HTTP/1.0 {status}\r\nContent-Length: 2\r\n\r\nOK");
                stream.write_all(answer.as_bytes()).await.expect("answered");
            }
        });
        assert_eq!(find(&env).await.map(|engine| engine.socket), Some(path));
        assert_eq!(find(&env).await, None, "it is ill");
        server.await.expect("no panic");
    }

    #[test]
    fn the_right_to_enter_a_network_is_read_from_the_processs_own_state() {
        assert!(has_capability(
            "Name:\tfdn\nCapEff:\t000001ffffffffff\n",
            SYS_ADMIN
        ));
        assert!(!has_capability("CapEff:\t00000000a80425fb\n", SYS_ADMIN));
        assert!(!has_capability("", SYS_ADMIN));
    }
}

//! A temporary Docker engine, or the one that `FDN_TEST_DOCKER` names, and an image to run on it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fdn_core::Digest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::OnceCell;

use crate::folder::OwnedFolder;
use crate::wait;

/// The variable with the socket of an existing engine, such as `unix:///var/run/docker.sock`.
pub const URL_VARIABLE: &str = "FDN_TEST_DOCKER";

/// The interval of polling an engine.
const POLL: Duration = Duration::from_millis(20);

/// The socket of the test engine of this run, or of this process. Other test programs may use it at the same time: tests that count containers or
/// networks must count by their own labels.
///
/// # Panics
/// When there is no Docker engine: a test that needs one must fail without it.
pub async fn socket() -> PathBuf {
    static ENGINE: OnceCell<Engine> = OnceCell::const_new();
    if let Ok(given) = std::env::var(URL_VARIABLE) {
        return PathBuf::from(given.trim_start_matches("unix://"));
    }
    let engine = ENGINE.get_or_init(|| async {
        Engine::start().await.expect(
            "dockerd must be installed and run as root for this test (make test installs it)",
        )
    });
    engine.await.socket.clone()
}

/// A Docker engine with its own data, state and socket, which does not touch the machine's addresses, bridges or packet filters.
///
/// It runs under a small shell that waits for the end of this process, however that happens, then removes containers and networks,
/// stops the engine by its process id and removes the folder. Killing the engine together with this process, as is done with other servers,
/// would leave containers and bridges behind forever.
#[derive(Debug)]
pub struct Engine {
    socket: PathBuf,
    /// The kernel closes its standard input when this process ends.
    _keeper: Child,
}

const KEEPER: &str = r#"
folder=$1
dockerd --data-root "$folder/data" --exec-root "$folder/exec" --pidfile "$folder/pid" --host "unix://$folder/docker.sock" \
  --bridge none --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false --userland-proxy=false \
  --shutdown-timeout 1 --log-level warn >"$folder/log" 2>&1 </dev/null &
engine=$!
echo "$engine" >"$folder/engine"
read -r _
ask() { curl --silent --unix-socket "$folder/docker.sock" "$@"; }
for id in $(ask "http://docker/containers/json?all=1" | grep -o '"Id":"[0-9a-f]*"' | cut -d '"' -f 4); do
  ask -X DELETE "http://docker/containers/$id?force=1&v=1"
done
ask -X POST http://docker/networks/prune
kill -TERM "$engine" 2>/dev/null
wait "$engine"
umount "$folder"/exec/netns/* 2>/dev/null
rm -rf "$folder" "$2"
"#;

impl Engine {
    /// Starts an engine.
    ///
    /// # Errors
    /// When dockerd is not installed, may not run or does not start; the message contains its log.
    pub async fn start() -> Result<Self> {
        let installed = ["/usr/sbin/dockerd", "/usr/bin/dockerd"];
        ensure!(
            installed.iter().any(|path| Path::new(path).is_file()),
            "dockerd not found; install Debian's package docker.io"
        );
        ensure!(
            rustix::process::geteuid().is_root(),
            "dockerd runs only as root"
        );
        // Short, because the path of a Unix socket has at most 107 bytes.
        let folder = tempfile::Builder::new()
            .prefix("fdn-docker-")
            .tempdir()?
            .keep();
        let keeper = Command::new("setsid")
            .args(["sh", "-c", KEEPER, "keeper"])
            .arg(&folder)
            .arg(scratch())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting dockerd's keeper")?;
        let engine = Self {
            socket: folder.join("docker.sock"),
            _keeper: keeper,
        };
        let log = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        let deadline = Instant::now() + wait::PATIENCE;
        while let Err(reason) = ping(&engine.socket).await {
            if ended(&folder) {
                bail!("dockerd ended before it answered; its log:\n{}", log());
            }
            ensure!(
                Instant::now() < deadline,
                "dockerd did not answer within {:?}: {reason:#}; its log:\n{}",
                wait::PATIENCE,
                log()
            );
            tokio::time::sleep(POLL).await;
        }
        Ok(engine)
    }
}

/// Whether the engine in this folder has ended. Its keeper reaps it only at the end, so until then it stays a zombie.
fn ended(folder: &Path) -> bool {
    let read = || {
        let id = std::fs::read_to_string(folder.join("engine")).ok()?;
        std::fs::read_to_string(format!("/proc/{}/stat", id.trim())).ok()
    };
    // The state is the word after the name, which is in parentheses and may contain anything.
    read().is_some_and(|stat| {
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.trim_start().starts_with('Z'))
    })
}

async fn ping(socket: &Path) -> Result<()> {
    get(socket, "/_ping").await.map(drop)
}

/// The response of an engine to a GET request.
async fn get(socket: &Path, path: &str) -> Result<String> {
    let mut stream = UnixStream::connect(socket).await?;
    // In HTTP/1.0 the answer ends with the connection.
    let request = format!("GET {path} HTTP/1.0\r\nHost: docker\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    ensure!(answer.contains("200 OK"), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").context("an answer")?;
    Ok(body.to_owned())
}

/// The ids of an engine's containers with this label, including stopped ones.
///
/// # Errors
/// When the engine does not answer.
pub async fn containers(socket: &Path, label: &str) -> Result<Vec<String>> {
    let filters = serde_json::json!({ "label": [label] }).to_string();
    let filters = urlencoded(&filters);
    let body = get(socket, &format!("/containers/json?all=1&filters={filters}")).await?;
    let listed: Vec<serde_json::Value> = serde_json::from_str(&body)?;
    let ids = listed.iter().filter_map(|one| one["Id"].as_str());
    Ok(ids.map(str::to_owned).collect())
}

/// Percent-encodes every byte that is not a letter or digit (RFC 3986, section 2.1).
fn urlencoded(text: &str) -> String {
    let escape = |byte: u8| {
        if byte.is_ascii_alphanumeric() {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(escape).collect()
}

/// The static executable of `testkit/probe`, compiled once per process.
///
/// # Panics
/// When `rustc` cannot compile it.
pub fn probe() -> &'static Path {
    static PROBE: OnceLock<PathBuf> = OnceLock::new();
    PROBE.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/probe/main.rs");
        let target = scratch().join("probe");
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let mut command = Command::new(rustc);
        command
            .args(["--edition", "2024", "-O", "-C", "strip=symbols"])
            .args(["-C", "target-feature=+crt-static", "-o"])
            .arg(&target)
            .arg(source);
        run(&mut command).expect("rustc compiles the probe");
        target
    })
}

/// This process's folder for images; removed with its engine, or when the next such folder is created.
fn scratch() -> &'static Path {
    static FOLDER: OnceLock<OwnedFolder> = OnceLock::new();
    FOLDER
        .get_or_init(|| OwnedFolder::new("fdn-images-").expect("a folder for temporary files"))
        .path()
}

/// An image archive in the format of `docker save`, with only the probe in it. `note` is put into its configuration, so that different
/// notes result in different images. The names inside are deliberately foreign.
///
/// # Panics
/// When `tar` or `rustc` fails.
#[must_use]
pub fn saved_image(note: &str) -> PathBuf {
    saved_image_for(note, architecture())
}

/// Like [`saved_image`], for another processor architecture, named as in the OCI image specification and Go.
///
/// # Panics
/// When `tar` or `rustc` fails.
#[must_use]
pub fn saved_image_for(note: &str, architecture: &str) -> PathBuf {
    let (folder, config, layer) = parts(note, architecture);
    let manifest = serde_json::json!([{
        "Config": "config.json", "RepoTags": ["stranger/app:latest"], "Layers": ["layer.tar"]
    }]);
    write(&folder.join("config.json"), &config);
    write(&folder.join("layer.tar"), &layer);
    write(
        &folder.join("manifest.json"),
        manifest.to_string().as_bytes(),
    );
    pack(&folder, &["config.json", "layer.tar", "manifest.json"])
}

/// Like [`saved_image`], as an OCI image layout.
///
/// # Panics
/// When `tar` or `rustc` fails.
#[must_use]
pub fn oci_image(note: &str) -> PathBuf {
    let (folder, config, layer) = parts(note, architecture());
    let blobs = folder.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).expect("a folder for blobs");
    let blob = |kind: &str, bytes: &[u8]| {
        let digest = Digest::of(bytes);
        write(&blobs.join(digest.hex()), bytes);
        serde_json::json!({
            "mediaType": format!("application/vnd.oci.image.{kind}"),
            "digest": digest.to_string(), "size": bytes.len()
        })
    };
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob("config.v1+json", &config),
        "layers": [blob("layer.v1.tar", &layer)]
    });
    let manifest = blob("manifest.v1+json", manifest.to_string().as_bytes());
    let index = serde_json::json!({ "schemaVersion": 2, "manifests": [manifest] });
    write(&folder.join("index.json"), index.to_string().as_bytes());
    write(
        &folder.join("oci-layout"),
        b"{\"imageLayoutVersion\":\"1.0.0\"}",
    );
    pack(&folder, &["blobs", "index.json", "oci-layout"])
}

/// A new folder, the image's configuration, and its only layer.
fn parts(note: &str, architecture: &str) -> (PathBuf, Vec<u8>, Vec<u8>) {
    let folder = tempfile::tempdir_in(scratch())
        .expect("a folder for temporary files")
        .keep();
    let root = folder.join("root");
    std::fs::create_dir(&root).expect("a fresh folder");
    std::fs::copy(probe(), root.join("probe")).expect("the probe was compiled");
    let layer = folder.join("root.tar");
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "-cf"])
        .arg(&layer)
        .arg("-C")
        .arg(&root)
        .arg("probe");
    run(&mut tar).expect("tar packs the layer");
    let layer = std::fs::read(&layer).expect("tar wrote it");
    let config = serde_json::json!({
        "architecture": architecture,
        "os": "linux",
        "config": { "Entrypoint": ["/probe"], "Labels": { "note": note }, "Volumes": { "/data": {} } },
        "rootfs": { "type": "layers", "diff_ids": [Digest::of(&layer).to_string()] }
    });
    (folder, config.to_string().into_bytes(), layer)
}

/// The processor architecture of this machine.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("a file in a temporary folder");
}

fn pack(folder: &Path, names: &[&str]) -> PathBuf {
    let archive = folder.join("image.tar");
    let mut tar = Command::new("tar");
    tar.arg("-cf")
        .arg(&archive)
        .arg("-C")
        .arg(folder)
        .args(names);
    run(&mut tar).expect("tar packs the image");
    archive
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().context("it cannot be run")?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

//! A registry of container images on loopback, following the OCI Distribution Specification 1.1 (sections "Pulling manifests" and
//! "Pulling blobs"). Docker engines talk to registries on loopback without TLS.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fdn_core::Digest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// The largest head of a request in bytes.
const HEAD: usize = 16 << 10;

/// A registry with one image; stops on drop.
#[derive(Debug)]
pub struct Registry {
    address: SocketAddr,
    manifest: Digest,
    state: Arc<State>,
    task: AbortHandle,
}

#[derive(Debug)]
struct State {
    /// The folder of the blobs, named by the hexadecimal digits of their digests.
    blobs: PathBuf,
    manifest: Digest,
    /// The required `Authorization` header.
    authorization: Option<String>,
    /// Whether the content of blobs differs from their digests.
    tampered: bool,
    requests: AtomicUsize,
}

/// The behaviour of a registry.
#[derive(Clone, Copy, Debug, Default)]
pub struct Behaviour<'a> {
    /// Only this name and password may pull.
    pub credentials: Option<(&'a str, &'a str)>,
    /// Every blob and manifest is served with an additional byte.
    pub tampered: bool,
}

impl Registry {
    /// Serves the image of an archive created by [`crate::docker::oci_image`].
    ///
    /// # Panics
    /// When the folder of the archive no longer exists, or no port is free.
    pub async fn start(archive: &Path, behaviour: Behaviour<'_>) -> Self {
        Self::listen(archive, behaviour)
            .await
            .expect("a registry on loopback")
    }

    async fn listen(archive: &Path, behaviour: Behaviour<'_>) -> Result<Self> {
        let folder = archive.parent().context("an archive lies in a folder")?;
        let index = std::fs::read(folder.join("index.json"))?;
        let index: serde_json::Value = serde_json::from_slice(&index)?;
        let manifest = &index["manifests"][0]["digest"];
        let manifest: Digest = manifest.as_str().context("a digest")?.parse()?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let authorization = behaviour.credentials.map(|(name, password)| {
            let pair = STANDARD.encode(format!("{name}:{password}"));
            format!("Basic {pair}")
        });
        let state = Arc::new(State {
            blobs: folder.join("blobs/sha256"),
            manifest,
            authorization,
            tampered: behaviour.tampered,
            requests: AtomicUsize::new(0),
        });
        let serving = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&serving);
                // A broken connection of a client does not matter.
                tokio::spawn(async move { drop(state.serve(stream).await) });
            }
        });
        Ok(Self {
            address,
            manifest,
            state,
            task: task.abort_handle(),
        })
    }

    /// The name of the repository, as used in image references.
    #[must_use]
    pub fn repository(&self) -> String {
        format!("{}/probe/app", self.address)
    }

    /// The digest of the image's manifest.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.manifest
    }

    /// The number of received requests.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.state.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl State {
    async fn serve(&self, mut stream: TcpStream) -> Result<()> {
        let head = head(&mut stream).await?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut words = head.lines().next().unwrap_or_default().split(' ');
        let method = words.next().unwrap_or_default();
        let path = words.next().unwrap_or_default();
        let (status, headers, body) = self.answer(&head, path);
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nDocker-Distribution-Api-Version: registry/2.0\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        if method != "HEAD" {
            stream.write_all(&body).await?;
        }
        stream.shutdown().await?;
        Ok(())
    }

    fn answer(&self, head: &str, path: &str) -> (&'static str, String, Vec<u8>) {
        let is_let_in = self.authorization.as_ref().is_none_or(|wanted| {
            let mut headers = head.lines().filter_map(|line| line.split_once(": "));
            headers
                .any(|(name, value)| name.eq_ignore_ascii_case("authorization") && value == wanted)
        });
        if !is_let_in {
            let ask = "WWW-Authenticate: Basic realm=\"images\"\r\n".to_owned();
            let body =
                br#"{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}"#;
            return ("401 Unauthorized", ask, body.to_vec());
        }
        if path == "/v2/" {
            return ("200 OK", String::new(), b"{}".to_vec());
        }
        let digest = path.rsplit('/').next().unwrap_or_default();
        let found = digest.parse::<Digest>().ok().and_then(|digest| {
            let bytes = std::fs::read(self.blobs.join(digest.hex())).ok()?;
            Some((digest, bytes))
        });
        let Some((digest, mut bytes)) = found else {
            let body = br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
            return ("404 Not Found", String::new(), body.to_vec());
        };
        if self.tampered {
            bytes.push(b' ');
        }
        let kind = if digest == self.manifest {
            "application/vnd.oci.image.manifest.v1+json"
        } else {
            "application/octet-stream"
        };
        let headers = format!("Content-Type: {kind}\r\nDocker-Content-Digest: {digest}\r\n");
        ("200 OK", headers, bytes)
    }
}

/// Reads the head of a request; no supported request has a body.
async fn head(stream: &mut TcpStream) -> Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < HEAD, "too long");
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8(head)?)
}

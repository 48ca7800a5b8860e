//! Machine code that the controller compiled when the component was uploaded: used in place of compiling here, if an authority that this node
//! trusts has signed it.
//!
//! `GET /edge/v1/compiled/{digest}/{engine}`, over the node's connection to a controller, returns a head on one line followed by the code
//! ([`fdn_core::compiled`]). Code is loaded only if its head is signed and names the requested component and engine, and the code has the signed
//! digest. If anything goes wrong, the component is compiled here.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fdn_core::compiled::{CompiledHead, HEAD_MAX};
use fdn_core::digest::DigestBuilder;
use fdn_core::{ByteSize, Digest};
use fdn_link::{Body, LinkError, SharedControllerLink};
use fdn_runtime::Incoming;
use fdn_service::pki::PublicKey;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use crate::fleet::Fleet;

/// The source of machine code.
#[derive(Clone)]
pub struct CompiledSource {
    /// The controllers.
    pub centre: SharedControllerLink,
    /// The longest time without data.
    pub silence: Duration,
    /// The fleet, with the authorities that this node trusts.
    pub fleet: Arc<Fleet>,
    /// The largest machine code that is accepted.
    pub limit: ByteSize,
    /// The time limit of a download: compiling would take about as long.
    pub timeout: Duration,
}

/// Why no machine code was taken from the controller.
#[derive(Debug, thiserror::Error)]
pub enum CompiledFetchError {
    /// There is none for this engine.
    #[error("the controller has none for this engine")]
    Absent,
    /// It could not be downloaded.
    #[error("{0}")]
    Fetch(String),
    /// The controller could not be reached.
    #[error(transparent)]
    Centre(#[from] LinkError),
    /// It is not what was requested, or no authority that this node trusts has signed it.
    #[error("{0}")]
    Distrusted(&'static str),
    /// It is larger than the limit.
    #[error("it has {0} bytes, more than cache.artifact_limit")]
    TooLarge(u64),
    /// The file could not be created.
    #[error(transparent)]
    File(#[from] fdn_runtime::CompileError),
    /// The file could not be written.
    #[error("it cannot be written")]
    Disk(#[source] std::io::Error),
}

impl CompiledSource {
    /// Downloads the machine code of a component for `engine` to `to` and checks it. Returns its size in bytes.
    ///
    /// # Errors
    /// For any reason; nothing is left on disk then.
    pub async fn take(
        &self,
        component: Digest,
        engine: &str,
        to: &Path,
    ) -> Result<u64, CompiledFetchError> {
        let taking = self.take_now(component, engine, to);
        let late = |_| CompiledFetchError::Fetch(format!("it took longer than {:?}", self.timeout));
        tokio::time::timeout(self.timeout, taking)
            .await
            .map_err(late)?
    }

    async fn take_now(
        &self,
        component: Digest,
        engine: &str,
        to: &Path,
    ) -> Result<u64, CompiledFetchError> {
        let request = Request::get(format!("/edge/v1/compiled/{component}/{engine}"));
        let request = request.body(Bytes::new());
        let request = request.map_err(|error| LinkError::InvalidAnswer(error.to_string()))?;
        let response = self.centre.send(request).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Err(CompiledFetchError::Absent),
            status => {
                return Err(CompiledFetchError::Fetch(format!(
                    "it answered status {status}"
                )));
            }
        }
        let mut body = response.into_body();
        let (head, first) = self.read_head(&mut body).await?;
        self.check(&head, component, engine)?;
        let output = to.to_owned();
        let incoming = blocking(move || Incoming::create(&output)).await??;
        let mut code = Code::new(&incoming, head.size)?;
        code.write(&first).await?;
        while let Some(piece) = self.next_piece(&mut body).await? {
            code.write(&piece).await?;
        }
        code.finish(&head.code).await?;
        incoming.store(&head.code, engine).await?;
        Ok(head.size)
    }

    fn check(
        &self,
        head: &CompiledHead,
        component: Digest,
        engine: &str,
    ) -> Result<(), CompiledFetchError> {
        if head.component != component || head.engine.as_str() != engine {
            return Err(CompiledFetchError::Distrusted(
                "it is of another component or engine than was asked for",
            ));
        }
        if head.size > self.limit.as_bytes() {
            return Err(CompiledFetchError::TooLarge(head.size));
        }
        let (text, now) = (head.text(), fdn_service::now());
        let view = self.fleet.view();
        let mut known = view
            .authorities()
            .iter()
            .filter_map(|pem| PublicKey::of_authority(pem, now).ok());
        if known.any(|key| key.verifies(&text, &head.signature)) {
            Ok(())
        } else {
            Err(CompiledFetchError::Distrusted(
                "no authority that this node trusts has signed it",
            ))
        }
    }

    /// The next bytes of the body; `None` at its end.
    async fn next_piece(&self, body: &mut Body) -> Result<Option<Bytes>, CompiledFetchError> {
        let broken = CompiledFetchError::Fetch;
        loop {
            let next = tokio::time::timeout(self.silence, body.frame()).await;
            let next = next.map_err(|_| broken(format!("nothing came for {:?}", self.silence)))?;
            let Some(frame) = next else { return Ok(None) };
            let frame = frame.map_err(|error| broken(error.to_string()))?;
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
    }

    /// Reads the head; returns it and the bytes that came after it.
    async fn read_head(
        &self,
        body: &mut Body,
    ) -> Result<(CompiledHead, Vec<u8>), CompiledFetchError> {
        let no_head = || CompiledFetchError::Distrusted("it does not say what it is");
        let mut read = Vec::new();
        loop {
            if let Some(end) = read.iter().take(HEAD_MAX).position(|byte| *byte == b'\n') {
                let head = serde_json::from_slice(&read[..end]).map_err(|_| no_head())?;
                return Ok((head, read.split_off(end + 1)));
            }
            if read.len() >= HEAD_MAX {
                return Err(no_head());
            }
            match self.next_piece(body).await? {
                Some(piece) => read.extend_from_slice(&piece),
                None => return Err(no_head()),
            }
        }
    }
}

/// Machine code that is being written to a file.
struct Code {
    file: File,
    left: u64,
    hash: DigestBuilder,
}

impl Code {
    fn new(incoming: &Incoming, size: u64) -> Result<Self, CompiledFetchError> {
        Ok(Self {
            file: File::from_std(incoming.file()?),
            left: size,
            hash: DigestBuilder::default(),
        })
    }

    async fn write(&mut self, piece: &[u8]) -> Result<(), CompiledFetchError> {
        let more = CompiledFetchError::Distrusted("it is longer than it says");
        self.left = self.left.checked_sub(piece.len() as u64).ok_or(more)?;
        self.hash.update(piece);
        self.file
            .write_all(piece)
            .await
            .map_err(CompiledFetchError::Disk)
    }

    async fn finish(mut self, digest: &Digest) -> Result<(), CompiledFetchError> {
        if self.left > 0 || self.hash.finish() != *digest {
            return Err(CompiledFetchError::Distrusted(
                "its bytes are not those that were signed",
            ));
        }
        self.file.flush().await.map_err(CompiledFetchError::Disk)
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CompiledFetchError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| CompiledFetchError::Fetch(error.to_string()))
}

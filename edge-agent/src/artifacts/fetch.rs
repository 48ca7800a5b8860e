//! Downloads an artifact from the controller: resumed after interruptions, and verified before it is kept.
//!
//! `GET /edge/v1/artifacts/{digest}`, over the node's connection to a controller, with a `Range` (RFC 9110, section 14) once part of it is here.
//! Artifacts never change, so a range needs no validator. The bytes are hashed as they arrive; only a file with the right digest gets its final
//! name.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use fdn_core::Digest;
use fdn_core::digest::DigestBuilder;
use fdn_link::{Body, LinkError, SharedControllerLink};
use http::header::{CONTENT_RANGE, RANGE};
use http::response::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tracing::debug;

use crate::error::PrepareError;

/// The pause before the first resumption; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Downloads artifacts.
#[derive(Clone)]
pub struct Fetcher {
    /// The controllers.
    pub centre: SharedControllerLink,
    /// The longest time without data.
    pub silence: Duration,
    /// The maximum number of attempts.
    pub attempts: u32,
}

/// A file that is being downloaded.
struct Partial {
    digest: Digest,
    size: u64,
    path: PathBuf,
    file: File,
    length: u64,
    hash: DigestBuilder,
}

/// Deletes a partial file when dropped, however the download ends: it may be aborted. The file is useless to the next download, which hashes
/// from the start. A complete file has another name by then.
struct Leftover(PathBuf);

impl Drop for Leftover {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

/// How an attempt failed.
enum Failure {
    /// Another attempt may resume it.
    Again(PrepareError),
    /// An immediate attempt would fail in the same way.
    GiveUp(PrepareError),
}

impl Partial {
    /// Not on another thread: there it would still be created after the download was aborted, and stay.
    fn create(digest: Digest, size: u64, path: PathBuf) -> Result<Self, PrepareError> {
        let file = std::fs::File::create(&path).map_err(|source| PrepareError::Disk {
            path: path.clone(),
            source,
        })?;
        Ok(Self {
            digest,
            size,
            path,
            file: File::from_std(file),
            length: 0,
            hash: DigestBuilder::default(),
        })
    }

    fn disk(&self, source: std::io::Error) -> PrepareError {
        PrepareError::Disk {
            path: self.path.clone(),
            source,
        }
    }

    fn corrupt(&self, reason: impl Into<String>) -> PrepareError {
        PrepareError::Corrupt {
            digest: self.digest,
            reason: reason.into(),
        }
    }

    fn restart(&mut self) -> Result<(), PrepareError> {
        *self = Self::create(self.digest, self.size, self.path.clone())?;
        Ok(())
    }

    async fn append(&mut self, bytes: &[u8]) -> Result<(), PrepareError> {
        let length = self.length + bytes.len() as u64;
        if length > self.size {
            return Err(self.corrupt(format!("more than its {} bytes came", self.size)));
        }
        self.file
            .write_all(bytes)
            .await
            .map_err(|error| self.disk(error))?;
        self.hash.update(bytes);
        self.length = length;
        Ok(())
    }

    /// Verifies the complete file and gives it its final name: as the last thing and not on another thread, so that whoever aborts the download
    /// finds either no such file or one that the caller has been told of.
    async fn finish(&mut self, to: &Path) -> Result<(), PrepareError> {
        let found = std::mem::take(&mut self.hash).finish();
        if found != self.digest {
            return Err(self.corrupt(format!("their digest is {found}")));
        }
        let synced = async {
            self.file.flush().await?;
            self.file.sync_all().await?;
            std::fs::rename(&self.path, to)
        };
        synced.await.map_err(|error| self.disk(error))
    }
}

impl Fetcher {
    /// Downloads the artifact to `to`, by way of a temporary file in the same folder.
    ///
    /// # Errors
    /// When the controller refuses or sends something else, or the disk fails.
    pub async fn fetch(&self, digest: Digest, size: u64, to: &Path) -> Result<(), PrepareError> {
        let leftover = Leftover(to.with_extension("part"));
        let mut partial = Partial::create(digest, size, leftover.0.clone())?;
        self.attempts(&mut partial, to).await
    }

    async fn attempts(&self, partial: &mut Partial, to: &Path) -> Result<(), PrepareError> {
        let mut pause = FIRST_PAUSE;
        let mut attempt = 1;
        loop {
            let error = match self.attempt(partial).await {
                Ok(()) => match partial.finish(to).await {
                    Err(error @ PrepareError::Corrupt { .. }) => error,
                    done => return done,
                },
                Err(Failure::GiveUp(error)) => return Err(error),
                Err(Failure::Again(error)) => error,
            };
            if attempt >= self.attempts {
                return Err(error);
            }
            if matches!(error, PrepareError::Corrupt { .. }) {
                partial.restart()?;
            }
            debug!(%error, attempt, "a fetch is tried again");
            tokio::time::sleep(pause).await;
            pause *= 2;
            attempt += 1;
        }
    }

    async fn attempt(&self, partial: &mut Partial) -> Result<(), Failure> {
        let digest = partial.digest;
        let broken = |reason: String| Failure::Again(PrepareError::Fetch { digest, reason });
        let answer = self.request(partial).await;
        let answer = answer.map_err(|error| broken(error.to_string()))?;
        let (head, mut body) = answer.into_parts();
        check_head(&head, partial)?;
        loop {
            let next = tokio::time::timeout(self.silence, body.frame()).await;
            let next = next.map_err(|_| broken(format!("nothing came for {:?}", self.silence)))?;
            let Some(frame) = next else { break };
            let frame = frame.map_err(|error| broken(error.to_string()))?;
            let Ok(bytes) = frame.into_data() else {
                continue;
            };
            partial.append(&bytes).await.map_err(|error| match error {
                PrepareError::Disk { .. } => Failure::GiveUp(error),
                error => Failure::Again(error),
            })?;
        }
        if partial.length < partial.size {
            return Err(broken(format!(
                "it ended after {} of {} bytes",
                partial.length, partial.size
            )));
        }
        Ok(())
    }

    async fn request(&self, partial: &Partial) -> Result<Response<Body>, LinkError> {
        let mut request = Request::get(format!("/edge/v1/artifacts/{}", partial.digest));
        if partial.length > 0 {
            request = request.header(RANGE, format!("bytes={}-", partial.length));
        }
        let request = request.body(Bytes::new());
        let request = request.map_err(|error| LinkError::InvalidAnswer(error.to_string()))?;
        self.centre.send(request).await
    }
}

/// Checks that the response continues the partial file.
fn check_head(head: &Parts, partial: &mut Partial) -> Result<(), Failure> {
    match head.status {
        StatusCode::PARTIAL_CONTENT => {
            let expected = format!("bytes {}-", partial.length);
            let range = head.headers.get(CONTENT_RANGE);
            if range.is_some_and(|range| range.as_bytes().starts_with(expected.as_bytes())) {
                return Ok(());
            }
            Err(Failure::Again(
                partial.corrupt("another range came than asked for"),
            ))
        }
        // The server does not support ranges and sends the whole artifact.
        StatusCode::OK if partial.length > 0 => partial.restart().map_err(Failure::GiveUp),
        StatusCode::OK => Ok(()),
        status => {
            let error = PrepareError::Answer {
                digest: partial.digest,
                status: status.as_u16(),
            };
            if status.is_server_error() {
                Err(Failure::Again(error))
            } else {
                Err(Failure::GiveUp(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use fdn_link::ControllerLink;
    use futures::StreamExt as _;
    use http_body::Frame;
    use http_body_util::{BodyExt as _, Full, StreamBody};
    use tokio::sync::mpsc;

    use super::*;

    /// Sends the first byte of an artifact and says so; nothing more comes.
    struct Stuck(mpsc::UnboundedSender<()>);

    #[async_trait]
    impl ControllerLink for Stuck {
        async fn send(&self, _request: Request<Bytes>) -> Result<Response<Body>, LinkError> {
            type Piece = Result<Frame<Bytes>, Box<dyn std::error::Error + Send + Sync>>;
            let first: Piece = Ok(Frame::data(Bytes::from_static(b"x")));
            let first = futures::stream::iter([first]);
            let sent = self.0.clone();
            let rest = futures::stream::poll_fn(move |_| {
                // The receiver is gone once the test has seen enough.
                let _ = sent.send(());
                std::task::Poll::Pending
            });
            Ok(Response::new(
                StreamBody::new(first.chain(rest)).boxed_unsync(),
            ))
        }
    }

    /// Sends a whole artifact.
    struct Whole(&'static [u8]);

    #[async_trait]
    impl ControllerLink for Whole {
        async fn send(&self, _request: Request<Bytes>) -> Result<Response<Body>, LinkError> {
            let body = Full::new(Bytes::from_static(self.0));
            let body = body.map_err(|never| match never {}).boxed_unsync();
            Ok(Response::new(body))
        }
    }

    #[test]
    fn wherever_a_download_is_aborted_it_leaves_nothing_on_disk() {
        // With one thread for the disk, what waits for it is done in order.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(1)
            .build()
            .expect("a runtime");
        let fetcher = Fetcher {
            centre: Arc::new(Whole(b"xy")),
            silence: Duration::from_secs(3600),
            attempts: 1,
        };
        let done_after = async |polls: usize| {
            let folder = tempfile::tempdir().expect("a folder");
            let (digest, to) = (Digest::of(b"xy"), folder.path().join("x.wasm"));
            let disk = async || {
                let done = tokio::task::spawn_blocking(|| ()).await;
                done.expect("it does nothing");
            };
            let mut fetching = Box::pin(fetcher.fetch(digest, 2, &to));
            let mut done = false;
            for poll in 0..polls {
                if poll > 0 {
                    disk().await;
                }
                done = futures::poll!(fetching.as_mut()).is_ready();
                if done {
                    break;
                }
            }
            drop(fetching);
            disk().await;
            let files = std::fs::read_dir(folder.path()).expect("a folder").count();
            assert_eq!(files, usize::from(done), "aborted after {polls} polls");
            done
        };
        runtime.block_on(async {
            let mut polls = 1;
            while !done_after(polls).await {
                polls += 1;
            }
        });
    }

    #[tokio::test]
    async fn an_aborted_download_leaves_nothing_on_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        let (sent, mut arrived) = mpsc::unbounded_channel();
        let fetcher = Fetcher {
            centre: Arc::new(Stuck(sent)),
            silence: Duration::from_secs(3600),
            attempts: 1,
        };
        let (digest, to) = (Digest::of(b"xy"), folder.path().join("x.wasm"));
        let fetching = tokio::spawn(async move { fetcher.fetch(digest, 2, &to).await });
        arrived.recv().await.expect("the download hangs");
        let files = || std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(files(), 1);
        fetching.abort();
        assert!(fetching.await.is_err(), "it was aborted");
        assert_eq!(files(), 0);
    }
}

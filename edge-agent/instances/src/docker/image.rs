//! Images on this node's engine: pulled by digest, or loaded from an uploaded archive.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bollard::Docker;
use bollard::auth::DockerCredentials;
use bollard::query_parameters::{CreateImageOptionsBuilder, ImportImageOptionsBuilder};
use bytes::Bytes;
use fdn_core::{ByteSize, Digest};
use futures::{Stream, StreamExt, TryStreamExt};
use tokio::sync::{Mutex as AsyncMutex, mpsc};

use super::archive::{self, ArchiveError};
use super::failure;
use crate::error::StartError;
use crate::runtime::Kind;
use crate::spec::{Credentials, Image, ImageSource};

/// An image that the engine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LocalImage {
    /// What the engine calls it.
    pub(super) reference: String,
    /// The volumes that it declares.
    pub(super) volumes: Vec<String>,
}

/// Images by digest, each fetched by one task at a time. The lock of an image that is not fetched now is dropped again.
#[derive(Debug, Default)]
pub(super) struct Images {
    fetching: Mutex<BTreeMap<Digest, Arc<AsyncMutex<()>>>>,
    /// Those that were seen on the engine, by reference: a start need not ask for them. Bounded by [`KNOWN`].
    known: Mutex<BTreeMap<String, LocalImage>>,
}

/// Images that are remembered; with one more, all are looked for again.
const KNOWN: usize = 1024;

/// The repository under which archives are kept on the engine. `.invalid` is nobody's (RFC 2606, section 2): an engine will
/// never pull it.
const ARCHIVES: &str = "fdn.invalid/archive";

fn reference(image: &Image) -> Result<String, StartError> {
    match &image.source {
        ImageSource::Registry { repository, .. } => Ok(format!("{repository}@{}", image.digest)),
        ImageSource::Archive { .. } => Ok(format!("{ARCHIVES}:{}", image.digest.hex())),
        ImageSource::Component { .. } => Err(StartError::Unsupported {
            reason: "a WebAssembly component is not a container image".to_owned(),
        }),
    }
}

impl Images {
    fn remembered(&self) -> MutexGuard<'_, BTreeMap<String, LocalImage>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An image that was on the engine when it was last looked for.
    pub(super) fn known(&self, image: &Image) -> Option<LocalImage> {
        let reference = reference(image).ok()?;
        self.remembered().get(&reference).cloned()
    }

    /// An image turned out not to be there.
    pub(super) fn forget_known(&self, image: &Image) {
        if let Ok(reference) = reference(image) {
            self.remembered().remove(&reference);
        }
    }

    /// Has the image on the engine; an uploaded archive may unfold to `most`.
    pub(super) async fn prepare(
        &self,
        docker: &Docker,
        image: &Image,
        (most, timeout): (ByteSize, Duration),
    ) -> Result<LocalImage, StartError> {
        let local = self.have(docker, image, (most, timeout)).await?;
        let mut known = self.remembered();
        if known.len() >= KNOWN {
            known.clear();
        }
        known.insert(local.reference.clone(), local.clone());
        Ok(local)
    }

    async fn have(
        &self,
        docker: &Docker,
        image: &Image,
        (most, timeout): (ByteSize, Duration),
    ) -> Result<LocalImage, StartError> {
        let reference = reference(image)?;
        if let Some(local) = inspect(docker, &reference).await? {
            return Ok(local);
        }
        let lock = self.lock_of(image.digest);
        let guard = lock.lock().await;
        let fetching = async {
            if let Some(local) = inspect(docker, &reference).await? {
                return Ok(local);
            }
            fetch(docker, image, most, &reference).await?;
            inspect(docker, &reference)
                .await?
                .ok_or_else(|| StartError::ImageInvalid {
                    image: image.to_string(),
                    reason: "the engine took it and does not know it".to_owned(),
                })
        };
        let fetched = tokio::time::timeout(timeout, fetching)
            .await
            .unwrap_or_else(|_| {
                Err(StartError::ImageMissing {
                    image: image.to_string(),
                    reason: format!("not here within {timeout:?}"),
                })
            });
        drop(guard);
        self.forget(image.digest, &lock);
        fetched
    }

    fn lock_of(&self, digest: Digest) -> Arc<AsyncMutex<()>> {
        let mut fetching = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        fetching.entry(digest).or_default().clone()
    }

    fn forget(&self, digest: Digest, lock: &Arc<AsyncMutex<()>>) {
        let mut fetching = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        // This handle and the map's: nobody else waits.
        if Arc::strong_count(lock) == 2 {
            fetching.remove(&digest);
        }
    }
}

async fn inspect(docker: &Docker, reference: &str) -> Result<Option<LocalImage>, StartError> {
    match docker.inspect_image(reference).await {
        Ok(found) => Ok(Some(LocalImage {
            reference: reference.to_owned(),
            volumes: found.config.and_then(|c| c.volumes).unwrap_or_default(),
        })),
        Err(error) if failure::status(&error) == Some(404) => Ok(None),
        Err(error) => Err(failure::engine("inspect the image", &error).into()),
    }
}

async fn fetch(
    docker: &Docker,
    image: &Image,
    most: ByteSize,
    reference: &str,
) -> Result<(), StartError> {
    match &image.source {
        ImageSource::Registry { credentials, .. } => {
            pull(docker, image, reference, credentials.as_ref()).await
        }
        ImageSource::Archive { path } => load(docker, image, (path, most), reference).await,
        ImageSource::Component { .. } => Ok(()),
    }
}

async fn pull(
    docker: &Docker,
    image: &Image,
    reference: &str,
    credentials: Option<&Credentials>,
) -> Result<(), StartError> {
    let options = CreateImageOptionsBuilder::default()
        .from_image(reference)
        .build();
    let credentials = credentials.map(|c| DockerCredentials {
        username: Some(c.username.clone()),
        password: Some(c.password.clone()),
        ..DockerCredentials::default()
    });
    let mut progress = docker.create_image(Some(options), None, credentials);
    while let Some(step) = progress.next().await {
        let step = step.map_err(|e| failure::image("pull the image", &image.to_string(), &e))?;
        if let Some(message) = step.error_detail.and_then(|detail| detail.message) {
            let error = bollard::errors::Error::DockerStreamError { error: message };
            return Err(failure::image("pull the image", &image.to_string(), &error));
        }
    }
    Ok(())
}

async fn load(
    docker: &Docker,
    image: &Image,
    (path, most): (&Path, ByteSize),
    reference: &str,
) -> Result<(), StartError> {
    let plan = {
        let path = path.to_owned();
        off_thread(image, move || archive::plan(&path, most)).await?
    };
    let (sender, receiver) = mpsc::channel(8);
    let writing = {
        let (path, tag) = (path.to_owned(), reference.to_owned());
        off_thread(image, move || {
            archive::rewrite(
                (&path, most),
                &plan,
                &tag,
                io::BufWriter::with_capacity(64 << 10, Pipe(sender)),
            )
        })
    };
    let loading = async {
        let options = ImportImageOptionsBuilder::default().quiet(true).build();
        docker
            .import_image_stream(options, stream_of(receiver), None)
            .try_for_each(|_| async { Ok(()) })
            .await
            .map_err(|e| failure::image("load the image", &image.to_string(), &e))
    };
    let (written, loaded) = tokio::join!(writing, loading);
    // The engine's refusal explains a broken pipe, not the other way round.
    loaded.and(written)
}

async fn off_thread<T: Send + 'static>(
    image: &Image,
    work: impl FnOnce() -> Result<T, ArchiveError> + Send + 'static,
) -> Result<T, StartError> {
    let image = image.to_string();
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(ArchiveError::Read(error))) if error.kind() == io::ErrorKind::NotFound => {
            Err(StartError::ImageMissing {
                image,
                reason: error.to_string(),
            })
        }
        Ok(Err(error)) => Err(StartError::ImageInvalid {
            image,
            reason: crate::link::chain(&error),
        }),
        Err(error) => Err(StartError::Engine(crate::error::RuntimeError::Unusable {
            kind: Kind::Docker,
            reason: format!("reading an archive failed: {error}"),
        })),
    }
}

fn stream_of(
    mut receiver: mpsc::Receiver<Bytes>,
) -> impl Stream<Item = Result<Bytes, io::Error>> + Send + 'static {
    futures::stream::poll_fn(move |cx| receiver.poll_recv(cx).map(|piece| piece.map(Ok)))
}

/// A writer whose other end is a stream; waits while that is full.
struct Pipe(mpsc::Sender<Bytes>);

impl Write for Pipe {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0
            .blocking_send(Bytes::copy_from_slice(octets))
            .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

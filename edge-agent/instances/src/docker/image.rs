//! Images on this node's engine: pulled by digest, or loaded from an uploaded archive.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bollard::Docker;
use bollard::auth::DockerCredentials;
use bollard::models::CreateImageInfo;
use bollard::query_parameters::{
    CreateImageOptionsBuilder, ImportImageOptionsBuilder, RemoveImageOptions,
};
use bytes::Bytes;
use fdn_core::{ByteSize, Digest};
use futures::{Stream, StreamExt, TryStreamExt};
use tokio::sync::{Mutex as AsyncMutex, mpsc};

use super::archive::{self, ArchiveError};
use super::image_cache::{self, ImageUsage, Names};
use super::{create, failure};
use crate::error::StartError;
use crate::runtime::Kind;
use crate::spec::{Credentials, Image, ImageSource};

/// An image that the engine has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LocalImage {
    /// The engine's name for it.
    pub(super) reference: String,
    /// The volumes that it declares.
    pub(super) volumes: Vec<String>,
    /// Whether it has a label that would set the scope of its containers.
    pub(super) has_scope: bool,
    /// The size of its files in bytes.
    pub(super) size: u64,
    /// Whether it has a name besides its digest.
    pub(super) has_tag: bool,
}

/// Images by digest, each fetched by one task at a time. The lock of an image is dropped when nobody is fetching it.
#[derive(Debug)]
pub(super) struct Images {
    pub(super) names: Names,
    pub(super) usage: ImageUsage,
    fetching: Mutex<BTreeMap<Digest, Arc<AsyncMutex<()>>>>,
    /// Images that were seen on the engine, by reference: a start need not inspect them. Bounded by [`REMEMBERED_MAX`].
    known: Mutex<BTreeMap<String, LocalImage>>,
}

/// The most images that are remembered; one more, and all are inspected again.
const REMEMBERED_MAX: usize = 1024;

/// Whether an image was already present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Present,
    /// It was fetched now.
    Fetched,
}

impl Images {
    /// Without any image, and with these names.
    pub(super) fn new(names: Names) -> Self {
        Self {
            names,
            usage: ImageUsage::default(),
            fetching: Mutex::default(),
            known: Mutex::default(),
        }
    }

    fn reference(&self, image: &Image) -> Result<String, StartError> {
        match &image.source {
            ImageSource::Registry { repository, .. } => {
                Ok(format!("{repository}@{}", image.digest))
            }
            ImageSource::Archive { .. } => Ok(self.names.archive(&image.digest)),
            ImageSource::Component { .. } => Err(StartError::Unsupported {
                reason: "a WebAssembly component is not a container image".to_owned(),
            }),
        }
    }

    fn remembered(&self) -> MutexGuard<'_, BTreeMap<String, LocalImage>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An image that was on the engine when it was last inspected.
    pub(super) fn known(&self, image: &Image) -> Option<LocalImage> {
        let reference = self.reference(image).ok()?;
        let known = self.remembered().get(&reference).cloned();
        if known.is_some() {
            self.usage.touch(image.digest);
        }
        known
    }

    /// Forgets an image that turned out to be missing.
    pub(super) fn forget_known(&self, image: &Image) {
        if let Ok(reference) = self.reference(image) {
            self.forget_name(&reference);
        }
    }

    /// Like [`Images::forget_known`], by its name.
    pub(super) fn forget_name(&self, reference: &str) {
        self.remembered().remove(reference);
    }

    /// Makes sure that the image is on the engine, unpacked to at most `max_size`; also returns whether it had to be fetched.
    pub(super) async fn prepare(
        &self,
        docker: &Docker,
        image: &Image,
        (max_size, timeout): (ByteSize, Duration),
    ) -> Result<(LocalImage, Presence), StartError> {
        let (local, presence) = self.ensure(docker, image, (max_size, timeout)).await?;
        self.usage.touch(image.digest);
        let mut known = self.remembered();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(local.reference.clone(), local.clone());
        Ok((local, presence))
    }

    async fn ensure(
        &self,
        docker: &Docker,
        image: &Image,
        (max_size, timeout): (ByteSize, Duration),
    ) -> Result<(LocalImage, Presence), StartError> {
        let reference = self.reference(image)?;
        if let Some(local) = self.present(docker, (image, &reference), max_size).await? {
            return Ok((local, Presence::Present));
        }
        let lock = self.lock_of(image.digest);
        let fetching = async {
            let _turn = lock.lock().await;
            if let Some(local) = self.present(docker, (image, &reference), max_size).await? {
                return Ok((local, Presence::Present));
            }
            fetch(docker, image, max_size, &reference).await?;
            let local = inspect(docker, &reference).await?;
            let local =
                local.ok_or_else(|| invalid(image, "the engine took it and does not know it"))?;
            if let ImageSource::Registry { .. } = image.source {
                self.check_pulled(docker, (image, &local), max_size).await?;
            }
            Ok((local, Presence::Fetched))
        };
        let fetched = tokio::time::timeout(timeout, fetching)
            .await
            .unwrap_or_else(|_| {
                Err(StartError::ImageMissing {
                    image: image.to_string(),
                    reason: format!("not here within {timeout:?}"),
                })
            });
        self.forget(image.digest, &lock);
        fetched
    }

    /// The image if it is on the engine and may be used. One that has no name but its digest was perhaps pulled by an agent that ended before it
    /// had checked and marked it.
    async fn present(
        &self,
        docker: &Docker,
        (image, reference): (&Image, &str),
        max_size: ByteSize,
    ) -> Result<Option<LocalImage>, StartError> {
        let Some(local) = inspect(docker, reference).await? else {
            return Ok(None);
        };
        if let ImageSource::Registry { .. } = image.source {
            if local.size > max_size.as_bytes() {
                // It may be somebody else's, so it stays.
                return Err(too_large(image, max_size));
            }
            if !local.has_tag {
                image_cache::tag(docker, &self.names, &local.reference, &image.digest).await;
            }
        }
        Ok(Some(local))
    }

    /// Checks the size of an image that was just pulled, and marks it as fetched by the agent; one that is too large is removed.
    async fn check_pulled(
        &self,
        docker: &Docker,
        (image, local): (&Image, &LocalImage),
        max_size: ByteSize,
    ) -> Result<(), StartError> {
        if local.size <= max_size.as_bytes() {
            image_cache::tag(docker, &self.names, &local.reference, &image.digest).await;
            return Ok(());
        }
        let removed = docker
            .remove_image(&local.reference, None::<RemoveImageOptions>, None)
            .await;
        if let Err(error) = removed
            && failure::status(&error) != Some(404)
        {
            tracing::warn!(%image, %error, "an image that is too large stays on the engine");
        }
        Err(too_large(image, max_size))
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
        Ok(found) => {
            let config = found.config.unwrap_or_default();
            Ok(Some(LocalImage {
                reference: reference.to_owned(),
                volumes: config.volumes.unwrap_or_default(),
                has_scope: config
                    .labels
                    .is_some_and(|labels| labels.contains_key(create::SCOPE)),
                size: found
                    .size
                    .and_then(|size| size.try_into().ok())
                    .unwrap_or_default(),
                has_tag: found.repo_tags.is_some_and(|tags| !tags.is_empty()),
            }))
        }
        Err(error) if failure::status(&error) == Some(404) => Ok(None),
        Err(error) => Err(failure::engine("inspect the image", &error).into()),
    }
}

async fn fetch(
    docker: &Docker,
    image: &Image,
    max_size: ByteSize,
    reference: &str,
) -> Result<(), StartError> {
    match &image.source {
        ImageSource::Registry { credentials, .. } => {
            pull(docker, (image, max_size), reference, credentials.as_ref()).await
        }
        ImageSource::Archive { path } => load(docker, image, (path, max_size), reference).await,
        ImageSource::Component { .. } => Ok(()),
    }
}

fn invalid(image: &Image, reason: impl Into<String>) -> StartError {
    StartError::ImageInvalid {
        image: image.to_string(),
        reason: reason.into(),
    }
}

fn too_large(image: &Image, max_size: ByteSize) -> StartError {
    let reason = format!("it is larger than {max_size}, which docker.image_unfolded allows");
    invalid(image, reason)
}

/// Bytes of an image's layers as transferred: received so far, or announced. Their unpacked size is larger.
#[derive(Debug, Default)]
struct LayerProgress(BTreeMap<String, u64>);

impl LayerProgress {
    /// Records a progress message of the engine; returns the total so far.
    fn note(&mut self, step: &CreateImageInfo) -> u64 {
        let progress = step.progress_detail.as_ref();
        let transferred = progress.and_then(|of| of.current.max(of.total));
        let transferred = transferred.and_then(|bytes| u64::try_from(bytes).ok());
        if let (Some(layer), Some(bytes)) = (&step.id, transferred) {
            let known = self.0.entry(layer.clone()).or_default();
            *known = bytes.max(*known);
        }
        self.0.values().fold(0, |all, one| all.saturating_add(*one))
    }
}

async fn pull(
    docker: &Docker,
    (image, max_size): (&Image, ByteSize),
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
    let mut coming = LayerProgress::default();
    let mut progress = docker.create_image(Some(options), None, credentials);
    while let Some(step) = progress.next().await {
        let step = step.map_err(|e| failure::image("pull the image", &image.to_string(), &e))?;
        if coming.note(&step) > max_size.as_bytes() {
            // The engine cancels a pull when nobody listens to its progress.
            return Err(too_large(image, max_size));
        }
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
    (path, max_size): (&Path, ByteSize),
    reference: &str,
) -> Result<(), StartError> {
    let plan = {
        let path = path.to_owned();
        off_thread(image, move || archive::plan(&path, max_size)).await?
    };
    let (sender, receiver) = mpsc::channel(8);
    let writing = {
        let (path, tag) = (path.to_owned(), reference.to_owned());
        off_thread(image, move || {
            archive::rewrite(
                (&path, max_size),
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

/// A writer whose other end is a stream; it blocks while that is full.
struct Pipe(mpsc::Sender<Bytes>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .blocking_send(Bytes::copy_from_slice(bytes))
            .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bollard::models::ProgressDetail;

    use super::*;

    #[test]
    fn what_comes_is_counted_by_layer_announced_or_not() {
        let mut coming = LayerProgress::default();
        let mut note = |layer: Option<&str>, current, total| {
            coming.note(&CreateImageInfo {
                id: layer.map(str::to_owned),
                progress_detail: Some(ProgressDetail { current, total }),
                ..CreateImageInfo::default()
            })
        };
        assert_eq!(note(Some("a"), Some(1), Some(10)), 10, "as announced");
        assert_eq!(note(Some("a"), Some(12), Some(10)), 12, "more has come");
        assert_eq!(note(Some("b"), Some(5), None), 17);
        assert_eq!(note(Some("b"), Some(2), None), 17, "it is unfolded now");
        assert_eq!(note(Some("c"), None, None), 17);
        assert_eq!(note(None, Some(99), Some(99)), 17, "of no layer");
        assert_eq!(note(Some("d"), Some(-1), None), 17);
    }
}

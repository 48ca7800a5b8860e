//! Image references for kubelets, and pulling images ahead.
//!
//! A kubelet pulls only from registries, so an archive that was uploaded to this network cannot be passed to
//! it. It can be copied to a registry, though, and an OCI archive contains the digest that its image has there as well: if a
//! repository is configured, the image is pulled from there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fdn_core::Digest;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::options::KubernetesOptions;
use super::status::{Blocked, Stage};
use super::tracked::{PodObservation, TrackedPod};
use super::{Shared, failure, pod, status};
use crate::docker::archive;
use crate::error::StartError;
use crate::spec::{Image, ImageSource};

/// The most images that are remembered as being on the node.
const REMEMBERED: usize = 256;
/// How long they are remembered: kubelets delete unused images when the disk is full.
const FRESH: Duration = Duration::from_secs(600);

/// The image as `repository@digest`, if that is possible.
pub(super) async fn reference(
    image: &Image,
    options: &KubernetesOptions,
) -> Result<String, StartError> {
    let unsupported = |reason: &str| {
        Err(StartError::Unsupported {
            reason: reason.to_owned(),
        })
    };
    match &image.source {
        ImageSource::Registry {
            repository,
            credentials: None,
        } => Ok(format!("{repository}@{}", image.digest)),
        ImageSource::Registry { .. } => unsupported(
            "a name and password for a registry cannot be given to Kubernetes with a pod; make a Secret of type \
             kubernetes.io/dockerconfigjson of them and name it in kubernetes.image_pull_secrets",
        ),
        ImageSource::Archive { path } => {
            let Some(repository) = &options.repository else {
                return unsupported(
                    "Kubernetes pulls from registries only and cannot be given an uploaded archive; copy the image to one that \
                     the nodes reach (skopeo copy --preserve-digests oci-archive:FILE docker://REPOSITORY) and set \
                     kubernetes.repository",
                );
            };
            let path = path.clone();
            let read = tokio::task::spawn_blocking(move || archive::oci_digest(&path)).await;
            let text = image.to_string();
            let invalid = |reason: String| StartError::ImageInvalid {
                image: text.clone(),
                reason,
            };
            match read.map_err(|e| invalid(e.to_string()))? {
                Ok(Some(digest)) => Ok(format!("{repository}@{digest}")),
                Ok(None) => unsupported(
                    "the archive is no OCI layout, so nothing says which digest its image has in a registry; upload what \
                     skopeo copy … oci-archive:FILE or docker save of version 25 or later writes",
                ),
                Err(error) => Err(invalid(crate::link::chain(&error))),
            }
        }
        ImageSource::Component { .. } => unsupported("a component does not run in a pod"),
    }
}

/// Which images were seen on the node, and which are being fetched.
#[derive(Debug, Default)]
pub(super) struct FetchedImages(Mutex<BTreeMap<Digest, Entry>>);

/// When the image was last seen; locked while it is being fetched.
type Entry = Arc<AsyncMutex<Option<Instant>>>;

impl FetchedImages {
    fn entry(&self, digest: Digest) -> Entry {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= REMEMBERED && !all.contains_key(&digest) {
            // Entries that nobody waits for can be determined again.
            all.retain(|_, entry| Arc::strong_count(entry) > 1);
        }
        all.entry(digest).or_default().clone()
    }
}

impl Shared {
    /// Has the image pulled to the node by a pod that runs nothing of it.
    pub(super) async fn fetch(&self, image: &Image) -> Result<(), StartError> {
        let reference = reference(image, &self.options).await?;
        let entry = self.fetched.entry(image.digest);
        let mut seen = entry.lock().await;
        if seen.is_some_and(|at| at.elapsed() < FRESH) {
            return Ok(());
        }
        let name = format!("fdn-fetch-{}", uuid::Uuid::new_v4().simple());
        let timeout = self.options.engine_timeout;
        let tracked = Arc::new(TrackedPod::new(name, self.server.clone(), timeout));
        let _guard = self.track(&tracked);
        let pulled = self.pull(&tracked, &reference).await;
        tracked.set_stopping(true);
        if let Err(error) = tracked.remove(Duration::ZERO).await {
            tracing::warn!(pod = tracked.name, %error, "a pod that fetched an image stays for now");
        }
        pulled?;
        *seen = Some(Instant::now());
        Ok(())
    }

    async fn pull(&self, tracked: &TrackedPod, reference: &str) -> Result<(), StartError> {
        let body = pod::fetch(&tracked.name, &self.owner, reference, &self.options);
        let made = self.server.create(&body).await;
        let made = made.map_err(|fault| failure::start("create the pod", &fault))?;
        if let Some(view) = status::view(&made) {
            tracked.set_identity(view);
        }
        let mut outcome = None;
        let mut observations = tracked.subscribe();
        let settled = observations.wait_for(|seen| {
            outcome = fetched(seen);
            outcome.is_some()
        });
        let settled = tokio::time::timeout(self.options.image_timeout, settled).await;
        match (settled, outcome) {
            (Ok(_), Some(Ok(()))) => Ok(()),
            (Ok(_), Some(Err(blocked))) => Err(blocked.error(reference)),
            _ => Err(StartError::ImageMissing {
                image: reference.to_owned(),
                reason: format!(
                    "not pulled within {:?}: {}",
                    self.options.image_timeout,
                    tracked.waits_for()
                ),
            }),
        }
    }
}

/// Whether the image is on the node: every failure after the pull shows that it is.
fn fetched(seen: &PodObservation) -> Option<Result<(), Blocked>> {
    let PodObservation::Present(view) = seen else {
        let lost = || Blocked::Failed("the pod that fetched it was deleted".to_owned());
        return matches!(seen, PodObservation::Gone(_)).then(|| Err(lost()));
    };
    match &view.stage {
        Stage::Running(_) | Stage::Ended(_, None | Some(Blocked::Invalid(_))) => Some(Ok(())),
        Stage::Blocked(blocked @ (Blocked::Missing(_) | Blocked::NoRoom(_)))
        | Stage::Ended(_, Some(blocked)) => Some(Err(blocked.clone())),
        Stage::Blocked(Blocked::Invalid(words)) if words.starts_with("Invalid") => {
            Some(Err(Blocked::Invalid(words.clone())))
        }
        Stage::Blocked(_) => Some(Ok(())),
        Stage::Waiting(_) => None,
    }
}

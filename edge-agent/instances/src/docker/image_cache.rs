//! The images that were fetched to this node's engine, and their eviction when they take too much of its disk.
//!
//! Images of uploaded archives are known by their repository; pulled ones get a tag in addition to their own name, so that they are known
//! after a restart too. Images without such a name belong to somebody else and are never touched. *ImagePin* are those of deployed apps
//! and of any container; of the others the least recently used are evicted first. Agents that share an engine and a scope share its images:
//! an image that one removes although another needs it is fetched again by the next start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bollard::Docker;
use bollard::models::ImageSummary;
use bollard::query_parameters::{
    ListContainersOptionsBuilder, ListImagesOptions, RemoveImageOptions, TagImageOptionsBuilder,
};
use fdn_core::Digest;
use tokio::sync::Mutex as AsyncMutex;

use super::{Shared, failure};
use crate::error::RuntimeError;

/// The names of images that were fetched by the agent. `.invalid` belongs to nobody (RFC 2606, section 2): an engine will never pull it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    archives: String,
    pulled: String,
}

impl Names {
    /// The names for the agents of a scope.
    pub(super) fn of(scope: Option<&str>) -> Self {
        let scope = scope.map_or_else(String::new, |scope| format!("{scope}/"));
        Self {
            archives: format!("fdn.invalid/{scope}archive"),
            pulled: format!("fdn.invalid/{scope}pulled"),
        }
    }

    /// The name for an archive's image.
    pub(super) fn archive(&self, digest: &Digest) -> String {
        format!("{}:{}", self.archives, digest.hex())
    }

    fn digest_of(&self, tag: &str) -> Option<Digest> {
        let (repository, hex) = tag.rsplit_once(':')?;
        let ours = repository == self.archives || repository == self.pulled;
        hex.parse().ok().filter(|_| ours)
    }
}

/// Which images the apps of this process need and use.
#[derive(Debug, Default)]
pub(super) struct ImageUsage {
    state: Mutex<State>,
    /// Held during an eviction, so that there is one at a time.
    evicting: AsyncMutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// How many function versions are deployed with each.
    needed: BTreeMap<Digest, usize>,
    /// When each was last used, as a step number.
    used: BTreeMap<Digest, u64>,
    step: u64,
}

impl ImageUsage {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that an image is used now.
    pub(super) fn touch(&self, digest: Digest) {
        let mut state = self.lock();
        state.step += 1;
        let step = state.step;
        state.used.insert(digest, step);
    }
}

/// An image that was fetched by the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CachedImage {
    id: String,
    digest: Digest,
    size: u64,
    /// The names to be removed from it, in this order.
    names: Vec<String>,
}

impl CachedImage {
    fn of(names: &Names, image: ImageSummary) -> Option<Self> {
        let mut tags = image.repo_tags.iter();
        let digest = tags.find_map(|tag| names.digest_of(tag))?;
        let is_ours = |tag: &String| names.digest_of(tag).is_some();
        let mut all = Vec::new();
        if image.repo_tags.iter().all(is_ours) {
            let end = format!("@sha256:{}", digest.hex());
            let pulled = image.repo_digests.iter();
            all.extend(pulled.filter(|name| name.ends_with(&end)).cloned());
        }
        all.extend(image.repo_tags.iter().filter(|tag| is_ours(tag)).cloned());
        Some(Self {
            id: image.id,
            digest,
            size: u64::try_from(image.size).unwrap_or_default(),
            names: all,
        })
    }
}

impl State {
    /// The images to be evicted, so that no more than `limit` bytes are left where possible. The most recently used one stays.
    fn to_evict<'a>(
        &self,
        found: &'a [CachedImage],
        in_use: &BTreeSet<String>,
        limit: u64,
    ) -> Vec<&'a CachedImage> {
        let last = |one: &&CachedImage| self.used.get(&one.digest) == Some(&self.step);
        let mut idle: Vec<&CachedImage> = found
            .iter()
            .filter(|one| !self.needed.contains_key(&one.digest) && !in_use.contains(&one.id))
            .filter(|one| !last(one))
            .collect();
        idle.sort_by_key(|one| (self.used.get(&one.digest).copied(), one.digest));
        let mut all: u64 = found.iter().map(|one| one.size).sum();
        let mut gone = idle.into_iter();
        std::iter::from_fn(|| {
            if all <= limit {
                return None;
            }
            let next = gone.next()?;
            all = all.saturating_sub(next.size);
            Some(next)
        })
        .collect()
    }
}

/// Keeps an image needed for as long as it lives.
#[derive(Debug)]
pub(super) struct ImagePin {
    shared: Weak<Shared>,
    digest: Digest,
}

impl Drop for ImagePin {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        {
            let mut state = shared.images.usage.lock();
            if let Some(count) = state.needed.get_mut(&self.digest) {
                *count -= 1;
                if *count == 0 {
                    state.needed.remove(&self.digest);
                }
            }
        }
        shared.evict_images();
    }
}

impl Shared {
    /// Notes that an app is deployed with this image.
    pub(super) fn pin_image(self: &Arc<Self>, digest: Digest) -> ImagePin {
        *self.images.usage.lock().needed.entry(digest).or_default() += 1;
        ImagePin {
            shared: Arc::downgrade(self),
            digest,
        }
    }

    /// Evicts unneeded images, as far as the bound requires, in the background.
    pub(super) fn evict_images(self: &Arc<Self>) {
        // Without a runtime the process is ending; the next one checks again.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let shared = Arc::clone(self);
        runtime.spawn(async move {
            if let Err(error) = shared.evict_surplus().await {
                tracing::warn!(%error, "images that nobody needs stay for now");
            }
        });
    }

    async fn evict_surplus(&self) -> Result<(), RuntimeError> {
        let usage = &self.images.usage;
        let _one = usage.evicting.lock().await;
        let listed = self.docker.list_images(None::<ListImagesOptions>).await;
        let listed = listed.map_err(|e| failure::engine("list the images", &e))?;
        let names = &self.images.names;
        let found: Vec<_> = listed
            .into_iter()
            .filter_map(|image| CachedImage::of(names, image))
            .collect();
        let mut left: u64 = found.iter().map(|one| one.size).sum();
        let limit = self.options.image_cache.as_bytes();
        if left > limit {
            let in_use = self.images_in_use().await?;
            let evicted = {
                let mut state = usage.lock();
                let here: BTreeSet<_> = found.iter().map(|one| one.digest).collect();
                state.used.retain(|digest, _| here.contains(digest));
                state.to_evict(&found, &in_use, limit)
            };
            for one in evicted {
                if self.remove_image(one).await {
                    left = left.saturating_sub(one.size);
                    self.options.metrics.image_removed();
                }
            }
        }
        self.options.metrics.set_image_bytes(left);
        Ok(())
    }

    /// The image ids of all containers on the engine, whoever made them.
    async fn images_in_use(&self) -> Result<BTreeSet<String>, RuntimeError> {
        let options = ListContainersOptionsBuilder::default().all(true).build();
        let listed = self.docker.list_containers(Some(options)).await;
        let listed = listed.map_err(|e| failure::engine("list the containers", &e))?;
        Ok(listed.into_iter().filter_map(|one| one.image_id).collect())
    }

    /// Removes an image's names, and with the last one the image itself; returns whether it is gone.
    async fn remove_image(&self, image: &CachedImage) -> bool {
        for name in &image.names {
            self.images.forget_name(name);
            let removed = self
                .docker
                .remove_image(name, None::<RemoveImageOptions>, None)
                .await;
            match removed {
                Ok(_) => {}
                // It was removed together with another name.
                Err(error) if failure::status(&error) == Some(404) => {}
                // A container was created from it meanwhile.
                Err(error) => {
                    tracing::debug!(%name, %error, "an image stays");
                    return false;
                }
            }
        }
        tracing::info!(digest = %image.digest, size = image.size, "an image that nobody needs is removed");
        true
    }
}

/// Gives a pulled image the name by which it is recognized.
pub(super) async fn tag(docker: &Docker, names: &Names, reference: &str, digest: &Digest) {
    let options = TagImageOptionsBuilder::default()
        .repo(&names.pulled)
        .tag(&digest.hex())
        .build();
    if let Err(error) = docker.tag_image(reference, Some(options)).await {
        tracing::warn!(%reference, %error, "an image will not be removed when nobody needs it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: u8) -> Digest {
        Digest::of(&[number])
    }

    fn found(number: u8, size: u64) -> CachedImage {
        CachedImage {
            id: format!("id-{number}"),
            digest: digest(number),
            size,
            names: Vec::new(),
        }
    }

    fn gone(state: &State, found: &[CachedImage], in_use: &[&str], limit: u64) -> Vec<Digest> {
        let in_use = in_use.iter().map(|id| (*id).to_owned()).collect();
        let evicted = state.to_evict(found, &in_use, limit);
        evicted.into_iter().map(|one| one.digest).collect()
    }

    #[test]
    fn what_nobody_needs_goes_least_recently_used_first_and_only_as_far_as_needed() {
        let usage = ImageUsage::default();
        for number in [3, 1, 2, 4] {
            usage.touch(digest(number));
        }
        let mut state = usage.state.into_inner().unwrap();
        let all: Vec<_> = (0..5).map(|number| found(number, 10)).collect();
        assert_eq!(gone(&state, &all, &[], 50), []);
        assert_eq!(gone(&state, &all, &[], 49), [digest(0)], "of long ago");
        assert_eq!(gone(&state, &all, &[], 25), [0, 3, 1].map(digest));
        assert_eq!(gone(&state, &all, &["id-3"], 25), [0, 1, 2].map(digest));
        state.needed.insert(digest(0), 1);
        assert_eq!(gone(&state, &all, &["id-3"], 25), [1, 2].map(digest));
        let every = [3, 1, 2].map(digest);
        assert_eq!(gone(&state, &all, &[], 0), every, "not the last one used");
    }

    #[test]
    fn only_what_was_brought_here_is_known_and_nobodys_name_is_taken() {
        let names = Names::of(None);
        let scoped = Names::of(Some("mine"));
        let hex = digest(1).hex();
        let image = |tags: &[&str]| ImageSummary {
            id: "id".to_owned(),
            size: 7,
            repo_tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            repo_digests: vec![
                format!("r.example.com/a@sha256:{hex}"),
                format!("r.example.com/b@sha256:{}", digest(2).hex()),
            ],
            ..ImageSummary::default()
        };
        let ours = format!("fdn.invalid/pulled:{hex}");
        let found = CachedImage::of(&names, image(&[&ours])).unwrap();
        assert_eq!((found.digest, found.size), (digest(1), 7));
        let pulled = format!("r.example.com/a@sha256:{hex}");
        assert_eq!(found.names, [pulled, ours.clone()]);
        let shared = CachedImage::of(&names, image(&["postgres:16", &ours])).unwrap();
        assert_eq!(
            shared.names,
            std::slice::from_ref(&ours),
            "somebody else has it too"
        );
        assert_eq!(CachedImage::of(&names, image(&["postgres:16"])), None);
        assert_eq!(
            CachedImage::of(&names, image(&["fdn.invalid/pulled:x"])),
            None
        );
        assert_eq!(CachedImage::of(&scoped, image(&[&ours])), None, "of others");
        assert!(scoped.digest_of(&scoped.archive(&digest(1))).is_some());
    }
}

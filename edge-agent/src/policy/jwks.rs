//! Public keys of identity providers, fetched by the node and cached on its disk.
//!
//! Each URL is fetched once for all apps that name it: at the start, at an interval (with jitter, so that nodes do not fetch in step), and when a
//! token names an unknown key, but then at most once in the minimum interval, whatever tokens arrive. A failed fetch changes nothing: the known
//! keys remain valid, also over a restart, and the next attempt follows after a back-off. Why nodes fetch and not the controller: ADR 0016.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use fdn_core::Digest;
use fdn_core::policy::JwtRule;
use fdn_core::policy::token::{Claims, TokenFault};
use fdn_service::address_policy::AddressPolicy;
use fdn_service::http_client::without_url;
use fdn_service::{CancellationToken, ServiceError};
use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use super::counts::PolicyMetrics;
use super::verify::Keys;
use crate::disk;
use crate::settings::PolicySettings;
use fdn_link::pause;

/// The pause after the first failure.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// The key sets of a node.
pub(super) struct KeySets {
    source: Arc<Source>,
    /// Those that are followed, by URL.
    sets: BTreeMap<String, Weak<KeySet>>,
    /// Those that are not: there was no room, or their URL is not allowed.
    refused: BTreeMap<String, Weak<KeySet>>,
    stop: CancellationToken,
}

/// The configuration and storage of key sets.
struct Source {
    /// Where tenants' URLs may lead.
    reach: AddressPolicy,
    client: reqwest::Client,
    settings: PolicySettings,
    metrics: PolicyMetrics,
    folder: PathBuf,
}

/// The keys behind one URL. They are no longer refreshed once the last app that names the URL is gone.
pub(super) struct KeySet {
    inner: Arc<Inner>,
    stop: CancellationToken,
}

impl Drop for KeySet {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

struct Inner {
    url: String,
    /// Whether the keys are fetched at all; until then nobody may wait for them.
    followed: AtomicBool,
    keys: ArcSwap<Keys>,
    start: Instant,
    /// Milliseconds since `start` when the last fetch began; 0 before the first.
    tried: AtomicU64,
    busy: AtomicBool,
    least: Duration,
    wake: Notify,
    done: watch::Sender<()>,
}

impl KeySets {
    pub(super) fn new(
        reach: AddressPolicy,
        settings: PolicySettings,
        metrics: PolicyMetrics,
        folder: PathBuf,
        stop: CancellationToken,
    ) -> Result<Self, ServiceError> {
        Ok(Self {
            source: Arc::new(Source {
                client: reach.client(settings.jwks_timeout.as_duration())?,
                reach,
                settings,
                metrics,
                folder,
            }),
            sets: BTreeMap::new(),
            refused: BTreeMap::new(),
            stop,
        })
    }

    /// The keys behind a URL, refreshed from now on. Beyond `policy.jwks_sets` URLs, keys are not fetched and no token is accepted, until
    /// [`Self::retry`] finds room.
    pub(super) fn of(&mut self, url: &str) -> Arc<KeySet> {
        let known = [&self.sets, &self.refused]
            .into_iter()
            .find_map(|sets| sets.get(url)?.upgrade());
        if let Some(known) = known {
            self.retry(&known);
            return known;
        }
        let set = Arc::new(KeySet {
            inner: Arc::new(Inner {
                url: url.to_owned(),
                followed: AtomicBool::new(false),
                keys: ArcSwap::default(),
                start: Instant::now(),
                tried: AtomicU64::new(0),
                busy: AtomicBool::new(false),
                least: self.source.settings.jwks_least.as_duration(),
                wake: Notify::new(),
                done: watch::Sender::new(()),
            }),
            stop: self.stop.child_token(),
        });
        if let Err(refusal) = self.follow(&set) {
            warn!(url, "{refusal}");
            self.refused.retain(|_, set| set.strong_count() > 0);
            self.refused.insert(url.to_owned(), Arc::downgrade(&set));
        }
        set
    }

    /// Follows keys that were refused, if there is room by now.
    pub(super) fn retry(&mut self, set: &Arc<KeySet>) {
        if !set.is_followed() && self.follow(set).is_ok() {
            self.refused.remove(&set.inner.url);
        }
    }

    /// Gives the place of these keys to others, unless another app names them too. `set` is that of an app that no longer names them; calls that
    /// it has admitted, or admits until its routes are replaced, use them to the end.
    pub(super) fn leave(&mut self, set: &Arc<KeySet>) {
        let url = &set.inner.url;
        let is_counted = |known: &Weak<KeySet>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(set));
        if Arc::strong_count(set) == 1 && self.sets.get(url).is_some_and(is_counted) {
            self.sets.remove(url);
            self.show();
        }
    }

    /// Begins to fetch keys.
    ///
    /// # Errors
    /// With the reason why they are not.
    fn follow(&mut self, set: &Arc<KeySet>) -> Result<(), &'static str> {
        let (source, inner) = (&self.source, &set.inner);
        if !source.allows(&inner.url) {
            return Err(
                "keys are fetched over https, and over http only where policy.jwks_http says so",
            );
        }
        self.sets.retain(|_, set| set.strong_count() > 0);
        if self.sets.len() >= source.settings.jwks_sets {
            return Err("keys of more identity providers than policy.jwks_sets are not followed");
        }
        inner.followed.store(true, Ordering::Release);
        inner.read(source);
        tokio::spawn(Arc::clone(inner).follow(Arc::clone(source), set.stop.clone()));
        self.sets.insert(inner.url.clone(), Arc::downgrade(set));
        self.show();
        Ok(())
    }

    fn show(&self) {
        let count = i64::try_from(self.sets.len()).unwrap_or(i64::MAX);
        self.source.metrics.key_sets.set(count);
    }
}

impl KeySet {
    pub(super) fn url(&self) -> &str {
        &self.inner.url
    }

    /// Whether the keys are fetched.
    fn is_followed(&self) -> bool {
        self.inner.followed.load(Ordering::Acquire)
    }

    /// Verifies a token with these keys and returns its claims.
    pub(super) fn verify(&self, rule: &JwtRule, token: &str) -> Result<Claims, TokenFault> {
        self.inner.keys.load().verify(rule, token)
    }

    /// Fetches the keys if a fetch is permitted or in progress, and returns when it is done; `false` if the last one was too recent, or if
    /// these keys are not fetched at all.
    pub(super) async fn refresh(&self) -> bool {
        if !self.is_followed() {
            return false;
        }
        let inner = &self.inner;
        let mut done = inner.done.subscribe();
        if !inner.busy.load(Ordering::Acquire) {
            if !inner.may_fetch() {
                return false;
            }
            inner.wake.notify_one();
        }
        done.changed().await.is_ok()
    }
}

impl Source {
    fn allows(&self, url: &str) -> bool {
        url.starts_with("https://") || (url.starts_with("http://") && self.settings.jwks_http)
    }

    fn file(&self, url: &str) -> PathBuf {
        let name = Digest::of(url.as_bytes()).hex();
        self.folder.join(format!("{name}.json"))
    }

    async fn fetch(&self, url: &str) -> Result<Vec<u8>, String> {
        let limit = self.settings.jwks_size.as_usize();
        let fetching = async {
            let url = reqwest::Url::parse(url).map_err(|failure| failure.to_string())?;
            self.reach.check(&url).map_err(|why| {
                format!("its address {why}, nor in one of runtime.private_networks")
            })?;
            let sent = self.client.get(url).send().await;
            let mut response = sent.map_err(without_url)?;
            if !response.status().is_success() {
                return Err(format!("status {}", response.status().as_u16()));
            }
            let mut body = Vec::new();
            while let Some(chunk) = response.chunk().await.map_err(without_url)? {
                if body.len() + chunk.len() > limit {
                    return Err("it is larger than policy.jwks_size".to_owned());
                }
                body.extend_from_slice(&chunk);
            }
            Ok(body)
        };
        let allowed = self.settings.jwks_timeout.as_duration();
        tokio::time::timeout(allowed, fetching)
            .await
            .map_err(|_| "it did not come within policy.jwks_timeout".to_owned())?
    }
}

impl Inner {
    /// Milliseconds since `start`, never 0.
    fn since(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis())
            .unwrap_or(u64::MAX)
            .saturating_add(1)
    }

    /// Reads the keys cached on disk: a small file, read once for each URL.
    fn read(&self, source: &Source) {
        let Ok(bytes) = std::fs::read(source.file(&self.url)) else {
            return;
        };
        match Keys::parse(&bytes) {
            Ok(keys) => self.keys.store(Arc::new(keys)),
            Err(failure) => warn!(url = self.url, failure, "keys on disk cannot be read"),
        }
    }

    async fn follow(self: Arc<Self>, source: Arc<Source>, stop: CancellationToken) {
        let interval = source.settings.jwks_interval.as_duration();
        let mut failures = 0u32;
        loop {
            let fetched = tokio::select! {
                () = stop.cancelled() => return,
                fetched = self.fetch(&source) => fetched,
            };
            let result = if fetched.is_ok() { "ok" } else { "failed" };
            source.metrics.fetches.with_label_values(&[result]).inc();
            let wait = match fetched {
                Ok(()) => {
                    failures = 0;
                    interval.mul_f64(0.8 + 0.4 * rand::random::<f64>())
                }
                Err(failure) => {
                    failures = failures.saturating_add(1);
                    warn!(
                        url = self.url,
                        failure,
                        "an identity provider's keys cannot be fetched; those known go on counting"
                    );
                    pause(failures, FIRST_RETRY, interval, rand::random())
                }
            };
            // Signalled after everything has been stored, so that waiting calls see it.
            self.done.send_replace(());
            let mut next = std::pin::pin!(tokio::time::sleep(wait));
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = &mut next => break,
                    // A request for keys made before the last fetch was answered by that fetch.
                    () = self.wake.notified() => if self.may_fetch() { break },
                }
            }
        }
    }

    /// Whether the last fetch was long enough ago for one that a token requests.
    fn may_fetch(&self) -> bool {
        let tried = self.tried.load(Ordering::Acquire);
        let least = u64::try_from(self.least.as_millis()).unwrap_or(u64::MAX);
        tried == 0 || self.since() >= tried.saturating_add(least)
    }

    async fn fetch(&self, source: &Source) -> Result<(), String> {
        self.busy.store(true, Ordering::Release);
        self.tried.store(self.since(), Ordering::Release);
        let fetched = self.take(source).await;
        self.busy.store(false, Ordering::Release);
        fetched
    }

    async fn take(&self, source: &Source) -> Result<(), String> {
        let bytes = source.fetch(&self.url).await?;
        let keys = Keys::parse(&bytes)?;
        let first = self.keys.swap(Arc::new(keys)).is_empty();
        if first {
            info!(url = self.url, "an identity provider's keys are known");
        }
        let (folder, file) = (source.folder.clone(), source.file(&self.url));
        let kept = tokio::task::spawn_blocking(move || {
            disk::folder(&folder)?;
            disk::replace(&file, &bytes)
        });
        match kept.await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => warn!(url = self.url, %failure, "keys cannot be kept on disk"),
            Err(failure) => warn!(url = self.url, %failure, "keeping keys on disk broke"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    /// Longer than any answer takes that needs no network.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn key_sets(jwks_sets: usize) -> (KeySets, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let metrics = Metrics::new(&"n-1".parse().expect("a node")).expect("metrics");
        let settings = PolicySettings {
            jwks_sets,
            ..PolicySettings::default()
        };
        assert!(!settings.jwks_http);
        let sets = KeySets::new(
            AddressPolicy::new([]),
            settings,
            metrics.policy,
            folder.path().to_owned(),
            CancellationToken::new(),
        );
        (sets.expect("a client"), folder)
    }

    #[tokio::test]
    async fn keys_that_were_refused_are_followed_once_there_is_room() {
        let (mut sets, _folder) = key_sets(1);
        let plain = sets.of("http://192.0.2.1/jwks.json");
        let first = sets.of("https://192.0.2.1/jwks.json");
        assert!(first.is_followed(), "refused keys take no room");
        let second = sets.of("https://192.0.2.2/jwks.json");
        sets.retry(&second);
        assert!(!second.is_followed());
        let also = sets.of(first.url());
        sets.leave(&first);
        assert!(
            !sets.of(second.url()).is_followed(),
            "another app uses the first"
        );
        drop(also);
        sets.leave(&first);
        assert!(sets.of(second.url()).is_followed());
        sets.retry(&plain);
        assert!(!plain.is_followed());
        assert_eq!(sets.source.metrics.key_sets.get(), 1);
    }

    #[tokio::test]
    async fn nobody_waits_for_keys_that_are_not_fetched() {
        let (mut sets, _folder) = key_sets(0);
        let plain = sets.of("http://keys.example/jwks.json");
        let one_too_many = sets.of("https://keys.example/jwks.json");
        for set in [plain, one_too_many] {
            let refreshed = tokio::time::timeout(PATIENCE, set.refresh()).await;
            assert_eq!(refreshed, Ok(false));
        }
    }
}

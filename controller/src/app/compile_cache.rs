//! The compile cache, shared between controllers and across restarts: packs are fetched from the artifact store before a component is compiled,
//! and new ones are signed and stored there afterwards.
//!
//! A pack is signed only when it was just made here, and is used only if an authority of the network has signed it: write access to the artifact
//! store must not be enough to run code on nodes. A failure here costs only time, so it is logged and counted, nothing more.

use std::time::Duration;

use fdn_core::Digest;
use fdn_core::compiled::{HEAD_MAX, PackHead};
use fdn_core::digest::DigestBuilder;
use fdn_runtime::validate::ValidateError;
use fdn_runtime::{CacheUse, CompileError, IncomingPack, PACKS_MAX};
use futures::StreamExt;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tracing::{info, warn};

use super::authority;
use crate::Error;
use crate::artifacts::{Artifact, ArtifactError, StoredPack};
use crate::error::chain;
use crate::state::State;
use crate::upload::PackFolder;

/// The longest time an upload waits for packs; what has not arrived by then is compiled.
const PATIENCE: Duration = Duration::from_secs(10);
/// The last use of a pack is updated only if the recorded one is older than this, in ms.
const TOUCH_MS: u64 = 3_600_000;

/// Fetches packs made by other controllers, and drops local ones that are no longer in the artifact store.
pub(super) async fn fetch(state: &State) {
    let Some(folder) = state.uploads.packs() else {
        return;
    };
    let fetching = Box::pin(async {
        let _alone = folder.exchanging.lock().await;
        fetch_missing(state, folder).await
    });
    let fetched = tokio::time::timeout(PATIENCE, fetching).await;
    let late = |_| Error::Internal(format!("it takes longer than {} s", PATIENCE.as_secs()));
    log_failure(state, fetched.map_err(late).flatten());
}

/// Counts the cache hits and misses of a compilation, and stores the packs it made.
pub(super) async fn store(state: &State, found: Option<&CacheUse>) {
    let (Some(folder), Some(found)) = (state.uploads.packs(), found) else {
        return;
    };
    let metrics = &state.metrics.packs;
    for (result, count) in [("hit", found.hits), ("miss", found.misses)] {
        metrics.functions.with_label_values(&[result]).inc_by(count);
    }
    let _alone = folder.exchanging.lock().await;
    log_failure(state, Box::pin(store_packs(state, folder, found)).await);
}

fn log_failure(state: &State, outcome: Result<(), Error>) {
    if let Err(error) = outcome {
        state.metrics.packs.failures.inc();
        warn!(
            error = chain(&error),
            "the compile cache cannot be exchanged with the artifact store; more is compiled"
        );
    }
}

/// Runs blocking disk work on a thread for it.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CompileError> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|e| Error::Internal(format!("the compile cache broke: {e}")))?;
    done.map_err(|error| ValidateError::from(error).into())
}

async fn fetch_missing(state: &State, folder: &PackFolder) -> Result<(), Error> {
    let mut stored = state.artifacts.pack_list().await?;
    stored.retain(|pack| pack.engine == folder.engine && pack.size > 0);
    let made = folder.cache.unreplicated();
    for name in folder.cache.names() {
        let is = |other: &Digest| *other == name;
        if !stored.iter().any(|pack| is(&pack.name)) && !made.iter().any(|(made, _)| is(made)) {
            folder.cache.remove(&name);
        }
    }
    // The most recently used first: if time runs out, those are the most valuable.
    stored.sort_by_key(|pack| std::cmp::Reverse((pack.used, pack.name)));
    let limit = state.settings.artifacts.compile_cache.as_bytes();
    let mut size: u64 = made.iter().map(|(_, size)| size).sum();
    for pack in stored {
        size += pack.size;
        if size > limit {
            break;
        }
        if folder.cache.names().contains(&pack.name) {
            continue;
        }
        if let Err(reason) = fetch_pack(state, folder, &pack).await? {
            warn!(pack = %pack.name, reason, "a pack of the compile cache is not trusted; it is removed");
            state.metrics.packs.refused.inc();
            let artifacts = &state.artifacts;
            artifacts.pack_delete(&pack.engine, &pack.name).await?;
        }
    }
    Ok(())
}

/// Fetches one pack; the inner error says why it is not trusted.
async fn fetch_pack(
    state: &State,
    folder: &PackFolder,
    pack: &StoredPack,
) -> Result<Result<(), &'static str>, Error> {
    let mut artifact = match state.artifacts.pack_get(&pack.engine, &pack.name).await {
        // Another controller has just removed it.
        Err(ArtifactError::Missing(_)) => return Ok(Ok(())),
        found => found?,
    };
    let Some((head, first)) = read_head(&mut artifact).await? else {
        return Ok(Err("it does not say what it is"));
    };
    if head.engine != pack.engine || head.pack != pack.name || head.size > pack.size {
        return Ok(Err("it is another one than its name says"));
    }
    if !authority::verifies(state, &head.text(), &head.signature, fdn_service::now()).await? {
        return Ok(Err("no authority that counts has signed it"));
    }
    let cache = folder.cache.clone();
    let incoming = blocking(move || cache.incoming()).await?;
    if !write(&incoming, &head, &first, &mut artifact).await? {
        return Ok(Err("its bytes are not those that were signed"));
    }
    let (cache, name) = (folder.cache.clone(), pack.name);
    blocking(move || cache.store(incoming, &name)).await?;
    Ok(Ok(()))
}

/// The head at the beginning of a pack, and the bytes after it that arrived in the same chunk.
async fn read_head(artifact: &mut Artifact) -> Result<Option<(PackHead, Vec<u8>)>, Error> {
    let mut read: Vec<u8> = Vec::new();
    loop {
        if let Some(end) = read.iter().take(HEAD_MAX).position(|byte| *byte == b'\n') {
            let head = serde_json::from_slice(&read[..end]).ok();
            let rest = read.split_off(end + 1);
            return Ok(head.map(|head| (head, rest)));
        }
        match artifact.bytes.next().await {
            Some(piece) if read.len() < HEAD_MAX => read.extend_from_slice(&piece?),
            _ => return Ok(None),
        }
    }
}

/// Writes the bytes after the head to a file. Returns whether they match the signed size and digest.
async fn write(
    incoming: &IncomingPack,
    head: &PackHead,
    first: &[u8],
    artifact: &mut Artifact,
) -> Result<bool, Error> {
    let disk =
        |error: std::io::Error| Error::Internal(format!("a pack cannot be written: {error}"));
    let mut file = File::from_std(incoming.file().map_err(ValidateError::from)?);
    let mut hash = DigestBuilder::default();
    let mut left = head.size;
    let mut piece = bytes::Bytes::copy_from_slice(first);
    loop {
        let Some(less) = left.checked_sub(piece.len() as u64) else {
            return Ok(false);
        };
        left = less;
        hash.update(&piece);
        file.write_all(&piece).await.map_err(disk)?;
        match artifact.bytes.next().await {
            Some(next) => piece = next?,
            None => break,
        }
    }
    file.flush().await.map_err(disk)?;
    Ok(left == 0 && hash.finish() == head.pack)
}

async fn store_packs(state: &State, folder: &PackFolder, found: &CacheUse) -> Result<(), Error> {
    let (artifacts, engine) = (&state.artifacts, &folder.engine);
    for name in &found.damaged {
        state.metrics.packs.refused.inc();
        artifacts.pack_delete(engine, name).await?;
    }
    for (name, size) in folder.cache.unreplicated() {
        let text = PackHead::signed_text(engine, &name, size);
        let head = PackHead {
            engine: engine.clone(),
            pack: name,
            size,
            signature: authority::sign(state, &text, fdn_service::now()).await?,
        };
        artifacts.pack_put(&head, &folder.cache.path(&name)).await?;
        folder.cache.mark_replicated(&name);
        info!(pack = %name, size, "what was compiled is in the compile cache");
    }
    let mut stored = artifacts.pack_list().await?;
    let old = fdn_service::now().get().saturating_sub(TOUCH_MS);
    for pack in &mut stored {
        let is_used = pack.engine == *engine && found.used.contains(&pack.name);
        if is_used && pack.size > 0 && pack.used.get() < old {
            artifacts.pack_touch(engine, &pack.name).await?;
            pack.used = fdn_service::now();
        }
    }
    shrink(state, folder, stored).await
}

/// Removes packs until the cache is within its limits, whatever their engine: the least recently used first.
async fn shrink(
    state: &State,
    folder: &PackFolder,
    mut stored: Vec<StoredPack>,
) -> Result<(), Error> {
    let metrics = &state.metrics.packs;
    let limit = state.settings.artifacts.compile_cache.as_bytes();
    // Mere marks, of size 0, go first.
    stored.sort_by_key(|pack| (pack.size > 0, pack.used, pack.name));
    let mut size: u64 = stored.iter().map(|pack| pack.size).sum();
    let mut count = stored.len();
    for pack in &stored {
        if pack.size > 0 && size <= limit && count <= PACKS_MAX {
            break;
        }
        let (engine, name) = (&pack.engine, &pack.name);
        state.artifacts.pack_delete(engine, name).await?;
        if *engine == folder.engine {
            folder.cache.remove(name);
        }
        size -= pack.size;
        count -= 1;
        if pack.size > 0 {
            metrics.evictions.inc();
        }
    }
    let shown = |figure: u64| i64::try_from(figure).unwrap_or(i64::MAX);
    metrics.bytes.set(shown(size));
    metrics.packs.set(shown(count as u64));
    Ok(())
}

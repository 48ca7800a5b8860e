//! Packs of the compile cache in the artifact store: `compile-cache/ENGINE/NAME`, each with a signed head, and an empty object `NAME.used` for
//! each that was used since it was written; its modification time is the pack's last use. Packs only save time.

use std::collections::BTreeMap;
use std::path::Path;

use fdn_core::compiled::{EngineKey, PackHead};
use fdn_core::{Digest, Timestamp};
use fdn_runtime::PACKS_MAX;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path as Key;
use object_store::{ObjectMeta, ObjectStoreExt, PutPayload};
use tokio::fs::File;
use tokio::io::AsyncReadExt;

use super::{Artifact, ArtifactError, Artifacts};

/// The most objects that are listed at a time. If there are more, they are evicted over several rounds.
const LISTED: usize = 8 * PACKS_MAX;
/// The suffix of the names of use marks.
const USED: &str = ".used";

/// A pack in the artifact store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPack {
    /// The engine that compiled it.
    pub engine: EngineKey,
    /// The digest of the pack.
    pub name: Digest,
    /// The size of the object in bytes; 0 if only its use mark is left.
    pub size: u64,
    /// The time of its last use, by the store's clock.
    pub used: Timestamp,
}

impl Artifacts {
    fn packs_folder(&self) -> Key {
        Key::from(format!("{}/compile-cache", self.prefix))
    }

    fn pack_key(&self, engine: &EngineKey, name: &Digest) -> Key {
        let folder = self.packs_folder().join(engine.as_str());
        folder.join(name.hex())
    }

    fn mark_key(&self, engine: &EngineKey, name: &Digest) -> Key {
        let folder = self.packs_folder().join(engine.as_str());
        folder.join(format!("{}{USED}", name.hex()))
    }

    /// The packs of all engines.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn pack_list(&self) -> Result<Vec<StoredPack>, ArtifactError> {
        let known = |object: ObjectMeta| async move {
            Ok(parse(&object.location).map(|parsed| (parsed, object)))
        };
        let found: Vec<_> = self
            .store
            .list(Some(&self.packs_folder()))
            .try_filter_map(known)
            .take(LISTED)
            .try_collect()
            .await
            .map_err(ArtifactError::List)?;
        let mut packs: BTreeMap<(EngineKey, Digest), StoredPack> = BTreeMap::new();
        for ((engine, name, is_mark), object) in found {
            let at = u64::try_from(object.last_modified.timestamp_millis()).unwrap_or_default();
            let pack = packs
                .entry((engine.clone(), name))
                .or_insert_with(|| StoredPack {
                    engine,
                    name,
                    size: 0,
                    used: Timestamp(0),
                });
            pack.used = pack.used.max(Timestamp(at));
            if !is_mark {
                pack.size = object.size;
            }
        }
        Ok(packs.into_values().collect())
    }

    /// Writes the head and the pack.
    ///
    /// # Errors
    /// When the file cannot be read or the store fails; then no object is written.
    pub async fn pack_put(&self, head: &PackHead, pack: &Path) -> Result<(), ArtifactError> {
        let read = |source| ArtifactError::Read {
            path: pack.to_owned(),
            source,
        };
        let mut line = serde_json::to_vec(head).map_err(|e| read(e.into()))?;
        line.push(b'\n');
        let file = File::open(pack).await.map_err(read)?;
        let key = self.pack_key(&head.engine, &head.pack);
        self.put_at(&key, head.pack, pack, line.as_slice().chain(file))
            .await
    }

    /// Reads a pack with its head.
    ///
    /// # Errors
    /// When it is missing, or the store fails.
    pub async fn pack_get(
        &self,
        engine: &EngineKey,
        name: &Digest,
    ) -> Result<Artifact, ArtifactError> {
        self.get_at(&self.pack_key(engine, name), *name, None).await
    }

    /// Marks a pack as used now.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn pack_touch(&self, engine: &EngineKey, name: &Digest) -> Result<(), ArtifactError> {
        let key = self.mark_key(engine, name);
        let put = self.store.put(&key, PutPayload::new()).await;
        put.map(drop).map_err(|source| ArtifactError::Failed {
            action: "mark pack",
            digest: *name,
            source,
        })
    }

    /// Deletes a pack with its use mark; succeeds if it is missing.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn pack_delete(
        &self,
        engine: &EngineKey,
        name: &Digest,
    ) -> Result<(), ArtifactError> {
        for key in [self.mark_key(engine, name), self.pack_key(engine, name)] {
            match self.store.delete(&key).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(source) => {
                    return Err(ArtifactError::Failed {
                        action: "delete pack",
                        digest: *name,
                        source,
                    });
                }
            }
        }
        Ok(())
    }
}

/// The engine and the name of a pack, and whether the object is only its use mark.
fn parse(location: &Key) -> Option<(EngineKey, Digest, bool)> {
    let (folder, file) = location.as_ref().rsplit_once('/')?;
    let engine = folder.rsplit('/').next()?.parse().ok()?;
    let (name, is_mark) = match file.strip_suffix(USED) {
        Some(name) => (name, true),
        None => (file, false),
    };
    Some((engine, name.parse().ok()?, is_mark))
}

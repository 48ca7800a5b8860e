//! Packs of the compile cache beside the components: `compile-cache/ENGINE/NAME`, each with a head that is signed, and an empty object `NAME.used` for
//! each that was used since it was written: when that was written is the pack's last use. They are worth only the time that they save.

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

/// The most objects that are looked at. Where somebody else has put more there, they go little by little.
const LISTED: usize = 8 * PACKS_MAX;
/// What the name of a mark of use ends with.
const USED: &str = ".used";

/// A pack in the artifact store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPack {
    /// The engine that it is for.
    pub engine: EngineKey,
    /// The digest of the pack.
    pub name: Digest,
    /// Bytes of the object; 0 if only the mark of its use is left.
    pub size: u64,
    /// When it was used last, by the store's clock.
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

    /// The packs, of every engine.
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

    /// Writes a pack behind its head.
    ///
    /// # Errors
    /// When the file cannot be read or the store fails; then nothing is left in it.
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

    /// Reads a pack and its head.
    ///
    /// # Errors
    /// When it is not there, or the store fails.
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

    /// Removes a pack; one that is not there is no error.
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

/// The engine and the name of a pack, and whether the object is only the mark of its use.
fn parse(location: &Key) -> Option<(EngineKey, Digest, bool)> {
    let (folder, file) = location.as_ref().rsplit_once('/')?;
    let engine = folder.rsplit('/').next()?.parse().ok()?;
    let (name, is_mark) = match file.strip_suffix(USED) {
        Some(name) => (name, true),
        None => (file, false),
    };
    Some((engine, name.parse().ok()?, is_mark))
}

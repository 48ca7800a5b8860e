//! Machine code in the artifact store: compiled by controllers when they validate uploads, one object per component and engine. It only saves
//! time: nodes that do not find it compile the component themselves.

use std::path::Path;

use fdn_core::Digest;
use fdn_core::compiled::{CompiledHead, EngineKey};
use futures::TryStreamExt;
use object_store::ObjectStoreExt;
use object_store::path::Path as Key;
use tokio::fs::File;
use tokio::io::AsyncReadExt;

use super::{Artifact, ArtifactError, Artifacts};

impl Artifacts {
    fn compiled_folder(&self, component: &Digest) -> Key {
        let hex = component.hex();
        Key::from(format!("{}/compiled/{}/{hex}", self.prefix, &hex[..2]))
    }

    /// Writes the head and the machine code; an existing object is replaced.
    ///
    /// # Errors
    /// When the file cannot be read or the store fails; then no object is written.
    pub async fn compiled_put(
        &self,
        head: &CompiledHead,
        code: &Path,
    ) -> Result<(), ArtifactError> {
        let read = |source| ArtifactError::Read {
            path: code.to_owned(),
            source,
        };
        let key = self
            .compiled_folder(&head.component)
            .join(head.engine.as_str());
        let mut line = serde_json::to_vec(head).map_err(|e| read(e.into()))?;
        line.push(b'\n');
        let file = File::open(code).await.map_err(read)?;
        self.put_at(&key, head.component, code, line.as_slice().chain(file))
            .await
    }

    /// Reads machine code with its head.
    ///
    /// # Errors
    /// When there is none for this engine, or the store fails.
    pub async fn compiled_get(
        &self,
        component: Digest,
        engine: &EngineKey,
    ) -> Result<Artifact, ArtifactError> {
        let key = self.compiled_folder(&component).join(engine.as_str());
        self.get_at(&key, component, None).await
    }

    /// Deletes all machine code of a component; succeeds if there is none.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn compiled_delete(&self, component: Digest) -> Result<(), ArtifactError> {
        let failed = |source| ArtifactError::Failed {
            action: "delete the machine code of",
            digest: component,
            source,
        };
        let folder = self.compiled_folder(&component);
        let found: Vec<_> = self
            .store
            .list(Some(&folder))
            .try_collect()
            .await
            .map_err(failed)?;
        for object in found {
            match self.store.delete(&object.location).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(source) => return Err(failed(source)),
            }
        }
        Ok(())
    }
}

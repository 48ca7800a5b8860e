//! The artifact store: components by the SHA-256 of their bytes, in a local folder or an S3-compatible service.
//!
//! Components are written here only after validation, and deleted only by the collector ([`crate::app::collect`]). Writes are atomic: the local
//! folder renames a finished file, the service completes a multipart upload. Writing the same artifact again replaces bytes by equal bytes, which
//! also repairs a damaged object.

mod compiled;
mod connect;
mod objects;
mod packs;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use fdn_core::{Coded, Digest, ErrorCode};
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutPayload};
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::settings::ArtifactSettings;
pub use objects::{JobObject, ObjectError};
pub use packs::StoredPack;

/// The size of a part of a multipart upload, in bytes; S3 requires at least 5 MiB for all but the last.
const PART: usize = 8 << 20;

/// An error of the artifact store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactError {
    /// There is no such artifact.
    #[error("artifact {0} is not in the artifact store; upload the version again")]
    Missing(Digest),
    /// The range lies outside the artifact.
    #[error("the range lies outside of artifact {0}")]
    Range(Digest),
    /// The store failed.
    #[error("the artifact store failed to {action} {digest}")]
    Failed {
        /// The operation.
        action: &'static str,
        /// The digest of the artifact.
        digest: Digest,
        /// The cause.
        #[source]
        source: object_store::Error,
    },
    /// The store could not list its objects.
    #[error("the artifact store failed to list what it holds")]
    List(#[source] object_store::Error),
    /// The local copy of an upload cannot be read.
    #[error("the upload {path} cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The settings of the store are not valid.
    #[error("artifacts: {0}")]
    Settings(String),
}

impl Coded for ArtifactError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Missing(_) => ErrorCode::NotFound,
            Self::Range(_) => ErrorCode::BadRequest,
            Self::Failed { .. } | Self::List(_) => ErrorCode::ArtifactStoreFailed,
            Self::Read { .. } => ErrorCode::Internal,
            Self::Settings(_) => ErrorCode::ConfigInvalid,
        }
    }
}

/// An object of the artifact store: one incarnation of an artifact.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// The artifact's digest.
    pub digest: Digest,
    /// The incarnation's name; empty for objects stored by a release before there were incarnations.
    pub name: String,
}

/// The part of an artifact that is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// From an offset to the end.
    From(u64),
    /// From an offset up to, not including, another.
    Between(u64, u64),
    /// That many bytes at the end.
    Last(u64),
}

/// An artifact that is being read.
pub struct Artifact {
    /// The size of the whole artifact, in bytes.
    pub size: u64,
    /// The offset of the first byte that is read.
    pub start: u64,
    /// The offset after the last byte that is read.
    pub end: u64,
    /// The stream of bytes.
    pub bytes: BoxStream<'static, Result<Bytes, ArtifactError>>,
}

/// A handle on the artifact store.
#[derive(Clone, Debug)]
pub struct Artifacts {
    store: Arc<dyn ObjectStore>,
    prefix: String,
}

impl Artifacts {
    /// Opens the store, and creates the local folder if necessary.
    ///
    /// # Errors
    /// When the settings are not valid or the folder cannot be created.
    pub fn open(settings: &ArtifactSettings) -> Result<Self, ArtifactError> {
        match &settings.s3 {
            Some(s3) => Ok(Self {
                store: connect::s3(s3)?,
                prefix: s3.prefix.trim_matches('/').to_owned(),
            }),
            None => Ok(Self {
                store: connect::local(&settings.local)?,
                prefix: String::new(),
            }),
        }
    }

    /// The key of an object. A second level of folders keeps each of them small.
    fn key(&self, object: &Object) -> Key {
        let hex = object.digest.hex();
        let dot = if object.name.is_empty() { "" } else { "." };
        let name = format!("{hex}{dot}{}", object.name);
        Key::from(format!("{}/sha256/{}/{name}", self.prefix, &hex[..2]))
    }

    /// Writes the artifact in `file`, whose digest the caller has computed.
    ///
    /// # Errors
    /// When the file cannot be read or the store fails; then no object is written.
    pub async fn put(&self, object: &Object, file: &Path) -> Result<(), ArtifactError> {
        let read = |source| ArtifactError::Read {
            path: file.to_owned(),
            source,
        };
        let input = File::open(file).await.map_err(read)?;
        self.put_at(&self.key(object), object.digest, file, input)
            .await
    }

    /// Writes what is read from `input`, the content of `file`, in parts.
    async fn put_at(
        &self,
        key: &Key,
        digest: Digest,
        file: &Path,
        mut input: impl AsyncRead + Unpin,
    ) -> Result<(), ArtifactError> {
        let read = |source| ArtifactError::Read {
            path: file.to_owned(),
            source,
        };
        let failed = |source| ArtifactError::Failed {
            action: "write",
            digest,
            source,
        };
        let first = read_part(&mut input).await.map_err(read)?;
        let second = read_part(&mut input).await.map_err(read)?;
        if second.is_empty() {
            self.store
                .put(key, PutPayload::from_bytes(first))
                .await
                .map_err(failed)?;
            return Ok(());
        }
        let mut upload = self.store.put_multipart(key).await.map_err(failed)?;
        let sent = async {
            upload
                .put_part(PutPayload::from_bytes(first))
                .await
                .map_err(failed)?;
            let mut part = second;
            while !part.is_empty() {
                upload
                    .put_part(PutPayload::from_bytes(part))
                    .await
                    .map_err(failed)?;
                part = read_part(&mut input).await.map_err(read)?;
            }
            upload.complete().await.map_err(failed)
        }
        .await;
        if let Err(error) = sent {
            // The remaining parts are not visible as an object, so only the first error is returned.
            drop(upload.abort().await);
            return Err(error);
        }
        Ok(())
    }

    /// Reads an artifact or a part of it.
    ///
    /// # Errors
    /// When it is missing, the range lies outside of it, or the store fails.
    pub async fn get(
        &self,
        object: &Object,
        span: Option<Span>,
    ) -> Result<Artifact, ArtifactError> {
        self.get_at(&self.key(object), object.digest, span).await
    }

    async fn get_at(
        &self,
        key: &Key,
        digest: Digest,
        span: Option<Span>,
    ) -> Result<Artifact, ArtifactError> {
        let failed = |source| match source {
            object_store::Error::NotFound { .. } => ArtifactError::Missing(digest),
            source => ArtifactError::Failed {
                action: "read",
                digest,
                source,
            },
        };
        let size = self.store.head(key).await.map_err(failed)?.size;
        let (start, end) = match span {
            None => (0, size),
            Some(Span::From(start)) => (start, size),
            Some(Span::Between(start, end)) => (start, end.min(size)),
            Some(Span::Last(count)) => (size.saturating_sub(count), size),
        };
        if start >= end {
            return Err(ArtifactError::Range(digest));
        }
        let options = GetOptions {
            range: Some(GetRange::Bounded(start..end)),
            ..GetOptions::default()
        };
        let found = self.store.get_opts(key, options).await.map_err(failed)?;
        let bytes = found.into_stream().map(move |piece| {
            piece.map_err(|source| ArtifactError::Failed {
                action: "read",
                digest,
                source,
            })
        });
        Ok(Artifact {
            size,
            start,
            end,
            bytes: bytes.boxed(),
        })
    }

    /// Whether an artifact is in the store.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn exists(&self, object: &Object) -> Result<bool, ArtifactError> {
        match self.store.head(&self.key(object)).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(source) => Err(ArtifactError::Failed {
                action: "find",
                digest: object.digest,
                source,
            }),
        }
    }

    /// Whether the store has no objects at all.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn is_empty(&self) -> Result<bool, ArtifactError> {
        let prefix = Key::from(self.prefix.as_str());
        let prefix = (!self.prefix.is_empty()).then_some(&prefix);
        match self.store.list(prefix).next().await.transpose() {
            Ok(found) => Ok(found.is_none()),
            Err(source) => Err(ArtifactError::List(source)),
        }
    }

    /// The key of an artifact.
    #[must_use]
    pub fn key_of(&self, object: &Object) -> String {
        self.key(object).to_string()
    }

    /// The keys of all objects in the store if all are in `known`; otherwise one that is not, as the inner error.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn list_within(
        &self,
        known: &BTreeSet<String>,
    ) -> Result<Result<BTreeSet<String>, String>, ArtifactError> {
        let prefix = Key::from(self.prefix.as_str());
        let prefix = (!self.prefix.is_empty()).then_some(&prefix);
        let mut all = self.store.list(prefix);
        let mut found = BTreeSet::new();
        while let Some(one) = all.next().await {
            let key = one.map_err(ArtifactError::List)?.location.to_string();
            if !known.contains(&key) {
                return Ok(Err(key));
            }
            found.insert(key);
        }
        Ok(Ok(found))
    }

    /// Deletes an artifact; succeeds if it is missing.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn delete(&self, object: &Object) -> Result<(), ArtifactError> {
        match self.store.delete(&self.key(object)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(ArtifactError::Failed {
                action: "delete",
                digest: object.digest,
                source,
            }),
        }
    }
}

/// Reads the next part; empty at the end.
async fn read_part(input: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Bytes> {
    let mut part = BytesMut::new();
    while part.len() < PART {
        part.reserve((PART - part.len()).min(256 << 10));
        if input.read_buf(&mut part).await? == 0 {
            break;
        }
    }
    Ok(part.freeze())
}

#[cfg(test)]
mod tests;

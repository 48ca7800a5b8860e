//! The artifact store: components by the SHA-256 of their bytes, in a local folder or an S3-compatible service.
//!
//! Nothing is written here before it was validated, and nothing is removed here but by the collector ([`crate::app::collect`]). An object appears whole or not at all: the local folder renames a finished file, the
//! service completes a multipart upload. Writing the same artifact again replaces equal bytes by equal bytes, which also heals a
//! damaged object.

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

/// Bytes of one part of a multipart upload; S3 wants at least 5 MiB for all but the last.
const PART: usize = 8 << 20;

/// An error of the artifact store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactError {
    /// There is no such artifact.
    #[error("artifact {0} is not in the artifact store; upload the version again")]
    Missing(Digest),
    /// The range lies outside of the artifact.
    #[error("the range lies outside of artifact {0}")]
    Range(Digest),
    /// The store failed.
    #[error("the artifact store failed to {action} {digest}")]
    Failed {
        /// What it was to do.
        action: &'static str,
        /// With which artifact.
        digest: Digest,
        /// Why.
        #[source]
        source: object_store::Error,
    },
    /// The store could not say what it holds.
    #[error("the artifact store failed to list what it holds")]
    List(#[source] object_store::Error),
    /// The local copy of an upload cannot be read.
    #[error("the upload {path} cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
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
    /// Of which artifact.
    pub digest: Digest,
    /// The incarnation's name; empty for what was stored before there were any.
    pub name: String,
}

/// What part of an artifact is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// From an offset to the end.
    From(u64),
    /// From an offset up to, not including, another.
    Between(u64, u64),
    /// The last bytes.
    Last(u64),
}

/// An artifact on its way out.
pub struct Artifact {
    /// Its whole size.
    pub size: u64,
    /// The first byte that comes.
    pub start: u64,
    /// The byte after the last that comes.
    pub end: u64,
    /// The bytes.
    pub bytes: BoxStream<'static, Result<Bytes, ArtifactError>>,
}

/// A handle on the artifact store.
#[derive(Clone, Debug)]
pub struct Artifacts {
    store: Arc<dyn ObjectStore>,
    prefix: String,
}

impl Artifacts {
    /// Opens the store; makes the local folder if need be.
    ///
    /// # Errors
    /// When the settings are not valid or the folder cannot be made.
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

    /// A second level of folders keeps each of them small.
    fn key(&self, object: &Object) -> Key {
        let hex = object.digest.hex();
        let dot = if object.name.is_empty() { "" } else { "." };
        let name = format!("{hex}{dot}{}", object.name);
        Key::from(format!("{}/sha256/{}/{name}", self.prefix, &hex[..2]))
    }

    /// Writes the artifact in `file`, whose digest the caller has computed.
    ///
    /// # Errors
    /// When the file cannot be read or the store fails; then nothing is left in it.
    pub async fn put(&self, object: &Object, file: &Path) -> Result<(), ArtifactError> {
        let read = |source| ArtifactError::Read {
            path: file.to_owned(),
            source,
        };
        let input = File::open(file).await.map_err(read)?;
        self.put_at(&self.key(object), object.digest, file, input)
            .await
    }

    /// Writes what is read from `input`, which comes from `file`, in parts.
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
            // What is left is not visible as an object; the first error is the one to tell.
            drop(upload.abort().await);
            return Err(error);
        }
        Ok(())
    }

    /// Reads an artifact or a span of it.
    ///
    /// # Errors
    /// When it is not there, the span lies outside of it, or the store fails.
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

    /// Whether an artifact is there.
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

    /// Whether nothing at all is in the store.
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

    /// Where an artifact lies.
    #[must_use]
    pub fn key_of(&self, object: &Object) -> String {
        self.key(object).to_string()
    }

    /// The keys of all that is in the store, if it is all among `known`; else one that is not.
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

    /// Removes an artifact; one that is not there is no error.
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

/// The next part of what is read; empty at its end.
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

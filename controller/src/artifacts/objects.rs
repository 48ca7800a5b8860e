//! Large inputs and results of jobs, in the artifact store: by the job's id instead of a digest, so that they belong to one job and are deleted
//! with it.

use bytes::Bytes;
use fdn_core::{Coded, ErrorCode, JobId};
use futures::TryStreamExt;
use object_store::path::Path as Key;
use object_store::{ObjectStoreExt, PutPayload};

use super::Artifacts;

/// An object that belongs to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobObject {
    /// The input of the job.
    Input,
    /// The app's response to an attempt, by the attempt's number.
    Result(u32),
}

/// The store failed to handle an object of a job.
#[derive(Debug, thiserror::Error)]
#[error("the artifact store failed to {action} an object of {job}")]
pub struct ObjectError {
    action: &'static str,
    job: JobId,
    #[source]
    source: object_store::Error,
}

impl ObjectError {
    /// Whether the object is missing.
    #[must_use]
    pub const fn is_missing(&self) -> bool {
        matches!(self.source, object_store::Error::NotFound { .. })
    }
}

impl Coded for ObjectError {
    fn code(&self) -> ErrorCode {
        ErrorCode::ArtifactStoreFailed
    }
}

impl Artifacts {
    fn folder(&self, job: JobId) -> Key {
        Key::from(format!("{}/jobs/{job}", self.prefix))
    }

    fn object(&self, job: JobId, object: JobObject) -> Key {
        match object {
            JobObject::Input => self.folder(job).join("input"),
            JobObject::Result(attempt) => self.folder(job).join(format!("result-{attempt}")),
        }
    }

    /// The key of an object.
    #[must_use]
    pub fn job_key_of(&self, job: JobId, object: JobObject) -> String {
        self.object(job, object).to_string()
    }

    /// Writes an object; an existing one is replaced.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn object_put(
        &self,
        job: JobId,
        object: JobObject,
        bytes: Bytes,
    ) -> Result<(), ObjectError> {
        let key = self.object(job, object);
        let put = self.store.put(&key, PutPayload::from_bytes(bytes)).await;
        put.map(drop).map_err(|source| ObjectError {
            action: "write",
            job,
            source,
        })
    }

    /// Reads a whole object.
    ///
    /// # Errors
    /// When it is missing or the store fails.
    pub async fn object_get(&self, job: JobId, object: JobObject) -> Result<Bytes, ObjectError> {
        let read = async {
            self.store
                .get(&self.object(job, object))
                .await?
                .bytes()
                .await
        };
        read.await.map_err(|source| ObjectError {
            action: "read",
            job,
            source,
        })
    }

    /// Deletes one object of a job; succeeds if it is not there.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn object_delete(&self, job: JobId, object: JobObject) -> Result<(), ObjectError> {
        self.remove(job, &self.object(job, object)).await
    }

    async fn remove(&self, job: JobId, key: &Key) -> Result<(), ObjectError> {
        match self.store.delete(key).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(ObjectError {
                action: "remove",
                job,
                source,
            }),
        }
    }

    /// Deletes all objects of a job; succeeds if there are none.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn objects_delete(&self, job: JobId) -> Result<(), ObjectError> {
        let failed = |source| ObjectError {
            action: "remove",
            job,
            source,
        };
        let folder = self.folder(job);
        let found: Vec<_> = self
            .store
            .list(Some(&folder))
            .try_collect()
            .await
            .map_err(failed)?;
        for object in found {
            self.remove(job, &object.location).await?;
        }
        Ok(())
    }
}

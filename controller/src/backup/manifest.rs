//! The manifest of an archive.

use fdn_core::{Digest, JobId, Timestamp};
use serde::{Deserialize, Serialize};

use super::error::BackupError;
use crate::artifacts::{JobObject, Object};
use crate::store::copy::Table;

/// The format that this release writes and reads.
pub(super) const FORMAT: u32 = 1;

/// The name of the manifest in the archive.
pub(super) const MANIFEST: &str = "manifest.json";
/// The name of the manifest's checksum.
pub(super) const SUM: &str = "manifest.sha256";
/// The name of the list of objects.
pub(super) const OBJECTS: &str = "objects.jsonl";

/// The largest manifest that is read, in bytes.
pub(super) const MANIFEST_MAX: u64 = 4 << 20;

/// The first part of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The archive's format.
    pub format: u32,
    /// The release that made the archive.
    pub product: String,
    /// The version of the last migration of the database.
    pub schema: i64,
    /// The time as of which the rows were read.
    pub made_at: Timestamp,
    /// The kind of database that it was made from.
    pub database: String,
    /// The key files in the archive.
    pub keys: Vec<KeyPart>,
    /// The keys that are not in the archive; without them it is of little use.
    pub keys_apart: Vec<ExternalKey>,
    /// The tables, those that others refer to first.
    pub tables: Vec<TablePart>,
    /// The objects.
    pub objects: ObjectsPart,
}

/// Size and digest of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The size in bytes.
    pub size: u64,
    /// The SHA-256 of the bytes.
    pub sha256: Digest,
}

/// A key file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPart {
    /// The key's name: `network.key`, `network.token`, `master.key` or `admin.password`.
    pub name: String,
    /// Size and digest.
    #[serde(flatten)]
    pub part: Part,
}

/// A key that is not in the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalKey {
    /// The key's name.
    pub name: String,
    /// Where it was when the backup was made.
    pub place: String,
    /// An id that distinguishes it from another key and reveals nothing about it.
    pub id: Option<String>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TablePart {
    /// Name and columns.
    #[serde(flatten)]
    pub table: Table,
    /// The number of rows.
    pub rows: u64,
    /// Size and digest.
    #[serde(flatten)]
    pub part: Part,
}

/// The list of objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectsPart {
    /// The number of objects.
    pub count: u64,
    /// Their total size in bytes.
    #[serde(alias = "octets")]
    pub bytes: u64,
    /// Size and digest of the list.
    #[serde(flatten)]
    pub part: Part,
}

/// An object: a line of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ObjectEntry {
    /// The kind and identity of the object.
    #[serde(flatten)]
    pub(super) what: ObjectKind,
    /// Size and digest.
    #[serde(flatten)]
    pub(super) part: Part,
}

/// The kind and identity of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum ObjectKind {
    /// An artifact, by its incarnation.
    Artifact {
        /// The digest.
        digest: Digest,
        /// The incarnation's name in the store.
        object: String,
    },
    /// The input of a job.
    JobInput {
        /// The job.
        job: JobId,
    },
    /// The result of an attempt of a job.
    JobResult {
        /// The job.
        job: JobId,
        /// The number of the attempt.
        attempt: u32,
    },
}

impl ObjectKind {
    pub(super) fn artifact(object: &Object) -> Self {
        Self::Artifact {
            digest: object.digest,
            object: object.name.clone(),
        }
    }

    pub(super) const fn of_job(job: JobId, object: JobObject) -> Self {
        match object {
            JobObject::Input => Self::JobInput { job },
            JobObject::Result(attempt) => Self::JobResult { job, attempt },
        }
    }
}

/// The name of the n-th object in an archive.
pub(super) fn object_name(number: u64) -> String {
    format!("objects/{number:08}")
}

impl Manifest {
    /// Checks that this release can restore the archive.
    ///
    /// # Errors
    /// With the reason why it cannot, and what to do.
    pub fn check(&self, known: &[i64]) -> Result<(), BackupError> {
        if self.format != FORMAT {
            return Err(BackupError::Format {
                found: self.format,
                known: FORMAT,
                product: self.product.clone(),
            });
        }
        let newest = known.iter().copied().max().unwrap_or(0);
        if self.schema > newest {
            return Err(BackupError::Newer {
                found: self.schema,
                known: newest,
                product: self.product.clone(),
            });
        }
        if !known.contains(&self.schema) {
            return Err(BackupError::Damaged(format!(
                "no release has schema {}",
                self.schema
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(format: u32, schema: i64) -> Manifest {
        let part = Part {
            size: 0,
            sha256: Digest::of(b""),
        };
        Manifest {
            format,
            product: "0.9.0".to_owned(),
            schema,
            made_at: Timestamp(1),
            database: "SQLite".to_owned(),
            keys: Vec::new(),
            keys_apart: Vec::new(),
            tables: Vec::new(),
            objects: ObjectsPart {
                count: 0,
                bytes: 0,
                part,
            },
        }
    }

    #[test]
    fn a_manifest_of_the_release_before_is_read() {
        let written = serde_json::to_string(&manifest(FORMAT, 10)).expect("JSON");
        let before = written.replace("\"bytes\"", "\"octets\"");
        assert_ne!(before, written);
        let read: Manifest = serde_json::from_str(&before).expect("a manifest");
        assert_eq!(read, manifest(FORMAT, 10));
    }

    #[test]
    fn a_release_restores_what_it_knows_and_says_why_not() {
        let known = [10, 20, 30];
        for schema in known {
            manifest(FORMAT, schema).check(&known).expect("known");
        }
        for (manifest, word) in [
            (manifest(FORMAT, 31), "newer release (0.9.0, schema 31)"),
            (manifest(FORMAT, 15), "no release has schema 15"),
            (manifest(FORMAT + 1, 30), "with the release that made it"),
        ] {
            let error = manifest.check(&known).expect_err("refused").to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn a_line_says_what_an_object_is() {
        let digest = Digest::of(b"abc");
        let item = ObjectEntry {
            what: ObjectKind::Artifact {
                digest,
                object: "x1".to_owned(),
            },
            part: Part {
                size: 3,
                sha256: digest,
            },
        };
        let line = serde_json::to_string(&item).expect("JSON");
        assert!(
            line.starts_with(r#"{"kind":"artifact","digest":"sha256:ba78"#),
            "{line}"
        );
        assert_eq!(
            serde_json::from_str::<ObjectEntry>(&line).expect("read"),
            item
        );
    }
}

//! Creates a backup.

use std::fs::{File, Permissions};
use std::io::{self, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use futures::{StreamExt, TryStreamExt};
use sqlx::AnyConnection;
use tempfile::{NamedTempFile, TempDir};
use tokio::runtime::Handle;
use tokio_util::io::{StreamReader, SyncIoBridge};

use super::archive::{Packer, SpoolFile};
use super::error::BackupError;
use super::keys::{self, CollectedKeys};
use super::manifest::{
    FORMAT, KeyPart, Manifest, OBJECTS, ObjectEntry, ObjectKind, ObjectsPart, Part, TablePart,
    object_name,
};
use super::{ArchiveLocation, KeyPolicy, run_blocking};
use crate::Error;
use crate::artifacts::{Artifacts, Object};
use crate::settings::Settings;
use crate::store::copy::{
    artifact_stream, job_object_stream, lift_timeouts, row_stream, schema_version, table_list,
};
use crate::store::dialect::Dialect;
use crate::store::{Store, StoreError, newest};

/// Creates a backup; controllers may keep running meanwhile. The file appears complete or not at all, and only its owner can read it.
///
/// # Errors
/// When something cannot be read or written, or the database is not at this release's schema.
pub async fn backup(
    settings: &Settings,
    location: &ArchiveLocation,
    wanted: KeyPolicy,
) -> Result<Manifest, Error> {
    let (settings, location) = (settings.clone(), location.clone());
    let handle = Handle::current();
    run_blocking(move || {
        let store = handle.block_on(Store::connect(&settings.database))?;
        let made = BackupWriter {
            artifacts: Artifacts::open(&settings.artifacts)?,
            spool: spool(&location)?,
            handle: handle.clone(),
            settings,
            wanted,
        }
        .run(&store, &location);
        handle.block_on(store.close());
        made
    })
    .await
}

/// A folder beside the archive for parts whose size and digest must be known before the archive begins.
fn spool(location: &ArchiveLocation) -> Result<TempDir, BackupError> {
    let folder = match location {
        ArchiveLocation::File(path) => folder_of(path),
        ArchiveLocation::Stream => std::env::temp_dir(),
    };
    tempfile::Builder::new()
        .prefix(".fdn-backup-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(&folder)
        .map_err(BackupError::file(folder.display().to_string(), "written"))
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

struct BackupWriter {
    settings: Settings,
    wanted: KeyPolicy,
    artifacts: Artifacts,
    spool: TempDir,
    handle: Handle,
}

impl BackupWriter {
    fn run(&self, store: &Store, location: &ArchiveLocation) -> Result<Manifest, Error> {
        let CollectedKeys { inside, external } = keys::collect(&self.settings, self.wanted)?;
        let mut tx = self.handle.block_on(store.snapshot())?;
        self.handle.block_on(lift_timeouts(&mut tx))?;
        self.at_this_schema(&mut tx)?;
        // The snapshot is as of its first query, which was just now.
        let made_at = fdn_service::now();
        let tables = self.tables(&mut tx)?;
        let objects = self.objects(&mut tx)?;
        self.handle
            .block_on(tx.rollback())
            .map_err(StoreError::from)?;
        let manifest = Manifest {
            format: FORMAT,
            product: env!("CARGO_PKG_VERSION").to_owned(),
            schema: newest(),
            made_at,
            database: Dialect::of(&self.settings.database.url)?.name().to_owned(),
            keys: inside.iter().map(|(key, _)| key.clone()).collect(),
            keys_apart: external,
            tables,
            objects,
        };
        let keys = inside
            .iter()
            .map(|(key, text)| (key, text.expose().as_bytes()));
        match location {
            ArchiveLocation::Stream => {
                drop(self.pack(io::stdout().lock(), &manifest, keys)?);
            }
            ArchiveLocation::File(path) => self.pack_file(path, &manifest, keys)?,
        }
        Ok(manifest)
    }

    fn at_this_schema(&self, connection: &mut AnyConnection) -> Result<(), Error> {
        let found = self.handle.block_on(schema_version(connection))?;
        let (found, known) = (found.unwrap_or(0), newest());
        if found > known {
            return Err(StoreError::Newer { found, known }.into());
        }
        if found < known {
            return Err(BackupError::Older { found, known }.into());
        }
        Ok(())
    }

    fn tables(&self, connection: &mut AnyConnection) -> Result<Vec<TablePart>, Error> {
        let mut parts = Vec::new();
        for table in self.handle.block_on(table_list(connection))? {
            let Some(mut rows) = row_stream(connection, &table) else {
                continue;
            };
            let mut file = SpoolFile::create(&self.spooled(&table.name))?;
            let mut count = 0;
            while let Some(row) = self.handle.block_on(rows.try_next())? {
                file.line(&row)?;
                count += 1;
            }
            drop(rows);
            parts.push(TablePart {
                part: file.finish()?,
                rows: count,
                table,
            });
        }
        Ok(parts)
    }

    fn spooled(&self, name: &str) -> PathBuf {
        self.spool.path().join(name)
    }

    /// Writes the list of objects, and copies the objects of jobs into the spool: they are deleted with their jobs, artifacts stay.
    fn objects(&self, connection: &mut AnyConnection) -> Result<ObjectsPart, Error> {
        let mut list = SpoolFile::create(&self.spooled(OBJECTS))?;
        let (mut count, mut bytes) = (0, 0);
        let mut artifacts = artifact_stream(connection);
        while let Some(used) = self.handle.block_on(artifacts.try_next())? {
            list.line(&ObjectEntry {
                what: ObjectKind::artifact(&used.object),
                part: Part {
                    size: used.size,
                    sha256: used.object.digest,
                },
            })?;
            count += 1;
            bytes += used.size;
        }
        drop(artifacts);
        let mut jobs = job_object_stream(connection);
        while let Some((job, kept)) = self.handle.block_on(jobs.try_next())? {
            for object in kept {
                let found = self.handle.block_on(self.artifacts.object_get(job, object));
                let found = match found {
                    Ok(found) => found,
                    // The job has ended and was deleted since the snapshot; a restored copy of it is deleted again.
                    Err(error) if error.is_missing() => continue,
                    Err(error) => return Err(error.into()),
                };
                count += 1;
                let mut file = SpoolFile::create(&self.spooled(&spooled_object(count)))?;
                file.write_all(&found)
                    .map_err(BackupError::file("the spool", "written"))?;
                let part = file.finish()?;
                bytes += part.size;
                list.line(&ObjectEntry {
                    what: ObjectKind::of_job(job, object),
                    part,
                })?;
            }
        }
        Ok(ObjectsPart {
            count,
            bytes,
            part: list.finish()?,
        })
    }

    fn pack_file<'k>(
        &self,
        path: &Path,
        manifest: &Manifest,
        keys: impl Iterator<Item = (&'k KeyPart, &'k [u8])>,
    ) -> Result<(), Error> {
        let name = || path.display().to_string();
        let folder = folder_of(path);
        // Created with access for its owner only.
        let file = NamedTempFile::new_in(&folder).map_err(BackupError::file(name(), "written"))?;
        let mut file = self.pack(file, manifest, keys)?;
        file.as_file_mut()
            .sync_all()
            .map_err(BackupError::file(name(), "written"))?;
        file.persist(path)
            .map_err(|e| BackupError::file(name(), "written")(e.error))?;
        File::open(&folder)
            .and_then(|folder| folder.sync_all())
            .map_err(BackupError::file(name(), "written"))?;
        Ok(())
    }

    fn pack<'k, W: Write>(
        &self,
        out: W,
        manifest: &Manifest,
        keys: impl Iterator<Item = (&'k KeyPart, &'k [u8])>,
    ) -> Result<W, Error> {
        let mut packer = Packer::begin(out, manifest)?;
        for (key, bytes) in keys {
            packer.whole(&format!("keys/{}", key.name), bytes)?;
        }
        for table in &manifest.tables {
            let name = format!("tables/{}.jsonl", table.table.name);
            packer.add(&name, &table.part, self.open(&table.table.name)?)?;
        }
        packer.add(OBJECTS, &manifest.objects.part, self.open(OBJECTS)?)?;
        let lines = io::BufRead::lines(BufReader::new(self.open(OBJECTS)?));
        for (number, line) in (1..).zip(lines) {
            let line = line.map_err(BackupError::file(OBJECTS, "read"))?;
            let item: ObjectEntry = serde_json::from_str(&line)
                .map_err(|e| BackupError::file(OBJECTS, "read")(e.into()))?;
            let name = object_name(number);
            match &item.what {
                ObjectKind::Artifact { digest, object } => {
                    let object = Object {
                        digest: *digest,
                        name: object.clone(),
                    };
                    self.pack_artifact(&mut packer, &name, &object, &item.part)?;
                }
                ObjectKind::JobInput { .. } | ObjectKind::JobResult { .. } => {
                    packer.add(&name, &item.part, self.open(&spooled_object(number))?)?;
                }
            }
        }
        Ok(packer.finish()?)
    }

    /// Streams an artifact from the store into the archive; fails if it does not match its digest.
    fn pack_artifact<W: Write>(
        &self,
        packer: &mut Packer<W>,
        name: &str,
        object: &Object,
        part: &Part,
    ) -> Result<(), Error> {
        let found = self.handle.block_on(self.artifacts.get(object, None))?;
        if found.size != part.size {
            return Err(BackupError::Spoilt {
                what: object.digest.to_string(),
                problem: format!("{} bytes instead of {}", found.size, part.size),
            }
            .into());
        }
        let bytes = StreamReader::new(found.bytes.map(|piece| piece.map_err(io::Error::other)));
        let source = SyncIoBridge::new_with_handle(bytes, self.handle.clone());
        packer
            .add(name, part, source)
            .map_err(|error| match error {
                BackupError::Spoilt { problem, .. } => BackupError::Spoilt {
                    what: object.digest.to_string(),
                    problem,
                },
                error => error,
            })?;
        Ok(())
    }

    fn open(&self, name: &str) -> Result<File, BackupError> {
        File::open(self.spooled(name)).map_err(BackupError::file(name, "read"))
    }
}

/// The name in the spool of an object of a job. No table has a name with a space.
fn spooled_object(number: u64) -> String {
    format!("object {number}")
}

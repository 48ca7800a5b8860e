//! Restores a backup into an empty database and artifact store.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;

use fdn_core::JobId;
use fdn_service::secret::Secret;
use sqlx::{Any, Transaction};
use tokio::runtime::Handle;
use tracing::info;

use super::archive::{ArchivePart, ObjectList, PartReceiver, walk};
use super::error::BackupError;
use super::manifest::{Manifest, ObjectEntry, ObjectKind, TablePart};
use super::{ArchiveLocation, KeyPolicy, keys, run_blocking};
use crate::Error;
use crate::app::actor::Actor;
use crate::artifacts::{Artifacts, JobObject, Object};
use crate::settings::Settings;
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::copy::{
    Table, clear, forget_sealed, lift_timeouts, occupied, reset_leases, row_insert, schema_version,
    table_list,
};
use crate::store::secret::data_key_counts;
use crate::store::{MIGRATOR, Store, StoreError, in_transaction};

/// The most bytes of rows written at a time.
const BATCH_BYTES: usize = 1 << 20;

/// Restores an archive into an empty database and an empty artifact store, and migrates it to this release's schema. Nothing is written before
/// the whole archive has been read and found intact; if a later step fails, what was written is deleted. A restore that was killed leaves objects
/// behind: if the store contains only objects of this archive, they are written again.
///
/// # Errors
/// When the database or the store is not empty, the archive cannot be read, is damaged or of a newer release, keys are missing, or something
/// cannot be written.
pub async fn restore(
    settings: &Settings,
    location: &ArchiveLocation,
    wanted: KeyPolicy,
) -> Result<Manifest, Error> {
    let (settings, location) = (settings.clone(), location.clone());
    let handle = Handle::current();
    run_blocking(move || {
        let file = open(&location)?;
        let mut verifier = Verifier {
            settings: &settings,
            wanted,
            items: None,
        };
        walk(&file, &mut verifier)?;
        let items = verifier.items.take();
        let store = handle.block_on(Store::connect(&settings.database))?;
        let restored = run(&settings, (&file, wanted, items), &store, &handle);
        handle.block_on(store.close());
        restored
    })
    .await
}

/// The archive as a file that can be read twice.
fn open(location: &ArchiveLocation) -> Result<File, BackupError> {
    match location {
        ArchiveLocation::File(path) => {
            File::open(path).map_err(BackupError::file(path.display().to_string(), "read"))
        }
        ArchiveLocation::Stream => {
            let failed = |source| BackupError::File {
                what: "standard input".to_owned(),
                action: "kept in a temporary file",
                source,
            };
            let mut file = tempfile::tempfile().map_err(failed)?;
            io::copy(&mut io::stdin().lock(), &mut file).map_err(failed)?;
            Ok(file)
        }
    }
}

/// The first pass: reads and checks everything, and writes nothing.
struct Verifier<'a> {
    settings: &'a Settings,
    wanted: KeyPolicy,
    /// The list of objects in the archive.
    items: Option<ObjectList>,
}

impl PartReceiver for Verifier<'_> {
    fn begin(&mut self, manifest: &Manifest) -> Result<(), Error> {
        let known: Vec<i64> = MIGRATOR.iter().map(|each| each.version).collect();
        manifest.check(&known)?;
        keys::check(self.settings, manifest, self.wanted)
    }

    fn objects(&mut self, items: &ObjectList) -> Result<(), Error> {
        self.items = Some(items.again()?);
        Ok(())
    }

    fn take(&mut self, _piece: &ArchivePart<'_>, _source: &mut dyn Read) -> Result<(), Error> {
        Ok(())
    }
}

fn run(
    settings: &Settings,
    (file, wanted, items): (&File, KeyPolicy, Option<ObjectList>),
    store: &Store,
    handle: &Handle,
) -> Result<Manifest, Error> {
    let artifacts = Artifacts::open(&settings.artifacts)?;
    let left = handle.block_on(check_empty(settings, store, &artifacts, items.as_ref()))?;
    if !left.is_empty() {
        info!(
            objects = left.len(),
            "the artifact store holds objects of this archive already, as a restore that was killed leaves them; they are written again"
        );
    }
    let mut loader = Loader {
        settings,
        wanted,
        store,
        handle,
        artifacts: &artifacts,
        left,
        tables: Vec::new(),
        tx: None,
        items: None,
        objects: 0,
        keys: Vec::new(),
        committing: false,
    };
    let done = walk(file, &mut loader).and_then(|manifest| {
        loader.commit()?;
        Ok(manifest)
    });
    let manifest = match done {
        Ok(manifest) => manifest,
        Err(error) => {
            loader.undo();
            return Err(error);
        }
    };
    let ended: Result<(), Error> = handle.block_on(async {
        store.migrate().await?;
        note(store, &manifest).await
    });
    ended.map_err(|error| BackupError::Unfinished(Box::new(error)))?;
    Ok(manifest)
}

/// Fails if the database has rows, or the artifact store has objects that are not in the archive. Returns the keys of objects that are.
async fn check_empty(
    settings: &Settings,
    store: &Store,
    artifacts: &Artifacts,
    items: Option<&ObjectList>,
) -> Result<BTreeSet<String>, Error> {
    let mut connection = store.read().await?;
    let tables = table_list(&mut connection).await?;
    let found = occupied(&mut connection, &tables).await?;
    drop(connection);
    if let Some(table) = found {
        return Err(not_empty(&table).into());
    }
    if artifacts.is_empty().await? {
        return Ok(BTreeSet::new());
    }
    let mut known = BTreeSet::new();
    for item in items
        .map(ObjectList::read)
        .transpose()?
        .into_iter()
        .flatten()
    {
        known.insert(key_of(artifacts, &item?.what));
    }
    let place = settings.artifacts.s3.as_ref().map_or_else(
        || settings.artifacts.local.display().to_string(),
        |s3| format!("bucket {} {}", s3.bucket, s3.prefix),
    );
    artifacts.list_within(&known).await?.map_err(|foreign| {
        BackupError::NotEmpty(format!(
            "the artifact store ({place}) holds objects already that are not of this archive, such as {foreign}: restore needs an empty one. If a restore of \
             another archive was killed here, delete what it left; else move them away, or name another place in [artifacts]"
        ))
        .into()
    })
}

/// The key of an object of an archive in the artifact store.
fn key_of(artifacts: &Artifacts, what: &ObjectKind) -> String {
    match what {
        ObjectKind::Artifact { digest, object } => artifacts.key_of(&Object {
            digest: *digest,
            name: object.clone(),
        }),
        ObjectKind::JobInput { job } => artifacts.job_key_of(*job, JobObject::Input),
        ObjectKind::JobResult { job, attempt } => {
            artifacts.job_key_of(*job, JobObject::Result(*attempt))
        }
    }
}

fn not_empty(table: &str) -> BackupError {
    BackupError::NotEmpty(format!(
        "the metadata store holds rows already (table {table}): restore needs an empty one. Stop all controllers, make a new database (or move the \
         file of SQLite away), and name it in database.url"
    ))
}

/// Writes an audit log entry: the entries before it were restored.
async fn note(store: &Store, manifest: &Manifest) -> Result<(), Error> {
    let entry = AuditEntry {
        at: fdn_service::now(),
        actor: Actor::network(),
        tenant: None,
        action: "network.restore",
        subject: "network".to_owned(),
        before: None,
        after: Some(
            serde_json::json!({ "made_at": manifest.made_at, "product": manifest.product, "schema": manifest.schema })
                .to_string(),
        ),
    };
    let noted: Result<(), Error> =
        in_transaction!(store, tx => Ok(audit_insert(&mut tx, &entry).await?));
    noted
}

/// The second pass: writes the content of the archive.
struct Loader<'a> {
    settings: &'a Settings,
    wanted: KeyPolicy,
    store: &'a Store,
    handle: &'a Handle,
    artifacts: &'a Artifacts,
    /// The keys of objects that were in the store before.
    left: BTreeSet<String>,
    tables: Vec<Table>,
    tx: Option<Transaction<'static, Any>>,
    /// The objects of the archive; `objects` counts those whose writing began.
    items: Option<ObjectList>,
    objects: usize,
    /// Key files that were created.
    keys: Vec<PathBuf>,
    /// Whether a commit was requested: it may have happened whatever the database answered.
    committing: bool,
}

impl PartReceiver for Loader<'_> {
    /// Creates the schema of the archive and begins the transaction.
    fn begin(&mut self, manifest: &Manifest) -> Result<(), Error> {
        let (handle, store) = (self.handle, self.store);
        let (tables, tx) = handle.block_on(async {
            let found = schema_version(&mut *store.read().await?).await?;
            if found.is_some_and(|found| found > manifest.schema) {
                return Err(Error::from(BackupError::NotEmpty(
                    "the metadata store is empty and has a newer schema than the archive: make a new database, without tables".to_owned(),
                )));
            }
            store.migrate_to(Some(manifest.schema)).await?;
            let mut tx = store.begin().await?;
            lift_timeouts(&mut tx).await?;
            let tables = table_list(&mut tx).await?;
            if let Some(table) = occupied(&mut tx, &tables).await? {
                return Err(not_empty(&table).into());
            }
            clear(&mut tx, &tables).await?;
            Ok((tables, tx))
        })?;
        self.tables = tables;
        self.tx = Some(tx);
        Ok(())
    }

    fn objects(&mut self, items: &ObjectList) -> Result<(), Error> {
        self.items = Some(items.again()?);
        Ok(())
    }

    fn take(&mut self, piece: &ArchivePart<'_>, source: &mut dyn Read) -> Result<(), Error> {
        match piece {
            ArchivePart::Key(key) => {
                let mut text = String::new();
                source
                    .read_to_string(&mut text)
                    .map_err(BackupError::damaged(&key.name))?;
                let made = keys::install(self.settings, &key.name, &Secret::new(text))?;
                self.keys.extend(made);
                Ok(())
            }
            ArchivePart::Table(part) => self.table(part, source),
            ArchivePart::Object(item) => {
                self.objects += 1;
                self.object(item, source)
            }
        }
    }
}

impl Loader<'_> {
    fn table(&mut self, part: &TablePart, source: &mut dyn Read) -> Result<(), Error> {
        let name = &part.table.name;
        let wrong = |problem: &str| BackupError::Damaged(format!("{name}: {problem}"));
        // Names of tables and columns are checked against the schema, whatever the archive says.
        let table = self
            .tables
            .iter()
            .find(|table| table.name == *name)
            .filter(|table| same_columns(table, &part.table))
            .ok_or_else(|| wrong("its columns are not those of its schema"))?;
        let table = Table {
            name: table.name.clone(),
            columns: part.table.columns.clone(),
        };
        let tx = self
            .tx
            .as_mut()
            .ok_or_else(|| wrong("it comes too early"))?;
        let (mut rows, mut bytes, mut count) = (Vec::new(), 0, 0);
        for line in BufReader::new(source).lines() {
            let line = line.map_err(BackupError::damaged(name))?;
            let row: Vec<serde_json::Value> =
                serde_json::from_str(&line).map_err(|e| wrong(&e.to_string()))?;
            if row.len() != table.columns.len() {
                return Err(wrong("a row has too few or too many values").into());
            }
            rows.push(row);
            bytes += line.len();
            count += 1;
            if rows.len() >= table.rows_max() || bytes >= BATCH_BYTES {
                self.handle.block_on(row_insert(tx, &table, &rows))?;
                rows.clear();
                bytes = 0;
            }
        }
        self.handle.block_on(row_insert(tx, &table, &rows))?;
        if count == part.rows {
            Ok(())
        } else {
            Err(wrong(&format!("{count} rows instead of {}", part.rows)).into())
        }
    }

    fn object(&self, item: &ObjectEntry, source: &mut dyn Read) -> Result<(), Error> {
        let failed = |source| BackupError::File {
            what: "a temporary file".to_owned(),
            action: "written",
            source,
        };
        let job = match &item.what {
            ObjectKind::Artifact { digest, object } => {
                let mut file = tempfile::NamedTempFile::new().map_err(failed)?;
                io::copy(source, &mut file).map_err(failed)?;
                let object = Object {
                    digest: *digest,
                    name: object.clone(),
                };
                let put = self.artifacts.put(&object, file.path());
                return Ok(self.handle.block_on(put)?);
            }
            ObjectKind::JobInput { job } => (*job, JobObject::Input),
            ObjectKind::JobResult { job, attempt } => (*job, JobObject::Result(*attempt)),
        };
        let mut bytes = Vec::new();
        source
            .read_to_end(&mut bytes)
            .map_err(BackupError::damaged("an object of a job"))?;
        let put = self.artifacts.object_put(job.0, job.1, bytes.into());
        Ok(self.handle.block_on(put)?)
    }

    /// Completes and commits the transaction.
    fn commit(&mut self) -> Result<(), Error> {
        let Some(mut tx) = self.tx.take() else {
            return Err(Error::Internal("a restore without rows".to_owned()));
        };
        let (settings, wanted, tables) = (self.settings, self.wanted, &self.tables);
        self.handle.block_on(async {
            reset_leases(&mut tx, tables).await?;
            if wanted == KeyPolicy::Lost {
                forget_sealed(&mut tx, tables).await?;
            } else if tables.iter().any(|table| table.name == "data_keys") {
                keys::check_master_keys(settings, &data_key_counts(&mut tx).await?)?;
            }
            Ok::<_, Error>(())
        })?;
        self.committing = true;
        let committed = self.handle.block_on(tx.commit());
        Ok(committed.map_err(StoreError::from)?)
    }

    /// Whether the database is known to be empty.
    async fn is_still_empty(&self) -> bool {
        let Ok(mut connection) = self.store.read().await else {
            return false;
        };
        matches!(occupied(&mut connection, &self.tables).await, Ok(None))
    }

    /// Deletes one object of a job: others of the same job may be what an earlier restore left.
    fn delete(&self, job: JobId, object: JobObject) {
        drop(
            self.handle
                .block_on(self.artifacts.object_delete(job, object)),
        );
    }

    /// Deletes what was written; rows by rolling back their transaction. Failures are ignored: the first error is the one to return.
    fn undo(&mut self) {
        // Rows that may have been committed must not lose their artifacts.
        if self.committing && !self.handle.block_on(self.is_still_empty()) {
            return;
        }
        if let Some(tx) = self.tx.take() {
            drop(self.handle.block_on(tx.rollback()));
        }
        for path in self.keys.drain(..) {
            drop(std::fs::remove_file(path));
        }
        let items = self.items.take();
        let Some(Ok(items)) = items.as_ref().map(ObjectList::read) else {
            return;
        };
        for item in items.take(self.objects).flatten() {
            // It was there before this restore, with the same content: leave it.
            if self.left.contains(&key_of(self.artifacts, &item.what)) {
                continue;
            }
            match item.what {
                ObjectKind::Artifact { digest, object } => {
                    let name = object;
                    let object = Object { digest, name };
                    drop(self.handle.block_on(self.artifacts.delete(&object)));
                }
                ObjectKind::JobInput { job } => self.delete(job, JobObject::Input),
                ObjectKind::JobResult { job, attempt } => {
                    self.delete(job, JobObject::Result(attempt))
                }
            }
        }
    }
}

/// Whether both have the same columns, in any order.
fn same_columns(one: &Table, other: &Table) -> bool {
    one.columns.len() == other.columns.len()
        && one
            .columns
            .iter()
            .all(|column| other.columns.contains(column))
}

//! Archives, written and read part by part. Size and digest of every part are computed on the way.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use fdn_core::digest::DigestBuilder;
use fdn_core::{Digest, Timestamp};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use super::error::BackupError;
use super::keys::KEY_MAX;
use super::manifest::{
    KeyPart, MANIFEST, MANIFEST_MAX, Manifest, OBJECTS, ObjectEntry, Part, SUM, TablePart,
    object_name,
};
use crate::Error;

/// A reader that computes size and digest of what it reads.
struct DigestReader<R> {
    inner: R,
    digest: DigestBuilder,
    size: u64,
}

impl<R: Read> DigestReader<R> {
    fn new(inner: R) -> Self {
        Self {
            inner,
            digest: DigestBuilder::default(),
            size: 0,
        }
    }

    /// How the size or digest differs from `part`; `None` if both match.
    fn differs(self, part: &Part) -> Option<String> {
        if self.size != part.size {
            return Some(format!("{} bytes instead of {}", self.size, part.size));
        }
        let found = self.digest.finish();
        (found != part.sha256).then(|| format!("{found} instead of {}", part.sha256))
    }
}

impl<R: Read> Read for DigestReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.digest.update(&buffer[..read]);
        self.size += read as u64;
        Ok(read)
    }
}

/// A spool file that is being written.
pub(super) struct SpoolFile {
    file: BufWriter<File>,
    digest: DigestBuilder,
    size: u64,
}

impl SpoolFile {
    pub(super) fn create(path: &Path) -> Result<Self, BackupError> {
        let file = File::create_new(path)
            .map_err(BackupError::file(path.display().to_string(), "written"))?;
        Ok(Self {
            file: BufWriter::new(file),
            digest: DigestBuilder::default(),
            size: 0,
        })
    }

    /// Writes a value as a line of JSON.
    pub(super) fn line(&mut self, value: &impl serde::Serialize) -> Result<(), BackupError> {
        serde_json::to_writer(&mut *self, value)
            .map_err(io::Error::from)
            .and_then(|()| self.write_all(b"\n"))
            .map_err(BackupError::file("the spool", "written"))
    }

    pub(super) fn finish(mut self) -> Result<Part, BackupError> {
        self.file
            .flush()
            .map_err(BackupError::file("the spool", "written"))?;
        Ok(Part {
            size: self.size,
            sha256: self.digest.finish(),
        })
    }
}

impl Write for SpoolFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.digest.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// An archive that is being written.
pub(super) struct Packer<W: Write> {
    tar: tar::Builder<GzEncoder<W>>,
    made_at: Timestamp,
}

impl<W: Write> Packer<W> {
    /// Begins the archive with the manifest.
    pub(super) fn begin(out: W, manifest: &Manifest) -> Result<Self, BackupError> {
        let mut packer = Self {
            tar: tar::Builder::new(GzEncoder::new(out, Compression::fast())),
            made_at: manifest.made_at,
        };
        let text = serde_json::to_vec_pretty(manifest)
            .map_err(|e| BackupError::file("the manifest", "written")(e.into()))?;
        let digest = Digest::of(&text);
        packer.whole(MANIFEST, &text)?;
        packer.whole(SUM, digest.hex().as_bytes())?;
        Ok(packer)
    }

    /// Adds a part from memory.
    pub(super) fn whole(&mut self, name: &str, bytes: &[u8]) -> Result<(), BackupError> {
        let part = Part {
            size: bytes.len() as u64,
            sha256: Digest::of(bytes),
        };
        self.add(name, &part, bytes)
    }

    /// Adds a part from `source`; fails if its size or digest differs from `part`.
    pub(super) fn add(
        &mut self,
        name: &str,
        part: &Part,
        source: impl Read,
    ) -> Result<(), BackupError> {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(part.size);
        header.set_mode(0o600);
        header.set_mtime(self.made_at.get() / 1000);
        let mut source = DigestReader::new(source);
        self.tar
            .append_data(&mut header, name, &mut source)
            .map_err(BackupError::file(name, "written to the archive"))?;
        match source.differs(part) {
            None => Ok(()),
            Some(problem) => Err(BackupError::Spoilt {
                what: name.to_owned(),
                problem,
            }),
        }
    }

    /// Completes the archive.
    pub(super) fn finish(self) -> Result<W, BackupError> {
        let failed = |source| BackupError::File {
            what: "the archive".to_owned(),
            action: "written",
            source,
        };
        let mut out = self
            .tar
            .into_inner()
            .and_then(GzEncoder::finish)
            .map_err(failed)?;
        out.flush().map_err(failed)?;
        Ok(out)
    }
}

/// The list of objects of an archive, in an unnamed temporary file.
pub(super) struct ObjectList(File);

impl ObjectList {
    /// Another handle to the list. Both share a file position, so they must not be read at the same time.
    pub(super) fn again(&self) -> Result<Self, BackupError> {
        self.0
            .try_clone()
            .map(Self)
            .map_err(BackupError::file(OBJECTS, "read"))
    }

    /// Reads the list from the beginning.
    pub(super) fn read(
        &self,
    ) -> Result<impl Iterator<Item = Result<ObjectEntry, BackupError>> + use<>, BackupError> {
        let Self(mut file) = self.again()?;
        file.seek(SeekFrom::Start(0))
            .map_err(BackupError::file(OBJECTS, "read"))?;
        Ok(BufReader::new(file).lines().map(|line| {
            let line = line.map_err(BackupError::damaged(OBJECTS))?;
            serde_json::from_str(&line).map_err(|e| BackupError::Damaged(format!("{OBJECTS}: {e}")))
        }))
    }
}

/// A part that is being read from an archive.
pub(super) enum ArchivePart<'a> {
    /// A key file.
    Key(&'a KeyPart),
    /// The rows of a table.
    Table(&'a TablePart),
    /// An object.
    Object(&'a ObjectEntry),
}

/// The receiver of the parts of an archive.
pub(super) trait PartReceiver {
    /// The manifest, before anything else.
    fn begin(&mut self, manifest: &Manifest) -> Result<(), Error>;
    /// The list of objects, before the first of them.
    fn objects(&mut self, items: &ObjectList) -> Result<(), Error>;
    /// A part. It is known to be intact only when the next method is called.
    fn take(&mut self, piece: &ArchivePart<'_>, source: &mut dyn Read) -> Result<(), Error>;
}

/// Reads an archive to its end: every part that the manifest names, in order, with the expected digest, and nothing else.
pub(super) fn walk(file: &File, receiver: &mut dyn PartReceiver) -> Result<Manifest, Error> {
    let mut start = file;
    start
        .seek(SeekFrom::Start(0))
        .map_err(BackupError::file("the archive", "read"))?;
    let mut archive = tar::Archive::new(GzDecoder::new(file));
    let manifest = {
        let mut entries = archive
            .entries()
            .map_err(BackupError::damaged("the beginning"))?;
        parts(&mut entries, receiver)?
    };
    // The checksum of the compressed stream is at its very end.
    io::copy(&mut archive.into_inner(), &mut io::sink())
        .map_err(BackupError::damaged("the end"))?;
    Ok(manifest)
}

fn parts<R: Read>(
    entries: &mut tar::Entries<'_, R>,
    receiver: &mut dyn PartReceiver,
) -> Result<Manifest, Error> {
    let manifest = read_manifest(entries)?;
    receiver.begin(&manifest)?;
    for key in &manifest.keys {
        if key.part.size > KEY_MAX {
            return Err(BackupError::Damaged(format!("{} is too large", key.name)).into());
        }
        let name = format!("keys/{}", key.name);
        part(entries, &name, &key.part, |source| {
            receiver.take(&ArchivePart::Key(key), source)
        })?;
    }
    for table in &manifest.tables {
        let name = format!("tables/{}.jsonl", table.table.name);
        part(entries, &name, &table.part, |source| {
            receiver.take(&ArchivePart::Table(table), source)
        })?;
    }
    let list = tempfile::tempfile().map_err(BackupError::file("a temporary file", "made"))?;
    part(entries, OBJECTS, &manifest.objects.part, |source| {
        io::copy(source, &mut &list)
            .map(drop)
            .map_err(|e| BackupError::damaged(OBJECTS)(e).into())
    })?;
    let items = ObjectList(list);
    receiver.objects(&items)?;
    let mut count = 0;
    for item in items.read()? {
        let item = item?;
        count += 1;
        part(entries, &object_name(count), &item.part, |source| {
            receiver.take(&ArchivePart::Object(&item), source)
        })?;
    }
    if count != manifest.objects.count {
        return Err(BackupError::Damaged(format!("{OBJECTS} has {count} lines")).into());
    }
    ended(entries)?;
    Ok(manifest)
}

fn read_manifest<R: Read>(entries: &mut tar::Entries<'_, R>) -> Result<Manifest, BackupError> {
    let text = small(entries, MANIFEST, MANIFEST_MAX)?;
    let sum = small(entries, SUM, 64)?;
    if Digest::of(&text).hex().as_bytes() != sum {
        return Err(BackupError::Damaged(format!(
            "{MANIFEST} is not what was written"
        )));
    }
    serde_json::from_slice(&text).map_err(|e| BackupError::Damaged(format!("{MANIFEST}: {e}")))
}

/// The next part, which must have this name.
fn next<'a, R: Read>(
    entries: &mut tar::Entries<'a, R>,
    name: &str,
) -> Result<tar::Entry<'a, R>, BackupError> {
    let entry = entries
        .next()
        .ok_or_else(|| BackupError::Damaged(format!("{name} is missing")))?
        .map_err(BackupError::damaged(name))?;
    if *entry.path_bytes() == *name.as_bytes() {
        Ok(entry)
    } else {
        let found = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        Err(BackupError::Damaged(format!(
            "{found} stands where {name} should"
        )))
    }
}

fn small<R: Read>(
    entries: &mut tar::Entries<'_, R>,
    name: &str,
    most: u64,
) -> Result<Vec<u8>, BackupError> {
    let entry = next(entries, name)?;
    if entry.size() > most {
        return Err(BackupError::Damaged(format!("{name} is too large")));
    }
    let mut bytes = Vec::new();
    entry
        .take(most)
        .read_to_end(&mut bytes)
        .map_err(BackupError::damaged(name))?;
    Ok(bytes)
}

/// Passes the next part to `take`, and verifies its size and digest.
fn part<R: Read>(
    entries: &mut tar::Entries<'_, R>,
    name: &str,
    part: &Part,
    take: impl FnOnce(&mut dyn Read) -> Result<(), Error>,
) -> Result<(), Error> {
    let entry = next(entries, name)?;
    if entry.size() != part.size {
        return Err(BackupError::Damaged(format!(
            "{name} has {} bytes instead of {}",
            entry.size(),
            part.size
        ))
        .into());
    }
    let mut source = DigestReader::new(entry);
    take(&mut source)?;
    io::copy(&mut source, &mut io::sink()).map_err(BackupError::damaged(name))?;
    match source.differs(part) {
        None => Ok(()),
        Some(problem) => Err(BackupError::Damaged(format!("{name} has {problem}")).into()),
    }
}

fn ended<R: Read>(entries: &mut tar::Entries<'_, R>) -> Result<(), BackupError> {
    match entries.next() {
        None => Ok(()),
        Some(Ok(_)) => Err(BackupError::Damaged(
            "it holds more than its manifest says".to_owned(),
        )),
        Some(Err(error)) => Err(BackupError::damaged("the end")(error)),
    }
}

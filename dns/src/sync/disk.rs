//! The state on disk: written to a temporary file, synced, and renamed over the old file, so that a crash leaves one of them complete.
//!
//! The file format: eight bytes that identify it; the length of the head, four bytes; the head in JSON, with everything but the
//! bindings, and with the clusters and sizes of each table of bindings; the tables' arrays, one after the other
//! (`policy::ranges::raw`); the CRC-32C of everything before it, four bytes. Numbers are little-endian. Apps that share a table
//! share it in the file too.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdn_core::message::{Holders, NetworkDesired, TxtDesired};
use fdn_core::{AppName, ClusterId, HostName, Revision, Timestamp};
use serde::{Deserialize, Serialize};

use super::desired_state::{AppState, DesiredState, Entry, SnapshotApp, TextEntry};
use crate::policy::bindings::Bindings;
use crate::policy::ranges::raw::PrefixCounts;

/// The file's name in the data directory.
pub const FILE: &str = "dns-state.bin";
/// The file of earlier builds, read if the other does not exist.
const OLD_FILE: &str = "dns-state.json";
/// The format that this build writes; no other is read.
const FORM: [u8; 8] = *b"fdndns2\n";
/// The format number of the old file.
const OLD_FORMAT: u16 = 1;
/// The size of the read and write buffers, in bytes.
const BUFFER: usize = 1 << 16;

#[derive(Serialize, Deserialize)]
struct Head {
    floor: Revision,
    confirmed_at: Timestamp,
    network: Option<NetworkDesired>,
    apps: Vec<HeadApp>,
    tables: Vec<HeadTable>,
    /// Text records of names; earlier builds do not write this field, and ignore it when they read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    texts: Vec<TxtDesired>,
}

#[derive(Serialize, Deserialize)]
struct HeadApp {
    app: AppName,
    revision: Revision,
    /// The app's state; `None` if it was deleted.
    state: Option<HeadState>,
}

#[derive(Serialize, Deserialize)]
struct HeadState {
    host: HostName,
    ttl_s: u32,
    /// The clusters that clients are sent to; earlier builds do not write this field and send clients to all.
    #[serde(default, skip_serializing_if = "Holders::is_everywhere")]
    holders: Holders,
    /// The index of its table of bindings.
    table: usize,
}

#[derive(Serialize, Deserialize)]
struct HeadTable {
    clusters: Vec<ClusterId>,
    counts: PrefixCounts,
}

/// The file format of earlier builds.
#[derive(Deserialize)]
struct Old {
    format: u16,
    #[serde(rename = "ledger")]
    state: OldState,
}

#[derive(Deserialize)]
struct OldState {
    floor: Revision,
    confirmed_at: Timestamp,
    network: Option<NetworkDesired>,
    apps: Vec<SnapshotApp>,
}

/// What was found at startup.
#[derive(Debug)]
pub enum LoadedState {
    /// Nothing: the first start with this data directory.
    Nothing,
    /// The state of the previous run.
    State(Box<DesiredState>),
    /// An unreadable file: the path that it was moved to, and the reason.
    Unreadable(PathBuf, String),
}

/// Computes the checksum of what passes through.
struct ChecksumStream<T> {
    inner: T,
    crc: u32,
}

impl<W: Write> Write for ChecksumStream<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.crc = crc32c::crc32c_append(self.crc, &bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for ChecksumStream<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.crc = crc32c::crc32c_append(self.crc, &bytes[..read]);
        Ok(read)
    }
}

fn broken(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Reads the state stored in `dir`.
///
/// # Errors
/// When the directory itself cannot be used.
pub fn load(dir: &Path) -> io::Result<LoadedState> {
    fs::create_dir_all(dir)?;
    let path = dir.join(FILE);
    let (path, read) = match File::open(&path) {
        Ok(file) => {
            let length = file.metadata()?.len();
            (path, decode(BufReader::with_capacity(BUFFER, file), length))
        }
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            let path = dir.join(OLD_FILE);
            match File::open(&path) {
                Ok(file) => (path, read_old(file)),
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                    return Ok(LoadedState::Nothing);
                }
                Err(cause) => return Err(cause),
            }
        }
        Err(cause) => return Err(cause),
    };
    match read {
        Ok(desired) => Ok(LoadedState::State(Box::new(desired))),
        Err(cause) => {
            let aside = path.with_extension("unreadable");
            fs::rename(&path, &aside)?;
            Ok(LoadedState::Unreadable(aside, cause.to_string()))
        }
    }
}

/// Decodes the file from `length` bytes.
///
/// # Errors
/// When they cannot be read, or were not written by [`encode`].
pub fn decode(input: impl Read, length: u64) -> io::Result<DesiredState> {
    // A size larger than the file is rejected before anything is allocated for it.
    let fits = |bytes: u64| {
        if bytes > length {
            Err(broken("it is cut short"))
        } else {
            Ok(bytes)
        }
    };
    let mut input = ChecksumStream {
        inner: input,
        crc: 0,
    };
    let (mut form, mut head_length) = ([0; 8], [0; 4]);
    input.read_exact(&mut form)?;
    if form != FORM {
        return Err(broken("it has another form than this build reads"));
    }
    input.read_exact(&mut head_length)?;
    let head_length = fits(u64::from(u32::from_le_bytes(head_length)))?;
    let mut head = Vec::new();
    (&mut input).take(head_length).read_to_end(&mut head)?;
    let head: Head = serde_json::from_slice(&head).map_err(io::Error::from)?;
    let mut tables = Vec::new();
    for HeadTable { clusters, counts } in &head.tables {
        fits(
            counts
                .bytes()
                .ok_or_else(|| broken("a table has no size"))?,
        )?;
        tables.push(Arc::new(Bindings::read(&mut input, *counts, clusters)?));
    }
    let (crc, mut kept) = (input.crc, [0; 4]);
    input.read_exact(&mut kept)?;
    if u32::from_le_bytes(kept) != crc || input.read(&mut [0])? != 0 {
        return Err(broken("its check value is wrong"));
    }
    head.desired(&tables)
}

fn read_old(file: File) -> io::Result<DesiredState> {
    let old: Old = serde_json::from_reader(BufReader::new(file)).map_err(io::Error::from)?;
    if old.format != OLD_FORMAT {
        let found = old.format;
        return Err(broken(format!(
            "its format is {found}, this build reads {OLD_FORMAT}"
        )));
    }
    let OldState {
        floor,
        confirmed_at,
        network,
        apps,
    } = old.state;
    let apps = apps.into_iter().map(SnapshotApp::entry).collect();
    let texts = BTreeMap::new();
    Ok(DesiredState::restore(
        floor,
        confirmed_at,
        network,
        apps,
        texts,
    ))
}

impl Head {
    fn of(desired: &DesiredState) -> (Self, Vec<Arc<Bindings>>) {
        let mut numbers: HashMap<*const Bindings, usize> = HashMap::new();
        let mut tables: Vec<Arc<Bindings>> = Vec::new();
        let mut number = |bindings: &Arc<Bindings>| {
            *numbers.entry(Arc::as_ptr(bindings)).or_insert_with(|| {
                tables.push(Arc::clone(bindings));
                tables.len() - 1
            })
        };
        let apps = desired.apps.iter().map(|(app, entry)| HeadApp {
            app: app.clone(),
            revision: entry.revision,
            state: entry.state.as_ref().map(|state| HeadState {
                host: state.host.clone(),
                ttl_s: state.ttl_s,
                holders: state.holders.clone(),
                table: number(&state.bindings),
            }),
        });
        let apps = apps.collect();
        let texts = desired.texts.iter().map(|(name, entry)| TxtDesired {
            name: name.clone(),
            revision: entry.revision,
            state: entry.state.clone(),
        });
        let head = Self {
            texts: texts.collect(),
            floor: desired.floor,
            confirmed_at: desired.confirmed_at,
            network: desired.network.clone(),
            apps,
            tables: tables
                .iter()
                .map(|table| HeadTable {
                    clusters: table.clusters().to_vec(),
                    counts: table.counts(),
                })
                .collect(),
        };
        (head, tables)
    }

    fn desired(self, tables: &[Arc<Bindings>]) -> io::Result<DesiredState> {
        let entry = |app: HeadApp| {
            let state = match app.state {
                None => None,
                Some(state) => Some(AppState {
                    host: state.host,
                    ttl_s: state.ttl_s,
                    holders: state.holders,
                    bindings: tables
                        .get(state.table)
                        .cloned()
                        .ok_or_else(|| broken("an app has a table that is none"))?,
                    waiting: Arc::default(),
                }),
            };
            let revision = app.revision;
            Ok((app.app, Entry { revision, state }))
        };
        let apps = self.apps.into_iter().map(entry);
        let texts = self.texts.into_iter().map(|told| {
            let entry = TextEntry {
                revision: told.revision,
                state: told.state,
            };
            (told.name, entry)
        });
        Ok(DesiredState::restore(
            self.floor,
            self.confirmed_at,
            self.network,
            apps.collect::<io::Result<_>>()?,
            texts.collect(),
        ))
    }
}

/// Writes the state to `dir`. Pending changes of bindings are not written: the caller has made sure that there are none, or that the app's
/// revision does not include them. Returns how long encoding took, without the wait for the disk.
///
/// # Errors
/// When it cannot be written; the previous file is kept.
pub fn save(dir: &Path, desired: &DesiredState) -> io::Result<Duration> {
    let mut fresh = tempfile::Builder::new().prefix(FILE).tempfile_in(dir)?;
    let begun = Instant::now();
    let mut out = BufWriter::with_capacity(BUFFER, fresh.as_file_mut());
    encode(desired, &mut out)?;
    out.flush()?;
    drop(out);
    let encoded = begun.elapsed();
    fresh.as_file().sync_all()?;
    fresh.persist(dir.join(FILE))?;
    match fs::remove_file(dir.join(OLD_FILE)) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
        _ => {}
    }
    // The rename itself must survive a power failure too.
    File::open(dir)?.sync_all()?;
    Ok(encoded)
}

/// Encodes the state in the file format.
///
/// # Errors
/// When it cannot be written.
pub fn encode(desired: &DesiredState, out: &mut impl Write) -> io::Result<()> {
    let mut out = ChecksumStream { inner: out, crc: 0 };
    let (head, tables) = Head::of(desired);
    let head = serde_json::to_vec(&head)?;
    let length = u32::try_from(head.len()).map_err(|_| broken("the head is too long"))?;
    out.write_all(&FORM)?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&head)?;
    for table in &tables {
        table.write(&mut out)?;
    }
    let crc = out.crc;
    out.write_all(&crc.to_le_bytes())
}

#[cfg(test)]
mod tests;

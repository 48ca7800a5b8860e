//! Records of planning passes on disk, for `fdn sim replay`: inputs and decisions ([`fdn_scheduling::record`]).
//!
//! A dedicated thread compresses and writes them, so that no pass waits for a disk. Records for which it has no time are dropped and
//! counted, and so are those that cannot be written: planning never depends on the disk. A segment is a file of gzip members, each a
//! complete record with its checksum, so that records after a torn or damaged one remain readable. All segments together stay within
//! `planner.record_bytes`; the oldest are deleted. Nothing is synced: after a power failure the last records may be missing.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use flate2::Compression;
use flate2::write::GzEncoder;
use tracing::{info, warn};

use crate::metrics::RecordMetrics;
use crate::settings::PlannerSettings;

/// How many records may wait for the disk.
const WAITING: usize = 8;
/// The number of segments into which the space is divided: the unit in which it is reclaimed.
const SEGMENTS: u64 = 16;

/// The recorder of passes.
pub(super) struct RecordWriter {
    sender: Option<SyncSender<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
    metrics: RecordMetrics,
}

impl RecordWriter {
    /// A recorder for the folder in the settings; `None` if there is none.
    pub(super) fn new(settings: &PlannerSettings, metrics: &RecordMetrics) -> Option<Self> {
        let path = settings.record.clone()?;
        let mut folder = Folder::new(path, settings.record_bytes.as_bytes(), metrics.clone());
        let (sender, receiver) = sync_channel::<Vec<u8>>(WAITING);
        let write_all = move || receiver.iter().for_each(|record| folder.append(&record));
        let thread = std::thread::Builder::new().name("plan-records".to_owned());
        match thread.spawn(write_all) {
            Ok(thread) => Some(Self {
                sender: Some(sender),
                thread: Some(thread),
                metrics: metrics.clone(),
            }),
            Err(error) => {
                warn!(%error, "planning passes are not recorded: no thread can be started");
                None
            }
        }
    }

    /// Hands a record over to the thread; drops and counts it if the thread is behind.
    pub(super) fn enqueue(&self, record: Vec<u8>) {
        let sender = self.sender.as_ref();
        if sender.is_none_or(|sender| sender.try_send(record).is_err()) {
            self.metrics.made.with_label_values(&["dropped"]).inc();
        }
    }
}

impl Drop for RecordWriter {
    /// Waits until the records handed over are written, since the process may end next.
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            warn!("the thread that records planning passes has failed");
        }
    }
}

/// A file of records.
struct Segment {
    number: u64,
    bytes: u64,
}

/// The folder of segments.
struct Folder {
    path: PathBuf,
    limit: u64,
    /// The existing segments, the oldest first; the one being written is the last.
    segments: VecDeque<Segment>,
    open: Option<File>,
    failing: bool,
    metrics: RecordMetrics,
}

impl Folder {
    const fn new(path: PathBuf, limit: u64, metrics: RecordMetrics) -> Self {
        Self {
            path,
            limit,
            segments: VecDeque::new(),
            open: None,
            failing: false,
            metrics,
        }
    }

    fn append(&mut self, record: &[u8]) {
        let result = match self.write(record) {
            Ok(()) => {
                if std::mem::take(&mut self.failing) {
                    info!("planning passes are recorded again");
                }
                "written"
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    let folder = self.path.display();
                    warn!(%folder, %error, "a planning pass cannot be recorded; planning goes on");
                }
                "failed"
            }
        };
        self.metrics.made.with_label_values(&[result]).inc();
        let bytes = self.bytes();
        self.metrics
            .bytes
            .set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    fn write(&mut self, record: &[u8]) -> io::Result<()> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(record)?;
        let packed = packed.finish()?;
        let bytes = packed.len() as u64;
        if bytes > self.limit {
            return Err(io::Error::other("it is larger than planner.record_bytes"));
        }
        let last = self.segments.back();
        let full =
            last.is_some_and(|last| last.bytes > 0 && last.bytes + bytes > self.limit / SEGMENTS);
        if full || self.open.is_none() {
            self.begin()?;
        }
        self.make_room(bytes)?;
        let (Some(file), Some(last)) = (&mut self.open, self.segments.back_mut()) else {
            return Err(io::Error::other("no segment is open"));
        };
        if let Err(error) = file.write_all(&packed) {
            // If this fails too, readers skip the incomplete record.
            let _ = file.set_len(last.bytes);
            return Err(error);
        }
        last.bytes += bytes;
        Ok(())
    }

    /// Begins a new segment after all existing ones.
    fn begin(&mut self) -> io::Result<()> {
        self.open = None;
        fs::create_dir_all(&self.path)?;
        let mut found: Vec<Segment> = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            if let Some(number) = name.to_str().and_then(number_of) {
                let bytes = entry.metadata()?.len();
                found.push(Segment { number, bytes });
            }
        }
        found.sort_by_key(|segment| segment.number);
        let number = found.last().map_or(1, |last| last.number.saturating_add(1));
        let file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .mode(0o600)
            .open(self.path.join(name_of(number)))?;
        found.push(Segment { number, bytes: 0 });
        self.segments = found.into();
        self.open = Some(file);
        Ok(())
    }

    /// Deletes the oldest segments until `bytes` more fit.
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        while self.segments.len() > 1 && self.bytes() + bytes > self.limit {
            let Some(oldest) = self.segments.front() else {
                break;
            };
            match fs::remove_file(self.path.join(name_of(oldest.number))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            self.segments.pop_front();
            self.metrics.removed.inc();
        }
        Ok(())
    }
}

const PREFIX: &str = "plans-";
const SUFFIX: &str = ".gz";

fn name_of(number: u64) -> String {
    format!("{PREFIX}{number:012}{SUFFIX}")
}

fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::path::Path;

    use flate2::read::MultiGzDecoder;

    use super::*;
    use crate::Metrics;

    fn metrics() -> RecordMetrics {
        Metrics::new().expect("metrics").plans.records.clone()
    }

    fn counted(metrics: &RecordMetrics) -> [u64; 3] {
        ["written", "dropped", "failed"].map(|what| metrics.made.with_label_values(&[what]).get())
    }

    /// Bytes that cannot be made shorter, and tell which record they are.
    fn record(number: u8, length: usize) -> Vec<u8> {
        let mut state = u64::from(number) + 1;
        let mut bytes = vec![number];
        bytes.extend((1..length).map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        }));
        bytes
    }

    /// The records of a folder by their first byte, and how many bytes all files have.
    fn read(folder: &Path, length: usize) -> (Vec<u8>, u64) {
        let mut paths: Vec<PathBuf> = fs::read_dir(folder)
            .expect("a folder")
            .map(|entry| entry.expect("a file").path())
            .collect();
        paths.sort();
        let (mut numbers, mut bytes) = (Vec::new(), 0);
        for path in paths {
            bytes += path.metadata().expect("a file").len();
            let mut whole = Vec::new();
            let file = File::open(path).expect("a file");
            MultiGzDecoder::new(file)
                .read_to_end(&mut whole)
                .expect("gzip");
            numbers.extend(whole.chunks(length).map(|record| record[0]));
        }
        (numbers, bytes)
    }

    #[test]
    fn the_newest_records_stay_within_the_room() {
        let temporary = tempfile::tempdir().expect("a folder");
        let path = temporary.path().join("plans");
        let (limit, length) = (16 << 10, 500);
        let metrics = metrics();
        let mut folder = Folder::new(path.clone(), limit, metrics.clone());
        for number in 0..=200 {
            folder.append(&record(number, length));
            let (numbers, bytes) = read(&path, length);
            assert!(bytes <= limit, "{bytes}");
            assert_eq!(bytes, folder.bytes());
            assert_eq!(numbers.last(), Some(&number), "the newest is there");
            assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1));
            // No more than a segment is given up at a time.
            assert!(
                numbers.len() >= 27.min(usize::from(number) + 1),
                "{}",
                numbers.len()
            );
        }
        assert_eq!(counted(&metrics), [201, 0, 0]);
        assert!(metrics.removed.get() > 0);
        assert_eq!(metrics.bytes.get(), folder.bytes() as i64);
        drop(folder);
        // Another start goes on behind what is there; what is not ours stays.
        fs::write(path.join("plans-notes.txt"), b"").expect("written");
        let mut folder = Folder::new(path.clone(), limit, metrics.clone());
        folder.append(&record(201, length));
        fs::remove_file(path.join("plans-notes.txt")).expect("still there");
        let (numbers, bytes) = read(&path, length);
        assert!(bytes <= limit && numbers.len() >= 27);
        assert_eq!(numbers.last(), Some(&201));
        // One that is larger than all the room is counted, and those that are there stay.
        folder.append(&record(202, 17 << 10));
        assert_eq!(counted(&metrics), [202, 0, 1]);
        assert_eq!(read(&path, length).0, numbers);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_counted_and_tried_again() {
        let temporary = tempfile::tempdir().expect("a folder");
        let path = temporary.path().join("plans");
        fs::write(&path, b"a file").expect("written");
        let settings = PlannerSettings {
            record: Some(path.clone()),
            ..PlannerSettings::default()
        };
        let metrics = metrics();
        let recorder = RecordWriter::new(&settings, &metrics).expect("set");
        recorder.enqueue(record(0, 100));
        drop(recorder);
        assert_eq!(counted(&metrics), [0, 0, 1]);
        fs::remove_file(&path).expect("removed");
        let recorder = RecordWriter::new(&settings, &metrics).expect("set");
        recorder.enqueue(record(1, 100));
        recorder.enqueue(record(2, 100));
        drop(recorder);
        assert_eq!(counted(&metrics), [2, 0, 1]);
        assert_eq!(read(&path, 100).0, [1, 2]);
        assert!(RecordWriter::new(&PlannerSettings::default(), &metrics).is_none());
    }

    #[test]
    fn what_the_disk_has_no_time_for_is_dropped_and_counted() {
        let (sender, receiver) = sync_channel(1);
        let metrics = metrics();
        let recorder = RecordWriter {
            sender: Some(sender),
            thread: None,
            metrics: metrics.clone(),
        };
        for number in 0..3 {
            recorder.enqueue(record(number, 10));
        }
        assert_eq!(counted(&metrics), [0, 2, 0]);
        drop(recorder);
        assert_eq!(receiver.iter().count(), 1);
    }
}

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use proptest::prelude::*;

use super::*;

/// A file: the content that the operating system has, and the part of it that is on the platter.
#[derive(Clone, Debug, Default)]
struct Inode {
    content: Vec<u8>,
    durable: Vec<u8>,
    /// Set when a sync failed: nothing after this offset reaches the platter any more, whatever later syncs report.
    lost_from: Option<usize>,
}

#[derive(Debug, Default)]
struct Platter {
    inodes: Vec<Inode>,
    /// The inode of each name, as the operating system sees it.
    names: BTreeMap<String, usize>,
    /// The names after each change since the last sync of the folder; the first entry is on the platter.
    history: Vec<BTreeMap<String, usize>>,
    /// Whether the next write or sync fails; for a write, after how many bytes.
    write_fails: Option<usize>,
    sync_fails: bool,
}

/// A disk that tears writes, fails, forgets what it failed to sync, and loses power.
#[derive(Clone, Debug)]
struct FaultyDisk(Arc<Mutex<Platter>>);

struct FaultyFile(Arc<Mutex<Platter>>, usize);

fn broken() -> io::Error {
    io::Error::other("the disk fails")
}

impl FaultyDisk {
    fn new() -> Self {
        let platter = Platter {
            history: vec![BTreeMap::new()],
            ..Platter::default()
        };
        Self(Arc::new(Mutex::new(platter)))
    }

    fn with<T>(&self, f: impl FnOnce(&mut Platter) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn inode(&self, name: &str) -> io::Result<usize> {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        self.with(|p| p.names.get(name).copied())
            .ok_or_else(missing)
    }

    fn rename_with(&self, change: impl FnOnce(&mut BTreeMap<String, usize>)) {
        self.with(|p| {
            change(&mut p.names);
            p.history.push(p.names.clone());
        });
    }

    /// Simulates a power loss. `luck` decides which unsynced changes survived: how many changes of names, how much of each file's tail, and which
    /// of its sectors are zeros or garbage.
    fn lose_power(&self, luck: &[u8]) {
        let mut luck = luck.iter().copied().cycle();
        let mut roll = move |n: usize| usize::from(luck.next().unwrap_or(0)) * n / 256;
        self.with(|p| {
            let at = roll(p.history.len());
            p.names = p.history[at].clone();
            p.history = vec![p.names.clone()];
            for inode in &mut p.inodes {
                let kept = inode.durable.len();
                let tail = inode.content.get(kept..).unwrap_or_default();
                let mut survived = tail[..roll(tail.len() + 1)].to_vec();
                for sector in survived.chunks_mut(64) {
                    match roll(4) {
                        0 => sector.fill(0),
                        1 => sector.iter_mut().for_each(|byte| *byte ^= 0x5A),
                        _ => {}
                    }
                }
                inode.durable.extend(survived);
                inode.content.clone_from(&inode.durable);
                inode.lost_from = None;
            }
            (p.write_fails, p.sync_fails) = (None, false);
        });
    }
}

impl DiskFile for FaultyFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut p = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let torn = p.write_fails.take();
        let part = torn.map_or(bytes.len(), |after| after.min(bytes.len()));
        p.inodes[self.1].content.extend_from_slice(&bytes[..part]);
        if torn.is_some() {
            Err(broken())
        } else {
            Ok(())
        }
    }

    fn sync(&self) -> io::Result<()> {
        let mut p = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fails = std::mem::take(&mut p.sync_fails);
        let inode = &mut p.inodes[self.1];
        if fails {
            inode
                .lost_from
                .get_or_insert(inode.durable.len().min(inode.content.len()));
            return Err(broken());
        }
        let end = inode
            .lost_from
            .unwrap_or(usize::MAX)
            .min(inode.content.len());
        inode.durable = inode.content[..end].to_vec();
        Ok(())
    }
}

impl Disk for FaultyDisk {
    type File = FaultyFile;

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        Ok(self.with(|p| {
            let size = |inode: &usize| p.inodes[*inode].content.len() as u64;
            p.names
                .iter()
                .map(|(name, inode)| (name.clone(), size(inode)))
                .collect()
        }))
    }

    fn create(&self, name: &str) -> io::Result<FaultyFile> {
        let inode = self.with(|p| {
            p.inodes.push(Inode::default());
            p.inodes.len() - 1
        });
        self.rename_with(|names| {
            assert!(
                names.insert(name.to_owned(), inode).is_none(),
                "{name} is new"
            )
        });
        Ok(FaultyFile(Arc::clone(&self.0), inode))
    }

    fn open(&self, name: &str) -> io::Result<FaultyFile> {
        Ok(FaultyFile(Arc::clone(&self.0), self.inode(name)?))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let inode = self.inode(name)?;
        Ok(self.with(|p| p.inodes[inode].content.clone()))
    }

    fn truncate(&self, name: &str, size: u64) -> io::Result<()> {
        let inode = self.inode(name)?;
        self.with(|p| p.inodes[inode].content.truncate(size as usize));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let inode = self.inode(from)?;
        self.rename_with(|names| {
            names.remove(from);
            names.insert(to.to_owned(), inode);
        });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inode(name)?;
        self.rename_with(|names| {
            names.remove(name);
        });
        Ok(())
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.with(|p| p.history = vec![p.names.clone()]);
        Ok(())
    }
}

/// An event in the life of a spool.
#[derive(Clone, Debug)]
enum Step {
    Write,
    /// The disk writes this many bytes of the next record, and fails.
    TornWrite(usize),
    Sync,
    FailedSync,
    Close,
    /// The oldest segment is handed over; the confirmation arrives or does not.
    Ship {
        confirmed: bool,
    },
    /// The process is killed: what the operating system has remains.
    Kill,
    /// The power fails.
    PowerLoss(Vec<u8>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => Just(Step::Write),
        1 => (0usize..60).prop_map(Step::TornWrite),
        6 => Just(Step::Sync),
        1 => Just(Step::FailedSync),
        2 => Just(Step::Close),
        4 => any::<bool>().prop_map(|confirmed| Step::Ship { confirmed }),
        2 => Just(Step::Kill),
        2 => proptest::collection::vec(any::<u8>(), 16).prop_map(Step::PowerLoss),
    ];
    proptest::collection::vec(step, 1..120)
}

struct World {
    disk: FaultyDisk,
    log: Log<FaultyDisk>,
    next: u32,
    ids: u128,
    /// Records that were written and not synced yet.
    written: BTreeSet<u32>,
    /// Records that were covered by a successful sync.
    synced: BTreeSet<u32>,
    /// What the receiver stored, by batch.
    stored: BTreeMap<BatchId, BTreeSet<u32>>,
    stored_by: BTreeMap<u32, BatchId>,
    /// The batch that the receiver got last.
    last: Option<BatchId>,
    power_failed: bool,
    sync_failed: bool,
}

impl World {
    fn new() -> Self {
        let disk = FaultyDisk::new();
        let log = Log::open(Arc::new(disk.clone()), 200)
            .expect("an empty folder")
            .0;
        Self {
            disk,
            log,
            next: 0,
            ids: 0,
            written: BTreeSet::new(),
            synced: BTreeSet::new(),
            stored: BTreeMap::new(),
            stored_by: BTreeMap::new(),
            last: None,
            power_failed: false,
            sync_failed: false,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Write => self.write(),
            Step::TornWrite(after) => {
                self.disk.with(|p| p.write_fails = Some(after));
                self.write();
                self.disk.with(|p| p.write_fails = None);
            }
            Step::Sync => self.sync(),
            Step::FailedSync => {
                self.disk.with(|p| p.sync_fails = true);
                self.sync_failed = true;
                self.sync();
                self.disk.with(|p| p.sync_fails = false);
            }
            Step::Close => self.log.close(),
            Step::Ship { confirmed } => drop(self.ship(confirmed)),
            Step::Kill => {
                // Everything that was written survives the process.
                self.reopen();
                let written = std::mem::take(&mut self.written);
                self.synced.extend(written);
            }
            Step::PowerLoss(luck) => {
                self.disk.lose_power(&luck);
                self.power_failed = true;
                self.written.clear();
                self.reopen();
            }
        }
    }

    fn reopen(&mut self) {
        self.log = Log::open(Arc::new(self.disk.clone()), 200)
            .expect("it opens")
            .0;
    }

    fn write(&mut self) {
        self.next += 1;
        self.ids += 1;
        let payload = format!("record {}", self.next);
        let frame = frame::encode(payload.as_bytes()).expect("small");
        if self
            .log
            .append(&frame, || Uuid::from_u128(self.ids))
            .is_ok()
        {
            self.written.insert(self.next);
        }
    }

    fn sync(&mut self) {
        let mut job = self.log.begin_sync();
        let went_well = job.run().is_ok();
        self.log.end_sync(job, went_well);
        let covered = std::mem::take(&mut self.written);
        if went_well {
            self.synced.extend(covered);
        }
    }

    fn ship(&mut self, confirmed: bool) -> bool {
        let Some(id) = self.log.oldest() else {
            return false;
        };
        let (payloads, whole) = Log::read(&self.disk, id).expect("it can be read");
        // A sealed segment can be damaged only if the disk lied about a sync.
        assert!(whole || self.sync_failed, "a sealed segment is whole");
        let number = |payload: &Vec<u8>| {
            let text = std::str::from_utf8(payload).expect("text");
            text.strip_prefix("record ")
                .expect("a record")
                .parse()
                .expect("a number")
        };
        let records: BTreeSet<u32> = payloads.iter().map(number).collect();
        assert_eq!(
            records.len(),
            payloads.len(),
            "no record is twice in a segment"
        );
        assert!(
            self.last == Some(id) || !self.stored.contains_key(&id),
            "only the newest batch comes again"
        );
        self.last = Some(id);
        match self.stored.get(&id) {
            Some(before) => assert!(records.is_subset(before), "a batch never grows"),
            None => {
                for record in &records {
                    let other = self.stored_by.insert(*record, id);
                    assert_eq!(other, None, "record {record} is in two batches");
                }
                self.stored.insert(id, records);
            }
        }
        if confirmed {
            self.log
                .confirm(id, self.next.is_multiple_of(2))
                .expect("put away");
            self.disk.sync_folder().expect("the folder is synced");
        }
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn what_was_promised_is_handed_over_once(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.reopen();
        while world.ship(true) {}
        prop_assert!(world.log.is_empty());
        // A power loss may damage the beginning of a segment that was not synced.
        prop_assert_eq!(world.log.used(), world.log.aside);
        prop_assert!(world.power_failed || world.log.aside == 0);
        for record in &world.synced {
            prop_assert!(world.stored_by.contains_key(record), "record {} was promised and is lost", record);
        }
        if !world.power_failed {
            for record in &world.written {
                prop_assert!(world.stored_by.contains_key(record), "record {} was written and is lost", record);
            }
        }
        prop_assert!(world.stored_by.keys().all(|record| *record <= world.next));
    }
}

#[test]
fn what_is_being_synced_takes_its_room_all_the_while() {
    for went_well in [true, false] {
        let mut world = World::new();
        for _ in 0..40 {
            world.write();
        }
        world.log.close();
        let used = world.log.used();
        let mut job = world.log.begin_sync();
        assert_eq!(world.log.used(), used, "during the sync");
        assert!(!world.log.is_empty());
        job.run().expect("the disk works");
        world.log.end_sync(job, went_well);
        assert_eq!(world.log.used(), used, "after it");
    }
}

#[test]
fn a_full_segment_makes_room_for_the_next_and_keeps_its_id() {
    let mut world = World::new();
    for _ in 0..40 {
        world.write();
    }
    assert!(
        world.log.oldest().is_none(),
        "nothing is handed over before it is synced"
    );
    world.sync();
    let first = world.log.oldest().expect("sealed");
    assert_eq!(first, BatchId::from_uuid(Uuid::from_u128(1)));
    world.reopen();
    assert_eq!(world.log.oldest(), Some(first));
    world.log.set_aside(first).expect("renamed");
    assert_ne!(world.log.oldest(), Some(first));
    let used = world.log.used();
    world.reopen();
    assert_eq!(world.log.used(), used, "what was set aside counts");
    assert_ne!(world.log.oldest(), Some(first));
}

#[test]
fn an_open_segment_whose_beginning_cannot_be_read_is_set_aside() {
    let disk = FaultyDisk::new();
    let id = |number| BatchId::from_uuid(Uuid::from_u128(number));
    let mut later = b"FDNUSE\x02\x00".to_vec();
    later.extend(frame::encode(b"record 1").expect("small"));
    let header_only = later[..HEADER.len()].to_vec();
    let contents = [later.clone(), vec![0; 100], header_only, Vec::new()];
    for (content, number) in contents.iter().zip(1..) {
        let file = disk.create(&open_name(id(number))).expect("created");
        file.append(content).expect("written");
    }
    let open = || Log::open(Arc::new(disk.clone()), 200).expect("it opens");
    let (log, recovered) = open();
    assert_eq!((recovered.aside, recovered.segments), (1, 0));
    assert_eq!(log.used(), later.len() as u64, "it counts");
    let left = disk.list().expect("it lists");
    assert_eq!(left, [(aside_name(id(1)), later.len() as u64)]);
    assert_eq!(disk.read(&aside_name(id(1))).expect("it reads"), later);
    let (log, recovered) = open();
    assert_eq!(recovered, Recovered::default());
    assert_eq!(log.used(), later.len() as u64);
}

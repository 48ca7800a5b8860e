//! A pack: the machine code of many single functions in one file, as written by one compilation.
//!
//! ```text
//! pack  = magic engine count (count times entry) sum values
//! magic = "fdnpack1"      engine = SHA-256 of the engine's key      count = u32
//! entry = key (32 bytes)  offset of the value in the file (u64)     its length (u32)     its SHA-256
//! sum   = SHA-256 of everything before it
//! ```
//!
//! Numbers are little-endian. The sum covers the keys and the sums of the values, so a value is found under its own key or not at all.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use fdn_core::Digest;
use fdn_core::digest::DigestBuilder;

/// The compiler's key of a function.
pub(super) type Key = [u8; 32];

const MAGIC: &[u8; 8] = b"fdnpack1";
/// Bytes before the first entry.
const HEAD: u64 = 8 + 32 + 4;
/// Bytes of an entry.
pub(super) const ENTRY: u64 = 32 + 8 + 4 + 32;
/// Bytes of the sum after the last entry.
const SUM: u64 = 32;

/// The position and checksum of a value.
#[derive(Clone, Copy)]
pub(super) struct ValueLocation {
    offset: u64,
    length: u32,
    sum: [u8; 32],
}

/// An open pack.
pub(super) struct Pack {
    file: File,
    /// The keys and positions of its values.
    pub(super) entries: Vec<(Key, ValueLocation)>,
}

impl Pack {
    /// Opens a pack and reads its entries, but not the values.
    ///
    /// # Errors
    /// When it cannot be read, is damaged, or is for another engine.
    pub(super) fn open(path: &Path, engine: &str) -> io::Result<Self> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        let mut head = HashingReader {
            inner: BufReader::with_capacity(256 << 10, &file),
            hash: DigestBuilder::default(),
        };
        if head.read::<8>()? != *MAGIC {
            return Err(damaged("it is no pack"));
        }
        if head.read::<32>()? != *Digest::of(engine.as_bytes()).as_bytes() {
            return Err(damaged("it is of another engine"));
        }
        let count = u64::from(u32::from_le_bytes(head.read()?));
        let begin = HEAD + count * ENTRY + SUM;
        if begin > size {
            return Err(damaged("it is shorter than it says"));
        }
        let mut entries = Vec::with_capacity(usize::try_from(count).unwrap_or_default());
        for _ in 0..count {
            let key = head.read()?;
            let location = ValueLocation {
                offset: u64::from_le_bytes(head.read()?),
                length: u32::from_le_bytes(head.read()?),
                sum: head.read()?,
            };
            let end = location.offset.checked_add(location.length.into());
            if location.offset < begin || end.is_none_or(|end| end > size) {
                return Err(damaged("a value lies outside of it"));
            }
            entries.push((key, location));
        }
        let sum = head.hash.clone().finish();
        if head.read::<32>()? != *sum.as_bytes() {
            return Err(damaged("its sum is another one"));
        }
        drop(head);
        Ok(Self { file, entries })
    }

    /// Reads and verifies a value.
    ///
    /// # Errors
    /// When it cannot be read or does not match its checksum.
    pub(super) fn read(&self, location: &ValueLocation) -> io::Result<Vec<u8>> {
        let length = usize::try_from(location.length).map_err(io::Error::other)?;
        let mut value = vec![0; length];
        self.file.read_exact_at(&mut value, location.offset)?;
        if Digest::of(&value).as_bytes() == &location.sum {
            Ok(value)
        } else {
            Err(damaged("the sum of a value is another one"))
        }
    }
}

/// Writes a pack; returns its digest and its size in bytes.
///
/// # Errors
/// When it cannot be written.
pub(super) fn write(
    file: &File,
    engine: &str,
    values: &BTreeMap<Key, Vec<u8>>,
) -> io::Result<(Digest, u64)> {
    let count = u32::try_from(values.len()).map_err(io::Error::other)?;
    let mut head = Vec::new();
    head.extend_from_slice(MAGIC);
    head.extend_from_slice(Digest::of(engine.as_bytes()).as_bytes());
    head.extend_from_slice(&count.to_le_bytes());
    let mut offset = HEAD + u64::from(count) * ENTRY + SUM;
    for (key, value) in values {
        let length = u32::try_from(value.len()).map_err(io::Error::other)?;
        head.extend_from_slice(key);
        head.extend_from_slice(&offset.to_le_bytes());
        head.extend_from_slice(&length.to_le_bytes());
        head.extend_from_slice(Digest::of(value).as_bytes());
        offset += u64::from(length);
    }
    let sum = Digest::of(&head);
    head.extend_from_slice(sum.as_bytes());
    let mut hash = DigestBuilder::default();
    let mut output = BufWriter::with_capacity(256 << 10, file);
    for part in std::iter::once(&head).chain(values.values()) {
        hash.update(part);
        output.write_all(part)?;
    }
    output.flush()?;
    Ok((hash.finish(), offset))
}

/// A reader that hashes what is read.
struct HashingReader<R> {
    inner: R,
    hash: DigestBuilder,
}

impl<R: Read> HashingReader<R> {
    fn read<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes)?;
        self.hash.update(&bytes);
        Ok(bytes)
    }
}

fn damaged(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(folder: &Path) -> std::path::PathBuf {
        let path = folder.join("pack");
        let values = BTreeMap::from([([1; 32], b"one".to_vec()), ([2; 32], b"second".to_vec())]);
        let file = File::create(&path).expect("a file");
        let (digest, size) = write(&file, "e1", &values).expect("written");
        let bytes = std::fs::read(&path).expect("a file");
        assert_eq!((digest, size), (Digest::of(&bytes), bytes.len() as u64));
        path
    }

    fn values(path: &Path, engine: &str) -> io::Result<Vec<(Key, Vec<u8>)>> {
        let pack = Pack::open(path, engine)?;
        let read = |(key, location): &(Key, ValueLocation)| Ok((*key, pack.read(location)?));
        pack.entries.iter().map(read).collect()
    }

    #[test]
    fn what_was_written_is_read_by_the_same_engine_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = pack(folder.path());
        let read = values(&path, "e1").expect("readable");
        assert_eq!(
            read,
            [([1; 32], b"one".to_vec()), ([2; 32], b"second".to_vec())]
        );
        assert!(values(&path, "e2").is_err());
    }

    #[test]
    fn no_damage_goes_unseen() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = pack(folder.path());
        let whole = std::fs::read(&path).expect("a file");
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            std::fs::write(&path, &bytes).expect("written");
            assert!(values(&path, "e1").is_err(), "byte {at}");
            std::fs::write(&path, &whole[..at]).expect("written");
            assert!(values(&path, "e1").is_err(), "{at} bytes");
        }
    }
}

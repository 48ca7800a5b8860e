//! The headers of a tar file that passes by in pieces: what a reader of the file would allocate or make up because of them is refused before it is read.
//!
//! An archive is read with the `tar` crate, and its layers by engines with Go's `archive/tar`. They differ in what they take for a header and how far
//! it is to the next one. Whatever one of them accepts is followed here as it does; what they would read differently is refused.

use std::io;
use std::ops::Range;

use tar::Header;

/// The block size of a tar file, in bytes (POSIX.1-1988, ustar).
const BLOCK: usize = 512;
/// The largest extension of an entry (a long name, or records of PAX), in bytes. Readers keep them whole; engines refuse larger ones too.
const EXTENSION_MAX: usize = 1 << 20;
/// The positions of fields in a header.
const NAME: Range<usize> = 0..100;
const SIZE: Range<usize> = 124..136;
const CHECKSUM: Range<usize> = 148..156;
const TYPE: usize = 156;

fn refused(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Follows a tar file from header to header. What is not a tar file, or follows its end, has none.
#[derive(Default)]
pub(super) struct Headers {
    /// The part of the next header that has been read.
    block: Vec<u8>,
    /// The number of bytes before the next header.
    skip: u64,
    /// The extension that is being read.
    extension: Option<Extension>,
    /// What extensions say about the next entry.
    next: Extended,
    ended: bool,
    /// Whether it is a layer, which nobody but an engine reads.
    is_layer: bool,
}

struct Extension {
    kind: u8,
    size: usize,
    /// Its contents, with what fills their last block.
    bytes: Vec<u8>,
}

/// What extensions say about an entry.
#[derive(Default)]
struct Extended {
    size: Option<u64>,
    /// Whether its name is that of a folder, by GNU's extension and by PAX.
    long_name: Option<bool>,
    path: Option<bool>,
}

impl Headers {
    /// Those of a layer.
    pub(super) fn of_layer() -> Self {
        Self {
            is_layer: true,
            ..Self::default()
        }
    }

    /// Takes the next piece of the file and returns the number of headers that end in it.
    pub(super) fn pass(&mut self, bytes: &[u8]) -> io::Result<u64> {
        let mut rest = bytes;
        let mut headers = 0;
        while !self.ended && !rest.is_empty() {
            let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX);
            let (contents, after) = rest.split_at(skipped.min(rest.len()));
            self.skip -= contents.len() as u64;
            if let Some(extension) = &mut self.extension {
                extension.bytes.extend_from_slice(contents);
            }
            if self.skip > 0 {
                break;
            }
            if let Some(extension) = self.extension.take() {
                self.next.read(&extension)?;
            }
            let (head, after) = after.split_at(after.len().min(BLOCK - self.block.len()));
            self.block.extend_from_slice(head);
            rest = after;
            if self.block.len() == BLOCK {
                headers += u64::from(self.header()?);
            }
        }
        Ok(headers)
    }

    /// Reads the header that has just been completed; returns whether it is one.
    fn header(&mut self) -> io::Result<bool> {
        let size = number(&self.block[SIZE]).filter(|_| is_header(&self.block));
        let header = Header::from_byte_slice(&self.block);
        let is_extensible = header.as_gnu().is_some() || header.as_ustar().is_some();
        // An engine puts a prefix and a slash before a name: an empty one then is that of a folder.
        let is_folder = self.block[NAME.start] == 0 || names_folder(&self.block[NAME]);
        let kind = self.block[TYPE];
        self.block.clear();
        // The block that ends a tar file is not a header either, and nobody unpacks what follows it.
        let Some(size) = size else {
            self.ended = true;
            return Ok(false);
        };
        let size = match kind {
            b'L' | b'K' | b'x' => {
                if !is_extensible {
                    return Err(refused("an extension has a header without extensions"));
                }
                let length = usize::try_from(size).ok();
                let length = length.filter(|length| *length <= EXTENSION_MAX);
                self.extension = Some(Extension {
                    kind,
                    size: length.ok_or_else(|| refused("a name or an extension is too long"))?,
                    bytes: Vec::new(),
                });
                size
            }
            // It describes the whole file, and takes no part in extensions.
            b'g' => {
                self.next = Extended::default();
                size
            }
            _ => {
                let next = std::mem::take(&mut self.next);
                let size = next.size.unwrap_or(size);
                next.check((kind, self.is_layer), is_folder, size)?
            }
        };
        let block = BLOCK as u64;
        self.skip = size.div_ceil(block).saturating_mul(block);
        Ok(true)
    }
}

impl Extended {
    /// Checks an entry; returns the size of its contents.
    fn check(&self, (kind, is_layer): (u8, bool), is_folder: bool, size: u64) -> io::Result<u64> {
        // Links, devices and folders have no contents: an engine would take these for headers. In the old format, a name makes a folder.
        let is_folder = self.long_name.or(self.path).unwrap_or(is_folder);
        let is_empty = matches!(kind, b'1'..=b'6');
        match kind {
            b'S' => Err(sparse()),
            // An engine does not heed their sizes.
            _ if is_layer && is_empty => Ok(0),
            _ if size > 0 && (is_empty || (kind == 0 && is_folder)) => {
                Err(refused("a link or a folder has contents"))
            }
            _ => Ok(size),
        }
    }

    fn read(&mut self, extension: &Extension) -> io::Result<()> {
        let bytes = &extension.bytes[..extension.size.min(extension.bytes.len())];
        match extension.kind {
            b'L' => self.long_name = folder_name(bytes),
            b'x' => {
                (self.size, self.path) = (None, None);
                self.records(bytes)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads the records of PAX (POSIX.1-2001, pax, section "pax Extended Header"): `LENGTH KEY=VALUE` and a line feed, one after the other.
    fn records(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        let mut are_lines = true;
        while !rest.is_empty() {
            let (key, value, after) =
                record(rest).ok_or_else(|| refused("a PAX record is not well-formed"))?;
            rest = after;
            are_lines &= !key.contains(&b'\n') && !value.contains(&b'\n');
            if key.starts_with(b"GNU.sparse.") {
                return Err(sparse());
            }
            if key == b"path" {
                self.path = folder_name(value);
            }
            if key == b"size" {
                let size = std::str::from_utf8(value).ok();
                let size = size.and_then(|size| size.parse().ok());
                let size = size.ok_or_else(|| refused("a PAX size is not a number"))?;
                if self.size.replace(size).is_some_and(|first| first != size) {
                    return Err(refused("an entry has two sizes"));
                }
            }
        }
        // The `tar` crate takes each line for a record.
        if self.size.is_some() && !are_lines {
            return Err(refused("a PAX size is beside a value of several lines"));
        }
        Ok(())
    }
}

/// An engine writes out the holes of a sparse file, which no count of the bytes that pass by contains.
fn sparse() -> io::Error {
    refused("it holds a sparse file, so what it unfolds to is not known")
}

/// The first record, and what follows it.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    let (record, rest) = bytes.split_at_checked(length)?;
    let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    Some((&record[..equals], &record[equals + 1..], rest))
}

/// Whether the name that an extension gives is that of a folder; `None` if it is empty: the entry keeps the name that it had without it.
fn folder_name(name: &[u8]) -> Option<bool> {
    name.first()
        .filter(|first| **first != 0)
        .map(|_| names_folder(name))
}

/// Whether a name, which ends at the first zero byte, is that of a folder.
fn names_folder(name: &[u8]) -> bool {
    let name = name.split(|byte| *byte == 0).next();
    name.is_some_and(|name| name.ends_with(b"/"))
}

/// Whether a block is a header: its checksum is the sum of its bytes, with or without their signs; its own bytes are counted as spaces.
fn is_header(block: &[u8]) -> bool {
    let (mut unsigned, mut signed) = (0_i64, 0_i64);
    for (at, byte) in block.iter().enumerate() {
        let byte = if CHECKSUM.contains(&at) { b' ' } else { *byte };
        unsigned += i64::from(byte);
        signed += i64::from(i8::from_ne_bytes([byte]));
    }
    let said = number(&block[CHECKSUM]).and_then(|said| i64::try_from(said).ok());
    said.is_some_and(|said| said == unsigned || said == signed)
}

/// A number in a header: octal digits between spaces and zero bytes, or, as GNU extends it, binary if its first bit is set.
fn number(field: &[u8]) -> Option<u64> {
    if field.first()? & 0x80 != 0 {
        let (_, digits) = field.split_last_chunk::<8>()?;
        return Some(u64::from_be_bytes(*digits));
    }
    let start = field.iter().position(|byte| !matches!(byte, 0 | b' '));
    let Some(start) = start else { return Some(0) };
    let text = field[start..].split(|byte| *byte == 0).next()?;
    u64::from_str_radix(std::str::from_utf8(text).ok()?.trim(), 8).ok()
}

#[cfg(test)]
mod tests {
    use tar::{Builder, EntryType};

    use super::*;

    fn header(kind: EntryType, size: u64) -> Header {
        let mut header = Header::new_ustar();
        header.set_path("name").expect("a short name");
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_cksum();
        header
    }

    /// A file of 1,000 bytes with these records, and its size as its header says it.
    fn with_records(records: &[(&str, &[u8])], said: u64) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        let pairs = records.iter().copied();
        builder.append_pax_extensions(pairs).expect("memory");
        let mut file = builder.into_inner().expect("memory");
        file.truncate(file.len() - 2 * BLOCK);
        file.extend(header(EntryType::Regular, said).as_bytes());
        file.extend([b'x'; 1024]);
        file.extend(header(EntryType::Regular, 0).as_bytes());
        file.extend([0_u8; 2 * BLOCK]);
        file
    }

    fn pass(bytes: &[u8], piece: usize) -> io::Result<u64> {
        let mut headers = Headers::default();
        bytes.chunks(piece).map(|piece| headers.pass(piece)).sum()
    }

    #[test]
    fn extensions_are_read_however_they_come() {
        let records: [(&str, &[u8]); 2] = [("comment", b"of\ntwo lines"), ("path", b"long")];
        let plain = with_records(&records, 1000);
        // The size of the header is not the one that counts.
        let size: [(&str, &[u8]); 1] = [("size", b"1000")];
        let resized = with_records(&size, 0);
        for file in [plain, resized] {
            for piece in [1, 100, 512, 4096] {
                assert_eq!(pass(&file, piece).expect("well-formed"), 3, "{piece}");
            }
        }
    }

    #[test]
    fn what_an_engine_would_make_up_is_refused() {
        let holes: [(&str, &[u8]); 1] = [("GNU.sparse.realsize", b"99999999999")];
        let words: [(&str, &[u8]); 1] = [("size", b"many")];
        let two: [(&str, &[u8]); 2] = [("size", b"1000"), ("size", b"0")];
        let lines: [(&str, &[u8]); 2] = [("comment", b"a\nb"), ("size", b"1000")];
        for (records, words) in [
            (&holes[..], "sparse"),
            (&words[..], "not a number"),
            (&two[..], "two sizes"),
            (&lines[..], "several lines"),
        ] {
            let file = with_records(records, 1000);
            let error = pass(&file, 100).expect_err("refused").to_string();
            assert!(error.contains(words), "{words}: {error}");
        }
        let broken = [
            &header(EntryType::XHeader, 5).as_bytes()[..],
            &[b'x'; BLOCK][..],
            &header(EntryType::Regular, 0).as_bytes()[..],
        ]
        .concat();
        assert!(pass(&broken, 100).is_err());
    }

    #[test]
    fn headers_that_readers_understand_differently_are_refused() {
        let mut folder = header(EntryType::Regular, 512);
        folder.as_mut_bytes()[..7].copy_from_slice(b"folder/");
        folder.as_mut_bytes()[TYPE] = 0;
        folder.set_cksum();
        let mut old = Header::new_old();
        old.set_entry_type(EntryType::GNULongName);
        old.set_size(512);
        old.set_cksum();
        for (header, words) in [
            (header(EntryType::GNUSparse, 512), "sparse"),
            (header(EntryType::Symlink, 512), "contents"),
            (folder, "contents"),
            (old, "without extensions"),
            (header(EntryType::GNULongLink, (1 << 20) + 1), "too long"),
            (header(EntryType::XHeader, u64::MAX >> 1), "too long"),
        ] {
            let error = pass(header.as_bytes(), 512).expect_err("refused");
            assert!(error.to_string().contains(words), "{words}: {error}");
        }
    }

    /// A file in the old format, of 512 bytes that may be a header.
    fn old(name: &[u8], prefix: &[u8]) -> Vec<u8> {
        let mut header = header(EntryType::Regular, 512);
        let bytes = header.as_mut_bytes();
        bytes[NAME].fill(0);
        bytes[..name.len()].copy_from_slice(name);
        bytes[345..345 + prefix.len()].copy_from_slice(prefix);
        bytes[TYPE] = 0;
        header.set_cksum();
        header.as_bytes().to_vec()
    }

    #[test]
    fn an_empty_name_leaves_a_folder_what_it_is() {
        let extension = |kind, contents: &[u8]| {
            let mut file = header(kind, contents.len() as u64).as_bytes().to_vec();
            file.extend(contents);
            file.resize(file.len().next_multiple_of(BLOCK), 0);
            file
        };
        let renamed = |kind, contents: &[u8]| [extension(kind, contents), old(b"d/", b"")].concat();
        let long = EntryType::GNULongName;
        for file in [
            renamed(EntryType::XHeader, b"8 path=\n"),
            renamed(long, b""),
            renamed(long, b"\0file"),
            old(b"", b"d"),
        ] {
            let error = pass(&file, 512).expect_err("refused").to_string();
            assert!(error.contains("contents"), "{error}");
        }
        for file in [
            renamed(EntryType::XHeader, b"13 path=file\n"),
            renamed(long, b"file\0"),
        ] {
            assert_eq!(pass(&file, 512).expect("a file"), 2);
        }
    }

    #[test]
    fn what_follows_a_link_in_a_layer_is_a_header_whatever_the_links_size() {
        let with = |kind| {
            let link = header(EntryType::Link, 512);
            [*link.as_bytes(), *header(kind, 0).as_bytes()].concat()
        };
        let of_layer = |file: Vec<u8>| Headers::of_layer().pass(&file);
        assert_eq!(of_layer(with(EntryType::Regular)).expect("two"), 2);
        let error = of_layer(with(EntryType::GNUSparse)).expect_err("refused");
        assert!(error.to_string().contains("sparse"), "{error}");
    }

    #[test]
    fn a_checksum_may_be_signed_and_written_in_several_ways() {
        let mut block = *header(EntryType::Regular, 0).as_bytes();
        block[1] = 0xe9;
        let with = |text: String| {
            let mut block = block;
            block[CHECKSUM].copy_from_slice(text.as_bytes());
            block
        };
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        let own: u32 = block[CHECKSUM].iter().map(|byte| u32::from(*byte)).sum();
        let sum = sum - own + 8 * u32::from(b' ');
        for text in [
            format!("{sum:06o}\0 "),
            format!("\0 {sum:06o}"),
            format!("{:06o}\0 ", sum - 256),
        ] {
            assert!(is_header(&with(text.clone())), "{text:?}");
        }
        assert!(!is_header(&with(format!("{:06o}\0 ", sum + 1))));
        assert!(!is_header(&[0; BLOCK]));
    }
}

//! Bounds on the unpacked size of an archive and its layers: everything is unpacked to the end and counted, without keeping any of it.
//!
//! A layer is itself a tar file, mostly compressed with gzip, and an engine unpacks it onto the node's disk: a few kilobytes may become any number
//! of bytes and files.

use std::io::{self, Read, Write};

use fdn_core::ByteSize;
use flate2::write::MultiGzDecoder;

use super::headers::Headers;

/// The default limit on the unpacked size of an image.
pub const UNPACKED_MAX: ByteSize = ByteSize::from_mib(4096);

/// The most files, folders and links of all layers together.
const ENTRIES_MAX: u64 = 1_000_000;

fn too_much(what: String) -> io::Error {
    let text = format!("it unfolds to more than {what}");
    io::Error::new(io::ErrorKind::FileTooLarge, text)
}

/// A reader of a tar file that fails once it has read more than a number of bytes, or a header that is refused.
pub(super) struct Bounded<R> {
    inner: R,
    headers: Headers,
    left: u64,
    max_size: u64,
}

impl<R> Bounded<R> {
    pub(super) fn new(inner: R, max_size: u64) -> Self {
        Self {
            inner,
            headers: Headers::default(),
            left: max_size,
            max_size,
        }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let left = self.left.checked_sub(read as u64);
        self.left =
            left.ok_or_else(|| too_much(ByteSize::from_bytes(self.max_size).to_string()))?;
        self.headers.pass(&buffer[..read])?;
        Ok(read)
    }
}

/// What all layers together may still unpack to.
pub(super) struct Budget {
    bytes: u64,
    entries: u64,
    max_size: u64,
}

impl Budget {
    pub(super) const fn new(max_size: u64) -> Self {
        Self {
            bytes: max_size,
            entries: ENTRIES_MAX,
            max_size,
        }
    }

    /// What is left: bytes and entries.
    pub(super) const fn left(&self) -> (u64, u64) {
        (self.bytes, self.entries)
    }

    /// Takes bytes and entries.
    pub(super) fn take(&mut self, bytes: u64, entries: u64) -> io::Result<()> {
        let left = self.bytes.checked_sub(bytes);
        self.bytes =
            left.ok_or_else(|| too_much(ByteSize::from_bytes(self.max_size).to_string()))?;
        let left = self.entries.checked_sub(entries);
        self.entries = left.ok_or_else(|| too_much(format!("{ENTRIES_MAX} files")))?;
        Ok(())
    }
}

/// Counts what one file of an archive unpacks to, piece by piece.
pub(super) enum Unpacking<'b> {
    /// A file compressed with gzip.
    Packed(Box<MultiGzDecoder<Layer<'b>>>),
    /// Any other file.
    Plain(Layer<'b>),
}

impl<'b> Unpacking<'b> {
    pub(super) fn new(is_gzip: bool, budget: &'b mut Budget) -> Self {
        let layer = Layer {
            budget,
            headers: Headers::of_layer(),
        };
        if is_gzip {
            Self::Packed(Box::new(MultiGzDecoder::new(layer)))
        } else {
            Self::Plain(layer)
        }
    }

    /// Counts the next piece.
    pub(super) fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Packed(decoder) => decoder.write_all(bytes),
            Self::Plain(layer) => layer.write_all(bytes),
        }
    }

    /// Counts what the decoder still holds.
    pub(super) fn finish(self) -> io::Result<()> {
        match self {
            Self::Packed(mut decoder) => decoder.try_finish(),
            Self::Plain(_) => Ok(()),
        }
    }
}

/// Counts the bytes of a layer and, as long as it is a tar file, its entries.
pub(super) struct Layer<'b> {
    budget: &'b mut Budget,
    headers: Headers,
}

impl Write for Layer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let entries = self.headers.pass(bytes)?;
        self.budget.take(bytes.len() as u64, entries)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use tar::Header;

    use super::*;

    fn tar_of(files: usize, size: usize) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for at in 0..files {
            let mut header = Header::new_gnu();
            header.set_size(size as u64);
            builder
                .append_data(&mut header, format!("f{at}"), vec![b'x'; size].as_slice())
                .expect("memory");
        }
        builder.into_inner().expect("memory")
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(bytes).expect("memory");
        gzip.finish().expect("memory")
    }

    /// The budget left after a file that is passed in pieces of this size: bytes and entries.
    fn left(mut budget: Budget, bytes: &[u8], piece: usize) -> io::Result<(u64, u64)> {
        let mut unpacking = Unpacking::new(bytes.starts_with(&[0x1f, 0x8b]), &mut budget);
        for piece in bytes.chunks(piece) {
            unpacking.take(piece)?;
        }
        unpacking.finish()?;
        Ok((budget.bytes, budget.entries))
    }

    #[test]
    fn bytes_and_entries_are_counted_however_they_come() {
        let tar = tar_of(7, 1000);
        let max_size = tar.len() as u64;
        for bytes in [tar.clone(), gzip(&tar)] {
            for piece in [1, 100, 512, 4096] {
                let left = left(Budget::new(max_size), &bytes, piece).expect("within");
                assert_eq!(left, (0, ENTRIES_MAX - 7), "in pieces of {piece}");
            }
        }
    }

    #[test]
    fn more_than_there_may_be_is_refused() {
        let tar = tar_of(7, 1000);
        for bytes in [tar.clone(), gzip(&tar)] {
            let error = left(Budget::new(tar.len() as u64 - 1), &bytes, 4096).expect_err("bytes");
            assert!(
                error.to_string().contains("unfolds to more than"),
                "{error}"
            );
            let few = Budget {
                entries: 6,
                ..Budget::new(u64::MAX)
            };
            let error = left(few, &bytes, 4096).expect_err("entries");
            assert!(error.to_string().contains("files"), "{error}");
        }
    }

    #[test]
    fn two_members_of_gzip_are_both_counted() {
        let twice = [gzip(&[0; 1000]), gzip(&[0; 1000])].concat();
        let (bytes, _) = left(Budget::new(5000), &twice, 4096).expect("within");
        assert_eq!(bytes, 3000);
    }

    #[test]
    fn what_is_no_tar_file_has_bytes_and_no_entries() {
        let left = left(Budget::new(5000), &[b'{'; 2000], 300).expect("within");
        assert_eq!(left, (3000, ENTRIES_MAX));
    }

    #[test]
    fn a_reader_fails_before_a_name_that_is_too_long() {
        let mut header = Header::new_gnu();
        header.set_entry_type(tar::EntryType::GNULongName);
        header.set_size(1 << 30);
        header.set_cksum();
        let header = io::Cursor::new(*header.as_bytes());
        let whole = header.chain(io::repeat(b'x')).take(1 << 30);
        let mut archive = tar::Archive::new(Bounded::new(whole, u64::MAX));
        let mut entries = archive.entries().expect("at its start");
        let error = entries.next().expect("an entry").err();
        let error = error.expect("refused").to_string();
        assert!(error.contains("too long"), "{error}");
        assert_eq!(archive.into_inner().left, u64::MAX - 512);
    }

    #[test]
    fn a_reader_fails_beyond_its_bound() {
        let mut all = Vec::new();
        let mut exact = Bounded::new(&[0; 10][..], 10);
        exact.read_to_end(&mut all).expect("as much as it may");
        let mut more = Bounded::new(&[0; 11][..], 10);
        more.read_to_end(&mut all).expect_err("one more");
    }
}

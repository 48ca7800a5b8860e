//! The files of a folder of records, and the records in them: gzip members, of which each is one record.
//!
//! A controller may have ended while it wrote, and disks lose and change bytes. What cannot be read is told, with where it lies, and reading goes on
//! with the next member that is whole.

use std::fs;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

use fdn_scheduling::record::RecordedPass;
use flate2::bufread::GzDecoder;

use crate::Error;

/// How a member begins: gzip, deflate, no name, no time.
const HEAD: [u8; 8] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0];
/// The most bytes that one record may unfold to.
const RECORD_MAX: u64 = 1 << 30;

/// The segments of a folder, the oldest first.
///
/// # Errors
/// When the folder cannot be read, or has none.
pub fn segments(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source: io::Error| Error::Read {
        path: folder.to_owned(),
        source,
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|ending| ending == "gz") {
            found.push(path);
        }
    }
    found.sort();
    if found.is_empty() {
        let expected = "no file ends in .gz; expected records of planning passes";
        return Err(Error::input(folder, "folder", expected));
    }
    Ok(found)
}

/// Bytes of a segment that are no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where they lie.
    pub bytes: Range<usize>,
    /// What is wrong with them.
    pub why: String,
}

/// The records of a segment, in order.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    segment: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    /// Of a file's content.
    #[must_use]
    pub const fn new(segment: &'a [u8]) -> Self {
        Self { segment, at: 0 }
    }

    /// Where the next whole member begins; the end, if none does.
    fn resume(&self, from: usize) -> usize {
        let mut heads =
            (from..self.segment.len()).filter(|at| self.segment[*at..].starts_with(&HEAD));
        heads
            .find(|at| unfold(&self.segment[*at..]).is_ok())
            .unwrap_or(self.segment.len())
    }
}

impl Iterator for Records<'_> {
    type Item = Result<RecordedPass, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        let begin = self.at;
        let rest = self.segment.get(begin..).filter(|rest| !rest.is_empty())?;
        let damage = |end: usize, why: String| Damage {
            bytes: begin..end,
            why,
        };
        match unfold(rest) {
            Ok((record, length)) => {
                self.at = begin + length;
                let recorded = RecordedPass::decode(&record);
                Some(recorded.map_err(|error| damage(self.at, error.to_string())))
            }
            Err(error) => {
                self.at = self.resume(begin + 1);
                let why = if error.kind() == io::ErrorKind::UnexpectedEof {
                    "is torn off".to_owned()
                } else {
                    error.to_string()
                };
                Some(Err(damage(self.at, why)))
            }
        }
    }
}

/// The content of the member that these bytes begin with, whose check sum is right, and how long it is.
fn unfold(bytes: &[u8]) -> io::Result<(Vec<u8>, usize)> {
    let mut member = GzDecoder::new(bytes);
    let mut content = Vec::new();
    (&mut member).take(RECORD_MAX).read_to_end(&mut content)?;
    if content.len() as u64 == RECORD_MAX {
        return Err(io::Error::other("is larger than any record"));
    }
    Ok((content, bytes.len() - member.into_inner().len()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn member(content: &[u8]) -> Vec<u8> {
        let mut to = GzEncoder::new(Vec::new(), Compression::fast());
        to.write_all(content).expect("memory");
        to.finish().expect("memory")
    }

    fn whys(segment: &[u8]) -> Vec<(Range<usize>, String)> {
        let found = Records::new(segment).map(|record| record.expect_err("none is a record"));
        found.map(|damage| (damage.bytes, damage.why)).collect()
    }

    /// What is whole but no record tells where members were found.
    #[test]
    fn members_are_found_behind_what_is_damaged() {
        let [a, b, c] = [&b"first"[..], b"second", b"third"].map(member);
        let none = "does not begin like a record";
        let ends = [a.len(), a.len() + b.len(), a.len() + b.len() + c.len()];
        let whole = [a, b, c].concat();
        let all: Vec<_> = std::iter::once(0).chain(ends).collect();
        let found: Vec<_> = all
            .windows(2)
            .map(|w| (w[0]..w[1], none.to_owned()))
            .collect();
        assert_eq!(whys(&whole), found);
        // One byte of the second is another one: its check sum, its length, its data or its head is wrong.
        for at in ends[0]..ends[1] {
            // Neither the time, the flags of the packer nor the system counts.
            if (ends[0] + 4..ends[0] + 10).contains(&at) {
                continue;
            }
            let mut damaged = whole.clone();
            damaged[at] ^= 0x55;
            let got = whys(&damaged);
            assert_eq!(got.len(), 3, "{at}");
            assert_eq!((&got[0], &got[2]), (&found[0], &found[2]), "{at}");
            assert_eq!(got[1].0, found[1].0);
            assert_ne!(got[1].1, none, "{at}");
        }
        // Torn at the end.
        let got = whys(&whole[..ends[2] - 1]);
        assert_eq!(got[2], (ends[1]..ends[2] - 1, "is torn off".to_owned()));
        assert_eq!(whys(b""), []);
        assert_eq!(whys(b"no gzip at all").len(), 1);
    }
}

//! Compiled files on disk: their names, and how they are written and verified.
//!
//! Loading compiled code is as dangerous as running a native program, so the only files loaded are those that this node compiled itself and those
//! whose digest the network's authority has signed ([`crate::Incoming`]). Each compiled file `X` has a checksum file `X.sha256` beside it, with
//! two lines: `sha256 HEX` and `engine KEY`. Both are written under temporary names and renamed, the checksum first: wherever this is
//! interrupted, a file whose checksum does not match is never loaded, only compiled again.
//!
//! Reading 35 MB to verify them takes longer than loading them, so a verified file is remembered by its identity
//! (device, inode, size, and the times of the last change of content and of inode; the latter cannot be set back).

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use fdn_core::Digest;
use fdn_core::digest::DigestBuilder;

use crate::error::LoadError;

/// The most verified files that are remembered; more than a node's cache holds.
const REMEMBERED: usize = 16_384;
/// The prefix of the temporary files that a killed compilation leaves behind.
pub(crate) const LEFTOVER_PREFIX: &str = ".compiling-";

/// The file name of a component's compiled form in a node's cache, made of the component's digest and the engine's
/// [`crate::Engine::compatibility_key`]. Its checksum file has the same name with `.sha256` appended: delete both together.
#[must_use]
pub fn compiled_file_name(component: &Digest, compatibility_key: &str) -> String {
    format!("{}-{compatibility_key}.cwasm", component.hex())
}

/// Whether a file of a cache folder is left from a killed compilation and can be deleted at start.
#[must_use]
pub fn is_leftover(file_name: &str) -> bool {
    file_name.starts_with(LEFTOVER_PREFIX)
}

/// The path of the checksum file of a compiled file.
#[must_use]
pub fn checksum_file(compiled: &Path) -> PathBuf {
    let mut name = compiled.as_os_str().to_owned();
    name.push(".sha256");
    PathBuf::from(name)
}

/// The content of a checksum file.
pub(crate) fn checksum_text(digest: &Digest, compatibility_key: &str) -> String {
    format!("sha256 {}\nengine {compatibility_key}\n", digest.hex())
}

/// A file whose content is proven to come from a compiler that this node trusts. Only [`VerifiedFiles::open_verified`] makes one.
pub(crate) struct TrustedFile {
    file: File,
}

impl TrustedFile {
    /// The open file; what is read through it is what was verified, even if the name now refers to another file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

#[derive(PartialEq, Eq)]
struct Identity {
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Identity {
    fn of(metadata: &Metadata) -> ((u64, u64), Self) {
        (
            (metadata.dev(), metadata.ino()),
            Self {
                size: metadata.size(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
                changed: (metadata.ctime(), metadata.ctime_nsec()),
            },
        )
    }
}

/// The files verified so far, by device and inode.
#[derive(Default)]
pub(crate) struct VerifiedFiles(Mutex<HashMap<(u64, u64), Identity>>);

impl VerifiedFiles {
    /// Opens `compiled` and verifies its content, unless a file of the same identity was verified before.
    pub(crate) fn open_verified(
        &self,
        compiled: &Path,
        compatibility_key: &str,
    ) -> Result<TrustedFile, LoadError> {
        let read_error = |path: &Path| {
            let path = path.to_owned();
            move |source| LoadError::Read { path, source }
        };
        let mut file = File::open(compiled).map_err(read_error(compiled))?;
        let (inode, identity) = Identity::of(&file.metadata().map_err(read_error(compiled))?);
        let known = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&inode)
            .is_some_and(|known| *known == identity);
        if !known {
            let sums = checksum_file(compiled);
            let sums = std::fs::read_to_string(&sums).map_err(read_error(&sums))?;
            let digest = digest(&mut file).map_err(read_error(compiled))?;
            if let Err(reason) = compare(&sums, &digest, compatibility_key) {
                return Err(LoadError::Untrusted {
                    path: compiled.to_owned(),
                    reason,
                });
            }
            let mut verified = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if verified.len() >= REMEMBERED {
                // Forgetting only means that files are verified again.
                verified.clear();
            }
            verified.insert(inode, identity);
        }
        Ok(TrustedFile { file })
    }
}

fn digest(file: &mut File) -> std::io::Result<Digest> {
    let mut builder = DigestBuilder::default();
    let mut piece = vec![0; 256 << 10];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(builder.finish()),
            n => builder.update(&piece[..n]),
        }
    }
}

fn compare(sums: &str, digest: &Digest, compatibility_key: &str) -> Result<(), String> {
    let field = |name: &str| {
        sums.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
    };
    match (field("sha256"), field("engine")) {
        (Some(_), Some(engine)) if engine != compatibility_key => Err(format!(
            "it was compiled for engine {engine}, this one is {compatibility_key}"
        )),
        (Some(sum), Some(_)) if sum == digest.hex() => Ok(()),
        (Some(_), Some(_)) => Err("its bytes do not match its checksum".to_owned()),
        _ => Err("its checksum file is not readable".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, content: &[u8], sums: &str) -> PathBuf {
        let path = dir.join("x.cwasm");
        std::fs::write(&path, content).expect("write");
        std::fs::write(checksum_file(&path), sums).expect("write");
        path
    }

    #[test]
    fn only_what_matches_its_checksum_and_engine_is_trusted() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let verified = VerifiedFiles::default();
        let good = checksum_text(&Digest::of(b"code"), "k1");
        let path = write(dir.path(), b"code", &good);
        verified
            .open_verified(&path, "k1")
            .map(drop)
            .expect("trusted");

        for (content, sums, key) in [
            (&b"kode"[..], good.as_str(), "k1"),
            (b"code", good.as_str(), "k2"),
            (b"code", "", "k1"),
            (b"code", "sha256 \nengine k1\n", "k1"),
        ] {
            let path = write(dir.path(), content, sums);
            let error = VerifiedFiles::default().open_verified(&path, key).map(drop);
            assert!(
                matches!(error, Err(LoadError::Untrusted { .. })),
                "{sums} {key}"
            );
        }
        std::fs::remove_file(checksum_file(&path)).expect("remove");
        assert!(matches!(
            VerifiedFiles::default()
                .open_verified(&path, "k1")
                .map(drop),
            Err(LoadError::Read { .. })
        ));
    }

    #[test]
    fn a_checked_file_is_known_until_it_changes() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let verified = VerifiedFiles::default();
        let path = write(
            dir.path(),
            b"code",
            &checksum_text(&Digest::of(b"code"), "k"),
        );
        verified
            .open_verified(&path, "k")
            .map(drop)
            .expect("trusted");
        // The checksum file of a known file is not read again …
        std::fs::remove_file(checksum_file(&path)).expect("remove");
        verified.open_verified(&path, "k").map(drop).expect("known");
        // … but another file under the same name is not known.
        std::fs::remove_file(&path).expect("remove");
        let path = write(
            dir.path(),
            b"evil code",
            &checksum_text(&Digest::of(b"code"), "k"),
        );
        assert!(verified.open_verified(&path, "k").is_err());
    }
}

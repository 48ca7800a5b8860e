//! Reads a function's folder: the digests of its sources, and the folders that they are in.
//!
//! Build results and downloads are excluded: files ignored by `.gitignore`, hidden files and folders, `target`, `node_modules`, `__pycache__`, and
//! components.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fdn_core::Digest;
use fdn_core::digest::DigestBuilder;
use ignore::{DirEntry, WalkBuilder};

/// The most files and folders.
const ENTRIES_MAX: usize = 10_000;
/// Files up to this size in bytes are compared by content, larger ones by size and modification time.
const READ_MAX: u64 = 4 << 20;
/// The most files whose texts are kept; a traceback seldom names more.
const KEPT_MAX: usize = 8;
/// Folders that never contain sources.
const OUTPUTS: [&str; 3] = ["target", "node_modules", "__pycache__"];

/// The sources of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// The digest of all of them.
    pub digest: Digest,
    /// The digest of each file, by its path in the function's folder.
    pub files: BTreeMap<PathBuf, Digest>,
    /// The folders that contain them, starting with the function's folder.
    pub folders: Vec<PathBuf>,
}

/// The files that were looked up last, so that each is read only once as long as it does not change.
#[derive(Debug, Default)]
pub struct Texts(BTreeMap<PathBuf, Kept>);

/// A file that was read.
#[derive(Debug)]
struct Kept {
    /// Its length and modification time.
    stamp: (u64, SystemTime),
    digest: Digest,
    /// Its text; `None` if it is not UTF-8.
    text: Option<String>,
}

impl Texts {
    /// The text of a file, if it still is what was read as one of the sources in this folder. Blocks.
    pub fn text(&mut self, sources: &Sources, folder: &Path, name: &Path) -> Option<&str> {
        let digest = sources.files.get(name)?;
        let path = folder.join(name);
        let metadata = path.metadata().ok()?;
        if !metadata.is_file() || metadata.len() > READ_MAX {
            return None;
        }
        let stamp = (metadata.len(), metadata.modified().ok()?);
        if self.0.get(&path).is_none_or(|kept| kept.stamp != stamp) {
            let content = std::fs::read(&path).ok()?;
            if self.0.len() >= KEPT_MAX {
                self.0.clear();
            }
            let kept = Kept {
                stamp,
                digest: Digest::of(&content),
                text: String::from_utf8(content).ok(),
            };
            self.0.insert(path.clone(), kept);
        }
        let kept = self.0.get(&path).filter(|kept| kept.digest == *digest)?;
        kept.text.as_deref()
    }
}

impl Sources {
    /// The files that differ between the two.
    #[must_use]
    pub fn changed_files<'a>(&'a self, other: &'a Self) -> Vec<&'a Path> {
        let mine = self.files.iter();
        let mine = mine.filter(|(path, digest)| other.files.get(*path) != Some(digest));
        let gone = other.files.keys();
        let gone = gone.filter(|path| !self.files.contains_key(*path));
        mine.map(|(path, _)| path)
            .chain(gone)
            .map(PathBuf::as_path)
            .collect()
    }
}

/// Reads a folder. Blocks.
///
/// # Errors
/// When it cannot be read or contains too much.
pub fn read(folder: &Path) -> io::Result<Sources> {
    let mut files = BTreeMap::new();
    let mut folders = Vec::new();
    let walk = WalkBuilder::new(folder)
        .parents(false)
        .git_global(false)
        .git_exclude(false)
        .require_git(false)
        .sort_by_file_name(Ord::cmp)
        .filter_entry(|entry| entry.depth() == 0 || !is_output(entry))
        .build();
    for (count, entry) in walk.enumerate() {
        if count >= ENTRIES_MAX {
            return Err(io::Error::other(format!(
                "there are more than {ENTRIES_MAX} files in {}; name what is no source in a .gitignore there",
                folder.display()
            )));
        }
        match entry {
            // The function's folder may be a symbolic link.
            Ok(entry) if entry.depth() == 0 || is_folder(&entry) => folders.push(entry.into_path()),
            Ok(entry) => {
                let path = entry.path();
                if let Some(digest) = digest_of(path) {
                    let name = path.strip_prefix(folder).unwrap_or(path);
                    files.insert(name.to_owned(), digest);
                }
            }
            // A file that disappeared while the folder was read: its removal is the next change.
            Err(error) if folders.is_empty() => return Err(io::Error::other(error)),
            Err(_) => {}
        }
    }
    let mut digest = DigestBuilder::default();
    for (name, content) in &files {
        part(&mut digest, name.as_os_str().as_bytes());
        part(&mut digest, content.to_string().as_bytes());
    }
    Ok(Sources {
        digest: digest.finish(),
        files,
        folders,
    })
}

/// Adds length-prefixed bytes, so that adjacent parts cannot be confused.
fn part(digest: &mut DigestBuilder, bytes: &[u8]) {
    digest.update(&(bytes.len() as u64).to_le_bytes());
    digest.update(bytes);
}

fn is_folder(entry: &DirEntry) -> bool {
    entry.file_type().is_some_and(|kind| kind.is_dir())
}

fn is_output(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    if is_folder(entry) {
        OUTPUTS.iter().any(|output| name == *output)
    } else {
        entry.path().extension().is_some_and(|end| end == "wasm")
    }
}

/// The digest of a file. Unreadable content counts as empty; `None` if the file does not exist.
fn digest_of(path: &Path) -> Option<Digest> {
    let metadata = path.metadata().ok()?;
    if metadata.is_file() && metadata.len() <= READ_MAX {
        return Some(Digest::of(&std::fs::read(path).unwrap_or_default()));
    }
    let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    let since = modified
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let mut digest = DigestBuilder::default();
    part(&mut digest, &metadata.len().to_le_bytes());
    part(&mut digest, &since.as_nanos().to_le_bytes());
    Some(digest.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, text: &str) {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    #[test]
    fn what_a_build_makes_is_no_source_and_what_is_the_same_is_no_change() {
        let parent = tempfile::tempdir().expect("folder");
        let folder = parent.path().join("function");
        write(&folder, "src/lib.rs", "fn main() {}");
        write(&folder, ".gitignore", "/generated/\n");
        let first = read(&folder).expect("read");
        assert_eq!(first.folders, [folder.clone(), folder.join("src")]);
        for output in [
            "target/release/x",
            "node_modules/a/b.js",
            "__pycache__/x.pyc",
            ".git/HEAD",
            ".venv/bin/python",
            "generated/bindings.rs",
            "function.wasm",
        ] {
            write(&folder, output, "made");
            assert_eq!(read(&folder).expect("read"), first, "{output}");
        }
        write(&folder, "src/lib.rs", "fn main() {}");
        assert_eq!(read(&folder).expect("read"), first, "saved again");
        let mut seen = vec![first.digest];
        for (name, text) in [
            ("src/lib.rs", "fn main() { }"),
            ("src/deep/new.rs", ""),
            ("fdn.toml", "x"),
        ] {
            write(&folder, name, text);
            let now = read(&folder).expect("read").digest;
            assert!(!seen.contains(&now), "{name}");
            seen.push(now);
        }
        std::fs::rename(folder.join("fdn.toml"), folder.join("fdn.tom")).expect("renamed");
        assert!(
            !seen.contains(&read(&folder).expect("read").digest),
            "a name counts"
        );
    }

    #[test]
    fn a_link_to_a_folder_is_read_as_the_folder() {
        let parent = tempfile::tempdir().expect("folder");
        let (folder, link) = (parent.path().join("function"), parent.path().join("link"));
        write(&folder, "src/lib.rs", "fn main() {}");
        std::os::unix::fs::symlink(&folder, &link).expect("linked");
        let sources = read(&link).expect("read");
        assert_eq!(sources.folders, [link.clone(), link.join("src")]);
        assert_eq!(sources.digest, read(&folder).expect("read").digest);
    }

    #[test]
    fn files_that_are_not_the_same_are_named() {
        let folder = tempfile::tempdir().expect("folder");
        for name in ["same", "changed", "gone"] {
            write(folder.path(), name, "before");
        }
        let before = read(folder.path()).expect("read");
        assert_eq!(before.changed_files(&before), Vec::<&Path>::new());
        write(folder.path(), "changed", "after");
        write(folder.path(), "deep/new", "after");
        std::fs::remove_file(folder.path().join("gone")).expect("removed");
        let after = read(folder.path()).expect("read");
        let names = ["changed", "deep/new", "gone"].map(Path::new);
        assert_eq!(after.changed_files(&before), names);
    }

    #[test]
    fn a_folder_that_is_not_there_is_said() {
        assert!(read(Path::new("/nonexistent/folder")).is_err());
    }
}

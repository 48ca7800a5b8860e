//! Crash-safe file replacement: the new content is written to a file beside the old one, flushed, and renamed over it.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use fdn_service::ServiceError;

/// Creates a folder and its missing parents, accessible to their owner only.
///
/// # Errors
/// When it cannot be created.
pub fn folder(path: &Path) -> Result<(), ServiceError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| failed(path, source))
}

/// Replaces a file atomically; only its owner may read the new one.
///
/// # Errors
/// When the disk fails; the previous content is then still in place.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), ServiceError> {
    write(path, bytes, 0o600).map_err(|source| failed(path, source))
}

/// Replaces a file atomically; everybody may read the new one.
///
/// # Errors
/// Like [`replace`].
pub fn replace_public(path: &Path, bytes: &[u8]) -> Result<(), ServiceError> {
    write(path, bytes, 0o644).map_err(|source| failed(path, source))
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = Path::new(&fresh);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(fresh)?;
    // A file left by a crash keeps its old permissions when it is opened again.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(fresh, path)?;
    // The rename itself is durable only once the folder is flushed.
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

fn failed(path: &Path, source: std::io::Error) -> ServiceError {
    ServiceError::File {
        path: path.to_owned(),
        reason: source.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_its_rights_with_it() {
        let root = tempfile::tempdir().expect("folder");
        let deep = root.path().join("a/b");
        folder(&deep).expect("made");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&deep), 0o700);
        let path = deep.join("node.key");
        fs::write(
            deep.join("node.key.new"),
            "left by a crash, and much longer",
        )
        .expect("written");
        replace(&path, b"one").expect("written");
        assert_eq!(
            (fs::read(&path).expect("read").as_slice(), mode(&path)),
            (&b"one"[..], 0o600)
        );
        replace_public(&path, b"two").expect("written");
        assert_eq!(
            (fs::read(&path).expect("read").as_slice(), mode(&path)),
            (&b"two"[..], 0o644)
        );
        assert_eq!(fs::read_dir(&deep).expect("folder").count(), 1);
        assert!(replace(&root.path().join("none/x"), b"").is_err());
    }
}

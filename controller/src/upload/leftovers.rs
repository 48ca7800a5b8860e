//! What a controller that was killed has left in the folder of uploads.

use std::fs::DirEntry;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tracing::{info, warn};

use super::{COMPILED_PREFIX, UPLOAD_PREFIX};

/// What is younger may belong to another controller that uses the folder as well.
const AGE: Duration = Duration::from_secs(24 * 3600);
/// The most that is removed at once, since the start waits for it. The rest is removed at the next ones.
const AT_ONCE: usize = 1000;

/// Removes what is old. What cannot be removed stays, which is only logged. Blocking.
pub(super) fn remove_old(folder: &Path, now: SystemTime) {
    let found = match list_old(folder, now) {
        Ok(found) => found,
        Err(error) => {
            warn!(folder = %folder.display(), %error, "the folder of uploads cannot be searched for what is left there");
            return;
        }
    };
    let (mut removed, mut failed) = (0_usize, None);
    for (path, is_folder) in found {
        let done = match is_folder {
            true => std::fs::remove_dir_all(&path),
            false => std::fs::remove_file(&path),
        };
        match done {
            Ok(()) => removed += 1,
            // Another controller that starts at the same time was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                failed.get_or_insert((path, error));
            }
        }
    }
    if removed > 0 {
        info!(folder = %folder.display(), removed, "what uploads of a killed controller had left was removed");
    }
    if let Some((path, error)) = failed {
        warn!(path = %path.display(), %error, "what uploads of a killed controller have left cannot be removed");
    }
}

/// What is old: each path, and whether it is a folder.
fn list_old(folder: &Path, now: SystemTime) -> io::Result<Vec<(PathBuf, bool)>> {
    let old = |entry: &DirEntry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with(UPLOAD_PREFIX) && !name.starts_with(COMPILED_PREFIX) {
            return None;
        }
        // One that cannot be looked at has just been removed.
        let found = entry.metadata().ok()?;
        let age = now.duration_since(found.modified().ok()?).ok()?;
        (age > AGE).then(|| (entry.path(), found.is_dir()))
    };
    let entries = std::fs::read_dir(folder)?.flatten();
    Ok(entries
        .filter_map(|entry| old(&entry))
        .take(AT_ONCE)
        .collect())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use fdn_core::ByteSize;
    use fdn_runtime::Compiler;

    use super::*;
    use crate::settings::Settings;
    use crate::upload::Uploads;

    #[test]
    fn what_a_killed_controller_has_left_is_removed_when_it_is_old() {
        let uploads = tempfile::tempdir().expect("a folder");
        let now = SystemTime::now();
        let old = now - AGE - Duration::from_secs(1);
        let file = |name: &str, at: SystemTime| {
            let file = File::create(uploads.path().join(name)).expect("a file");
            file.set_modified(at).expect("dated");
        };
        file("fdn-upload-old", old);
        file("fdn-upload-new", now);
        file("of-somebody-else", old);
        for (name, at) in [
            ("fdn-compiled-old", old),
            ("fdn-compiled-new", now),
            ("fdn-compile-cache-0", old),
        ] {
            let folder = uploads.path().join(name);
            std::fs::create_dir(&folder).expect("a folder");
            file(&format!("{name}/code"), old);
            let folder = File::open(&folder).expect("a folder");
            folder.set_modified(at).expect("dated");
        }
        let mut settings = Settings::default();
        settings.uploads.folder = Some(uploads.path().to_owned());
        settings.artifacts.compile_cache = ByteSize::from_bytes(0);
        drop(Uploads::open(&settings, Compiler::InProcess).expect("opened"));
        let left = std::fs::read_dir(uploads.path()).expect("a folder");
        let mut left: Vec<_> = left
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        left.sort();
        assert_eq!(
            left,
            [
                "fdn-compile-cache-0",
                "fdn-compiled-new",
                "fdn-upload-new",
                "of-somebody-else"
            ]
        );
    }
}

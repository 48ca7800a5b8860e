//! Watches the folders of a function. It reports that something changed, but not what: the folder is then read completely.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use notify::event::{ModifyKind, RenameMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

/// Watches on folders, not recursive.
#[derive(Debug)]
pub struct Watch {
    watcher: RecommendedWatcher,
    watched: Arc<Watched>,
}

/// The folders believed to be watched: the system drops the watch of a folder that is removed or moved away.
#[derive(Debug, Default)]
struct Watched(Mutex<BTreeSet<PathBuf>>);

impl Watched {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a folder and the folders in it.
    fn forget(&self, gone: &Path) {
        let mut watched = self.lock();
        if watched.contains(gone) {
            watched.retain(|folder| !folder.starts_with(gone));
        }
    }
}

impl Watch {
    /// Creates a watch without folders. Returns it with the receiver of change notifications.
    ///
    /// # Errors
    /// When the system provides no watch.
    pub fn new() -> notify::Result<(Self, mpsc::Receiver<()>)> {
        // One pending message is enough.
        let (tell, touched) = mpsc::channel(1);
        let watched = Arc::new(Watched::default());
        let known = Arc::clone(&watched);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if let Ok(event) = &event {
                match event.kind {
                    // Reading a file is an event as well, but changes result in reading, so it must be ignored.
                    EventKind::Access(_) => return,
                    EventKind::Remove(_)
                    | EventKind::Modify(ModifyKind::Name(RenameMode::From)) => {
                        event.paths.iter().for_each(|path| known.forget(path));
                    }
                    _ => {}
                }
            }
            let _ = tell.try_send(());
        })?;
        Ok((Self { watcher, watched }, touched))
    }

    /// Watches exactly these folders, registering each again: one that was removed and recreated is a different one. Returns whether any was not
    /// watched
    /// before, so that changes in it may have been missed.
    ///
    /// # Errors
    /// The first folder that cannot be watched; the others are watched.
    pub fn set(&mut self, folders: &[PathBuf]) -> Result<bool, (PathBuf, notify::Error)> {
        let wanted: BTreeSet<&PathBuf> = folders.iter().collect();
        let before = self.watched.lock().clone();
        for gone in before.iter().filter(|folder| !wanted.contains(folder)) {
            // The folder may no longer exist.
            drop(self.watcher.unwatch(gone));
            self.watched.lock().remove(gone);
        }
        let (mut new, mut failed) = (false, None);
        for folder in folders {
            // The lock must not be held here: the watcher reports changes before it accepts a folder.
            match self.watcher.watch(folder, RecursiveMode::NonRecursive) {
                Ok(()) => new |= self.watched.lock().insert(folder.clone()),
                // It disappeared in the meantime, which the watch on its parent reports.
                Err(_) if !folder.exists() => {}
                Err(error) => {
                    failed.get_or_insert((folder.clone(), error));
                }
            }
        }
        failed.map_or(Ok(new), Err)
    }
}

#[cfg(test)]
mod tests {
    use fdn_testkit::wait;

    use super::*;

    #[tokio::test]
    async fn a_folder_that_was_removed_and_made_again_counts_as_new() {
        let parent = tempfile::tempdir().expect("folder");
        let root = parent.path().join("function");
        let (source, deep) = (root.join("src"), root.join("src/deep"));
        std::fs::create_dir_all(&deep).expect("made");
        let (mut watch, mut touched) = Watch::new().expect("a watch");
        let all = [root.clone(), source.clone(), deep.clone()];
        assert!(watch.set(&all).expect("watched"));
        assert!(!watch.set(&all).expect("watched"), "all are known");
        std::fs::remove_dir_all(&source).expect("removed");
        std::fs::create_dir_all(&deep).expect("made");
        assert_eq!(touched.recv().await, Some(()), "a change is told");
        wait::until("the system to tell what it forgot", async || {
            match watch.set(&all) {
                Ok(true) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        assert!(
            watch.set(&all[..1]).is_ok_and(|new| !new),
            "fewer are none that is new"
        );
        assert_eq!(watch.watched.lock().len(), 1);
    }

    #[tokio::test]
    async fn a_link_to_a_folder_is_watched_and_what_is_not_there_is_left_out() {
        let parent = tempfile::tempdir().expect("folder");
        let (root, link) = (parent.path().join("function"), parent.path().join("link"));
        std::fs::create_dir(&root).expect("made");
        std::os::unix::fs::symlink(&root, &link).expect("linked");
        let (mut watch, mut touched) = Watch::new().expect("a watch");
        let gone = link.join("gone");
        assert!(watch.set(&[link, gone]).expect("watched"));
        std::fs::write(root.join("lib.rs"), "").expect("written");
        assert_eq!(touched.recv().await, Some(()), "told through the link");
    }
}

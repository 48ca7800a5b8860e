//! The snapshot on disk: written beside the old one, synced, and renamed over it, so that a crash leaves one or the other whole.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ledger::Ledger;

/// The file's name in the data directory.
pub const FILE: &str = "dns-state.json";
/// The form that this build writes; others are not read.
const FORMAT: u16 = 1;

#[derive(Serialize)]
struct Written<'a> {
    format: u16,
    ledger: &'a Ledger,
}

#[derive(Deserialize)]
struct Read {
    format: u16,
    ledger: Ledger,
}

/// What was found at start.
#[derive(Debug)]
pub enum Found {
    /// Nothing: the first start with this data directory.
    Nothing,
    /// The state of the last run.
    State(Box<Ledger>),
    /// A file that cannot be read; it was moved aside to this path, for this reason.
    Unreadable(PathBuf, String),
}

/// Reads the state kept in `dir`.
///
/// # Errors
/// When the directory itself cannot be used.
pub fn load(dir: &Path) -> io::Result<Found> {
    fs::create_dir_all(dir)?;
    let path = dir.join(FILE);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(cause) => return Err(cause),
    };
    let reason = match serde_json::from_reader::<_, Read>(BufReader::new(file)) {
        Ok(read) if read.format == FORMAT => return Ok(Found::State(Box::new(read.ledger))),
        Ok(read) => format!("its format is {}, this build reads {FORMAT}", read.format),
        Err(cause) => cause.to_string(),
    };
    let aside = path.with_extension("unreadable");
    fs::rename(&path, &aside)?;
    Ok(Found::Unreadable(aside, reason))
}

/// Writes the state to `dir`.
///
/// # Errors
/// When it cannot be written; what was there before is still there.
pub fn save(dir: &Path, ledger: &Ledger) -> io::Result<()> {
    let mut fresh = tempfile::Builder::new().prefix(FILE).tempfile_in(dir)?;
    let mut writer = BufWriter::new(fresh.as_file_mut());
    serde_json::to_writer(
        &mut writer,
        &Written {
            format: FORMAT,
            ledger,
        },
    )?;
    writer.flush()?;
    drop(writer);
    fresh.as_file().sync_all()?;
    fresh.persist(dir.join(FILE))?;
    // The rename itself must survive a power cut too.
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use fdn_core::Revision;
    use fdn_core::message::NetworkDesired;

    use super::*;

    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.network(NetworkDesired {
            revision: Revision(3),
            clusters: vec![],
            locations: vec![],
            measured: vec![],
        });
        ledger
    }

    #[test]
    fn what_was_saved_is_loaded() {
        let dir = tempfile::tempdir().expect("folder");
        let deep = dir.path().join("a/b");
        assert!(matches!(load(&deep).expect("usable"), Found::Nothing));
        save(&deep, &ledger()).expect("saved");
        let Found::State(found) = load(&deep).expect("usable") else {
            panic!("no state")
        };
        assert_eq!(*found, ledger());
        assert_eq!(
            fs::read_dir(&deep).expect("folder").count(),
            1,
            "no temporary file is left"
        );
    }

    #[test]
    fn a_damaged_file_is_moved_aside() {
        let dir = tempfile::tempdir().expect("folder");
        save(dir.path(), &ledger()).expect("saved");
        let path = dir.path().join(FILE);
        let text = fs::read_to_string(&path).expect("text");
        for damaged in [
            &text[..text.len() / 2],
            &text.replace("\"format\":1", "\"format\":9"),
        ] {
            fs::write(&path, damaged).expect("write");
            let Found::Unreadable(aside, _) = load(dir.path()).expect("usable") else {
                panic!("not noticed")
            };
            assert!(aside.exists() && !path.exists());
        }
    }
}

//! `fdn-dns keys`: creates and changes the zone's DNSSEC keys, for an operator at the machine. The commands belong to the program, not to the
//! library, because they print. The operations themselves are in [`fdn_dns::dnssec::file`].

use std::path::{Path, PathBuf};

use clap::Subcommand;
use fdn_core::{HostName, Timestamp};
use fdn_dns::dnssec::file::{KeyError, KeyFile, exists};
use fdn_dns::dnssec::ring::{KeyState, Ring};
use fdn_dns::dnssec::rollover::Timing;
use fdn_dns::settings::DnssecSettings;
use fdn_dns::{Error, Settings};

/// What to do with keys.
#[derive(Subcommand)]
pub(crate) enum KeysCommand {
    /// Make the key file with the zone's first key; a master key file that does not exist is made too
    Generate,
    /// Show the keys, their stages, and when these end
    List,
    /// Print the DS records that the parent should have now
    Ds,
    /// Add a key that takes the active one's place
    Roll,
    /// Say that the DS record of a new key was seen at every server of the parent
    Seen {
        /// The key's tag
        tag: u16,
    },
    /// Take away keys that are no part of the zone any more
    Prune,
    /// Seal every key anew under the first master key
    Rewrap,
}

/// The key file and the settings that its operations need.
struct Keys<'a> {
    zone: &'a HostName,
    path: PathBuf,
    dnssec: &'a DnssecSettings,
    timing: Timing,
    now: Timestamp,
}

/// Runs a command.
pub(crate) fn run(settings: &Settings, command: &KeysCommand) -> Result<(), Error> {
    let dnssec = &settings.zone.dnssec;
    let path = dnssec.key_file.clone().ok_or_else(|| Error::Setting {
        key: "zone.dnssec.key_file",
        reason: "must name the key file".to_owned(),
    })?;
    let keys = Keys {
        zone: &settings.zone.name,
        path,
        dnssec,
        timing: dnssec.timing(),
        now: fdn_service::now(),
    };
    Ok(keys.run(command)?)
}

impl Keys<'_> {
    fn run(&self, command: &KeysCommand) -> Result<(), KeyError> {
        match command {
            KeysCommand::Generate => self.generate(),
            KeysCommand::List => self.list(&self.read()?),
            KeysCommand::Ds => {
                for key in self.states(&self.read()?)?.iter().filter(|key| key.wanted) {
                    print(&key.ds);
                }
                Ok(())
            }
            KeysCommand::Roll => {
                let mut file = self.read()?;
                file.roll(&self.dnssec.master()?.keys(false)?, self.now, &self.timing)?;
                self.write(&file)
            }
            KeysCommand::Seen { tag } => {
                let mut file = self.read()?;
                file.seen(*tag, self.now, &self.timing)?;
                self.write(&file)
            }
            KeysCommand::Prune => {
                let mut file = self.read()?;
                let gone = file.prune(self.now, &self.timing);
                print(&format!("{gone} keys were taken away"));
                self.write(&file)
            }
            KeysCommand::Rewrap => {
                let mut file = self.read()?;
                let changed = file.rewrap(&self.dnssec.master()?.keys(false)?)?;
                print(&format!("{changed} keys were sealed anew"));
                self.write(&file)
            }
        }
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self) -> Result<KeyFile, KeyError> {
        KeyFile::read(self.path(), self.zone)
    }

    fn write(&self, file: &KeyFile) -> Result<(), KeyError> {
        file.write(self.path())?;
        self.list(file)
    }

    fn generate(&self) -> Result<(), KeyError> {
        // Check first, so that no master key is created in vain.
        if exists(self.path())? {
            return Err(KeyError::Exists(self.path.clone()));
        }
        let masters = self.dnssec.master()?.keys(true)?;
        let mut file = KeyFile::empty(self.zone.clone());
        file.add(&masters, self.now)?;
        file.write_new(self.path())?;
        self.list(&file)
    }

    fn states(&self, file: &KeyFile) -> Result<Vec<KeyState>, KeyError> {
        let keys = file.open(&self.dnssec.master()?.keys(false)?)?;
        let ring = Ring::new(self.zone.clone(), keys, self.now, &self.timing);
        Ok(ring.map_or_else(Vec::new, |ring| ring.states()))
    }

    fn list(&self, file: &KeyFile) -> Result<(), KeyError> {
        for key in self.states(file)? {
            let stage = format!("{:?}", key.stage).to_lowercase();
            let until = key.until.map_or_else(String::new, |until| {
                let hours = until.since(self.now).as_secs().div_ceil(3600);
                format!("  for {hours} h more")
            });
            let wanted = if key.wanted { "  DS at the parent" } else { "" };
            print(&format!("{:>5}  {stage:<9}{until}{wanted}", key.tag));
        }
        Ok(())
    }
}

#[allow(
    clippy::print_stdout,
    reason = "what was asked for on the command line goes to standard output"
)]
fn print(line: &str) {
    println!("{line}");
}

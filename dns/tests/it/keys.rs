//! A zone's keys in files, and a zone with many kinds of records.

use std::path::{Path, PathBuf};

use fdn_core::{DurationMs, HostName, Timestamp};
use fdn_dns::Settings;
use fdn_dns::dnssec::file::{KeyFile, MasterSource};

const ZONE: &str = r#"
app_service = { alpn = ["h2"], port = 8443 }

[[records]]
name = "fn.test"
txt = ["v=spf1 -all"]
caa = [{ tag = "issue", value = "ca.example.org" }]

[[records]]
name = "long.fn.test"
txt = ["LONG", "B", "a"]
https = [{ priority = 1, alpn = ["h2", "h3"], port = 8443 }, { priority = 0, target = "hello.fn.test" }]
addresses = ["192.0.2.80", "192.0.2.9", "2001:db8::80"]

[[records]]
name = "*.wild.fn.test"
txt = ["from a wildcard"]
addresses = ["192.0.2.81"]

[[records]]
name = "leaf.branch.wild.fn.test"
txt = ["exact"]
"#;
const HOUR: u64 = 3_600_000;

fn zone() -> HostName {
    "fn.test".parse().expect("zone")
}

/// The keys of a zone in a folder.
pub(crate) struct Keys {
    dir: tempfile::TempDir,
}

impl Keys {
    /// Keys that were created this many hours ago, and whose DS record was seen this many hours ago; oldest first.
    pub(crate) fn new(keys: &[(u64, Option<u64>)]) -> Self {
        let keys_dir = Self {
            dir: tempfile::tempdir().expect("folder"),
        };
        let mut file = KeyFile::empty(zone());
        let masters = keys_dir.master().keys(true).expect("a master key");
        for _ in keys {
            file.add(&masters, Timestamp(0)).expect("a key");
        }
        keys_dir.write(file, keys);
        keys_dir
    }

    pub(crate) fn master(&self) -> MasterSource {
        MasterSource::File(self.dir.path().join("master.key"))
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("dnssec.keys")
    }

    pub(crate) fn read(&self) -> KeyFile {
        KeyFile::read(&self.path(), &zone()).expect("keys")
    }

    /// Changes the times of the keys.
    pub(crate) fn write(&self, mut file: KeyFile, times: &[(u64, Option<u64>)]) {
        let now = fdn_service::now().get();
        let ago = |hours: u64| Timestamp(now - hours * HOUR);
        for (key, (created, seen)) in file.keys.iter_mut().zip(times) {
            key.created = ago(*created);
            key.seen = seen.map(ago);
        }
        file.write(&self.path()).expect("written");
    }

    pub(crate) fn tags(&self) -> Vec<u16> {
        self.read().keys.iter().map(|key| key.tag).collect()
    }

    /// The DS record of a key.
    pub(crate) fn ds(&self, index: usize) -> String {
        let masters = self.master().keys(false).expect("the master key");
        self.read().open(&masters).expect("opened")[index]
            .key
            .ds(&zone())
    }

    /// A file with the DS record of a key, as a trust anchor for `delv`.
    pub(crate) fn anchor(&self, index: usize) -> PathBuf {
        anchor(self.dir.path(), &self.ds(index))
    }

    pub(crate) fn set(&self, settings: &mut Settings) {
        let text = ZONE.replace("LONG", &"0123456789".repeat(30));
        settings.zone = toml::from_str(&text).expect("settings of a zone");
        let dnssec = &mut settings.zone.dnssec;
        dnssec.key_file = Some(self.path());
        dnssec.master_key_file = Some(self.dir.path().join("master.key"));
        dnssec.check_interval = DurationMs::from_millis(50);
    }
}

/// Writes a DS record in the format that `delv` reads.
fn anchor(dir: &Path, ds: &str) -> PathBuf {
    let fields: Vec<&str> = ds.split(' ').collect();
    let [owner, "IN", "DS", tag, algorithm, digest_type, digest] = fields[..] else {
        panic!("{ds}");
    };
    let text = format!(
        "trust-anchors {{ {owner} static-ds {tag} {algorithm} {digest_type} \"{digest}\"; }};\n"
    );
    let path = dir.join(format!("anchor-{tag}"));
    std::fs::write(&path, text).expect("written");
    path
}

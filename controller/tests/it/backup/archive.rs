//! Takes archives apart, changes them and puts them together again.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use fdn_controller::backup::{Manifest, ObjectsPart, Part, TablePart};
use fdn_controller::store::Store;
use fdn_controller::store::copy::{row_stream, schema_version, table_list};
use fdn_core::{Digest, Timestamp};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use futures::TryStreamExt as _;
use serde_json::{Value, json};

use crate::rig::Backend;

/// Parts of an archive by name, in order.
pub(super) type Parts = Vec<(String, Vec<u8>)>;

/// The parts of an archive, in order.
pub(super) fn unpacked(path: &Path) -> Parts {
    let file = std::fs::File::open(path).expect("the archive");
    let mut archive = tar::Archive::new(GzDecoder::new(file));
    let entries = archive.entries().expect("entries");
    entries
        .map(|entry| {
            let mut entry = entry.expect("a part");
            let name = String::from_utf8(entry.path_bytes().into_owned()).expect("a name");
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("read");
            (name, bytes)
        })
        .collect()
}

/// The unpacked bytes; `None` if they are damaged.
pub(super) fn unzipped(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut whole).ok()?;
    Some(whole)
}

pub(super) fn packed(path: &Path, parts: &[(String, Vec<u8>)]) {
    let file = std::fs::File::create(path).expect("the archive");
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::fast()));
    for (name, bytes) in parts {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        archive
            .append_data(&mut header, name, bytes.as_slice())
            .expect("added");
    }
    let packed = archive.into_inner().expect("ended");
    packed.finish().expect("compressed");
}

/// The same archive with another manifest and a correct checksum of it.
pub(super) fn with_manifest(parts: &[(String, Vec<u8>)], manifest: &Value) -> Parts {
    let mut parts = parts.to_vec();
    parts[0].1 = serde_json::to_vec(manifest).expect("JSON");
    parts[1].1 = Digest::of(&parts[0].1).hex().into_bytes();
    parts
}

/// The rows of each table of an archive, as sets.
pub(super) fn rows(path: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let parts = unpacked(path).into_iter();
    parts
        .filter(|(name, _)| name.starts_with("tables/"))
        .map(|(name, bytes)| {
            let text = String::from_utf8(bytes).expect("text");
            (name, text.lines().map(str::to_owned).collect())
        })
        .collect()
}

/// The archive without the tenants, which other rows refer to; its checksums are correct.
pub(super) fn without_tenants(parts: &[(String, Vec<u8>)], manifest: &Value) -> Parts {
    let mut manifest = manifest.clone();
    for table in manifest["tables"].as_array_mut().expect("tables") {
        if table["name"] == "tenants" {
            table["rows"] = json!(0);
            table["size"] = json!(0);
            table["sha256"] = json!(Digest::of(b""));
        }
    }
    let mut parts = with_manifest(parts, &manifest);
    for (name, bytes) in &mut parts {
        if name == "tables/tenants.jsonl" {
            bytes.clear();
        }
    }
    parts
}

/// An archive of an earlier schema with one user, as a release of that time would have written it.
pub(super) async fn older(backend: Backend, folder: &Path, schema: i64) -> PathBuf {
    let store = Store::connect(&backend.database(folder).await)
        .await
        .expect("connected");
    store.migrate_to(Some(schema)).await.expect("migrated");
    let mut connection = store.read().await.expect("connected");
    assert_eq!(
        schema_version(&mut connection).await.expect("read"),
        Some(schema)
    );
    sqlx::query(
        "INSERT INTO users (name, network_role, password_hash, created_at, password_changed_at, generation) \
         VALUES ('jane', 'admin', 'hash', 1, 1, 1)",
    )
    .execute(&mut *connection)
    .await
    .expect("written");
    let (mut tables, mut parts) = (Vec::new(), Vec::new());
    for table in table_list(&mut connection).await.expect("read") {
        let Some(stream) = row_stream(&mut connection, &table) else {
            continue;
        };
        // The filter on artifacts refers to tables that did not exist yet; there are no artifacts.
        let rows: Vec<Vec<Value>> = match table.name == "artifacts" {
            true => Vec::new(),
            false => stream.try_collect().await.expect("read"),
        };
        let mut text = String::new();
        for row in &rows {
            text.push_str(&json!(row).to_string());
            text.push('\n');
        }
        parts.push((
            format!("tables/{}.jsonl", table.name),
            text.clone().into_bytes(),
        ));
        tables.push(TablePart {
            part: part(text.as_bytes()),
            rows: rows.len() as u64,
            table,
        });
    }
    parts.push(("objects.jsonl".to_owned(), Vec::new()));
    let manifest = Manifest {
        format: 1,
        product: "0.0.9".to_owned(),
        schema,
        made_at: Timestamp(1),
        database: "either".to_owned(),
        keys: Vec::new(),
        keys_apart: Vec::new(),
        tables,
        objects: ObjectsPart {
            count: 0,
            bytes: 0,
            part: part(b""),
        },
    };
    let text = serde_json::to_vec(&manifest).expect("JSON");
    let sum = Digest::of(&text).hex().into_bytes();
    parts.insert(0, ("manifest.json".to_owned(), text));
    parts.insert(1, ("manifest.sha256".to_owned(), sum));
    let path = folder.join("older.fdn");
    packed(&path, &parts);
    path
}

fn part(bytes: &[u8]) -> Part {
    Part {
        size: bytes.len() as u64,
        sha256: Digest::of(bytes),
    }
}

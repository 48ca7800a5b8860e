use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use tar::Archive;
use tempfile::NamedTempFile;

use super::*;

fn tar_of(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, bytes) in entries {
        let mut header = plain(bytes.len() as u64);
        builder
            .append_data(&mut header, name, bytes.as_slice())
            .unwrap();
    }
    builder.into_inner().unwrap()
}

fn file_of(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn config(architecture: &str) -> Vec<u8> {
    json!({ "architecture": architecture, "os": "linux", "config": {} })
        .to_string()
        .into_bytes()
}

fn blob_name(bytes: &[u8]) -> (String, String) {
    let digest = fdn_core::Digest::of(bytes);
    (digest.to_string(), format!("blobs/sha256/{}", digest.hex()))
}

/// An OCI layout with one manifest for each of these architectures, under a separate index.
fn layout(architectures: &[&str]) -> Vec<u8> {
    let layer = b"layer".to_vec();
    let (layer_digest, layer_name) = blob_name(&layer);
    let mut entries = vec![(layer_name, layer)];
    let mut manifests = Vec::new();
    for architecture in architectures {
        let config = config(architecture);
        let (config_digest, config_name) = blob_name(&config);
        let manifest = json!({ "config": { "digest": config_digest }, "layers": [{ "digest": layer_digest }] })
            .to_string()
            .into_bytes();
        let (digest, name) = blob_name(&manifest);
        entries.extend([(config_name, config), (name, manifest)]);
        manifests.push(json!({ "digest": digest, "platform": { "os": "linux", "architecture": architecture } }));
    }
    let inner = json!({ "manifests": manifests }).to_string().into_bytes();
    let (digest, name) = blob_name(&inner);
    entries.push((name, inner));
    let index = json!({ "manifests": [{ "digest": digest }] });
    entries.push(("index.json".to_owned(), index.to_string().into_bytes()));
    let entries: Vec<(&str, Vec<u8>)> = entries
        .iter()
        .map(|(n, o)| (n.as_str(), o.clone()))
        .collect();
    tar_of(&entries)
}

fn saved(tags: &[&str], architecture: &str) -> Vec<u8> {
    let manifest = json!([{ "Config": "c.json", "RepoTags": tags, "Layers": ["l/layer.tar"] }]);
    tar_of(&[
        ("c.json", config(architecture)),
        ("l/layer.tar", b"layer".to_vec()),
        ("repositories", b"{\"library/postgres\":{}}".to_vec()),
        ("manifest.json", manifest.to_string().into_bytes()),
    ])
}

fn names_and_manifest(archive: &[u8]) -> (BTreeSet<String>, Vec<DockerImage>) {
    let mut names = BTreeSet::new();
    let mut images = Vec::new();
    for entry in Archive::new(archive).entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry_name(&entry).unwrap();
        if name == "manifest.json" {
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            images = serde_json::from_str(&text).unwrap();
        }
        names.insert(name);
    }
    (names, images)
}

fn rewritten(bytes: &[u8]) -> (BTreeSet<String>, Vec<DockerImage>) {
    let file = file_of(bytes);
    let plan = plan(file.path(), UNPACKED_MAX).unwrap();
    let mut out = Vec::new();
    rewrite(
        (file.path(), UNPACKED_MAX),
        &plan,
        "fdn.invalid/image:1",
        &mut out,
    )
    .unwrap();
    names_and_manifest(&out)
}

#[test]
fn names_inside_an_archive_are_replaced_by_ours() {
    let (names, images) = rewritten(&saved(&["library/postgres:latest"], architecture()));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(names, ["c.json", "l/layer.tar", "manifest.json"]);
    assert_eq!(images.len(), 1);
    let tags = images[0].repo_tags.as_deref().unwrap();
    assert_eq!(tags, ["fdn.invalid/image:1"]);
}

#[test]
fn an_oci_layout_becomes_an_archive_with_the_image_of_this_processor() {
    let bytes = layout(&["s390x", architecture()]);
    let (names, images) = rewritten(&bytes);
    assert!(names.contains("manifest.json") && !names.contains("index.json"));
    let (_, expected) = blob_name(&config(architecture()));
    assert_eq!(images[0].config, expected);
    assert_eq!(images[0].layers.len(), 1);
    assert!(names.contains(&images[0].config) && names.contains(&images[0].layers[0]));
}

#[test]
fn a_compressed_archive_is_read() {
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(&saved(&[], architecture())).unwrap();
    assert_eq!(rewritten(&gz.finish().unwrap()).1.len(), 1);
}

#[test]
fn what_cannot_be_used_is_named() {
    let two = json!([
        { "Config": "c.json", "Layers": [] }, { "Config": "c.json", "Layers": [] }
    ]);
    let lost = json!([{ "Config": "c.json", "Layers": ["gone.tar"] }]);
    let with = |manifest: &serde_json::Value| {
        tar_of(&[
            ("c.json", config(architecture())),
            ("manifest.json", manifest.to_string().into_bytes()),
        ])
    };
    for (bytes, expected) in [
        (b"no tar file at all".repeat(100), "not a tar file"),
        (
            tar_of(&[("readme", b"hello".to_vec())]),
            "neither manifest.json",
        ),
        (with(&two), "2 images"),
        (with(&lost), "gone.tar, which is not in it"),
        (saved(&[], "s390x"), "linux/s390x"),
        (layout(&["s390x", "riscv64"]), "none of its images"),
    ] {
        let file = file_of(&bytes);
        let error = plan(file.path(), UNPACKED_MAX).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn an_archive_that_unfolds_to_too_much_is_not_taken() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&saved(&["a:1"], architecture())).unwrap();
    let file = file_of(&gzip.finish().unwrap());
    let found = plan(file.path(), UNPACKED_MAX).unwrap();
    let small = ByteSize::from_bytes(1024);
    for error in [
        plan(file.path(), small).unwrap_err(),
        rewrite(
            (file.path(), small),
            &found,
            "fdn.invalid/image:1",
            Vec::new(),
        )
        .unwrap_err(),
    ] {
        let text = crate::link::chain(&error);
        assert!(text.contains("unfolds to more than"), "{text}");
    }
}

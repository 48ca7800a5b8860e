use std::io::Write;

use fdn_core::Digest;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tar::{Builder, Header};

use super::*;

fn archive(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, bytes) in entries {
        let mut header = Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder
            .append_data(&mut header, name, bytes.as_slice())
            .expect("memory");
    }
    builder.into_inner().expect("memory")
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes).expect("memory");
    gzip.finish().expect("memory")
}

const LAYER: &[u8] = b"what a layer holds";

/// The configuration of an image with one layer.
fn config(architecture: &str) -> Value {
    let diff_ids = [Digest::of(LAYER).to_string()];
    json!({ "architecture": architecture, "os": "linux", "rootfs": { "type": "layers", "diff_ids": diff_ids } })
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// An archive in the format of `docker save`.
fn saved(config: &[u8], layer: &[u8]) -> Vec<u8> {
    let manifest = json!([{ "Config": "c.json", "RepoTags": [], "Layers": ["l/layer.tar"] }]);
    archive(&[
        ("c.json".to_owned(), config.to_vec()),
        ("l/layer.tar".to_owned(), layer.to_vec()),
        ("manifest.json".to_owned(), bytes(&manifest)),
    ])
}

/// An OCI layout with an image for each of these processors, each with one compressed layer.
fn layout(architectures: &[&str]) -> Vec<(String, Vec<u8>)> {
    let mut entries = vec![("./oci-layout".to_owned(), b"{}".to_vec())];
    let mut blob = |bytes: Vec<u8>| {
        let digest = Digest::of(&bytes);
        entries.push((format!("./blobs/sha256/{}", digest.hex()), bytes));
        digest.to_string()
    };
    let layer = blob(gzip(LAYER));
    let manifests = architectures.iter().map(|architecture| {
        let config = blob(bytes(&config(architecture)));
        let manifest =
            json!({ "config": { "digest": config }, "layers": [{ "digest": layer.as_str() }] });
        let platform = json!({ "os": "linux", "architecture": architecture });
        json!({ "digest": blob(bytes(&manifest)), "platform": platform })
    });
    let index = json!({ "manifests": manifests.collect::<Vec<_>>() });
    entries.push(("./index.json".to_owned(), bytes(&index)));
    entries
}

fn judged(bytes: &[u8]) -> Result<Vec<(String, String)>, ImageError> {
    let mut file = tempfile::NamedTempFile::new().expect("file");
    file.write_all(bytes).expect("written");
    let steps = validate(file.path(), ByteSize::from_mib(1))?;
    Ok(steps
        .into_iter()
        .map(|step| (step.step, step.result))
        .collect())
}

fn said(steps: &[(String, String)]) -> Vec<(&str, &str)> {
    steps
        .iter()
        .map(|(step, result)| (step.as_str(), result.as_str()))
        .collect()
}

#[test]
fn both_formats_are_known_plain_and_compressed() {
    let docker = saved(&bytes(&config("arm64")), LAYER);
    let oci = archive(&layout(&["s390x", "amd64"]));
    for (bytes, format, compared, platform) in [
        (docker, "docker archive", "1 file as said", "linux/arm64"),
        (
            gzip(&oci),
            "OCI image layout",
            "5 files as said",
            "linux/amd64",
        ),
        (oci, "OCI image layout", "5 files as said", "linux/amd64"),
    ] {
        let steps = judged(&bytes).expect("an image");
        let expected = [
            ("format", format),
            ("config", "1 layer"),
            ("digest", compared),
            ("platform", platform),
        ];
        assert_eq!(said(&steps), expected);
    }
}

#[test]
fn an_image_without_what_it_names_is_refused() {
    let whole = layout(&["amd64"]);
    for gone in 1..whole.len() - 1 {
        let mut entries = whole.clone();
        let (name, _) = entries.remove(gone);
        let error = judged(&archive(&entries)).expect_err("refused").to_string();
        let name = name.trim_start_matches("./");
        assert!(
            error.contains(&format!("{name}, which is not in it")),
            "{error}"
        );
    }
}

#[test]
fn contents_are_compared_with_their_digests() {
    let mut entries = layout(&["amd64"]);
    entries[1].1[12] ^= 1;
    let name = entries[1].0.trim_start_matches("./").to_owned();
    let damaged = [
        (archive(&entries), name.as_str()),
        (
            saved(&bytes(&config("amd64")), b"something else"),
            "l/layer.tar",
        ),
    ];
    for (bytes, name) in damaged {
        let error = judged(&bytes).expect_err("refused");
        assert!(matches!(error, ImageError::Damaged(_)), "{error}");
        assert_eq!(error.step(), Some("digest"));
        assert_eq!(error.code(), ErrorCode::ImageInvalid);
        let text = error.to_string();
        assert!(
            text.contains("the image is damaged") && text.contains(name),
            "{text}"
        );
    }
}

#[test]
fn a_configuration_that_is_none_is_refused() {
    let none = json!({ "architecture": "amd64", "os": "linux" });
    let mut two = config("amd64");
    two["rootfs"]["diff_ids"] = json!(["sha256:1", "sha256:2"]);
    for (config, words) in [
        (b"{}".to_vec(), "missing field"),
        (b"text".to_vec(), "is not an image configuration"),
        (bytes(&none), "of 0 layers, and there are 1"),
        (bytes(&two), "of 2 layers, and there are 1"),
    ] {
        let error = judged(&saved(&config, LAYER)).expect_err("refused");
        assert!(matches!(error, ImageError::Config(_)), "{error}");
        assert_eq!(error.step(), Some("config"));
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
}

#[test]
fn an_image_that_no_node_can_run_is_refused() {
    let mut windows = config("amd64");
    windows["os"] = json!("windows");
    for (bytes, words) in [
        (
            saved(&bytes(&config("s390x")), LAYER),
            "it is for linux/s390x",
        ),
        (saved(&bytes(&windows), LAYER), "it is for windows/amd64"),
        (archive(&layout(&["s390x"])), "it is for linux/s390x"),
        (
            archive(&layout(&["s390x", "riscv64"])),
            "none of its images is for linux/amd64 or linux/arm64",
        ),
    ] {
        let error = judged(&bytes).expect_err("refused");
        assert!(matches!(error, ImageError::Platform(_)), "{error}");
        assert_eq!(error.step(), Some("platform"));
        assert_eq!(error.code(), ErrorCode::ImageInvalid);
        let text = error.to_string();
        assert!(
            text.contains(words) && text.contains("no node can run the image"),
            "{words}: {text}"
        );
    }
}

#[test]
fn the_name_of_an_image_is_one_if_it_has_a_digest() {
    let digest = Digest::of(b"manifest");
    let named = judged(format!("ghcr.io/acme/thumbs@{digest}\n").as_bytes());
    let named = named.expect("an image");
    assert_eq!(
        said(&named),
        [
            ("format", "pulled by the nodes from ghcr.io"),
            ("config", "left to the nodes, which pull it by digest"),
            ("digest", "left to the nodes, which pull it by digest"),
            ("platform", "left to the nodes, which pull it by digest"),
        ]
    );
    let error = judged(b"ghcr.io/acme/thumbs:latest").expect_err("refused");
    assert_eq!(error.code(), ErrorCode::ImageInvalid);
    assert!(error.to_string().contains("a tag can be moved"), "{error}");
}

#[test]
fn anything_else_is_refused_with_its_code() {
    let holds = |name: &str| archive(&[(name.to_owned(), b"{}".to_vec())]);
    let docker = saved(&bytes(&config("amd64")), LAYER);
    for (bytes, code) in [
        (Vec::new(), ErrorCode::UploadEmpty),
        (b"\0asm".to_vec(), ErrorCode::ImageInvalid),
        (vec![0x1f, 0x8b, 1, 2, 3], ErrorCode::ImageInvalid),
        (holds("oci-layout"), ErrorCode::ImageInvalid),
        (holds("etc/manifest.json"), ErrorCode::ImageInvalid),
        (holds("manifest.json"), ErrorCode::ImageInvalid),
        (docker[..1536].to_vec(), ErrorCode::ImageInvalid),
        // It decompresses to far more than its size.
        (gzip(&vec![0; 8 << 20]), ErrorCode::ImageInvalid),
    ] {
        let error = judged(&bytes).expect_err("refused");
        assert_eq!(error.code(), code, "{error}");
    }
}

#[test]
fn what_unfolds_to_too_much_is_refused_wherever_it_is_folded() {
    let large = vec![0; 2 << 20];
    let config = |layer: &[u8]| {
        let mut config = config("amd64");
        config["rootfs"]["diff_ids"] = json!([Digest::of(layer).to_string()]);
        bytes(&config)
    };
    let packed = gzip(&large);
    assert!(packed.len() < 64 << 10);
    for archive in [
        // The archive, a layer of it, and both.
        gzip(&saved(&config(&large), &large)),
        saved(&config(&large), &packed),
        gzip(&saved(&config(&large), &packed)),
    ] {
        let error = judged(&archive).expect_err("refused");
        assert_eq!(error.step(), Some("format"));
        assert!(
            error.to_string().contains("unfolds to more than 1MiB"),
            "{error}"
        );
    }
}

/// Why a layout is refused whose image for amd64 is whole, and whose image for arm64 has this layer and this configuration.
fn refusal_of_second(layer: Vec<u8>, config: &Value) -> ImageError {
    let mut entries = layout(&["amd64"]);
    let first = Digest::of(&entries[3].1).to_string();
    entries.pop();
    let mut blob = |bytes: Vec<u8>| {
        let digest = Digest::of(&bytes);
        entries.push((format!("./blobs/sha256/{}", digest.hex()), bytes));
        digest.to_string()
    };
    let layer = blob(layer);
    let config = blob(bytes(config));
    let manifest = json!({ "config": { "digest": config }, "layers": [{ "digest": layer }] });
    let second = blob(bytes(&manifest));
    let manifests = [("amd64", first), ("arm64", second)].map(|(architecture, digest)| {
        let platform = json!({ "os": "linux", "architecture": architecture });
        json!({ "digest": digest, "platform": platform })
    });
    let index = bytes(&json!({ "manifests": manifests }));
    entries.push(("./index.json".to_owned(), index));
    judged(&archive(&entries)).expect_err("refused")
}

#[test]
fn an_image_for_other_nodes_is_checked_as_well() {
    let whole = config("arm64");
    let error = refusal_of_second(b"BZh91AY".to_vec(), &whole);
    assert!(error.to_string().contains("layers of gzip"), "{error}");
    let none = json!({ "architecture": "arm64", "os": "linux" });
    let error = refusal_of_second(gzip(b"another layer"), &none);
    assert!(matches!(error, ImageError::Config(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("of 0 layers, and there are 1"), "{text}");
}

#[test]
fn a_layer_whose_size_unfolded_is_not_known_is_refused() {
    for layer in [
        &b"\x28\xb5\x2f\xfd..."[..],
        b"\x50\x2a\x4d\x18\0\0\0\0\x28\xb5\x2f\xfd",
        b"\x5f\x2a\x4d\x18...",
        b"BZh91AY",
        b"\xfd7zXZ\0",
    ] {
        let error = judged(&saved(&bytes(&config("amd64")), layer)).expect_err("refused");
        assert!(error.to_string().contains("layers of gzip"), "{error}");
    }
}

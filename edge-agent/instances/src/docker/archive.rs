//! An uploaded image archive, made into one that an engine may be given.
//!
//! Two formats come in, both tar files, plain or gzip: what `docker save` writes (`manifest.json` names configuration and
//! layers) and an OCI image layout (image-layout.md of the OCI image specification: `index.json`, blobs by digest). One goes
//! out: the first, holding exactly one image under exactly one name, ours. That is not only because engines before version 25
//! do not load OCI layouts: names inside an archive would otherwise move the tags of other people's images on the node.
//!
//! Nothing is unpacked here and no path of the archive is used as a path; entries are streamed from one tar to the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};
use tar::{Archive, Builder, EntryType, Header};

/// The largest index, manifest or configuration that is read.
const DOCUMENT_MAX: u64 = 4 << 20;
/// The most entries looked at.
const ENTRIES_MAX: usize = 100_000;

/// An archive that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    #[error("cannot read the archive")]
    Read(#[from] io::Error),
    #[error("{0}")]
    Invalid(String),
}

fn invalid(reason: impl Into<String>) -> ArchiveError {
    ArchiveError::Invalid(reason.into())
}

/// What of an archive makes up the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    config: String,
    layers: Vec<String>,
}

/// An entry of `manifest.json`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// An OCI index or manifest, as far as it matters here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OciDocument {
    #[serde(default)]
    manifests: Vec<Descriptor>,
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    digest: String,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

/// The name that OCI and Go give to the processor that this program was built for.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn open(path: &Path) -> Result<Archive<Box<dyn Read>>, ArchiveError> {
    let mut magic = [0; 2];
    let mut file = File::open(path)?;
    let read = file.read(&mut magic)?;
    let whole = BufReader::with_capacity(256 << 10, File::open(path)?);
    let reader: Box<dyn Read> = if read == 2 && magic == [0x1f, 0x8b] {
        Box::new(GzDecoder::new(whole))
    } else {
        Box::new(whole)
    };
    Ok(Archive::new(reader))
}

/// An entry's name without a leading `./`.
fn name_of<R: Read>(entry: &tar::Entry<'_, R>) -> Result<String, ArchiveError> {
    let octets = entry.path_bytes();
    let name = std::str::from_utf8(&octets).map_err(|_| invalid("an entry's name is not UTF-8"))?;
    Ok(name.strip_prefix("./").unwrap_or(name).to_owned())
}

/// Small documents of the archive that may matter, and the names and links of everything in it.
#[derive(Default)]
struct Contents {
    documents: BTreeMap<String, Vec<u8>>,
    names: BTreeSet<String>,
}

/// Reads the archive once.
fn scan(path: &Path) -> Result<Contents, ArchiveError> {
    let mut contents = Contents::default();
    let mut kept = 0;
    for (count, entry) in open(path)?.entries()?.enumerate() {
        let entry = entry.map_err(|e| invalid(format!("it is not a tar file: {e}")))?;
        if count >= ENTRIES_MAX {
            return Err(invalid(format!("it has more than {ENTRIES_MAX} entries")));
        }
        let name = name_of(&entry)?;
        let kind = entry.header().entry_type();
        let document = name.ends_with(".json") || name.starts_with("blobs/");
        let size = entry.size();
        if kind.is_file() && document && size <= DOCUMENT_MAX && kept + size <= 4 * DOCUMENT_MAX {
            let mut octets = Vec::new();
            entry.take(DOCUMENT_MAX).read_to_end(&mut octets)?;
            // Only JSON documents matter; small layers need not be held.
            if octets.first() == Some(&b'{') || octets.first() == Some(&b'[') {
                kept += size;
                contents.documents.insert(name.clone(), octets);
            }
        }
        if kind.is_file() || kind == EntryType::Symlink || kind == EntryType::Link {
            contents.names.insert(name);
        }
    }
    Ok(contents)
}

/// Finds the one image of an archive.
pub(crate) fn plan(path: &Path) -> Result<Plan, ArchiveError> {
    let contents = scan(path)?;
    let plan = if let Some(manifest) = contents.documents.get("manifest.json") {
        of_docker(manifest)?
    } else if let Some(index) = contents.documents.get("index.json") {
        of_oci(&contents, index)?
    } else {
        return Err(invalid(
            "it holds neither manifest.json (docker save) nor index.json (an OCI layout)",
        ));
    };
    let missing = std::iter::once(&plan.config)
        .chain(&plan.layers)
        .find(|name| !contents.names.contains(*name));
    if let Some(missing) = missing {
        return Err(invalid(format!("it names {missing}, which is not in it")));
    }
    check_platform(&contents, &plan)?;
    Ok(plan)
}

fn of_docker(manifest: &[u8]) -> Result<Plan, ArchiveError> {
    let images: Vec<DockerImage> =
        serde_json::from_slice(manifest).map_err(|e| invalid(format!("manifest.json: {e}")))?;
    let count = images.len();
    let [image] = <[DockerImage; 1]>::try_from(images)
        .map_err(|_| invalid(format!("it holds {count} images; save exactly one")))?;
    Ok(Plan {
        config: image.config,
        layers: image.layers,
    })
}

fn of_oci(contents: &Contents, index: &[u8]) -> Result<Plan, ArchiveError> {
    let mut document = parse("index.json", index)?;
    // An index may name another index, once: a multi-platform image under one tag.
    for _ in 0..3 {
        if let Some(config) = document.config {
            let layers = document.layers.iter().map(blob).collect::<Result<_, _>>()?;
            return Ok(Plan {
                config: blob(&config)?,
                layers,
            });
        }
        let name = blob(choose(&document.manifests)?)?;
        let octets = contents
            .documents
            .get(&name)
            .ok_or_else(|| invalid(format!("it names {name}, which is not in it")))?;
        document = parse(&name, octets)?;
    }
    Err(invalid("its indexes are nested too deeply"))
}

fn parse(name: &str, octets: &[u8]) -> Result<OciDocument, ArchiveError> {
    serde_json::from_slice(octets).map_err(|e| invalid(format!("{name}: {e}")))
}

/// The manifest for this node's platform; one without a platform counts when it is the only one.
fn choose(manifests: &[Descriptor]) -> Result<&Descriptor, ArchiveError> {
    let fits = |d: &&Descriptor| {
        d.platform
            .as_ref()
            .is_some_and(|p| p.os == "linux" && p.architecture == architecture())
    };
    match manifests {
        [only] => Ok(only),
        several => several.iter().find(fits).ok_or_else(|| {
            let wanted = architecture();
            invalid(format!("none of its images is for linux/{wanted}"))
        }),
    }
}

/// Where a blob lies in a layout (OCI image layout, section "blobs").
fn blob(descriptor: &Descriptor) -> Result<String, ArchiveError> {
    let digest: fdn_core::Digest = descriptor
        .digest
        .parse()
        .map_err(|e| invalid(format!("{e}")))?;
    Ok(format!("blobs/sha256/{}", digest.hex()))
}

fn check_platform(contents: &Contents, plan: &Plan) -> Result<(), ArchiveError> {
    let config = contents
        .documents
        .get(&plan.config)
        .ok_or_else(|| invalid(format!("{} is not an image configuration", plan.config)))?;
    let platform: Platform =
        serde_json::from_slice(config).map_err(|e| invalid(format!("{}: {e}", plan.config)))?;
    if platform.os != "linux" || platform.architecture != architecture() {
        return Err(invalid(format!(
            "it is for {}/{}, this node is linux/{}",
            platform.os,
            platform.architecture,
            architecture()
        )));
    }
    Ok(())
}

/// Writes the image as one archive in the format of `docker save` with `tag` as its only name.
pub(crate) fn rewrite(
    path: &Path,
    plan: &Plan,
    tag: &str,
    sink: impl Write,
) -> Result<(), ArchiveError> {
    let wanted: BTreeSet<&String> = std::iter::once(&plan.config).chain(&plan.layers).collect();
    let mut out = Builder::new(sink);
    for entry in open(path)?.entries()? {
        let mut entry = entry?;
        let name = name_of(&entry)?;
        let kind = entry.header().entry_type();
        if !wanted.contains(&name) {
            continue;
        }
        if kind.is_file() {
            let mut header = plain(entry.size());
            out.append_data(&mut header, &name, &mut entry)?;
        } else if let Some(target) = entry.link_name()?.filter(|_| kind == EntryType::Symlink) {
            // `docker save` before version 25 writes a layer that several images share as a link.
            let mut header = plain(0);
            header.set_entry_type(EntryType::Symlink);
            out.append_link(&mut header, &name, &target)?;
        }
    }
    let manifest = serde_json::to_vec(&[DockerImage {
        config: plan.config.clone(),
        repo_tags: Some(vec![tag.to_owned()]),
        layers: plan.layers.clone(),
    }])
    .map_err(io::Error::other)?;
    let mut header = plain(manifest.len() as u64);
    out.append_data(&mut header, "manifest.json", manifest.as_slice())?;
    out.into_inner()?.flush()?;
    Ok(())
}

fn plain(size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o644);
    header
}

#[cfg(test)]
mod tests;

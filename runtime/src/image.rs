//! Archives of container images: what one holds, found in one pass and without unpacking anything. The controller judges uploads by it, nodes
//! give their engines what it finds.
//!
//! Two formats, both tar files, plain or gzip: what `docker save` writes (`manifest.json` names configuration and layers) and an OCI image
//! layout (image-layout.md of the OCI image specification: `index.json`, blobs by digest). No path of an archive is used as a path.

mod unfold;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use fdn_core::Digest;
use fdn_core::digest::DigestBuilder;
use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};
use tar::{Archive, Entry, EntryType};

pub use unfold::UNFOLDED;
use unfold::{Bounded, Budget, Unfolding};

/// Processors that nodes may have, as OCI and Go call them: those that agents are built for.
pub const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

/// The largest index, manifest or configuration that is read.
const DOCUMENT_MAX: u64 = 4 << 20;
/// The most entries looked at.
const ENTRIES_MAX: usize = 100_000;
/// Indexes inside indexes: a multi-platform image under one tag.
const DEPTH: usize = 3;
/// Bytes looked at together.
const PIECE: u64 = 64 << 10;
/// Where blobs lie in a layout (OCI image layout, section "blobs").
const BLOBS: &str = "blobs/sha256/";

/// An archive that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// It cannot be read.
    #[error("cannot read the archive")]
    Read(#[from] io::Error),
    /// It is not what it should be.
    #[error("{0}")]
    Invalid(String),
    /// It is for other processors.
    #[error("{0}")]
    Platform(String),
}

fn invalid(reason: impl Into<String>) -> ArchiveError {
    ArchiveError::Invalid(reason.into())
}

/// The name that OCI and Go give to the processor that this program was built for.
#[must_use]
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// What of an archive makes up the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The entry with its configuration.
    pub config: String,
    /// The entries with its layers, the lowest first.
    pub layers: Vec<String>,
    /// The digest that a registry gives to it; what `docker save` writes has none.
    pub digest: Option<Digest>,
}

/// An entry of `manifest.json`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DockerImage {
    /// The entry with its configuration.
    pub config: String,
    /// Its names.
    #[serde(default)]
    pub repo_tags: Option<Vec<String>>,
    /// The entries with its layers.
    pub layers: Vec<String>,
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

/// What an image is for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

/// An image's configuration, as far as it matters here (OCI image configuration).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Config {
    #[serde(flatten)]
    platform: Platform,
    #[serde(default)]
    rootfs: RootFs,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Vec<String>,
}

impl Config {
    /// The system and processor that it is for, as `linux/amd64`.
    #[must_use]
    pub fn platform(&self) -> String {
        format!("{}/{}", self.platform.os, self.platform.architecture)
    }

    /// Whether it is for Linux on one of these processors.
    #[must_use]
    pub fn runs_on(&self, processors: &[&str]) -> bool {
        self.platform.os == "linux" && processors.contains(&self.platform.architecture.as_str())
    }
}

/// Opens an archive, of which `most` bytes at most are read, counted as they are when it is not compressed.
///
/// # Errors
/// When the file cannot be read.
pub fn open(path: &Path, most: u64) -> io::Result<Archive<Box<dyn Read>>> {
    let mut magic = [0; 2];
    let mut file = File::open(path)?;
    let read = file.read(&mut magic)?;
    let whole = BufReader::with_capacity(256 << 10, File::open(path)?);
    let reader: Box<dyn Read> = if read == 2 && magic == [0x1f, 0x8b] {
        Box::new(GzDecoder::new(whole))
    } else {
        Box::new(whole)
    };
    Ok(Archive::new(Box::new(Bounded::new(reader, most))))
}

/// An entry's name without a leading `./`.
///
/// # Errors
/// When it is not UTF-8.
pub fn name_of<R: Read>(entry: &Entry<'_, R>) -> Result<String, ArchiveError> {
    let bytes = entry.path_bytes();
    let name = std::str::from_utf8(&bytes).map_err(|_| invalid("an entry's name is not UTF-8"))?;
    Ok(name.strip_prefix("./").unwrap_or(name).to_owned())
}

/// How a file is compressed, by how it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    None,
    Gzip,
    /// In another way that engines know: zstd, bzip2, xz.
    Other,
}

impl Packing {
    fn of(head: &[u8]) -> Self {
        // RFC 1952; RFC 8878; the formats of bzip2 and xz.
        let others: [&[u8]; 3] = [&[0x28, 0xb5, 0x2f, 0xfd], b"BZh", b"\xfd7zXZ"];
        if head.starts_with(&[0x1f, 0x8b]) {
            Self::Gzip
        } else if others.iter().any(|magic| head.starts_with(magic)) {
            Self::Other
        } else {
            Self::None
        }
    }
}

/// The format of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// What `docker save` writes.
    Docker,
    /// An OCI image layout.
    Layout,
}

impl Format {
    /// In words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker archive",
            Self::Layout => "OCI image layout",
        }
    }
}

/// Small documents of an archive that may matter, the names of everything in it, and, if wanted, digests.
#[derive(Default)]
pub struct Contents {
    documents: BTreeMap<String, Vec<u8>>,
    names: BTreeSet<String>,
    /// Of plain files that no compression hides the contents of.
    digests: BTreeMap<String, Digest>,
    /// Files that are compressed themselves.
    packed: BTreeSet<String>,
    /// Those of them whose size is not known when they are unfolded.
    unmeasured: BTreeSet<String>,
    /// Those that cannot be unfolded, and why.
    broken: BTreeMap<String, String>,
}

impl Contents {
    /// Reads an archive once, as a node does, which has compared the digest of the whole. It unfolds to `most` bytes at most.
    ///
    /// # Errors
    /// When it cannot be read, is too large or no tar file.
    pub fn read(path: &Path, most: u64) -> Result<Self, ArchiveError> {
        Self::scan(path, most, false)
    }

    /// The same with the digests of all files, and with what is compressed in it unfolded and counted: all of it together is `most` bytes at
    /// most.
    ///
    /// # Errors
    /// When it cannot be read, is too large or no tar file.
    pub fn digest(path: &Path, most: u64) -> Result<Self, ArchiveError> {
        Self::scan(path, most, true)
    }

    fn scan(path: &Path, most: u64, digests: bool) -> Result<Self, ArchiveError> {
        let mut contents = Self::default();
        let mut budget = Budget::new(most);
        let mut kept = 0;
        for (count, entry) in open(path, most)?.entries()?.enumerate() {
            let mut entry = entry.map_err(|e| invalid(format!("it is not a tar file: {e}")))?;
            if count >= ENTRIES_MAX {
                return Err(invalid(format!("it has more than {ENTRIES_MAX} entries")));
            }
            let name = name_of(&entry)?;
            let kind = entry.header().entry_type();
            let document = name.ends_with(".json") || name.starts_with("blobs/");
            let size = entry.size();
            let mut first = Vec::new();
            if kind.is_file() && document && size <= DOCUMENT_MAX && kept + size <= 4 * DOCUMENT_MAX
            {
                entry.by_ref().take(DOCUMENT_MAX).read_to_end(&mut first)?;
            }
            if kind.is_file() && digests {
                contents.note(&name, &first, &mut entry, &mut budget)?;
            }
            // Only JSON documents matter; small layers need not be held.
            if first.first() == Some(&b'{') || first.first() == Some(&b'[') {
                kept += size;
                contents.documents.insert(name.clone(), first);
            }
            if kind.is_file() || kind == EntryType::Symlink || kind == EntryType::Link {
                contents.names.insert(name);
            }
        }
        Ok(contents)
    }

    /// Digests a file, of which `first` was read already, and counts what it unfolds to.
    fn note(
        &mut self,
        name: &str,
        first: &[u8],
        rest: &mut impl Read,
        budget: &mut Budget,
    ) -> Result<(), ArchiveError> {
        let broken = |e| invalid(format!("it is not a whole tar file: {e}"));
        let mut head = first.to_vec();
        if head.is_empty() {
            rest.by_ref()
                .take(PIECE)
                .read_to_end(&mut head)
                .map_err(broken)?;
        }
        let packing = Packing::of(&head);
        if packing != Packing::None {
            self.packed.insert(name.to_owned());
        }
        if packing == Packing::Other {
            self.unmeasured.insert(name.to_owned());
        }
        let mut unfolding = Some(Unfolding::new(packing == Packing::Gzip, budget));
        let mut builder = DigestBuilder::default();
        let mut piece = head;
        while !piece.is_empty() {
            builder.update(&piece);
            if let Some(Err(error)) = unfolding.as_mut().map(|u| u.take(&piece)) {
                unfolding = None;
                self.unfolds_not(name, &error)?;
            }
            piece.clear();
            rest.by_ref()
                .take(PIECE)
                .read_to_end(&mut piece)
                .map_err(broken)?;
        }
        if let Some(Err(error)) = unfolding.map(Unfolding::finish) {
            self.unfolds_not(name, &error)?;
        }
        self.digests.insert(name.to_owned(), builder.finish());
        Ok(())
    }

    /// Notes that a file cannot be unfolded, which counts if it is a layer, and fails if it is because it is too large.
    fn unfolds_not(&mut self, name: &str, error: &io::Error) -> Result<(), ArchiveError> {
        if error.kind() == io::ErrorKind::FileTooLarge {
            return Err(invalid(format!("{name}: {error}")));
        }
        self.broken.insert(name.to_owned(), error.to_string());
        Ok(())
    }

    /// Whether all layers are such that their size unfolded was counted.
    ///
    /// # Errors
    /// When one is not.
    pub fn measured(&self, image: &Image) -> Result<(), ArchiveError> {
        let layer = image.layers.iter().find(|l| self.unmeasured.contains(*l));
        layer.map_or(Ok(()), |layer| {
            Err(invalid(format!(
                "{layer} is neither plain nor gzip, so what it unfolds to is not known; save the image with layers of gzip"
            )))
        })
    }

    /// Which format it is.
    ///
    /// # Errors
    /// When it is none.
    pub fn format(&self) -> Result<Format, ArchiveError> {
        if self.documents.contains_key("manifest.json") {
            Ok(Format::Docker)
        } else if self.documents.contains_key("index.json") {
            Ok(Format::Layout)
        } else {
            Err(no_format())
        }
    }

    /// The one image of an archive: of one for several platforms that for Linux on the first of these processors that it has. What an image
    /// alone is for says its configuration.
    ///
    /// # Errors
    /// When there is none, or several, or parts of it are not there.
    pub fn image(&self, processors: &[&str]) -> Result<Image, ArchiveError> {
        let image = if let Some(manifest) = self.documents.get("manifest.json") {
            of_docker(manifest)?
        } else if let Some(index) = self.documents.get("index.json") {
            self.of_oci(index, processors)?
        } else {
            return Err(no_format());
        };
        let missing = std::iter::once(&image.config)
            .chain(&image.layers)
            .find(|name| !self.names.contains(*name));
        match missing {
            Some(missing) => Err(invalid(format!("it names {missing}, which is not in it"))),
            None => Ok(image),
        }
    }

    /// The digest that a registry gives to the image of an OCI layout, also where it has a list for `docker load` beside; `None` if the archive is
    /// none.
    ///
    /// # Errors
    /// When there is no image for one of these processors, or its manifest is not there.
    pub fn oci_digest(&self, processors: &[&str]) -> Result<Option<Digest>, ArchiveError> {
        match self.documents.get("index.json") {
            Some(index) => Ok(self.of_oci(index, processors)?.digest),
            None => Ok(None),
        }
    }

    /// An image's configuration.
    ///
    /// # Errors
    /// When it is none.
    pub fn config(&self, image: &Image) -> Result<Config, ArchiveError> {
        let bytes = self.documents.get(&image.config);
        let bytes = bytes
            .ok_or_else(|| invalid(format!("{} is not an image configuration", image.config)))?;
        serde_json::from_slice(bytes).map_err(|e| invalid(format!("{}: {e}", image.config)))
    }

    fn of_oci(&self, index: &[u8], processors: &[&str]) -> Result<Image, ArchiveError> {
        let (mut document, mut digest) = (parse("index.json", index)?, None);
        for _ in 0..DEPTH {
            if let Some(config) = document.config {
                let layers = document.layers.iter().map(blob).collect::<Result<_, _>>()?;
                return Ok(Image {
                    config: blob(&config)?,
                    layers,
                    digest,
                });
            }
            let name = blob(self.choose(&document.manifests, processors)?)?;
            let bytes = self
                .documents
                .get(&name)
                .ok_or_else(|| invalid(format!("it names {name}, which is not in it")))?;
            (document, digest) = (parse(&name, bytes)?, Some(Digest::of(bytes)));
        }
        Err(invalid("its indexes are nested too deeply"))
    }

    /// The manifest for one of these processors, one that is there before one that is only named; without a platform, one counts when it is the
    /// only one.
    fn choose<'a>(
        &self,
        manifests: &'a [Descriptor],
        processors: &[&str],
    ) -> Result<&'a Descriptor, ArchiveError> {
        if let [only] = manifests {
            return Ok(only);
        }
        let fitting = processors.iter().flat_map(|processor| {
            manifests.iter().filter(move |one| {
                let platform = one.platform.as_ref();
                platform.is_some_and(|p| p.os == "linux" && p.architecture == *processor)
            })
        });
        let here = |one: &&Descriptor| blob(one).is_ok_and(|name| self.names.contains(&name));
        let found = fitting
            .clone()
            .find(here)
            .or_else(|| fitting.clone().next());
        found.ok_or_else(|| {
            let wanted = processors.join(" or linux/");
            ArchiveError::Platform(format!("none of its images is for linux/{wanted}"))
        })
    }

    /// Compares what the archive holds with what it says that it holds: blobs with the digests that are their names, and layers with the
    /// digests of the configuration, unless they are compressed, which must then unfold. Tells how many were compared.
    ///
    /// # Errors
    /// When something differs.
    pub fn compare(&self, image: &Image, config: &Config) -> Result<usize, ArchiveError> {
        let mut compared = 0;
        for (name, digest) in &self.digests {
            let Some(named) = name.strip_prefix(BLOBS) else {
                continue;
            };
            if named != digest.hex() {
                return Err(invalid(format!("the contents of {name} are {digest}")));
            }
            compared += 1;
        }
        for (layer, wanted) in image.layers.iter().zip(&config.rootfs.diff_ids) {
            let Some(digest) = self.digests.get(layer) else {
                continue;
            };
            if self.packed.contains(layer) {
                continue;
            }
            if *wanted != digest.to_string() {
                return Err(invalid(format!(
                    "the contents of {layer} are {digest}, and its configuration says {wanted}"
                )));
            }
            compared += 1;
        }
        let mut layers = image.layers.iter();
        if let Some((layer, why)) = layers.find_map(|layer| self.broken.get_key_value(layer)) {
            return Err(invalid(format!("{layer} cannot be unfolded: {why}")));
        }
        Ok(compared)
    }
}

impl Config {
    /// Whether it tells of each of the image's layers.
    ///
    /// # Errors
    /// When it does not.
    pub fn check(&self, image: &Image) -> Result<(), ArchiveError> {
        let (said, there) = (self.rootfs.diff_ids.len(), image.layers.len());
        match said == there {
            true => Ok(()),
            false => Err(invalid(format!(
                "{} has digests of {said} layers, and there are {there}",
                image.config
            ))),
        }
    }
}

fn no_format() -> ArchiveError {
    invalid("it holds neither manifest.json (docker save) nor index.json (an OCI layout)")
}

fn of_docker(manifest: &[u8]) -> Result<Image, ArchiveError> {
    let images: Vec<DockerImage> =
        serde_json::from_slice(manifest).map_err(|e| invalid(format!("manifest.json: {e}")))?;
    let count = images.len();
    let [image] = <[DockerImage; 1]>::try_from(images)
        .map_err(|_| invalid(format!("it holds {count} images; save exactly one")))?;
    Ok(Image {
        config: image.config,
        layers: image.layers,
        digest: None,
    })
}

fn parse(name: &str, bytes: &[u8]) -> Result<OciDocument, ArchiveError> {
    serde_json::from_slice(bytes).map_err(|e| invalid(format!("{name}: {e}")))
}

/// Where a blob lies.
fn blob(descriptor: &Descriptor) -> Result<String, ArchiveError> {
    let digest: Digest = descriptor
        .digest
        .parse()
        .map_err(|e| invalid(format!("{e}")))?;
    Ok(format!("{BLOBS}{}", digest.hex()))
}

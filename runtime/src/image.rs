//! Archives of container images: their contents, read in one pass and without unpacking anything. The controller checks uploads with it, nodes
//! load what it finds into their engines.
//!
//! It knows two formats, both tar files, plain or gzip: the output of `docker save` (`manifest.json` names configuration and layers) and an OCI
//! image layout (image-layout.md of the OCI image specification: `index.json`, blobs by digest). No path of an archive is used as a file system path.

mod headers;
mod layers;
mod unpack;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use fdn_core::Digest;
use fdn_core::digest::DigestBuilder;
use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};
use tar::{Archive, Entry, EntryType};

pub use unpack::UNPACKED_MAX;
use unpack::{Bounded, Budget, Unpacking};

/// The processor architectures of nodes, as OCI and Go name them: those that agents are built for.
pub const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

/// The largest index, manifest or configuration that is read, in bytes.
const DOCUMENT_MAX: u64 = 4 << 20;
/// The most entries of an archive.
const ENTRIES_MAX: usize = 100_000;
/// The most bytes of the names of all entries, and of what they link to.
const NAMES_MAX: usize = 16 << 20;
/// The most nested indexes: an index inside an index is a multi-platform image under one tag.
const DEPTH: usize = 3;
/// Bytes read at a time.
const PIECE: u64 = 64 << 10;
/// The folder of blobs in a layout (OCI image layout, section "blobs").
const BLOBS: &str = "blobs/sha256/";

/// Why an archive cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// It cannot be read.
    #[error("cannot read the archive")]
    Read(#[from] io::Error),
    /// The archive is not valid.
    #[error("{0}")]
    Invalid(String),
    /// It has no image for a wanted platform.
    #[error("{0}")]
    Platform(String),
}

fn invalid(reason: impl Into<String>) -> ArchiveError {
    ArchiveError::Invalid(reason.into())
}

/// The name in OCI and Go of the processor architecture for which this program was built.
#[must_use]
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The parts of an archive that make up the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The name of the entry with its configuration.
    pub config: String,
    /// The names of the entries with its layers, the lowest first.
    pub layers: Vec<String>,
    /// The digest that a registry gives to the image; `None` for the output of `docker save`.
    pub digest: Option<Digest>,
}

/// An image in `manifest.json`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DockerImage {
    /// The name of the entry with its configuration.
    pub config: String,
    /// Its tags.
    #[serde(default)]
    pub repo_tags: Option<Vec<String>>,
    /// The names of the entries with its layers, the lowest first.
    pub layers: Vec<String>,
}

/// The relevant fields of an OCI index or manifest.
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

/// The platform of an image.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

/// The relevant fields of an image's configuration (OCI image configuration).
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
    /// Its operating system and architecture, as `linux/amd64`.
    #[must_use]
    pub fn platform(&self) -> String {
        format!("{}/{}", self.platform.os, self.platform.architecture)
    }

    /// Whether it is for Linux on one of these architectures.
    #[must_use]
    pub fn runs_on(&self, processors: &[&str]) -> bool {
        self.platform.os == "linux" && processors.contains(&self.platform.architecture.as_str())
    }
}

/// Opens an archive, of which at most `max_size` bytes are read, counted after decompression.
///
/// # Errors
/// When the file cannot be read.
pub fn open(path: &Path, max_size: u64) -> io::Result<Archive<Box<dyn Read>>> {
    let mut magic = [0; 2];
    let mut file = File::open(path)?;
    let read = file.read(&mut magic)?;
    let whole = BufReader::with_capacity(256 << 10, File::open(path)?);
    let reader: Box<dyn Read> = if read == 2 && magic == [0x1f, 0x8b] {
        Box::new(GzDecoder::new(whole))
    } else {
        Box::new(whole)
    };
    Ok(Archive::new(Box::new(Bounded::new(reader, max_size))))
}

/// The name of an entry, without a leading `./`.
///
/// # Errors
/// When it is not UTF-8.
pub fn entry_name<R: Read>(entry: &Entry<'_, R>) -> Result<String, ArchiveError> {
    let bytes = entry.path_bytes();
    let name = std::str::from_utf8(&bytes).map_err(|_| invalid("an entry's name is not UTF-8"))?;
    Ok(name.strip_prefix("./").unwrap_or(name).to_owned())
}

/// The compression of a file, recognized by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileCompression {
    None,
    Gzip,
    /// Another compression that engines know: zstd, bzip2, xz.
    Other,
}

impl FileCompression {
    fn of(head: &[u8]) -> Self {
        // Gzip: RFC 1952; zstd: RFC 8878; then the formats of bzip2 and xz.
        let others: [&[u8]; 3] = [&[0x28, 0xb5, 0x2f, 0xfd], b"BZh", b"\xfd7zXZ"];
        // A file of zstd may begin with a frame that is skipped (RFC 8878, section 3.1.2).
        let is_skippable = matches!(head, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..]);
        if head.starts_with(&[0x1f, 0x8b]) {
            Self::Gzip
        } else if is_skippable || others.iter().any(|magic| head.starts_with(magic)) {
            Self::Other
        } else {
            Self::None
        }
    }
}

/// The format of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The output of `docker save`.
    Docker,
    /// An OCI image layout.
    Layout,
}

impl Format {
    /// The name of the format.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker archive",
            Self::Layout => "OCI image layout",
        }
    }
}

/// The small JSON documents of an archive, the names of its entries and, if requested, digests of its files.
#[derive(Default)]
pub struct Contents {
    documents: BTreeMap<String, Vec<u8>>,
    names: BTreeSet<String>,
    /// The digests of all files, as they are stored in the archive.
    digests: BTreeMap<String, Digest>,
    /// Files that are compressed themselves.
    packed: BTreeSet<String>,
    /// Compressed files whose unpacked size cannot be determined.
    unmeasured: BTreeSet<String>,
    /// Files that cannot be decompressed, with the reasons.
    broken: BTreeMap<String, String>,
    /// What files unpack to: bytes and entries.
    unfolded: BTreeMap<String, (u64, u64)>,
    /// What symbolic links lead to.
    links: BTreeMap<String, String>,
    /// The most bytes that the image may unpack to.
    max_size: u64,
}

impl Contents {
    /// Reads an archive once, as a node does after it has verified the digest of the whole. It may unpack to at most `max_size` bytes.
    ///
    /// # Errors
    /// When it cannot be read, is too large, or is not a tar file.
    pub fn read(path: &Path, max_size: u64) -> Result<Self, ArchiveError> {
        Self::scan(path, max_size, false)
    }

    /// Like [`Contents::read`], but computes the digests of all files, and unpacks compressed files to count their bytes: all of them together may
    /// have at most `max_size` bytes.
    ///
    /// # Errors
    /// When it cannot be read, is too large, or is not a tar file.
    pub fn digest(path: &Path, max_size: u64) -> Result<Self, ArchiveError> {
        Self::scan(path, max_size, true)
    }

    fn scan(path: &Path, max_size: u64, digests: bool) -> Result<Self, ArchiveError> {
        let mut contents = Self {
            max_size,
            ..Self::default()
        };
        let mut budget = Budget::new(max_size);
        let (mut kept, mut names) = (0, 0);
        for (count, entry) in open(path, max_size)?.entries()?.enumerate() {
            let mut entry = entry.map_err(|e| invalid(format!("it is not a tar file: {e}")))?;
            if count >= ENTRIES_MAX {
                return Err(invalid(format!("it has more than {ENTRIES_MAX} entries")));
            }
            let name = entry_name(&entry)?;
            let target = entry.link_name_bytes().map(|target| target.into_owned());
            let target = target.unwrap_or_default();
            names += name.len() + target.len();
            if names > NAMES_MAX {
                let most = NAMES_MAX >> 20;
                let reason = format!("the names of its entries have more than {most} MiB");
                return Err(invalid(reason));
            }
            let kind = entry.header().entry_type();
            if kind == EntryType::Symlink {
                let target = String::from_utf8(target)
                    .map_err(|_| invalid(format!("{name} leads to a name that is not UTF-8")))?;
                contents.links.insert(name.clone(), target);
            } else if kind.is_file() {
                // An engine has what came last.
                contents.links.remove(&name);
            } else if kind == EntryType::Link {
                contents.links.remove(&name);
                contents.unfolded.remove(&name);
            }
            let document = name.ends_with(".json") || name.starts_with("blobs/");
            let size = entry.size();
            let mut first = Vec::new();
            if kind.is_file() && document && size <= DOCUMENT_MAX && kept + size <= 4 * DOCUMENT_MAX
            {
                entry.by_ref().take(DOCUMENT_MAX).read_to_end(&mut first)?;
            }
            if kind.is_file() && digests {
                contents.measure_file(&name, &first, &mut entry, &mut budget)?;
            }
            // Only JSON documents matter; small layers need not be kept.
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

    /// Digests a file, of which `first` was already read, and counts the bytes to which it unpacks.
    fn measure_file(
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
        let compression = FileCompression::of(&head);
        if compression != FileCompression::None {
            self.packed.insert(name.to_owned());
        }
        if compression == FileCompression::Other {
            self.unmeasured.insert(name.to_owned());
        }
        let before = budget.left();
        let mut unpacking = Some(Unpacking::new(compression == FileCompression::Gzip, budget));
        let mut builder = DigestBuilder::default();
        let mut piece = head;
        while !piece.is_empty() {
            builder.update(&piece);
            if let Some(Err(error)) = unpacking.as_mut().map(|u| u.take(&piece)) {
                unpacking = None;
                self.record_unpack_error(name, &error)?;
            }
            piece.clear();
            rest.by_ref()
                .take(PIECE)
                .read_to_end(&mut piece)
                .map_err(broken)?;
        }
        if let Some(Err(error)) = unpacking.map(Unpacking::finish) {
            self.record_unpack_error(name, &error)?;
        }
        let after = budget.left();
        let unfolded = self.unfolded.entry(name.to_owned()).or_default();
        unfolded.0 += before.0 - after.0;
        unfolded.1 += before.1 - after.1;
        self.digests.insert(name.to_owned(), builder.finish());
        Ok(())
    }

    /// Notes that a file cannot be decompressed, which matters only if it is a layer; fails if the reason is that it is too large.
    fn record_unpack_error(&mut self, name: &str, error: &io::Error) -> Result<(), ArchiveError> {
        if error.kind() == io::ErrorKind::FileTooLarge {
            return Err(invalid(format!("{name}: {error}")));
        }
        self.broken.insert(name.to_owned(), error.to_string());
        Ok(())
    }

    /// The format of the archive.
    ///
    /// # Errors
    /// When it is neither of the two.
    pub fn format(&self) -> Result<Format, ArchiveError> {
        if self.documents.contains_key("manifest.json") {
            Ok(Format::Docker)
        } else if self.documents.contains_key("index.json") {
            Ok(Format::Layout)
        } else {
            Err(no_format())
        }
    }

    /// The one image of an archive; of several for different platforms, the one for Linux on the first of these architectures that is present.
    /// The platform of a single image is not checked here; its configuration has it.
    ///
    /// # Errors
    /// When there is none, there are several, or parts of it are missing.
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

    /// The digest that a registry gives to the image of an OCI layout, even if the archive also has a `manifest.json` for `docker load`; `None` if
    /// the archive is not a layout.
    ///
    /// # Errors
    /// When there is no image for one of these architectures, or its manifest is missing.
    pub fn oci_digest(&self, processors: &[&str]) -> Result<Option<Digest>, ArchiveError> {
        match self.documents.get("index.json") {
            Some(index) => Ok(self.of_oci(index, processors)?.digest),
            None => Ok(None),
        }
    }

    /// The configuration of an image.
    ///
    /// # Errors
    /// When it cannot be decoded.
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

    /// The manifest for one of these architectures; one that is present is preferred to one that is only named. A single manifest is taken
    /// whatever its platform.
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

    /// Compares the archive's contents with its own digests: blobs with their names, and uncompressed layers with the digests in the
    /// configuration. Compressed layers must only decompress. Returns how many digests were compared.
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
        let mut layers = image.layers.iter().filter_map(|layer| self.file_of(layer));
        if let Some((layer, why)) = layers.find_map(|layer| self.broken.get_key_value(&layer)) {
            return Err(invalid(format!("{layer} cannot be unfolded: {why}")));
        }
        Ok(compared)
    }
}

impl Config {
    /// Checks that the configuration has a digest for each of the image's layers.
    ///
    /// # Errors
    /// When the numbers differ.
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

/// The entry name of a blob.
fn blob(descriptor: &Descriptor) -> Result<String, ArchiveError> {
    let digest: Digest = descriptor
        .digest
        .parse()
        .map_err(|e| invalid(format!("{e}")))?;
    Ok(format!("{BLOBS}{}", digest.hex()))
}

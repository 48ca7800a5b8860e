//! The files of the console in memory, ready to be sent: by path, with entity tags, compressed where that helps.

use std::collections::BTreeMap;
use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use rust_embed::{Embed, EmbeddedFile};

/// The page of the console.
const PAGE: &str = "index.html";
/// The folder of files whose names contain a hash of their content: they never change.
const HASHED: &str = "assets/";
/// The path of the documentation, whose pages are files of their own.
pub(super) const DOCS: &str = "/docs";
/// Smaller files fit in a packet uncompressed.
const WORTH_ZIPPING: usize = 1_000;
/// Paths of the API and of monitoring. A missing file below them is an error, even for a browser.
const NO_PAGES: [&str; 10] = [
    "/v1",
    "/api",
    "/agent",
    "/dns/v1",
    "/internal",
    "/metrics",
    "/healthz",
    "/readyz",
    "/assets",
    DOCS,
];

/// A file, ready to be sent.
#[derive(Debug)]
pub(super) struct File {
    bytes: Bytes,
    zipped: Option<Bytes>,
    digest: String,
    /// Its media type.
    pub(super) kind: &'static str,
    /// Whether its name contains a hash of its content.
    pub(super) is_hashed: bool,
}

/// The file found for a request.
#[derive(Debug)]
pub(super) struct FoundFile<'a> {
    /// The file.
    pub(super) file: &'a File,
    zipped: bool,
}

/// The parts of a request that determine the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileRequest<'a> {
    /// The method.
    pub(super) method: &'a str,
    /// The path, as sent.
    pub(super) path: &'a str,
    /// Whether a page is accepted, as by browsers that follow a link.
    pub(super) wants_page: bool,
    /// Whether the client accepts gzip.
    pub(super) takes_gzip: bool,
}

/// The files by path, without the leading slash.
#[derive(Debug, Default)]
pub(super) struct Site {
    files: BTreeMap<String, File>,
}

impl FileRequest<'_> {
    /// Whether the request only reads.
    pub(super) fn only_reads(&self) -> bool {
        matches!(self.method, "GET" | "HEAD")
    }
}

impl Site {
    /// The embedded files. Without the console's page there are none: other files make no sense then.
    pub(super) fn of<E: Embed>() -> Self {
        if E::get(PAGE).is_none() {
            return Self::default();
        }
        let named = E::iter().filter_map(|name| Some((name.to_string(), E::get(&name)?)));
        let files = named.map(|(name, file)| {
            let file = File::new(&name, file);
            (name, file)
        });
        Self {
            files: files.collect(),
        }
    }

    /// The file for a request: the one at its path, else, for browsers, the console's page, which interprets the path itself.
    pub(super) fn find(&self, request: FileRequest<'_>) -> Option<FoundFile<'_>> {
        if !request.only_reads() {
            return None;
        }
        let own = request.path.trim_start_matches('/');
        let file = match self.files.get(own).or_else(|| self.first_of(request.path)) {
            Some(file) => file,
            None if request.wants_page && !is_reserved(request.path) => self.files.get(PAGE)?,
            None => return None,
        };
        Some(FoundFile {
            file,
            zipped: request.takes_gzip && file.zipped.is_some(),
        })
    }

    /// The first page of the console or of a folder of the documentation; or a page of the documentation named without `.html`, as in the `type` of
    /// problems.
    fn first_of(&self, path: &str) -> Option<&File> {
        let own = path.trim_matches('/');
        if own.is_empty() {
            return self.files.get(PAGE);
        }
        let first = self.files.get(&format!("{own}/{PAGE}"));
        let is_page = is_below(DOCS, path) && !path.ends_with('/');
        first.or_else(|| self.files.get(&format!("{own}.html")).filter(|_| is_page))
    }
}

fn is_reserved(path: &str) -> bool {
    NO_PAGES.iter().any(|prefix| is_below(prefix, path))
}

/// Whether a path is `prefix` or below it.
fn is_below(prefix: &str, path: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl File {
    fn new(name: &str, file: EmbeddedFile) -> Self {
        let digest = hex::encode(&file.metadata.sha256_hash()[..16]);
        let bytes = match file.data {
            std::borrow::Cow::Borrowed(bytes) => Bytes::from_static(bytes),
            std::borrow::Cow::Owned(bytes) => Bytes::from(bytes),
        };
        let (kind, is_text) = kind(name);
        let zipped = (is_text && bytes.len() >= WORTH_ZIPPING)
            .then(|| zip(&bytes))
            .flatten();
        Self {
            zipped: zipped.filter(|zipped| zipped.len() < bytes.len()),
            bytes,
            digest,
            kind,
            is_hashed: name.starts_with(HASHED),
        }
    }
}

/// Compressed once at the best level, since it is sent many times.
fn zip(bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

/// The media type by the extension, and whether it is compressible text.
fn kind(name: &str) -> (&'static str, bool) {
    match name.rsplit_once('.').map_or("", |(_, end)| end) {
        "html" => ("text/html; charset=utf-8", true),
        "js" | "mjs" => ("text/javascript; charset=utf-8", true),
        "css" => ("text/css; charset=utf-8", true),
        "json" | "map" => ("application/json", true),
        "webmanifest" => ("application/manifest+json", true),
        "svg" => ("image/svg+xml", true),
        "txt" => ("text/plain; charset=utf-8", true),
        "wasm" => ("application/wasm", true),
        "png" => ("image/png", false),
        "jpg" | "jpeg" => ("image/jpeg", false),
        "webp" => ("image/webp", false),
        "ico" => ("image/x-icon", false),
        "woff2" => ("font/woff2", false),
        _ => ("application/octet-stream", false),
    }
}

impl FoundFile<'_> {
    /// The bytes to send.
    pub(super) fn bytes(&self) -> Bytes {
        match (&self.file.zipped, self.zipped) {
            (Some(zipped), true) => zipped.clone(),
            _ => self.file.bytes.clone(),
        }
    }

    /// The content encoding.
    pub(super) const fn encoding(&self) -> &'static str {
        if self.zipped { "gzip" } else { "identity" }
    }

    /// The entity tag: a different one if it is compressed (RFC 9110, section 8.8.3.3).
    pub(super) fn tag(&self) -> String {
        let end = if self.zipped { "-gzip" } else { "" };
        format!("\"{}{end}\"", self.file.digest)
    }
}

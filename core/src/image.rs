//! References to container images in registries; always with a digest, so that a version cannot change under its name.
//!
//! The grammar is that of the reference package of the distribution project: a registry, a path, and `@sha256:` with the digest of the
//! manifest (or index) to pull. A tag before the digest adds nothing and is dropped.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::ParseError;

/// An image in a registry, such as `ghcr.io/acme/thumbs@sha256:…`. Uploading this text in place of an image creates a version of that image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImageReference {
    repository: String,
    digest: Digest,
}

impl ImageReference {
    /// The most bytes of the text.
    pub const MAX: usize = 512;

    /// The registry and path, without tag and digest.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The registry: a host, optionally with a port.
    #[must_use]
    pub fn registry(&self) -> &str {
        self.repository.split('/').next().unwrap_or_default()
    }

    /// The digest of the manifest or index.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.repository, self.digest)
    }
}

impl FromStr for ImageReference {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let error = |expected| ParseError::new("image", s, expected);
        if s.len() > Self::MAX {
            return Err(error("at most 512 characters"));
        }
        let Some((name, digest)) = s.split_once('@') else {
            return Err(error(
                "an image by its digest, REGISTRY/PATH@sha256:…: a tag can be moved to another image",
            ));
        };
        if !digest.starts_with("sha256:") {
            return Err(error("sha256: and 64 hexadecimal digits after the @"));
        }
        let digest = digest.parse()?;
        let Some((registry, path)) = name.split_once('/') else {
            return Err(error("the registry first, such as docker.io/library/nginx"));
        };
        if !is_registry(registry) {
            return Err(error("the registry first, such as docker.io/library/nginx"));
        }
        let (path, tag) = path
            .split_once(':')
            .map_or((path, None), |(path, tag)| (path, Some(tag)));
        if !path.split('/').all(is_component) || !tag.is_none_or(is_tag) {
            return Err(error(
                "lower-case letters, digits and single . _ - between them in each part of the path",
            ));
        }
        Ok(Self {
            repository: format!("{registry}/{path}"),
            digest,
        })
    }
}

/// Whether the text is a registry rather than the first component of a path: a host name with a dot or a port, or `localhost`.
fn is_registry(text: &str) -> bool {
    let (host, port) = text
        .split_once(':')
        .map_or((text, None), |(host, port)| (host, Some(port)));
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let is_port = |port: &str| {
        port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|p| p > 0)
    };
    (host == "localhost" || host.contains('.') || port.is_some())
        && host.split('.').all(is_label)
        && port.is_none_or(is_port)
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`
fn is_component(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = [text.bytes().next(), text.bytes().last()];
    if !ends.into_iter().all(|end| end.is_some_and(is_plain)) {
        return false;
    }
    let between = text.split(|c: char| c.is_ascii() && is_plain(c as u8));
    let mut between = between.filter(|part| !part.is_empty());
    between.all(|part| matches!(part, "." | "_" | "__") || part.bytes().all(|b| b == b'-'))
}

/// `[\w][\w.-]{0,127}`
fn is_tag(text: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    (1..=128).contains(&text.len())
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|b| is_word(b) || b == b'.' || b == b'-')
}

impl TryFrom<String> for ImageReference {
    type Error = ParseError;

    fn try_from(s: String) -> Result<Self, ParseError> {
        s.parse()
    }
}

impl From<ImageReference> for String {
    fn from(value: ImageReference) -> String {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_reference_is_its_repository_and_digest() {
        for (text, registry, repository) in [
            ("ghcr.io/acme/thumbs", "ghcr.io", "ghcr.io/acme/thumbs"),
            ("ghcr.io/acme/thumbs:v1.2", "ghcr.io", "ghcr.io/acme/thumbs"),
            ("localhost/a", "localhost", "localhost/a"),
            (
                "127.0.0.1:5000/a/b__c/d--e",
                "127.0.0.1:5000",
                "127.0.0.1:5000/a/b__c/d--e",
            ),
        ] {
            let reference: ImageReference = format!("{text}@{DIGEST}").parse().expect(text);
            assert_eq!(reference.registry(), registry);
            assert_eq!(reference.repository(), repository);
            assert_eq!(reference.to_string(), format!("{repository}@{DIGEST}"));
            let again: ImageReference = reference.to_string().parse().expect("its own text");
            assert_eq!(again, reference);
        }
    }

    #[test]
    fn what_names_no_single_image_is_refused_with_what_to_write() {
        for (text, says) in [
            (
                "ghcr.io/acme/thumbs:latest".to_owned(),
                "a tag can be moved",
            ),
            (format!("nginx@{DIGEST}"), "docker.io/library/nginx"),
            (format!("acme/nginx@{DIGEST}"), "docker.io/library/nginx"),
            (format!("ghcr.io/Acme/x@{DIGEST}"), "lower-case"),
            (format!("ghcr.io/a//x@{DIGEST}"), "lower-case"),
            (format!("ghcr.io/a..b@{DIGEST}"), "lower-case"),
            (format!("ghcr.io/a-@{DIGEST}"), "lower-case"),
            (format!("ghcr.io/a:-x@{DIGEST}"), "lower-case"),
            (format!("ghcr.io:0/a@{DIGEST}"), "docker.io"),
            ("ghcr.io/a@sha512:00".to_owned(), "sha256:"),
            ("ghcr.io/a@sha256:00".to_owned(), "64 hexadecimal"),
            (format!("ghcr.io/{}@{DIGEST}", "a".repeat(512)), "512"),
        ] {
            let error = text.parse::<ImageReference>().expect_err(&text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}

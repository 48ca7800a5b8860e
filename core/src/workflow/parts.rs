//! Several outputs in one body: `multipart/form-data` (RFC 7578), each part named after the stage that produced it.
//!
//! The same parts in the same order give the same bytes. The boundary is derived from the digest of the parts, so none of them can
//! contain it unless somebody finds a fixed point of SHA-256.

use crate::digest::Digest;
use crate::id::StageName;

/// The media type of a body whose type is unknown.
pub const UNKNOWN: &str = "application/octet-stream";

/// The output of one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The stage that produced it.
    pub stage: &'a StageName,
    /// Its media type, in visible ASCII; otherwise [`UNKNOWN`] is used instead.
    pub content_type: &'a str,
    /// The bytes of the output.
    pub body: &'a [u8],
}

/// A multipart body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multipart {
    /// The media type, including the boundary.
    pub content_type: String,
    /// The bytes of the body.
    pub body: Vec<u8>,
}

impl Multipart {
    /// Combines the parts, in this order.
    #[must_use]
    pub fn new(parts: &[Part<'_>]) -> Self {
        let mut body = Vec::with_capacity(length(parts));
        let digests: String = parts
            .iter()
            .map(|part| format!("{} {} ", part.stage, Digest::of(part.body)))
            .collect();
        let digest = Digest::of(digests.as_bytes()).to_string();
        let boundary = format!("fdn-{}", &digest[digest.len() - 40..]);
        for part in parts {
            let is_plain = part.content_type.bytes().all(|b| matches!(b, b' '..=b'~'));
            let content_type = if is_plain && !part.content_type.is_empty() {
                part.content_type
            } else {
                UNKNOWN
            };
            let head = format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"{0}\"; filename=\"{0}\"\r\nContent-Type: {content_type}\r\n\r\n",
                part.stage
            );
            body.extend_from_slice(head.as_bytes());
            body.extend_from_slice(part.body);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        Self {
            content_type: format!("multipart/form-data; boundary={boundary}"),
            body,
        }
    }
}

/// An estimate of the body's length, never below it.
fn length(parts: &[Part<'_>]) -> usize {
    let heads = parts.iter().map(|part| 320 + part.content_type.len());
    parts.iter().map(|part| part.body.len()).sum::<usize>() + heads.sum::<usize>() + 64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stand_in_order_and_the_same_make_the_same_bytes() {
        let (a, b): (StageName, StageName) = ("a".parse().expect("a"), "b".parse().expect("b"));
        let part = |stage, content_type, body| Part {
            stage,
            content_type,
            body,
        };
        let parts = [
            part(&b, "image/png", &b"\x89PNG\r\n--fdn-"[..]),
            part(&a, "text/plain\r\nx: y", b""),
        ];
        let whole = Multipart::new(&parts);
        assert_eq!(whole, Multipart::new(&parts));
        let boundary = whole.content_type.split("boundary=").nth(1).expect("one");
        let mut expected = Vec::new();
        for (name, kind, body) in [
            ("b", "image/png", &b"\x89PNG\r\n--fdn-"[..]),
            ("a", UNKNOWN, b""),
        ] {
            expected.extend_from_slice(
                format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{name}\"\r\nContent-Type: {kind}\r\n\r\n").as_bytes(),
            );
            expected.extend_from_slice(body);
            expected.extend_from_slice(b"\r\n");
        }
        expected.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        assert_eq!(whole.body, expected);
        assert!(whole.body.len() <= length(&parts));
        let other = Multipart::new(&[part(&b, "image/png", b"1")]);
        assert_ne!(other.content_type, whole.content_type);
        assert_eq!(
            Multipart::new(&[])
                .body
                .iter()
                .filter(|b| **b == b'\n')
                .count(),
            1
        );
    }
}

//! The cases of a function: requests and their expected answers, listed in `cases.json` beside its source.
//!
//! [`load`] reads and validates the file, [`compare`] compares an answer with the expectation, [`local`] calls a component in this process.
//! The format is described in `functions/README.md`.

mod image;
pub mod local;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fdn_core::ErrorCode;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body_util::{BodyExt as _, Limited};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use crate::error::{CliError, with_causes};
use crate::input;
use crate::output::printable;
pub use image::Image;

/// The name of the file.
pub const FILE: &str = "cases.json";
/// The largest file of cases in bytes.
const FILE_MAX: u64 = 8 << 20;
/// The largest request or response body in bytes.
pub const BODY_MAX: usize = 64 << 20;
/// The time limit for finding a minimal difference between two texts.
pub(crate) const DIFF: Duration = Duration::from_secs(1);
/// The most lines of a difference that are shown.
const DIFF_LINES: usize = 24;
/// The most characters of a line that are shown.
const LINE_CHARS: usize = 160;
/// The number of context lines around a difference.
const CONTEXT: usize = 2;

/// A request and its expected answer.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name, which says what it shows.
    pub name: String,
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: PathAndQuery,
    /// Headers to send.
    pub headers: HeaderMap,
    /// The body, if there is one.
    pub body: Option<Bytes>,
    /// The expected answer.
    pub expect: Expect,
}

/// The expected answer. Fields that are not given are not checked.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// The status.
    pub status: u16,
    /// Headers with their values.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The whole body.
    #[serde(default)]
    pub body: Option<String>,
    /// The whole body as JSON.
    #[serde(default, deserialize_with = "given")]
    pub json: Option<Value>,
    /// Parts of the body.
    #[serde(default)]
    pub contains: Vec<String>,
    /// The format and size of a picture in the body.
    #[serde(default)]
    pub image: Option<Image>,
}

/// Distinguishes `null` from an absent value.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCase {
    name: String,
    request: WrittenRequest,
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRequest {
    method: String,
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    body_file: Option<PathBuf>,
    #[serde(default)]
    body_base64: Option<String>,
}

/// An actual answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// A difference between the actual and the expected answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "of")]
pub enum Difference {
    /// There was no complete answer.
    Answer {
        /// The reason.
        reason: String,
    },
    /// The status differs.
    Status {
        /// What was expected.
        expected: u16,
        /// The actual status.
        got: u16,
    },
    /// A header is missing or has another value.
    Header {
        /// The name of the header.
        name: String,
        /// The expected value.
        expected: String,
        /// The actual value, if there is one.
        got: Option<String>,
    },
    /// The body differs; lines with `-` were expected, those with `+` were received.
    Body {
        /// The differing lines, with some context.
        lines: Vec<String>,
    },
    /// A required part is missing from the body.
    Contains {
        /// The part.
        expected: String,
        /// The beginning of the body.
        got: String,
    },
    /// The body is not JSON.
    Json {
        /// The reason.
        reason: String,
        /// The beginning of the body.
        got: String,
    },
    /// The body is another picture, or none.
    Image {
        /// The expected picture.
        expected: Image,
        /// The actual picture, if it is one.
        got: Option<Image>,
    },
}

/// Loads the cases in a function's folder.
///
/// # Errors
/// When the file is missing or invalid; the message names the case.
pub fn load(folder: &Path) -> Result<Vec<Case>, CliError> {
    let path = folder.join(FILE);
    let failed = |reason: String| CliError::File {
        path: path.clone(),
        reason,
        code: ErrorCode::BadRequest,
    };
    if !path.is_file() {
        return Err(failed(
            "there is no such file; it lists requests and what must be answered (functions/README.md shows the form)"
                .to_owned(),
        ));
    }
    let text = input::text(&path, FILE_MAX)?;
    let mut reader = serde_json::Deserializer::from_str(&text);
    let written: Vec<WrittenCase> =
        serde_path_to_error::deserialize(&mut reader).map_err(|error| failed(error.to_string()))?;
    reader.end().map_err(|error| failed(error.to_string()))?;
    if written.is_empty() {
        return Err(failed("it has no case".to_owned()));
    }
    written
        .into_iter()
        .map(|case| {
            let name = case.name.clone();
            checked(case, folder).map_err(|reason| failed(format!("case {name:?}: {reason}")))
        })
        .collect()
}

fn checked(case: WrittenCase, folder: &Path) -> Result<Case, String> {
    let request = case.request;
    let method = request
        .method
        .parse()
        .map_err(|_| format!("{:?} is not a method", request.method))?;
    if !request.path.starts_with('/') {
        return Err(format!(
            "path {:?}: it must begin with a slash",
            request.path
        ));
    }
    let path: PathAndQuery = request
        .path
        .parse()
        .map_err(|error| format!("path {:?}: {error}", request.path))?;
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        let header = |reason: String| format!("header {name:?}: {reason}");
        let value: HeaderValue = value
            .parse()
            .map_err(|e: http::header::InvalidHeaderValue| header(e.to_string()))?;
        let name: HeaderName = name
            .parse()
            .map_err(|e: http::header::InvalidHeaderName| header(e.to_string()))?;
        headers.append(name, value);
    }
    Ok(Case {
        name: case.name,
        method,
        path,
        headers,
        body: body(request.body, request.body_file, request.body_base64, folder)?,
        expect: case.expect,
    })
}

fn body(
    text: Option<String>,
    file: Option<PathBuf>,
    base64: Option<String>,
    folder: &Path,
) -> Result<Option<Bytes>, String> {
    match (text, file, base64) {
        (None, None, None) => Ok(None),
        (Some(text), None, None) => Ok(Some(text.into())),
        (None, Some(file), None) => {
            let bytes = file_inside(folder, &file);
            bytes
                .map(|bytes| Some(bytes.into()))
                .map_err(|reason| format!("body_file {}: {reason}", file.display()))
        }
        (None, None, Some(text)) => STANDARD
            .decode(text)
            .map(|bytes| Some(bytes.into()))
            .map_err(|error| format!("body_base64: {error}")),
        _ => Err("only one of body, body_file and body_base64 can be given".to_owned()),
    }
}

/// Reads a file in the function's folder. Cases may come from somebody else, so they must not be able to send other files of this machine.
fn file_inside(folder: &Path, file: &Path) -> Result<Vec<u8>, String> {
    let goes_down = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if !file.components().all(goes_down) {
        return Err("it must be a path in the function's folder, without ..".to_owned());
    }
    let failed = |error: std::io::Error| error.to_string();
    let path = folder.join(file).canonicalize().map_err(failed)?;
    if !path.starts_with(folder.canonicalize().map_err(failed)?) {
        return Err("it leads out of the function's folder".to_owned());
    }
    // Check this before opening the file: opening a pipe would block.
    if !path.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = File::open(&path).map_err(failed)?;
    let mut first = file.take(BODY_MAX as u64 + 1);
    first.read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > BODY_MAX {
        return Err(format!("it may have {BODY_MAX} bytes at most"));
    }
    Ok(bytes)
}

/// Reads the whole body of an answer, of at most `max` bytes.
///
/// # Errors
/// When it is longer or breaks off; the error is a text.
pub(crate) async fn whole<B>(body: B, max: usize) -> Result<Bytes, String>
where
    B: hyper::body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let body = Limited::new(body, max).collect().await;
    body.map(|body| body.to_bytes())
        .map_err(|error| format!("the answer broke off: {}", with_causes(error.as_ref())))
}

/// The differences between an answer and the expectation; empty if there are none.
#[must_use]
pub fn compare(expect: &Expect, answer: &Answer) -> Vec<Difference> {
    let mut found = Vec::new();
    if answer.status != expect.status {
        found.push(Difference::Status {
            expected: expect.status,
            got: answer.status,
        });
    }
    for (name, expected) in &expect.headers {
        let got = answer.headers.get(name);
        if got.map(HeaderValue::as_bytes) != Some(expected.as_bytes()) {
            found.push(Difference::Header {
                name: name.clone(),
                expected: expected.clone(),
                got: got.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
            });
        }
    }
    let text = String::from_utf8_lossy(&answer.body);
    if let Some(expected) = &expect.body
        && text != *expected
    {
        found.push(Difference::Body {
            lines: diff(expected, &text),
        });
    }
    for part in &expect.contains {
        if !text.contains(part) {
            found.push(Difference::Contains {
                expected: part.clone(),
                got: beginning(&text),
            });
        }
    }
    if let Some(expected) = &expect.json {
        match serde_json::from_slice::<Value>(&answer.body) {
            Ok(got) if got == *expected => {}
            Ok(got) => found.push(Difference::Body {
                lines: diff(&format!("{expected:#}\n"), &format!("{got:#}\n")),
            }),
            Err(error) => found.push(Difference::Json {
                reason: error.to_string(),
                got: beginning(&text),
            }),
        }
    }
    if let Some(expected) = &expect.image {
        let got = Image::of(&answer.body);
        if got.as_ref() != Some(expected) {
            found.push(Difference::Image {
                expected: expected.clone(),
                got,
            });
        }
    }
    // Otherwise a wrong status would hide the error text of the function.
    if let [Difference::Status { .. }] = found.as_slice()
        && !text.is_empty()
    {
        found.push(Difference::Body {
            lines: shortened(text.lines().map(|line| format!("+{}", printable(line)))),
        });
    }
    found
}

/// The differing lines of two texts, with some context, shortened for display.
fn diff(expected: &str, got: &str) -> Vec<String> {
    let diff = TextDiff::configure()
        .timeout(DIFF)
        .diff_lines(expected, got);
    let mut lines = Vec::new();
    for (place, group) in diff.grouped_ops(CONTEXT).iter().enumerate() {
        if place > 0 {
            lines.push("…".to_owned());
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let sign = match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            };
            let text = change.value();
            let end = match text.strip_suffix('\n') {
                None if change.tag() != ChangeTag::Equal => " (no newline at the end)",
                _ => "",
            };
            let text = printable(text.strip_suffix('\n').unwrap_or(text));
            lines.push(format!("{sign}{text}{end}"));
        }
    }
    shortened(lines.into_iter())
}

fn shortened(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines = lines.map(|line| {
        if line.chars().count() <= LINE_CHARS {
            return line;
        }
        let mut cut: String = line.chars().take(LINE_CHARS).collect();
        cut.push('…');
        cut
    });
    let mut shown: Vec<String> = lines.by_ref().take(DIFF_LINES).collect();
    let left = lines.count();
    if left > 0 {
        shown.push(format!("… {left} more lines"));
    }
    shown
}

/// The beginning of a body, for display.
fn beginning(text: &str) -> String {
    let mut start: String = text.chars().take(LINE_CHARS).collect();
    if start.len() < text.len() {
        start.push('…');
    }
    start
}

#[cfg(test)]
mod tests;

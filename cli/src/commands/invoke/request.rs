//! The request that `fdn invoke` sends, built from its arguments.

use std::io;

use bytes::Bytes;
use fdn_core::{ErrorCode, HostName};
use futures::TryStreamExt as _;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, Request};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use hyper::body::Frame;
use tokio_util::io::ReaderStream;

use crate::args::InvokeArgs;
use crate::commands::version::VERSION;
use crate::error::CliError;

/// The body of a request.
pub(in crate::commands) type Body = BoxBody<Bytes, io::Error>;

/// Builds the request.
///
/// # Errors
/// When the method, the path, a header or the body's file cannot be used.
pub(super) fn prepare(
    args: &InvokeArgs,
    host: &HostName,
    port: u16,
) -> Result<Request<Body>, CliError> {
    let method = match &args.method {
        Some(text) => text
            .parse()
            .map_err(|_| CliError::Usage(format!("{text:?} is not a method")))?,
        None if args.data.is_some() => Method::POST,
        None => Method::GET,
    };
    let path = if args.path.starts_with('/') {
        args.path.clone()
    } else {
        format!("/{}", args.path)
    };
    let (body, length) = body(args.data.as_deref())?;
    let mut request = Request::builder()
        .method(method)
        .uri(&path)
        .body(body)
        .map_err(|e| CliError::Usage(format!("path {path:?}: {e}")))?;
    let authority = authority(host, port);
    let headers = request.headers_mut();
    let value =
        |text: String| HeaderValue::from_str(&text).map_err(|e| CliError::Usage(e.to_string()));
    headers.insert(HOST, value(authority)?);
    headers.insert(USER_AGENT, value(format!("fdn/{VERSION}"))?);
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    if args.data.is_some() {
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        );
    }
    let mut own: Vec<HeaderName> = Vec::new();
    for text in &args.headers {
        let (name, value) = header(text)?;
        // The user's headers replace the default ones; a name that is given twice is sent twice.
        if own.contains(&name) {
            headers.append(name, value);
        } else {
            own.push(name.clone());
            headers.insert(name, value);
        }
    }
    Ok(request)
}

/// The `Host` header's value.
pub(in crate::commands) fn authority(host: &HostName, port: u16) -> String {
    if port == 80 {
        host.to_string()
    } else {
        format!("{host}:{port}")
    }
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), CliError> {
    // The value may be a credential, so the message does not repeat it.
    let error = |name: &str| CliError::Usage(format!("header {name:?}: expected NAME: VALUE"));
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| error(text.split(' ').next().unwrap_or_default()))?;
    let parsed = name.trim().parse::<HeaderName>().map_err(|_| error(name))?;
    Ok((parsed, value.trim().parse().map_err(|_| error(name))?))
}

/// The body, and its length if known.
fn body(data: Option<&str>) -> Result<(Body, Option<u64>), CliError> {
    let Some(data) = data else {
        return Ok((Empty::new().map_err(|never| match never {}).boxed(), None));
    };
    if data == "-" {
        return Ok((streamed(tokio::io::stdin()), None));
    }
    let Some(path) = data.strip_prefix('@') else {
        let bytes = Bytes::copy_from_slice(data.as_bytes());
        let length = bytes.len() as u64;
        return Ok((
            Full::new(bytes).map_err(|never| match never {}).boxed(),
            Some(length),
        ));
    };
    let failed = |e: io::Error| CliError::File {
        path: path.into(),
        reason: e.to_string(),
        code: ErrorCode::BadRequest,
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(failed(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    let length = metadata.is_file().then_some(metadata.len());
    let file =
        tokio::io::AsyncReadExt::take(tokio::fs::File::from_std(file), length.unwrap_or(u64::MAX));
    Ok((streamed(file), length))
}

fn streamed(reader: impl tokio::io::AsyncRead + Send + Sync + 'static) -> Body {
    StreamBody::new(ReaderStream::with_capacity(reader, 64 << 10).map_ok(Frame::data)).boxed()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn parse(flags: &[&str]) -> Result<Request<Body>, CliError> {
        let all = ["fdn", "invoke", "hello"].iter().chain(flags);
        let Command::Invoke(args) = Cli::try_parse_from(all).expect("arguments").command else {
            panic!("another command")
        };
        prepare(&args, &"hello.fn.test".parse().expect("host"), 8080)
    }

    #[tokio::test]
    async fn arguments_become_a_request() {
        let plain = parse(&[]).expect("request");
        assert_eq!((plain.method(), plain.uri().path()), (&Method::GET, "/"));
        assert_eq!(plain.headers()["host"], "hello.fn.test:8080");
        let post = parse(&[
            "thumb?w=3",
            "-d",
            "world",
            "-H",
            "content-type: text/plain",
            "-H",
            "a: 1",
            "-H",
            "a: 2",
        ]);
        let post = post.expect("request");
        assert_eq!(
            (post.method(), post.uri().to_string().as_str()),
            (&Method::POST, "/thumb?w=3")
        );
        assert_eq!(post.headers()["content-type"], "text/plain");
        assert_eq!(post.headers()["content-length"], "5");
        assert_eq!(post.headers().get_all("a").iter().count(), 2);
        assert_eq!(
            post.into_body().collect().await.expect("body").to_bytes(),
            "world"
        );
        let put = parse(&["-X", "PUT", "-d", "-1"]).expect("a body may begin with a hyphen");
        assert_eq!(put.method(), Method::PUT);
    }

    #[tokio::test]
    async fn a_file_is_sent_with_its_length() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("data");
        std::fs::write(&path, [1, 2, 3]).expect("write");
        let request = parse(&["-d", &format!("@{}", path.display())]).expect("request");
        assert_eq!(request.headers()["content-length"], "3");
        assert_eq!(
            request
                .into_body()
                .collect()
                .await
                .expect("body")
                .to_bytes(),
            [1, 2, 3][..]
        );
        assert!(parse(&["-d", "@/nonexistent"]).is_err());
    }

    #[test]
    fn mistakes_are_named_without_the_value() {
        let error = parse(&["-H", "authorization secret"])
            .expect_err("no colon")
            .to_string();
        assert!(
            error.contains("authorization") && !error.contains("secret"),
            "{error}"
        );
        assert!(parse(&["-X", "B AD"]).is_err());
        assert!(parse(&["/a b"]).is_err());
    }
}

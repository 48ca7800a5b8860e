//! A request's body in, a whole answer out: what functions that work on a body in one piece need of `wasi:http`.

use std::io::{Read, Write};

use wasip2::cli::{stderr, stdout};
use wasip2::http::types::{
    ErrorCode, Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam,
};

/// Why a request is not answered with what it asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// What is wrong, and what to do.
    pub text: String,
}

impl Refusal {
    /// A refusal with this status.
    pub fn new(status: u16, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { status, text }
    }

    /// The request itself is wrong: 400.
    pub fn bad(text: impl Into<String>) -> Self {
        Self::new(400, text)
    }
}

/// An answer, before it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// Its headers; the length comes by itself.
    pub headers: Vec<(&'static str, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Answer {
    /// A text.
    #[must_use]
    pub fn text(status: u16, text: &str) -> Self {
        Self {
            status,
            headers: vec![("content-type", "text/plain; charset=utf-8".to_owned())],
            body: text.as_bytes().to_vec(),
        }
    }

    /// The method is not known here; `usage` is the text that says which are.
    #[must_use]
    pub fn method_not_allowed(usage: &str) -> Self {
        let mut answer = Self::text(405, usage);
        answer
            .headers
            .push(("allow", "GET, HEAD, POST, PUT".to_owned()));
        answer
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Self::text(refusal.status, &format!("{}\n", refusal.text))
    }
}

/// The request's body, up to `most` octets.
///
/// # Errors
/// 400 for a body that cannot be read, 413 for a longer one.
pub fn body_of(request: &IncomingRequest, most: u64) -> Result<Vec<u8>, Refusal> {
    let unreadable = || Refusal::bad("the body cannot be read");
    let stream = request
        .consume()
        .and_then(|body| body.stream().map(|stream| (stream, body)));
    // The body owns the stream: it is kept until the stream has been read.
    let (stream, _body) = stream.map_err(|()| unreadable())?;
    let mut octets = Vec::new();
    stream
        .take(most + 1)
        .read_to_end(&mut octets)
        .map_err(|_| unreadable())?;
    if octets.len() as u64 > most {
        return Err(Refusal::new(
            413,
            format!("the body is longer than {most} octets; send less"),
        ));
    }
    Ok(octets)
}

/// The first value of a header, if it is text; else nothing.
#[must_use]
pub fn header(request: &IncomingRequest, name: &str) -> String {
    let values = request.headers().get(name);
    let first = values.into_iter().next();
    first
        .and_then(|value| String::from_utf8(value).ok())
        .unwrap_or_default()
}

/// One line for `fdn logs`. A log that cannot be written is no reason to fail a call.
pub fn log(line: &str) {
    let _ = stdout::get_stdout().write_all(line.as_bytes());
}

/// A library that meets what its authors thought impossible ends the call; the log shall say where.
pub fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let _ = stderr::get_stderr().write_all(format!("{panic}\n").as_bytes());
    }));
}

/// Sends the answer. The caller may have gone meanwhile; then there is nobody left to tell.
pub fn respond(answer: Answer, response_out: ResponseOutparam) {
    let mut headers: Vec<(String, Vec<u8>)> = answer
        .headers
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.into_bytes()))
        .collect();
    headers.push((
        "content-length".to_owned(),
        answer.body.len().to_string().into_bytes(),
    ));
    let Ok(headers) = Fields::from_list(&headers) else {
        return ResponseOutparam::set(
            response_out,
            Err(ErrorCode::HttpResponseHeaderSectionSize(None)),
        );
    };
    let response = OutgoingResponse::new(headers);
    let status = response.set_status_code(answer.status);
    let body = response.body();
    ResponseOutparam::set(
        response_out,
        status
            .map(|()| response)
            .map_err(|()| ErrorCode::HttpProtocolError),
    );
    let Ok(body) = body else { return };
    if let Ok(mut stream) = body.write() {
        let _ = stream.write_all(&answer.body);
    }
    let _ = OutgoingBody::finish(body, None);
}

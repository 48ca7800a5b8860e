//! Decodes an image, resizes and sharpens it, and encodes it: PNG and JPEG, both ways.
//!
//! `POST /?w=320&sharpen=0.8&format=jpeg` with the image as the body is answered with the new image. This module speaks HTTP;
//! [`options`] reads the query and [`picture`] does the work, both free of the network, so that they are tested natively.

mod options;
mod picture;

use std::io::{Read, Write};

use wasip2::cli::{stderr, stdout};
use wasip2::exports::http::incoming_handler::Guest;
use wasip2::http::types::{
    ErrorCode, Fields, IncomingRequest, Method, OutgoingBody, OutgoingResponse, ResponseOutparam,
};

use options::Options;

/// How much of a body is read; the manifest's `body_limit` refuses longer ones before they get here.
const MOST_BODY: u64 = 10 << 20;

const USAGE: &str = "\
POST an image (PNG or JPEG) as the body; the answer is the new image.

  w, h      size in pixels, 1 to 4096; with one of them the aspect is kept, with none the size
  sharpen   strength of the sharpening, 0 (none, the default) to 5
  sigma     how fine the sharpened details are, in pixels, 0.3 to 5 (default 1)
  format    png or jpeg (default: as the body's)
  quality   of a JPEG, 1 to 100 (default 85)

An image may have 12,000,000 pixels at most, an answer 4,194,304. Colour profiles and other metadata are not kept.

Example: curl --data-binary @photo.jpg 'http://image.fn.test/?w=320&sharpen=0.8' -o small.jpg
";

/// Why a request is not answered with a picture.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    /// The HTTP status.
    pub(crate) status: u16,
    /// What is wrong, and what to do.
    pub(crate) text: String,
}

impl Refusal {
    pub(crate) fn new(status: u16, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { status, text }
    }

    /// The request itself is wrong.
    pub(crate) fn bad(text: impl Into<String>) -> Self {
        Self::new(400, text)
    }
}

/// An answer, before it is sent.
struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn text(status: u16, text: &str) -> Self {
        Self {
            status,
            headers: vec![("content-type", "text/plain; charset=utf-8".to_owned())],
            body: text.as_bytes().to_vec(),
        }
    }
}

struct ImageFunction;

wasip2::http::proxy::export!(ImageFunction);

impl Guest for ImageFunction {
    fn handle(request: IncomingRequest, response_out: ResponseOutparam) {
        report_panics();
        let answer = match request.method() {
            Method::Get | Method::Head => Answer::text(200, USAGE),
            Method::Post | Method::Put => process(&request).unwrap_or_else(|refusal| {
                Answer::text(refusal.status, &format!("{}\n", refusal.text))
            }),
            _ => {
                let mut answer = Answer::text(405, "POST an image, or GET the usage\n");
                answer
                    .headers
                    .push(("allow", "GET, HEAD, POST, PUT".to_owned()));
                answer
            }
        };
        respond(answer, response_out);
    }
}

/// Makes the picture that the request asks for.
fn process(request: &IncomingRequest) -> Result<Answer, Refusal> {
    let path = request.path_with_query().unwrap_or_default();
    let options = Options::from_path(&path)?;
    let octets = body_of(request)?;
    let picture = picture::process(&octets, &options)?;
    log(&format!(
        "{} octets in, {}x{} {} of {} octets out\n",
        octets.len(),
        picture.width,
        picture.height,
        picture.format.media_type(),
        picture.octets.len(),
    ));
    Ok(Answer {
        status: 200,
        headers: vec![
            ("content-type", picture.format.media_type().to_owned()),
            (
                "x-image-size",
                format!("{}x{}", picture.width, picture.height),
            ),
        ],
        body: picture.octets,
    })
}

/// The request's body, up to [`MOST_BODY`].
fn body_of(request: &IncomingRequest) -> Result<Vec<u8>, Refusal> {
    let unreadable = || Refusal::bad("the body cannot be read");
    let stream = request
        .consume()
        .and_then(|body| body.stream().map(|stream| (stream, body)));
    // The body owns the stream: it is kept until the stream has been read.
    let (stream, _body) = stream.map_err(|()| unreadable())?;
    let mut octets = Vec::new();
    stream
        .take(MOST_BODY + 1)
        .read_to_end(&mut octets)
        .map_err(|_| unreadable())?;
    if octets.len() as u64 > MOST_BODY {
        return Err(Refusal::new(
            413,
            format!("the body is longer than {MOST_BODY} octets; send a smaller image"),
        ));
    }
    Ok(octets)
}

/// One line for `fdn logs`. A log that cannot be written is no reason to fail a call.
fn log(line: &str) {
    let _ = stdout::get_stdout().write_all(line.as_bytes());
}

/// A decoder that meets what its authors thought impossible ends the call; the log shall say where.
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let _ = stderr::get_stderr().write_all(format!("{panic}\n").as_bytes());
    }));
}

/// Sends the answer. The caller may have gone meanwhile; then there is nobody left to tell.
fn respond(answer: Answer, response_out: ResponseOutparam) {
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

//! Greets whoever the request's body names: `world` is answered with `hello, world`.
//!
//! It is the smallest function that touches everything a function usually touches: the request's method, path and body, a
//! variable of its manifest (`GREETING`), the log, and the response.

use std::io::{Read, Write};

use wasip2::cli::{environment, stdout};
use wasip2::exports::http::incoming_handler::Guest;
use wasip2::http::types::{
    ErrorCode, Fields, IncomingRequest, Method, OutgoingBody, OutgoingResponse, ResponseOutparam,
};

/// How much of a body is read; the manifest's `body_limit` refuses longer ones before they get here.
const MOST_BODY: u64 = 64 << 10;

struct Hello;

wasip2::http::proxy::export!(Hello);

impl Guest for Hello {
    fn handle(request: IncomingRequest, response_out: ResponseOutparam) {
        let path = request.path_with_query().unwrap_or_else(|| "/".to_owned());
        let name = match request.method() {
            Method::Get | Method::Head => Vec::new(),
            _ => match body_of(&request) {
                Ok(body) => body,
                Err(error) => return ResponseOutparam::set(response_out, Err(error)),
            },
        };
        let text = greet(&greeting(), &name);
        log(&format!("answered {path} with {} octets\n", text.len()));
        respond(&text, response_out);
    }
}

/// The answer: the greeting, and `name` without the white space around it, else the world.
fn greet(greeting: &str, name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name.trim_ascii());
    let name = if name.is_empty() { "world" } else { &name };
    format!("{greeting}, {name}\n")
}

/// The manifest's `GREETING`, else `hello`.
fn greeting() -> String {
    environment::get_environment()
        .into_iter()
        .find_map(|(key, value)| (key == "GREETING").then_some(value))
        .unwrap_or_else(|| "hello".to_owned())
}

/// The request's body, up to [`MOST_BODY`].
fn body_of(request: &IncomingRequest) -> Result<Vec<u8>, ErrorCode> {
    let internal = |what: &str| ErrorCode::InternalError(Some(what.to_owned()));
    let body = request
        .consume()
        .map_err(|()| internal("the body was taken before"))?;
    let stream = body
        .stream()
        .map_err(|()| internal("the body was read before"))?;
    let mut octets = Vec::new();
    stream
        .take(MOST_BODY)
        .read_to_end(&mut octets)
        .map_err(|e| internal(&format!("the body could not be read: {e}")))?;
    Ok(octets)
}

/// One line for `fdn logs`. A log that cannot be written is no reason to fail a call.
fn log(line: &str) {
    let _ = stdout::get_stdout().write_all(line.as_bytes());
}

/// Answers with `text`. The caller may have gone meanwhile; then there is nobody left to tell.
fn respond(text: &str, response_out: ResponseOutparam) {
    let headers = Fields::from_list(&[
        (
            "content-type".to_owned(),
            b"text/plain; charset=utf-8".to_vec(),
        ),
        (
            "content-length".to_owned(),
            text.len().to_string().into_bytes(),
        ),
    ]);
    let Ok(headers) = headers else {
        return ResponseOutparam::set(
            response_out,
            Err(ErrorCode::HttpResponseHeaderSectionSize(None)),
        );
    };
    let response = OutgoingResponse::new(headers);
    let body = response.body();
    ResponseOutparam::set(response_out, Ok(response));
    let Ok(body) = body else { return };
    if let Ok(mut stream) = body.write() {
        let _ = stream.write_all(text.as_bytes());
    }
    let _ = OutgoingBody::finish(body, None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_named_is_greeted() {
        assert_eq!(greet("hello", b""), "hello, world\n");
        assert_eq!(greet("hello", b" \n"), "hello, world\n");
        assert_eq!(greet("hi", " Zoë\n".as_bytes()), "hi, Zoë\n");
        assert_eq!(greet("hello", b"\xffAda"), "hello, \u{fffd}Ada\n");
    }
}

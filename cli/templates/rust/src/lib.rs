//! {{name}}: a function in Rust. The network calls [`Guest::handle`] once per request.

use std::io::{Read, Write};

use wasip2::cli::{stderr, stdout};
use wasip2::exports::http::incoming_handler::Guest;
use wasip2::http::types::{
    ErrorCode, Fields, IncomingRequest, Method, OutgoingBody, OutgoingResponse, ResponseOutparam,
};

/// How much of a body is read; `body_limit` in fdn.toml refuses longer ones before they get here.
const MOST_BODY: u64 = 64 << 10;

struct Function;

wasip2::http::proxy::export!(Function);

impl Guest for Function {
    fn handle(request: IncomingRequest, response_out: ResponseOutparam) {
        std::panic::set_hook(Box::new(|panic| log_panic(&panic.to_string())));
        let (status, text) = match request.method() {
            Method::Get | Method::Head => (200, "hello, world\n".to_owned()),
            Method::Post => match body_of(&request) {
                Ok(body) => (
                    200,
                    format!("hello, {}\n", String::from_utf8_lossy(body.trim_ascii())),
                ),
                Err(error) => (400, format!("the body cannot be read: {error}\n")),
            },
            _ => (405, "GET or POST\n".to_owned()),
        };
        log(&format!("answered {status}\n"));
        respond(status, &text, response_out);
    }
}

/// The request's body, up to [`MOST_BODY`].
fn body_of(request: &IncomingRequest) -> std::io::Result<Vec<u8>> {
    let taken = || std::io::Error::other("it was taken before");
    let body = request.consume().map_err(|()| taken())?;
    let stream = body.stream().map_err(|()| taken())?;
    let mut bytes = Vec::new();
    stream.take(MOST_BODY).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// One line for `fdn logs {{name}}`. (With the target wasm32-wasip2, `println!` does the same.)
fn log(line: &str) {
    let _ = stdout::get_stdout().write_all(line.as_bytes());
}

/// Where and why a panic happened, for `fdn logs {{name}}`. (With the target wasm32-wasip2, the standard library would say it, too.)
fn log_panic(text: &str) {
    let _ = stderr::get_stderr().write_all(format!("{text}\n").as_bytes());
}

/// Sends the answer. The caller may have gone meanwhile; then there is nobody left to tell.
fn respond(status: u16, text: &str, response_out: ResponseOutparam) {
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
        return ResponseOutparam::set(response_out, Err(ErrorCode::HttpProtocolError));
    };
    let response = OutgoingResponse::new(headers);
    let status = response.set_status_code(status);
    let body = response.body();
    ResponseOutparam::set(
        response_out,
        status
            .map(|()| response)
            .map_err(|()| ErrorCode::HttpProtocolError),
    );
    let Ok(body) = body else { return };
    if let Ok(mut stream) = body.write() {
        let _ = stream.write_all(text.as_bytes());
    }
    let _ = OutgoingBody::finish(body, None);
}

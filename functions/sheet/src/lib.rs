//! Lays pictures side by side on one sheet and writes texts into it.
//!
//! `POST /` with `multipart/form-data`, as the last stage of a workflow gets the outputs of the stages before it: every part that is a picture is
//! laid on the sheet, every other one becomes a text in the PNG. This module speaks HTTP; [`parts`] takes the body apart and
//! [`layout`] does the work, both free of the network, so that they are tested natively.

mod layout;
mod parts;

use exchange::{Answer, Refusal, body_of, header, log, report_panics, respond};
use wasip2::exports::http::incoming_handler::Guest;
use wasip2::http::types::{IncomingRequest, Method, ResponseOutparam};

/// How much of a body is read; the manifest's `body_limit` refuses longer ones before they get here.
const MOST_BODY: u64 = 20 << 20;

const USAGE: &str = "\
POST multipart/form-data: every part that is a PNG or JPEG is laid on the sheet, from left to right;
every other part is written into the sheet as a text under the part's name. The answer is a PNG.

A sheet may be 16,384 pixels wide and have 4,194,304 in all.

Example: curl -F 'small=@small.jpg;type=image/jpeg' -F 'note=on the beach' http://sheet.fn.test/ -o sheet.png
";

struct SheetFunction;

wasip2::http::proxy::export!(SheetFunction);

impl Guest for SheetFunction {
    fn handle(request: IncomingRequest, response_out: ResponseOutparam) {
        report_panics();
        let answer = match request.method() {
            Method::Get | Method::Head => Answer::text(200, USAGE),
            Method::Post | Method::Put => process(&request).unwrap_or_else(Answer::from),
            _ => Answer::method_not_allowed("POST pictures and texts, or GET the usage\n"),
        };
        respond(answer, response_out);
    }
}

/// Makes the sheet of a request.
fn process(request: &IncomingRequest) -> Result<Answer, Refusal> {
    let boundary = parts::boundary(&header(request, "content-type"))?;
    let octets = body_of(request, MOST_BODY)?;
    let parts = parts::split(&octets, &boundary)?;
    let sheet = layout::sheet(&parts)?;
    let (width, height) = sheet.size;
    log(&format!(
        "{} parts in, {} pictures on a sheet of {width}x{height}, {} octets out\n",
        parts.len(),
        sheet.pictures,
        sheet.octets.len(),
    ));
    Ok(Answer {
        status: 200,
        headers: vec![
            ("content-type", "image/png".to_owned()),
            ("x-image-size", format!("{width}x{height}")),
        ],
        body: sheet.octets,
    })
}

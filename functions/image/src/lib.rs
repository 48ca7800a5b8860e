//! Decodes an image, resizes and sharpens it, and encodes it: PNG and JPEG, both ways.
//!
//! `POST /?w=320&sharpen=0.8&format=jpeg` with the image as the body is answered with the new image. This module speaks HTTP;
//! [`options`] reads the query and [`picture`] does the work, both free of the network, so that they are tested natively.

mod options;
mod picture;

use exchange::{Answer, Refusal, body_of, log, report_panics, respond};
use wasip2::exports::http::incoming_handler::Guest;
use wasip2::http::types::{IncomingRequest, Method, ResponseOutparam};

use options::Options;

/// How much of a body is read; the manifest's `body_limit` refuses longer ones before they get here.
const MOST_BODY: u64 = 10 << 20;

const USAGE: &str = "\
POST an image (PNG or JPEG) as the body; the answer is the new image.

  w, h      size in pixels, 1 to 4096; with one of them the aspect is kept, with none the size
  sharpen   strength of the sharpening, 0 (none, the default) to 5
  sigma     how fine the sharpened details are, in pixels, 0.3 to 5 (default 1)
  format    png, jpeg, or text for a line that describes the picture (default: as the body's)
  quality   of a JPEG, 1 to 100 (default 85)

An image may have 12,000,000 pixels at most, an answer 4,194,304. Colour profiles and other metadata are not kept.

Example: curl --data-binary @photo.jpg 'http://image.fn.test/?w=320&sharpen=0.8' -o small.jpg
";

struct ImageFunction;

wasip2::http::proxy::export!(ImageFunction);

impl Guest for ImageFunction {
    fn handle(request: IncomingRequest, response_out: ResponseOutparam) {
        report_panics();
        let answer = match request.method() {
            Method::Get | Method::Head => Answer::text(200, USAGE),
            Method::Post | Method::Put => process(&request).unwrap_or_else(Answer::from),
            _ => Answer::method_not_allowed("POST an image, or GET the usage\n"),
        };
        respond(answer, response_out);
    }
}

/// Makes the picture that the request asks for.
fn process(request: &IncomingRequest) -> Result<Answer, Refusal> {
    let path = request.path_with_query().unwrap_or_default();
    let options = Options::from_path(&path)?;
    let octets = body_of(request, MOST_BODY)?;
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

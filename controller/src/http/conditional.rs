//! `ETag`, `If-Match` and `If-None-Match` (RFC 9110, sections 8.8.3, 13.1.1 and 13.1.2).

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;

use crate::Error;
use crate::app::precondition::Precondition;

/// The most tags accepted in a request.
const TAGS_MAX: usize = 32;

/// The precondition of a request, from `If-Match`.
pub(super) fn if_match(request: &HttpRequest) -> Result<Precondition, Error> {
    let mut tags = Vec::new();
    for value in request.headers().get_all(header::IF_MATCH) {
        let text = value.to_str().map_err(|_| bad())?;
        for tag in text.split(',').map(str::trim) {
            if tag == "*" {
                return Ok(Precondition::Exists);
            }
            let strong = tag.len() >= 2 && tag.starts_with('"') && tag.ends_with('"');
            // A weak tag never matches here, but it is valid.
            if !strong && !tag.starts_with("W/\"") || tags.len() == TAGS_MAX {
                return Err(bad());
            }
            tags.push(tag.to_owned());
        }
    }
    Ok(if tags.is_empty() {
        Precondition::None
    } else {
        Precondition::OneOf(tags)
    })
}

fn bad() -> Error {
    Error::BadRequest(format!(
        "if-match: send the ETag of an earlier answer, such as \"3\"; {TAGS_MAX} at most"
    ))
}

/// A response with the `ETag` of its body.
pub(super) fn tagged<T: Serialize>(tag: String, body: &T) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::ETAG, tag))
        .json(body)
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn tags_are_read_as_they_stand() {
        let of = |value: &str| {
            let request = TestRequest::default()
                .insert_header((header::IF_MATCH, value))
                .to_http_request();
            if_match(&request)
        };
        let tags =
            |tags: &[&str]| Precondition::OneOf(tags.iter().map(|tag| (*tag).to_owned()).collect());
        assert_eq!(of("\"3\"").expect("tag"), tags(&["\"3\""]));
        assert_eq!(of("\"3\", \"4\"").expect("tags"), tags(&["\"3\"", "\"4\""]));
        assert_eq!(of("W/\"3\"").expect("weak"), tags(&["W/\"3\""]));
        assert_eq!(of("*").expect("any"), Precondition::Exists);
        assert!(of("3").is_err() && of("\"").is_err());
        assert_eq!(
            if_match(&TestRequest::default().to_http_request()).expect("none"),
            Precondition::None
        );
    }
}

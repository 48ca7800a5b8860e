//! The parts of a `multipart/form-data` body (RFC 7578), as a workflow hands the outputs of several stages to the stage that joins them.

use exchange::Refusal;

/// The longest boundary (RFC 2046, section 5.1.1).
const LONGEST_BOUNDARY: usize = 70;
/// How many parts a body may have.
pub(crate) const MOST_PARTS: usize = 64;
/// How long the head of a part may be, in octets.
const LONGEST_HEAD: usize = 4096;

/// One part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part<'a> {
    /// Its name: that of the stage it comes from.
    pub(crate) name: String,
    /// Its media type in lower case, without parameters; `text/plain` where none is given (RFC 7578, section 4.4).
    pub(crate) media_type: String,
    /// Its octets.
    pub(crate) body: &'a [u8],
}

/// The boundary that a `content-type` names.
///
/// # Errors
/// 415 for another type, 400 for a boundary that cannot be one.
pub(crate) fn boundary(content_type: &str) -> Result<String, Refusal> {
    let (kind, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return Err(Refusal::new(
            415,
            format!(
                "send multipart/form-data with a part for each picture and text, not {content_type:?}"
            ),
        ));
    }
    parameter(parameters, "boundary")
        .filter(|found| (1..=LONGEST_BOUNDARY).contains(&found.len()))
        .ok_or_else(|| {
            Refusal::bad(format!(
                "the content-type names no boundary of 1 to {LONGEST_BOUNDARY} octets"
            ))
        })
}

/// Splits `body` at `boundary`. What stands before the first boundary and after the last does not count.
///
/// # Errors
/// 400 for a body that is not whole, and for what passes a bound.
pub(crate) fn split<'a>(body: &'a [u8], boundary: &str) -> Result<Vec<Part<'a>>, Refusal> {
    let delimiter = format!("\r\n--{boundary}").into_bytes();
    // The first delimiter has no line before it.
    let mut rest = match body.strip_prefix(&delimiter[2..]) {
        Some(rest) => rest,
        None => after(body, &delimiter)?,
    };
    let mut parts = Vec::new();
    while !rest.starts_with(b"--") {
        if parts.len() == MOST_PARTS {
            return Err(Refusal::bad(format!(
                "there are more than {MOST_PARTS} parts"
            )));
        }
        rest = skip_padding(rest)?;
        let end = find(rest, &delimiter).ok_or_else(cut)?;
        parts.push(part(&rest[..end])?);
        rest = &rest[end + delimiter.len()..];
    }
    Ok(parts)
}

/// The head and the body of one part, which stand apart by an empty line.
fn part(octets: &[u8]) -> Result<Part<'_>, Refusal> {
    let (head, body) = if let Some(body) = octets.strip_prefix(b"\r\n") {
        (&b""[..], body)
    } else {
        let end = find(octets, b"\r\n\r\n").ok_or_else(cut)?;
        (&octets[..end], &octets[end + 4..])
    };
    if head.len() > LONGEST_HEAD {
        return Err(Refusal::bad(format!(
            "the head of a part is longer than {LONGEST_HEAD} octets"
        )));
    }
    let head =
        std::str::from_utf8(head).map_err(|_| Refusal::bad("the head of a part is not UTF-8"))?;
    let mut name = None;
    let mut media_type = "text/plain".to_owned();
    for line in head.split("\r\n") {
        let Some((field, value)) = line.split_once(':') else {
            continue;
        };
        if field.eq_ignore_ascii_case("content-disposition") {
            let (_, parameters) = value.split_once(';').unwrap_or((value, ""));
            name = parameter(parameters, "name");
        } else if field.eq_ignore_ascii_case("content-type") {
            let (kind, _) = value.split_once(';').unwrap_or((value, ""));
            media_type = kind.trim().to_ascii_lowercase();
        }
    }
    let name = name
        .filter(|name| !name.is_empty())
        .ok_or_else(|| Refusal::bad("a part has no name in its content-disposition"))?;
    Ok(Part {
        name,
        media_type,
        body,
    })
}

/// A parameter such as `name="resize"` among others. Quoted values hold no quotes here: names of stages and boundaries have none.
fn parameter(parameters: &str, wanted: &str) -> Option<String> {
    parameters.split(';').find_map(|one| {
        let (name, value) = one.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case(wanted)
            .then(|| value.trim().trim_matches('"').to_owned())
    })
}

/// What may stand between a boundary and the end of its line (RFC 2046, section 5.1.1).
fn skip_padding(rest: &[u8]) -> Result<&[u8], Refusal> {
    let blanks = rest
        .iter()
        .take_while(|o| matches!(o, b' ' | b'\t'))
        .count();
    rest[blanks..].strip_prefix(b"\r\n").ok_or_else(cut)
}

fn after<'a>(octets: &'a [u8], needle: &[u8]) -> Result<&'a [u8], Refusal> {
    let at = find(octets, needle).ok_or_else(cut)?;
    Ok(&octets[at + needle.len()..])
}

fn find(octets: &[u8], needle: &[u8]) -> Option<usize> {
    octets
        .windows(needle.len())
        .position(|window| window == needle)
}

fn cut() -> Refusal {
    Refusal::bad(
        "the body is not whole multipart/form-data: a boundary or the head of a part is missing",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = b"--b7\r\ncontent-disposition: form-data; name=\"small\"\r\nContent-Type: image/PNG; x=y\r\n\r\n\x89PNG\r\n--b\r\n--b7\r\n\
        Content-Disposition: form-data; name=text\r\n\r\nhello\r\n--b7--\r\nno matter";

    #[test]
    fn parts_come_apart_with_names_and_types() {
        let parts = split(BODY, "b7").expect("parts");
        let part = |name: &str, media_type: &str, body: &'static [u8]| Part {
            name: name.to_owned(),
            media_type: media_type.to_owned(),
            body,
        };
        assert_eq!(
            parts,
            [
                part("small", "image/png", b"\x89PNG\r\n--b"),
                part("text", "text/plain", b"hello"),
            ]
        );
        assert_eq!(split(b"before\r\n--b7--", "b7"), Ok(vec![]));
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        for end in 1..BODY.len() - b"--\r\nno matter".len() {
            let refusal = split(&BODY[..end], "b7").expect_err("cut off");
            assert_eq!(refusal.status, 400, "{end}: {}", refusal.text);
        }
        let nameless = b"--b7\r\nx: y\r\n\r\nhello\r\n--b7--";
        assert!(
            split(nameless, "b7")
                .expect_err("nameless")
                .text
                .contains("no name")
        );
        let many: Vec<u8> =
            b"--b7\r\ncontent-disposition: form-data; name=a\r\n\r\n\r\n".repeat(MOST_PARTS + 1);
        let many = [many, b"--b7--".to_vec()].concat();
        assert!(
            split(&many, "b7")
                .expect_err("many")
                .text
                .contains("more than 64")
        );
    }

    #[test]
    fn the_boundary_is_read_from_the_content_type() {
        assert_eq!(
            boundary("multipart/form-data; boundary=b7").as_deref(),
            Ok("b7")
        );
        assert_eq!(
            boundary("Multipart/Form-Data;charset=x; Boundary=\"b 7\"").as_deref(),
            Ok("b 7")
        );
        assert_eq!(boundary("image/png").expect_err("another type").status, 415);
        assert_eq!(
            boundary("multipart/form-data")
                .expect_err("no boundary")
                .status,
            400
        );
        let long = format!("multipart/form-data; boundary={}", "b".repeat(71));
        assert_eq!(boundary(&long).expect_err("too long").status, 400);
    }
}

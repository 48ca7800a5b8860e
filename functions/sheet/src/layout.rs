//! From parts to a sheet: pictures are laid side by side on white, texts are written into the PNG's text chunks.

use std::io::Cursor;

use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits, Rgb, RgbImage};

use crate::parts::Part;
use exchange::Refusal;

/// How many pixels a sheet may have.
const MOST_PIXELS: u64 = 4 << 20;
/// The longest side of a sheet, in pixels.
const LONGEST_SIDE: u32 = 16_384;
/// How much memory a decoder may take for one picture, in octets.
const DECODER_MEMORY: u64 = 64 << 20;
/// White between two pictures, in pixels.
const GAP: u32 = 8;
/// The longest text that is written into a sheet, in octets.
const LONGEST_TEXT: usize = 64 << 10;
/// The longest keyword of a text chunk (PNG specification, section 11.3.3).
const LONGEST_KEYWORD: usize = 79;

/// A finished sheet.
#[derive(Debug)]
pub(crate) struct Sheet {
    /// The PNG.
    pub(crate) octets: Vec<u8>,
    /// Width and height in pixels.
    pub(crate) size: (u32, u32),
    /// How many pictures are on it.
    pub(crate) pictures: usize,
}

/// Lays the pictures of `parts` side by side in their order, and writes every other part into the PNG as a text under its name.
///
/// # Errors
/// 400 when there is no picture, for a damaged one, for a text that is not UTF-8, and for a sheet that would be too large.
pub(crate) fn sheet(parts: &[Part<'_>]) -> Result<Sheet, Refusal> {
    let (pictures, texts): (Vec<&Part<'_>>, Vec<&Part<'_>>) = parts
        .iter()
        .partition(|part| part.media_type.starts_with("image/"));
    if pictures.is_empty() {
        return Err(Refusal::bad(
            "no part is a picture; send one at least, as image/png or image/jpeg",
        ));
    }
    let size = size(&pictures)?;
    let mut canvas = RgbImage::from_pixel(size.0, size.1, Rgb([255; 3]));
    let mut left = 0;
    for part in &pictures {
        let picture = decoded(part)?;
        image::imageops::overlay(&mut canvas, &picture, i64::from(left), 0);
        left += picture.width() + GAP;
    }
    let texts = texts.into_iter().map(text).collect::<Result<Vec<_>, _>>()?;
    Ok(Sheet {
        octets: encode(&canvas, &texts)?,
        size,
        pictures: pictures.len(),
    })
}

/// How large the sheet becomes, by the pictures' heads alone: nothing is decoded that would not fit.
fn size(pictures: &[&Part<'_>]) -> Result<(u32, u32), Refusal> {
    let (mut width, mut height) = (0_u64, 0_u32);
    for (n, part) in pictures.iter().enumerate() {
        let (w, h) = decoder(part)?.dimensions();
        width += u64::from(w) + if n > 0 { u64::from(GAP) } else { 0 };
        height = height.max(h);
    }
    let pixels = width * u64::from(height);
    match u32::try_from(width) {
        Ok(width) if width <= LONGEST_SIDE && pixels <= MOST_PIXELS => Ok((width, height)),
        _ => Err(Refusal::bad(format!(
            "the sheet would be {width}x{height} pixels; {LONGEST_SIDE} wide and {MOST_PIXELS} in all at most: make the pictures smaller first"
        ))),
    }
}

fn damaged(part: &Part<'_>) -> impl Fn(image::ImageError) -> Refusal {
    let name = part.name.clone();
    move |cause| {
        Refusal::bad(format!(
            "part {name:?}: the picture cannot be decoded: {cause}"
        ))
    }
}

fn decoder<'a>(part: &Part<'a>) -> Result<impl ImageDecoder + use<'a>, Refusal> {
    // The first octets tell the format; media types are not trusted.
    let format = match image::guess_format(part.body) {
        Ok(known @ (ImageFormat::Png | ImageFormat::Jpeg)) => known,
        _ => {
            return Err(Refusal::bad(format!(
                "part {:?}: neither a PNG nor a JPEG",
                part.name
            )));
        }
    };
    let mut limits = Limits::default();
    limits.max_image_width = Some(LONGEST_SIDE);
    limits.max_image_height = Some(LONGEST_SIDE);
    limits.max_alloc = Some(DECODER_MEMORY);
    let mut reader = ImageReader::with_format(Cursor::new(part.body), format);
    reader.limits(limits);
    reader.into_decoder().map_err(damaged(part))
}

/// The picture without transparency: what is clear shows the white of the sheet.
fn decoded(part: &Part<'_>) -> Result<RgbImage, Refusal> {
    let image = DynamicImage::from_decoder(decoder(part)?).map_err(damaged(part))?;
    if !image.color().has_alpha() {
        return Ok(image.into_rgb8());
    }
    let mut white = DynamicImage::from(RgbImage::from_pixel(
        image.width(),
        image.height(),
        Rgb([255; 3]),
    ))
    .into_rgba8();
    image::imageops::overlay(&mut white, &image.into_rgba8(), 0, 0);
    Ok(DynamicImage::from(white).into_rgb8())
}

/// A part's name and text. A stage that failed sends a problem as JSON: that is text too, and so the sheet tells of it.
fn text<'a>(part: &Part<'a>) -> Result<(String, &'a str), Refusal> {
    let name = &part.name;
    if name.len() > LONGEST_KEYWORD || !name.is_ascii() {
        return Err(Refusal::bad(format!(
            "part {name:?}: the name of a text must be ASCII of {LONGEST_KEYWORD} octets at most"
        )));
    }
    if part.body.len() > LONGEST_TEXT {
        return Err(Refusal::bad(format!(
            "part {name:?}: the text is longer than {LONGEST_TEXT} octets"
        )));
    }
    let text = std::str::from_utf8(part.body)
        .map_err(|_| Refusal::bad(format!("part {name:?}: neither a picture nor UTF-8")))?;
    Ok((name.clone(), text.trim_end()))
}

/// The PNG. The same parts make the same octets: no time and no name of a program is written into it.
fn encode(canvas: &RgbImage, texts: &[(String, &str)]) -> Result<Vec<u8>, Refusal> {
    let failed = |cause: png::EncodingError| {
        Refusal::new(500, format!("the sheet cannot be encoded: {cause}"))
    };
    let mut octets = Vec::new();
    let mut encoder = png::Encoder::new(&mut octets, canvas.width(), canvas.height());
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    for (name, text) in texts {
        encoder
            .add_itxt_chunk(name.clone(), (*text).to_owned())
            .map_err(failed)?;
    }
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(canvas.as_raw()).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(octets)
}

#[cfg(test)]
mod tests {
    use image::Rgba;

    use super::*;

    fn png(image: impl Into<DynamicImage>) -> Vec<u8> {
        let mut octets = Cursor::new(Vec::new());
        image
            .into()
            .write_to(&mut octets, ImageFormat::Png)
            .expect("encodes");
        octets.into_inner()
    }

    fn part<'a>(name: &str, media_type: &str, body: &'a [u8]) -> Part<'a> {
        Part {
            name: name.to_owned(),
            media_type: media_type.to_owned(),
            body,
        }
    }

    #[test]
    fn pictures_stand_side_by_side_and_texts_are_in_the_file() {
        let red = png(RgbImage::from_pixel(4, 2, Rgb([255, 0, 0])));
        let clear = png(image::RgbaImage::from_pixel(3, 5, Rgba([0, 0, 255, 0])));
        let parts = [
            part("one", "image/png", &red),
            part("text", "text/plain", "größer\n".as_bytes()),
            part("two", "image/png", &clear),
            part(
                "late",
                "application/problem+json",
                b"{\"code\":\"FDN-3003\"}",
            ),
        ];
        let made = sheet(&parts).expect("a sheet");
        assert_eq!((made.size, made.pictures), ((4 + GAP + 3, 5), 2));
        let image = image::load_from_memory(&made.octets)
            .expect("decodes")
            .into_rgb8();
        assert_eq!(image.dimensions(), made.size);
        let at = |x, y| image.get_pixel(x, y).0;
        assert_eq!((at(0, 0), at(3, 1)), ([255, 0, 0], [255, 0, 0]));
        assert_eq!(
            (at(0, 2), at(5, 0), at(12, 0)),
            ([255; 3], [255; 3], [255; 3])
        );
        let decoder = png::Decoder::new(Cursor::new(&made.octets));
        let reader = decoder.read_info().expect("a head");
        let texts: Vec<(String, String)> = reader
            .info()
            .utf8_text
            .iter()
            .map(|chunk| (chunk.keyword.clone(), chunk.get_text().expect("text")))
            .collect();
        let own = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(
            texts,
            [
                own("text", "größer"),
                own("late", "{\"code\":\"FDN-3003\"}")
            ]
        );
        assert_eq!(
            sheet(&parts).expect("a sheet").octets,
            made.octets,
            "the same octets"
        );
    }

    #[test]
    fn mistakes_are_told_by_part() {
        let good = png(RgbImage::new(2, 2));
        let refused = |parts: &[Part<'_>]| {
            let refusal = sheet(parts).expect_err("no sheet");
            assert_eq!(refusal.status, 400);
            refusal.text
        };
        assert!(refused(&[]).contains("no part is a picture"));
        assert!(refused(&[part("a", "image/gif", b"GIF89a")]).contains("part \"a\": neither"));
        assert!(refused(&[part("cut", "image/png", &good[..40])]).contains("part \"cut\""));
        let odd = [
            part("p", "image/png", &good),
            part("t", "text/plain", b"\xff"),
        ];
        assert!(refused(&odd).contains("part \"t\""));
        let long = "n".repeat(80);
        let odd = [
            part("p", "image/png", &good),
            part(&long, "text/plain", b""),
        ];
        assert!(refused(&odd).contains("79 octets"));
    }

    #[test]
    fn a_sheet_that_would_be_too_large_is_refused_by_the_heads() {
        let wide = png(RgbImage::new(3000, 1));
        let tall = png(RgbImage::new(1, 3000));
        let refusal = sheet(&[part("a", "image/png", &wide), part("b", "image/png", &tall)])
            .expect_err("too large");
        assert!(
            refusal.text.contains("3009x3000 pixels"),
            "{}",
            refusal.text
        );
    }
}

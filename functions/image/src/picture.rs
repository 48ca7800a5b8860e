//! From the octets of one picture to the octets of another: decode, resize, sharpen, encode.

use std::io::Cursor;

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::imageops::FilterType;
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use crate::options::{Format, Options};
use exchange::Refusal;

/// How many pixels a picture may have that is read; with [`crate::options::MOST_OUTPUT_PIXELS`] it bounds the memory of a call.
const MOST_INPUT_PIXELS: u64 = 12_000_000;
/// The longest side of a picture that is read.
const LONGEST_INPUT_SIDE: u32 = 16_384;
/// How much memory a decoder may take for one picture.
const DECODER_MEMORY: u64 = 128 << 20;

/// A finished picture.
#[derive(Debug)]
pub(crate) struct Picture {
    /// The encoded octets.
    pub(crate) octets: Vec<u8>,
    /// Their format.
    pub(crate) format: Format,
    /// Width in pixels.
    pub(crate) width: u32,
    /// Height in pixels.
    pub(crate) height: u32,
}

/// Makes the picture that `options` asks for out of `octets`.
///
/// # Errors
/// 415 for octets that are neither PNG nor JPEG, 400 for a damaged or too large picture.
pub(crate) fn process(octets: &[u8], options: &Options) -> Result<Picture, Refusal> {
    if octets.is_empty() {
        return Err(Refusal::bad(
            "the body is empty; send a PNG or JPEG image as the body",
        ));
    }
    let input = format_of(octets)?;
    let (image, (width, height)) = decode(octets, input, options)?;
    let image = sharpen(resize(image, width, height), options);
    let format = options.format.unwrap_or(match input {
        ImageFormat::Jpeg => Format::Jpeg,
        _ => Format::Png,
    });
    Ok(Picture {
        octets: encode(image, format, options.quality)?,
        format,
        width,
        height,
    })
}

/// The format that the first octets tell; names and media types are not trusted.
fn format_of(octets: &[u8]) -> Result<ImageFormat, Refusal> {
    match image::guess_format(octets) {
        Ok(known @ (ImageFormat::Png | ImageFormat::Jpeg)) => Ok(known),
        Ok(other) => Err(Refusal::new(
            415,
            format!(
                "the body is {}; send PNG or JPEG",
                other.to_mime_type().trim_start_matches("image/")
            ),
        )),
        Err(_) => Err(Refusal::new(
            415,
            "the body is no image that this function knows; send PNG or JPEG",
        )),
    }
}

/// Decodes to 8 bits a channel, turned upright, and tells the size of the answer. Both sizes are checked before the pixels are
/// touched.
fn decode(
    octets: &[u8],
    format: ImageFormat,
    options: &Options,
) -> Result<(DynamicImage, (u32, u32)), Refusal> {
    let damaged = |e: image::ImageError| Refusal::bad(format!("the image cannot be decoded: {e}"));
    let mut limits = Limits::default();
    limits.max_image_width = Some(LONGEST_INPUT_SIDE);
    limits.max_image_height = Some(LONGEST_INPUT_SIDE);
    limits.max_alloc = Some(DECODER_MEMORY);
    let mut reader = ImageReader::with_format(Cursor::new(octets), format);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(damaged)?;
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) > MOST_INPUT_PIXELS {
        return Err(Refusal::bad(format!(
            "the image has {width}x{height} pixels; {MOST_INPUT_PIXELS} in all at most"
        )));
    }
    let orientation = decoder.orientation().map_err(damaged)?;
    let size = match orientation {
        Orientation::Rotate90
        | Orientation::Rotate270
        | Orientation::Rotate90FlipH
        | Orientation::Rotate270FlipH => options.size(height, width)?,
        Orientation::NoTransforms
        | Orientation::Rotate180
        | Orientation::FlipHorizontal
        | Orientation::FlipVertical => options.size(width, height)?,
    };
    let mut image = eight_bits(DynamicImage::from_decoder(decoder).map_err(damaged)?);
    image.apply_orientation(orientation);
    Ok((image, size))
}

/// Sixteen bits and floats become eight bits a channel, so that every later step is bounded by four octets a pixel.
fn eight_bits(image: DynamicImage) -> DynamicImage {
    match (image.color().has_alpha(), image.color().has_color()) {
        _ if image.color().bytes_per_pixel() == image.color().channel_count() => image,
        (false, false) => image.into_luma8().into(),
        (true, false) => image.into_luma_alpha8().into(),
        (false, true) => image.into_rgb8().into(),
        (true, true) => image.into_rgba8().into(),
    }
}

/// Scales to exactly `width` by `height`.
///
/// A picture more than twice as large is averaged down to twice the size first: nearly as good as the filter alone, several
/// times faster, and it keeps the filter's intermediate picture (16 octets a pixel) within twice the answer's pixels.
fn resize(image: DynamicImage, width: u32, height: u32) -> DynamicImage {
    if (image.width(), image.height()) == (width, height) {
        return image;
    }
    let near = (
        image.width().min(width.saturating_mul(2)),
        image.height().min(height.saturating_mul(2)),
    );
    let image = if near == (image.width(), image.height()) {
        image
    } else {
        image.thumbnail_exact(near.0, near.1)
    };
    image.resize_exact(width, height, FilterType::CatmullRom)
}

/// Adds what a blur takes away, `sharpen` times: an unsharp mask. Transparency is left as it is.
fn sharpen(mut image: DynamicImage, options: &Options) -> DynamicImage {
    if options.sharpen <= 0.0 {
        return image;
    }
    let blurred = image.blur(options.sigma);
    let channels = usize::from(image.color().channel_count());
    let colours = channels - usize::from(image.color().has_alpha());
    let amount = options.sharpen;
    let pixels: &mut [u8] = match &mut image {
        DynamicImage::ImageLuma8(buffer) => buffer,
        DynamicImage::ImageLumaA8(buffer) => buffer,
        DynamicImage::ImageRgb8(buffer) => buffer,
        DynamicImage::ImageRgba8(buffer) => buffer,
        // `eight_bits` made one of the four out of everything else.
        _ => return image,
    };
    let soft = blurred.as_bytes();
    for (pixel, soft) in pixels
        .chunks_exact_mut(channels)
        .zip(soft.chunks_exact(channels))
    {
        for (value, soft) in pixel.iter_mut().zip(soft).take(colours) {
            let (sharp, soft) = (f32::from(*value), f32::from(*soft));
            // The cast saturates: what passes white stays white.
            *value = (sharp + amount * (sharp - soft)).round() as u8;
        }
    }
    image
}

/// Encodes. A JPEG has no transparency, so a transparent picture is laid on white.
fn encode(image: DynamicImage, format: Format, quality: u8) -> Result<Vec<u8>, Refusal> {
    let mut octets = Vec::new();
    match format {
        Format::Text => {
            octets = described(image).into_bytes();
            Ok(())
        }
        Format::Png => image.write_with_encoder(PngEncoder::new(&mut octets)),
        Format::Jpeg => {
            on_white(image).write_with_encoder(JpegEncoder::new_with_quality(&mut octets, quality))
        }
    }
    .map_err(|e| Refusal::new(500, format!("the image cannot be encoded: {e}")))?;
    Ok(octets)
}

/// What the picture is, in a line: `a picture of 48 by 32 pixels in colour, on the whole #7f8a91`.
fn described(image: DynamicImage) -> String {
    let (width, height) = (image.width(), image.height());
    let kind = match (image.color().has_color(), image.color().has_alpha()) {
        (true, false) => "in colour",
        (true, true) => "in colour, with transparency",
        (false, false) => "in grey",
        (false, true) => "in grey, with transparency",
    };
    let pixels = on_white(image).into_rgb8();
    let count = (u64::from(width) * u64::from(height)).max(1);
    let mut sums = [0_u64; 3];
    for pixel in pixels.pixels() {
        for (sum, value) in sums.iter_mut().zip(pixel.0) {
            *sum += u64::from(value);
        }
    }
    let [red, green, blue] = sums.map(|sum| (sum + count / 2) / count);
    format!(
        "a picture of {width} by {height} pixels {kind}, on the whole #{red:02x}{green:02x}{blue:02x}\n"
    )
}

/// The picture without transparency.
fn on_white(image: DynamicImage) -> DynamicImage {
    if !image.color().has_alpha() {
        return image;
    }
    let mut rgba = image.into_rgba8();
    for pixel in rgba.pixels_mut() {
        let [red, green, blue, alpha] = pixel.0;
        let alpha = u16::from(alpha);
        // At most 255 * 255 / 255, so the cast loses nothing.
        let over =
            |colour: u8| ((u16::from(colour) * alpha + 255 * (255 - alpha) + 127) / 255) as u8;
        pixel.0 = [over(red), over(green), over(blue), 255];
    }
    DynamicImage::from(rgba).into_rgb8().into()
}

#[cfg(test)]
mod tests {
    use image::{Rgb, RgbImage, Rgba, RgbaImage};

    use super::*;

    fn png(image: impl Into<DynamicImage>) -> Vec<u8> {
        encode(image.into(), Format::Png, 85).expect("encodes")
    }

    /// A dark left half and a light right half.
    fn edge(width: u32, height: u32) -> RgbImage {
        RgbImage::from_fn(width, height, |x, _| {
            Rgb(if x < width / 2 { [60; 3] } else { [190; 3] })
        })
    }

    fn run(octets: &[u8], query: &str) -> Result<Picture, Refusal> {
        process(octets, &Options::from_path(query)?)
    }

    fn pixels(picture: &Picture) -> RgbImage {
        let image = image::load_from_memory(&picture.octets).expect("own output decodes");
        assert_eq!(
            (image.width(), image.height()),
            (picture.width, picture.height)
        );
        image.into_rgb8()
    }

    #[test]
    fn without_options_the_pixels_stay() {
        let image = edge(8, 4);
        let answer = run(&png(image.clone()), "/").expect("a picture");
        assert_eq!((answer.format, pixels(&answer)), (Format::Png, image));
    }

    #[test]
    fn resizing_keeps_the_halves_apart() {
        let answer = run(&png(edge(400, 100)), "/?w=40").expect("a picture");
        let small = pixels(&answer);
        assert_eq!(small.dimensions(), (40, 10));
        assert_eq!(
            (small.get_pixel(5, 5).0, small.get_pixel(35, 5).0),
            ([60; 3], [190; 3])
        );
        let large = run(&png(edge(8, 4)), "/?w=16&h=32").expect("a picture");
        assert_eq!(pixels(&large).dimensions(), (16, 32));
    }

    #[test]
    fn sharpening_steepens_an_edge_and_leaves_plain_parts() {
        let answer = run(&png(edge(32, 8)), "/?sharpen=1&sigma=1").expect("a picture");
        let image = pixels(&answer);
        assert!(image.get_pixel(15, 4).0[0] < 50 && image.get_pixel(16, 4).0[0] > 200);
        assert_eq!(
            (image.get_pixel(0, 4).0, image.get_pixel(31, 4).0),
            ([60; 3], [190; 3])
        );
    }

    #[test]
    fn jpeg_quality_changes_the_size_and_transparency_becomes_white() {
        let noise = RgbImage::from_fn(64, 64, |x, y| {
            Rgb([((x * 37) ^ (y * 91)) as u8, (x * y) as u8, y as u8])
        });
        let fine = run(&png(noise.clone()), "/?format=jpeg&quality=95").expect("a picture");
        let coarse = run(&png(noise), "/?format=jpeg&quality=20").expect("a picture");
        assert!(fine.octets.starts_with(&[0xff, 0xd8, 0xff]));
        assert!(fine.octets.len() > 2 * coarse.octets.len());
        let clear = RgbaImage::from_pixel(8, 8, Rgba([10, 20, 30, 0]));
        let white = pixels(&run(&png(clear), "/?format=jpeg").expect("a picture"));
        assert!(white.pixels().all(|p| p.0.iter().all(|&c| c > 250)));
    }

    #[test]
    fn sixteen_bits_and_grey_are_read() {
        let grey = image::ImageBuffer::from_pixel(4, 4, image::Luma([0x8080_u16]));
        let answer = run(&png(DynamicImage::from(grey)), "/?w=2&sharpen=1").expect("a picture");
        assert_eq!(pixels(&answer).get_pixel(0, 0).0, [0x80; 3]);
    }

    #[test]
    fn other_formats_and_damage_are_refused_by_name() {
        let refused = |octets: &[u8]| {
            let refusal = run(octets, "/?w=5").expect_err("no picture");
            (refusal.status, refusal.text)
        };
        let (status, text) = refused(b"GIF89a-and-more");
        assert_eq!(
            (status, text.as_str()),
            (415, "the body is gif; send PNG or JPEG")
        );
        assert_eq!(refused(b"plain text").0, 415);
        let (status, text) = refused(b"");
        assert!(
            status == 400 && text.contains("the body is empty"),
            "{text}"
        );
        let whole = png(edge(64, 64));
        let (status, text) = refused(&whole[..whole.len() / 2]);
        assert!(
            status == 400 && text.contains("cannot be decoded"),
            "{text}"
        );
    }

    #[test]
    fn a_picture_is_described() {
        let told = |octets: &[u8], query| {
            let answer = run(octets, query).expect("a text");
            assert_eq!(answer.format, Format::Text);
            String::from_utf8(answer.octets).expect("text")
        };
        let red = RgbImage::from_pixel(6, 4, Rgb([255, 0, 16]));
        assert_eq!(
            told(&png(red), "/?format=text&w=3"),
            "a picture of 3 by 2 pixels in colour, on the whole #ff0010\n"
        );
        // What is clear lies on white.
        let clear = RgbaImage::from_pixel(2, 2, Rgba([0, 0, 0, 0]));
        assert_eq!(
            told(&png(clear), "/?format=text"),
            "a picture of 2 by 2 pixels in colour, with transparency, on the whole #ffffff\n"
        );
    }

    #[test]
    fn a_picture_is_turned_upright() {
        let mut jpeg = encode(edge(32, 16).into(), Format::Jpeg, 90).expect("encodes");
        // An Exif segment that holds one entry, the orientation: turn by a quarter, clockwise.
        let exif = b"\xff\xe1\x00\x22Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
        jpeg.splice(2..2, exif.iter().copied());
        let answer = run(&jpeg, "/?w=8&format=png").expect("a picture");
        let image = pixels(&answer);
        assert_eq!(image.dimensions(), (8, 16));
        let (top, bottom) = (image.get_pixel(4, 2).0[0], image.get_pixel(4, 13).0[0]);
        assert!(
            top < 70 && bottom > 180,
            "the left half is now the upper one: {top} {bottom}"
        );
    }

    #[test]
    fn a_bomb_is_refused_by_its_header() {
        let mut octets = png(edge(8, 8));
        // The header chunk: width at 16, height at 20, checksum at 29.
        octets[16..20].copy_from_slice(&10_000_u32.to_be_bytes());
        octets[20..24].copy_from_slice(&10_000_u32.to_be_bytes());
        let checksum = crc32(&octets[12..29]);
        octets[29..33].copy_from_slice(&checksum.to_be_bytes());
        let refusal = run(&octets, "/?w=5").expect_err("too large");
        assert_eq!(refusal.status, 400);
        assert!(
            refusal.text.contains("10000x10000 pixels; 12000000"),
            "{}",
            refusal.text
        );
    }

    fn crc32(octets: &[u8]) -> u32 {
        !octets.iter().fold(!0_u32, |crc, &octet| {
            (0..8).fold(crc ^ u32::from(octet), |crc, _| {
                (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
            })
        })
    }
}

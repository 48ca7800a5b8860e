//! The format and size of a picture, from its header.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A picture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// `png` or `jpeg`.
    pub format: String,
    /// The width in pixels.
    pub width: u32,
    /// The height in pixels.
    pub height: u32,
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}x{}", self.format, self.width, self.height)
    }
}

impl Image {
    /// The picture in these bytes; `None` if they are neither PNG nor JPEG.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let image = |format: &str, width, height| {
            Some(Self {
                format: format.to_owned(),
                width,
                height,
            })
        };
        if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            // The first chunk is IHDR (PNG, section 11.2.1): width and height as big-endian 32 bits.
            let number = |at: usize| {
                let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
                Some(u32::from_be_bytes(bytes))
            };
            return image("png", number(16)?, number(20)?);
        }
        if !bytes.starts_with(&[0xff, 0xd8]) {
            return None;
        }
        // JPEG (ITU T.81, annex B): segments of marker and length; a start of frame holds height and width.
        let mut at = 2;
        loop {
            let marker = *bytes.get(at + 1)?;
            let number = |at: usize| {
                let bytes = bytes.get(at..at + 2)?.try_into().ok()?;
                Some(u16::from_be_bytes(bytes))
            };
            if (0xc0..=0xcf).contains(&marker) && ![0xc4, 0xc8, 0xcc].contains(&marker) {
                return image("jpeg", number(at + 7)?.into(), number(at + 5)?.into());
            }
            at += 2 + usize::from(number(at + 2)?);
        }
    }
}

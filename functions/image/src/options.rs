//! What a caller asks for, read from the query of the URL.

use exchange::Refusal;

/// The longest side that may be asked for, in pixels.
pub(crate) const LONGEST_SIDE: u32 = 4096;
/// How many pixels an answer may have.
pub(crate) const MOST_OUTPUT_PIXELS: u64 = 4 << 20;
/// The strongest sharpening.
const MOST_SHARPEN: f32 = 5.0;
/// The widest blur that sharpening may subtract, as a standard deviation in pixels.
const MOST_SIGMA: f32 = 5.0;

/// The formats that are read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Lossless, with transparency.
    Png,
    /// Lossy, without transparency.
    Jpeg,
    /// No picture: a line of text that describes it. Only answered, never read.
    Text,
}

impl Format {
    /// The media type of the answer.
    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Text => "text/plain; charset=utf-8",
        }
    }
}

/// What is to be done with a picture.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    /// The width of the answer; without it, from the height and the picture's aspect.
    pub(crate) width: Option<u32>,
    /// The height of the answer; without it, from the width and the picture's aspect.
    pub(crate) height: Option<u32>,
    /// How strongly to sharpen; 0 leaves the picture as it is.
    pub(crate) sharpen: f32,
    /// How fine the details are that get sharpened, in pixels.
    pub(crate) sigma: f32,
    /// The format of the answer; without it, that of the request.
    pub(crate) format: Option<Format>,
    /// The quality of a JPEG.
    pub(crate) quality: u8,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            width: None,
            height: None,
            sharpen: 0.0,
            sigma: 1.0,
            format: None,
            quality: 85,
        }
    }
}

impl Options {
    /// Reads the query of `path`, such as `/?w=200&format=jpeg`.
    ///
    /// # Errors
    /// For an unknown name, a name given twice, and a value out of its bounds; the text says what is allowed.
    pub(crate) fn from_path(path: &str) -> Result<Self, Refusal> {
        let mut options = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        let query = path.split_once('?').map_or("", |(_, query)| query);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if seen.contains(&name) {
                return Err(Refusal::bad(format!("{name} is given twice; give it once")));
            }
            options.set(name, value)?;
            seen.push(name);
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        match name {
            "w" => self.width = Some(number(name, value, 1, LONGEST_SIDE)?),
            "h" => self.height = Some(number(name, value, 1, LONGEST_SIDE)?),
            "sharpen" => self.sharpen = number(name, value, 0.0, MOST_SHARPEN)?,
            "sigma" => self.sigma = number(name, value, 0.3, MOST_SIGMA)?,
            "quality" => self.quality = number(name, value, 1, 100)?,
            "format" => {
                self.format = Some(match value {
                    "png" => Format::Png,
                    "jpeg" | "jpg" => Format::Jpeg,
                    "text" => Format::Text,
                    _ => {
                        return Err(Refusal::bad(format!(
                            "format must be png, jpeg or text, not {value:?}"
                        )));
                    }
                });
            }
            _ => {
                return Err(Refusal::bad(format!(
                    "{name:?} is not known; give w, h, sharpen, sigma, format or quality"
                )));
            }
        }
        Ok(())
    }

    /// The size of the answer for a picture of `width` by `height`.
    ///
    /// # Errors
    /// When the answer would have more than [`MOST_OUTPUT_PIXELS`].
    pub(crate) fn size(&self, width: u32, height: u32) -> Result<(u32, u32), Refusal> {
        let scaled = |side: u32, to: u32, from: u32| {
            let exact =
                (u64::from(side) * u64::from(to) + u64::from(from) / 2) / u64::from(from.max(1));
            u32::try_from(exact.max(1)).unwrap_or(u32::MAX)
        };
        let (w, h) = match (self.width, self.height) {
            (Some(w), Some(h)) => (w, h),
            (Some(w), None) => (w, scaled(height, w, width)),
            (None, Some(h)) => (scaled(width, h, height), h),
            (None, None) => (width, height),
        };
        if u64::from(w) * u64::from(h) > MOST_OUTPUT_PIXELS {
            return Err(Refusal::bad(format!(
                "the answer would be {w}x{h} pixels, more than {MOST_OUTPUT_PIXELS} in all; ask for a smaller w or h"
            )));
        }
        Ok((w, h))
    }
}

/// Reads `value` as a number from `least` to `most`.
fn number<N>(name: &str, value: &str, least: N, most: N) -> Result<N, Refusal>
where
    N: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    // Written so that a NaN, which compares with nothing, is refused too.
    match value.parse::<N>() {
        Ok(number) if number >= least && number <= most => Ok(number),
        _ => Err(Refusal::bad(format!(
            "{name} must be a number from {least} to {most}, not {value:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &str) -> String {
        let refusal = Options::from_path(path).expect_err(path);
        assert_eq!(refusal.status, 400, "{path}");
        refusal.text
    }

    #[test]
    fn a_path_without_a_query_keeps_the_defaults() {
        assert_eq!(Options::from_path("/"), Ok(Options::default()));
        assert_eq!(Options::from_path("/a/b?"), Ok(Options::default()));
    }

    #[test]
    fn every_option_is_read() {
        let options = Options::from_path("/?w=20&h=10&sharpen=1.5&sigma=2&format=jpg&quality=70");
        let expected = Options {
            width: Some(20),
            height: Some(10),
            sharpen: 1.5,
            sigma: 2.0,
            format: Some(Format::Jpeg),
            quality: 70,
        };
        assert_eq!(options, Ok(expected));
    }

    #[test]
    fn each_mistake_says_what_is_allowed() {
        for (path, expected) in [
            ("/?w=0", "w must be a number from 1 to 4096, not \"0\""),
            ("/?w=4097", "from 1 to 4096"),
            ("/?h=-3", "h must be"),
            ("/?w", "w must be"),
            ("/?w=1.5", "w must be"),
            ("/?sharpen=NaN", "sharpen must be a number from 0 to 5"),
            ("/?sharpen=inf", "sharpen must be"),
            ("/?sigma=0", "sigma must be a number from 0.3 to 5"),
            ("/?quality=101", "quality must be a number from 1 to 100"),
            (
                "/?format=gif",
                "format must be png, jpeg or text, not \"gif\"",
            ),
            ("/?width=3", "\"width\" is not known"),
            ("/?w=3&w=4", "w is given twice"),
        ] {
            let text = refused(path);
            assert!(text.contains(expected), "{path}: {text}");
        }
    }

    #[test]
    fn a_missing_side_follows_the_aspect() {
        let size = |query: &str, w, h| {
            Options::from_path(query)
                .and_then(|options| options.size(w, h))
                .map_err(|refusal| refusal.text)
        };
        assert_eq!(size("/", 30, 20), Ok((30, 20)));
        assert_eq!(size("/?w=15", 30, 20), Ok((15, 10)));
        assert_eq!(size("/?h=5", 30, 20), Ok((8, 5)), "7.5 rounds up");
        assert_eq!(size("/?w=7&h=9", 30, 20), Ok((7, 9)));
        assert_eq!(size("/?w=1", 4000, 10), Ok((1, 1)), "no side vanishes");
        let text = size("/?w=4096", 10, 3000).expect_err("too tall");
        assert!(text.contains("4096x1228800 pixels"), "{text}");
        assert!(size("/", 4096, 4096).is_err());
    }
}

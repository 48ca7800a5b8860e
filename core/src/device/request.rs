//! The table `[gpu]` of a manifest.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ParseError;
use crate::unit::{ByteSize, MebiBytes};

/// A percentage from 1 to 100.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(try_from = "u8", into = "u8")]
#[schema(value_type = u8)]
pub struct Percent(u8);

impl Percent {
    /// The whole device, 100 percent.
    pub const WHOLE: Self = Self(100);

    /// The percentage, from 1 to 100.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl TryFrom<u8> for Percent {
    type Error = ParseError;

    fn try_from(n: u8) -> Result<Self, ParseError> {
        if (1..=100).contains(&n) {
            return Ok(Self(n));
        }
        Err(ParseError::new(
            "percentage",
            n.to_string(),
            "a whole number from 1 to 100",
        ))
    }
}

impl From<Percent> for u8 {
    fn from(value: Percent) -> Self {
        value.0
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0)
    }
}

/// A GPU model as people call it: `A100`, `H200`, `RTX 4090`, `A100-SXM4-80GB`; 1 to 64 printable ASCII characters.
///
/// It matches devices whose name contains its words one after another, in any case: `A10` does not match an A100.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String)]
pub struct GpuModel(String);

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
}

impl GpuModel {
    /// The longest text, in bytes.
    pub const MAX: usize = 64;

    /// The pattern as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the device name that the driver reports is of this kind.
    #[must_use]
    pub fn covers(&self, name: &str) -> bool {
        let wanted: Vec<String> = words(&self.0).collect();
        let name: Vec<String> = words(name).collect();
        name.windows(wanted.len()).any(|part| part == wanted)
    }
}

impl fmt::Display for GpuModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for GpuModel {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let plain = s.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
        // A pattern without a word would match nothing.
        if s.len() <= Self::MAX && plain && words(s).next().is_some() {
            return Ok(Self(s.to_owned()));
        }
        Err(ParseError::new(
            "GPU model",
            s,
            "1 to 64 printable ASCII characters with a letter or digit among them, such as H200 or \"RTX 4090\"",
        ))
    }
}

impl TryFrom<String> for GpuModel {
    type Error = ParseError;

    fn try_from(s: String) -> Result<Self, ParseError> {
        s.parse()
    }
}

impl From<GpuModel> for String {
    fn from(value: GpuModel) -> Self {
        value.0
    }
}

const fn one() -> u32 {
    1
}

/// The GPU slices that one instance of a function requests: the same amount of each of `count` devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuRequest {
    /// The memory requested of each device, at least `1MiB`.
    pub memory: ByteSize,
    /// The number of devices, all of one model; 1 if absent.
    #[serde(default = "one")]
    pub count: u32,
    /// The requested share of each device's cores, in percent. If absent, the instance uses whatever the others leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<Percent>,
    /// The required GPU model; absent for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<GpuModel>,
}

impl GpuRequest {
    /// A request for this much memory of one device.
    #[must_use]
    pub const fn of_memory(memory: ByteSize) -> Self {
        Self {
            memory,
            count: 1,
            cores: None,
            model: None,
        }
    }

    /// The memory requested on all devices together, in MiB, rounded up.
    #[must_use]
    pub const fn total(&self) -> MebiBytes {
        let each = self.memory.to_mebibytes().get();
        MebiBytes(each.saturating_mul(self.count as u64))
    }

    /// Checks the values against `bounds`.
    ///
    /// # Errors
    /// The first value out of bounds: its key and the allowed range, as text.
    pub fn check(&self, bounds: &GpuBounds) -> Result<(), String> {
        let least = ByteSize::from_mib(1);
        if !(least..=bounds.memory).contains(&self.memory) {
            return Err(format!(
                "gpu.memory must be from {least} to {}, not {}",
                bounds.memory, self.memory
            ));
        }
        if !(1..=bounds.count).contains(&self.count) {
            return Err(format!(
                "gpu.count must be from 1 to {}, not {}",
                bounds.count, self.count
            ));
        }
        Ok(())
    }
}

/// The bounds of a manifest's GPU request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GpuBounds {
    /// Largest `gpu.memory`.
    pub memory: ByteSize,
    /// Largest `gpu.count`.
    pub count: u32,
}

impl Default for GpuBounds {
    fn default() -> Self {
        Self {
            memory: ByteSize::from_mib(512 << 10),
            count: 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<GpuRequest, String> {
        let request: GpuRequest = toml::from_str(text).map_err(|e| e.to_string())?;
        request.check(&GpuBounds::default())?;
        Ok(request)
    }

    #[test]
    fn memory_alone_is_a_slice_of_one_device() {
        let request = parse("memory = \"12GiB\"").expect("valid");
        assert_eq!(request, GpuRequest::of_memory(ByteSize::from_mib(12 << 10)));
        assert_eq!(request.total(), MebiBytes(12 << 10));
        let request =
            parse("memory = \"1GiB\"\ncount = 2\ncores = 30\nmodel = \"H200\"").expect("valid");
        assert_eq!(request.total(), MebiBytes(2048));
        let text = toml::to_string(&request).expect("toml");
        assert_eq!(parse(&text).expect("own text"), request);
    }

    #[test]
    fn each_mistake_is_named() {
        for (text, expected) in [
            ("count = 1", "memory"),
            ("memory = \"0\"", "gpu.memory must be from 1MiB"),
            ("memory = \"9000GiB\"", "gpu.memory must be"),
            (
                "memory = \"1GiB\"\ncount = 0",
                "gpu.count must be from 1 to 8",
            ),
            ("memory = \"1GiB\"\ncores = 0", "from 1 to 100"),
            ("memory = \"1GiB\"\ncores = 101", "from 1 to 100"),
            ("memory = \"1GiB\"\nmodel = \" - \"", "GPU model"),
            ("memory = \"1GiB\"\nmodell = \"H200\"", "modell"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_model_covers_whole_words_and_no_more() {
        let model = |s: &str| s.parse::<GpuModel>().expect("model");
        let device = "NVIDIA A100-SXM4-80GB";
        for good in ["A100", "a100", "NVIDIA A100", "A100-SXM4-80GB", "a100 sxm4"] {
            assert!(model(good).covers(device), "{good}");
        }
        for bad in ["A10", "100", "A100 80GB", "H200"] {
            assert!(!model(bad).covers(device), "{bad}");
        }
        assert!(model("RTX 4090").covers("NVIDIA GeForce RTX 4090"));
    }
}

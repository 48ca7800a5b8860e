//! Binary encoding of numbers and strings, exact to the last bit, and decoding that trusts no input.

use fdn_core::{MebiBytes, MilliCpu, Millis, Resources};

use super::Malformed;

/// An output buffer.
#[derive(Debug, Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    /// A variable-length integer (LEB128): seven bits per byte, the lowest first, so that small numbers are short.
    pub(super) fn whole(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub(super) fn count(&mut self, number: usize) {
        self.whole(number as u64);
    }

    pub(super) fn flag(&mut self, flag: bool) {
        self.0.push(u8::from(flag));
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// The eight bytes of an IEEE 754 number, the lowest first.
    pub(super) fn number(&mut self, number: f64) {
        self.0.extend_from_slice(&number.to_bits().to_le_bytes());
    }

    pub(super) fn millis(&mut self, time: Millis) {
        self.number(time.get());
    }

    pub(super) fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(super) fn resources(&mut self, resources: &Resources) {
        self.whole(resources.cpu_milli.get());
        self.whole(resources.memory_mib.get());
        self.whole(resources.gpu_memory_mib.get());
    }

    pub(super) fn list<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, &T)) {
        self.count(items.len());
        for each in items {
            item(self, each);
        }
    }
}

/// The rest of the input.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, bytes: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Nonsense("a flag")),
        }
    }

    pub(super) fn whole(&mut self) -> Result<u64, Malformed> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                break;
            }
            number |= part << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed::Nonsense("a whole number"))
    }

    /// A length or count. Each element takes at least one byte, so a count above the remaining input is refused before any memory is
    /// allocated for it.
    pub(super) fn count(&mut self) -> Result<usize, Malformed> {
        let count = usize::try_from(self.whole()?).map_err(|_| Malformed::Short)?;
        if count > self.0.len() {
            return Err(Malformed::Short);
        }
        Ok(count)
    }

    /// An index below `there`.
    pub(super) fn index(&mut self, there: usize) -> Result<usize, Malformed> {
        let index = usize::try_from(self.whole()?).unwrap_or(usize::MAX);
        if index < there {
            Ok(index)
        } else {
            Err(Malformed::Nonsense("an index"))
        }
    }

    pub(super) fn number(&mut self) -> Result<f64, Malformed> {
        let bytes = self.take(8)?;
        let mut bits = [0; 8];
        bits.copy_from_slice(bytes);
        Ok(f64::from_bits(u64::from_le_bytes(bits)))
    }

    pub(super) fn millis(&mut self) -> Result<Millis, Malformed> {
        Ok(Millis::new(self.number()?))
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        let length = self.count()?;
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map_err(|_| Malformed::Nonsense("a text"))
    }

    pub(super) fn resources(&mut self) -> Result<Resources, Malformed> {
        Ok(Resources {
            cpu_milli: MilliCpu(self.whole()?),
            memory_mib: MebiBytes(self.whole()?),
            gpu_memory_mib: MebiBytes(self.whole()?),
        })
    }

    pub(super) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        (0..self.count()?).map(|_| item(self)).collect()
    }
}

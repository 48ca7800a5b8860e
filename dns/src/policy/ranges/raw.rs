//! The arrays of a table in a file, little-endian: for each family all addresses, then all lengths, then all values.
//!
//! The pieces are not written: recomputing them costs less than reading them, and the file cannot be inconsistent with itself.

use std::io::{self, Read, Write};

use super::{Address, Family, Parts, Span, Table};

/// The number of values that are converted to bytes at a time.
const CHUNK: usize = 4096;

/// The number of prefixes of a stored table, by family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct PrefixCounts {
    /// IPv4.
    pub(crate) v4: usize,
    /// IPv6.
    pub(crate) v6: usize,
}

impl PrefixCounts {
    /// The length of the arrays in bytes; `None` if it overflows.
    pub(crate) fn bytes(self) -> Option<u64> {
        let v4 = self.v4.checked_mul(4 + 1 + 2)?;
        let v6 = self.v6.checked_mul(16 + 1 + 2)?;
        u64::try_from(v4.checked_add(v6)?).ok()
    }
}

fn write_all<const N: usize, T: Copy>(
    out: &mut impl Write,
    items: &[T],
    bytes: impl Fn(T) -> [u8; N],
) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(CHUNK * N);
    for chunk in items.chunks(CHUNK) {
        buffer.clear();
        chunk.iter().for_each(|item| buffer.extend(bytes(*item)));
        out.write_all(&buffer)?;
    }
    Ok(())
}

fn read_all<const N: usize, T>(
    input: &mut impl Read,
    count: usize,
    item: impl Fn([u8; N]) -> T,
) -> io::Result<Vec<T>> {
    let mut out = Vec::with_capacity(count);
    let mut buffer = vec![0; CHUNK * N];
    while out.len() < count {
        let now = (count - out.len()).min(CHUNK);
        input.read_exact(&mut buffer[..now * N])?;
        let (chunks, _) = buffer[..now * N].as_chunks::<N>();
        out.extend(chunks.iter().map(|chunk| item(*chunk)));
    }
    Ok(out)
}

impl<A: Address> Parts<A, u16> {
    /// Checks what every table that was written satisfies: sorted order, no host bits, values that exist.
    fn checked(self, values: usize) -> io::Result<Family<A, u16>> {
        let broken = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let keys = || self.addrs.iter().zip(&self.lens);
        if keys()
            .any(|(addr, len)| *len > A::BITS || Span::block(addr.top(), *len).first != addr.top())
        {
            return Err(broken("a prefix has host bits"));
        }
        if !keys().is_sorted_by(|one, next| one < next) {
            return Err(broken("prefixes are not in order"));
        }
        if self
            .values
            .iter()
            .any(|value| usize::from(*value) >= values)
        {
            return Err(broken("a prefix has a value that is none"));
        }
        Ok(self.build())
    }
}

impl Table<u16> {
    /// The number of prefixes, by family.
    pub(crate) const fn counts(&self) -> PrefixCounts {
        PrefixCounts {
            v4: self.v4.addrs.len(),
            v6: self.v6.addrs.len(),
        }
    }

    /// Writes the arrays.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        write_all(out, &self.v4.addrs, u32::to_le_bytes)?;
        out.write_all(&self.v4.lens)?;
        write_all(out, &self.v4.values, u16::to_le_bytes)?;
        write_all(out, &self.v6.addrs, u128::to_le_bytes)?;
        out.write_all(&self.v6.lens)?;
        write_all(out, &self.v6.values, u16::to_le_bytes)
    }

    /// Reads arrays of these lengths, which the caller has checked against the file's length, with values below `values`.
    pub(crate) fn read(
        input: &mut impl Read,
        counts: PrefixCounts,
        values: usize,
    ) -> io::Result<Self> {
        let v4 = Parts {
            addrs: read_all(input, counts.v4, u32::from_le_bytes)?,
            lens: read_all(input, counts.v4, |[len]| len)?,
            values: read_all(input, counts.v4, u16::from_le_bytes)?,
        };
        let v4 = v4.checked(values)?;
        let v6 = Parts {
            addrs: read_all(input, counts.v6, u128::from_le_bytes)?,
            lens: read_all(input, counts.v6, |[len]| len)?,
            values: read_all(input, counts.v6, u16::from_le_bytes)?,
        };
        Ok(Self {
            v4,
            v6: v6.checked(values)?,
        })
    }
}

//! W3C Trace Context (<https://www.w3.org/TR/trace-context/>): continues the client's trace with a span of this gateway, or begins a new trace.
//!
//! A trace begun here is marked as sampled if its spans are exported ([`crate::traces`]); functions that do their own tracing decide for
//! themselves.

use bytes::Bytes;

/// The length of a version 00 `traceparent`, in bytes.
const LENGTH: usize = 55;

/// The trace context of a request. The client's `tracestate` is only passed on if its trace is continued (section 3.3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The `traceparent` for the function.
    pub parent: Bytes,
    /// Whether it continues the client's trace.
    pub continued: bool,
    /// The client's span, if its trace is continued: 16 hexadecimal digits.
    pub caller: Option<[u8; 16]>,
}

impl Trace {
    /// The trace's id: 32 hexadecimal digits.
    #[must_use]
    pub fn id(&self) -> Bytes {
        self.parent.slice(3..35)
    }

    /// The span of this gateway: 16 hexadecimal digits.
    #[must_use]
    pub fn span(&self) -> Bytes {
        self.parent.slice(36..52)
    }

    /// Whether spans of the trace are recorded (section 3.2.2.5.1).
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        is_sampled(&self.parent)
    }

    /// The same trace, marked as sampled.
    #[must_use]
    pub fn sampled(mut self) -> Self {
        let mut parent = [0; LENGTH];
        parent.copy_from_slice(&self.parent);
        // A trace that begins here has no other flag set.
        parent[LENGTH - 1] = b'1';
        self.parent = Bytes::copy_from_slice(&parent);
        self
    }

    /// The trace with a new span below this one. `span` is random.
    #[must_use]
    pub fn child(&self, span: u64) -> Self {
        Self::of(Some(&self.parent), 0, span)
    }

    /// Continues the trace of `header`, or begins one if it is missing or invalid. `trace` and `span` are random.
    #[must_use]
    pub fn of(header: Option<&[u8]>, trace: u128, span: u64) -> Self {
        let mut parent = [0; LENGTH];
        let known = header.filter(|header| is_valid(header));
        match known {
            Some(header) => {
                parent[..36].copy_from_slice(&header[..36]);
                // In versions above 00 other flags may have another meaning; only "sampled" is known (section 4.3).
                let flags = if is_sampled(header) { b"-01" } else { b"-00" };
                parent[52..].copy_from_slice(flags);
                if header.starts_with(b"00-") {
                    parent[52..].copy_from_slice(&header[52..LENGTH]);
                }
            }
            None => {
                // An id of all zeros is invalid (section 3.2.2.3), so one bit is always set.
                write_hex(&(trace | 1).to_be_bytes(), &mut parent[3..35]);
                parent[35] = b'-';
                parent[52..].copy_from_slice(b"-00");
            }
        }
        parent[..3].copy_from_slice(b"00-");
        write_hex(&(span | 1).to_be_bytes(), &mut parent[36..52]);
        Self {
            parent: Bytes::copy_from_slice(&parent),
            continued: known.is_some(),
            caller: known.and_then(|header| header[36..52].try_into().ok()),
        }
    }
}

/// Writes `bytes` as lower-case hexadecimal digits into `out`, which must have twice their length.
pub fn write_hex(bytes: &[u8], out: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, pair) in bytes.iter().zip(out.chunks_exact_mut(2)) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

const fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// Whether the flags of a valid header have the "sampled" bit set.
fn is_sampled(header: &[u8]) -> bool {
    hex_digit(header[LENGTH - 1]).is_some_and(|flags| flags & 1 == 1)
}

fn is_valid(header: &[u8]) -> bool {
    if header.len() < LENGTH || (header.len() > LENGTH && header[LENGTH] != b'-') {
        return false;
    }
    let version_00_is_exact = !header.starts_with(b"00") || header.len() == LENGTH;
    let lower_hex = |part: &[u8]| part.iter().all(|b| hex_digit(*b).is_some());
    let not_zero = |part: &[u8]| part.iter().any(|b| *b != b'0');
    version_00_is_exact
        && [2, 35, 52].iter().all(|i| header[*i] == b'-')
        && lower_hex(&header[..2])
        && &header[..2] != b"ff"
        && lower_hex(&header[3..35])
        && not_zero(&header[3..35])
        && lower_hex(&header[36..52])
        && not_zero(&header[36..52])
        && lower_hex(&header[53..LENGTH])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn of(header: &str) -> Trace {
        Trace::of(Some(header.as_bytes()), 0xABCD, 0xEF01)
    }

    #[test]
    fn a_valid_trace_is_continued_with_a_span_of_its_own() {
        let trace = of(GIVEN);
        assert!(trace.continued);
        assert_eq!(
            trace.parent,
            "00-0af7651916cd43dd8448eb211c80319c-000000000000ef01-01"
        );
    }

    #[test]
    fn spans_are_below_one_another_and_a_trace_is_marked_for_all_of_them() {
        let first = Trace::of(None, 0xABCD, 0xEF01);
        assert!(!first.is_sampled() && first.caller.is_none());
        let first = first.sampled();
        assert!(first.is_sampled() && is_valid(&first.parent));
        let second = first.child(0x23);
        assert_eq!(second.id(), first.id());
        assert_eq!(second.span(), "0000000000000023");
        assert_eq!(
            second.caller.as_ref().map(|c| &c[..]),
            Some(&first.span()[..])
        );
        assert!(second.is_sampled() && second.continued);
        assert_eq!(of(GIVEN).caller.as_ref(), Some(b"b7ad6b7169203331"));
    }

    #[test]
    fn a_future_version_is_read_as_far_as_it_is_known() {
        let trace = of("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff-what-comes");
        assert_eq!(
            trace.parent,
            "00-0af7651916cd43dd8448eb211c80319c-000000000000ef01-01"
        );
    }

    #[test]
    fn anything_else_begins_a_trace() {
        for bad in [
            "",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.more",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        ] {
            let trace = of(bad);
            assert!(!trace.continued, "{bad}");
            assert_eq!(
                trace.parent,
                "00-0000000000000000000000000000abcd-000000000000ef01-00"
            );
        }
    }

    proptest! {
        #[test]
        fn what_comes_out_is_always_valid(header in prop::collection::vec(any::<u8>(), 0..80), trace: u128, span: u64) {
            let out = Trace::of(Some(&header), trace, span);
            prop_assert!(is_valid(&out.parent));
            let again = Trace::of(Some(&out.parent), 1, 1);
            prop_assert!(again.continued);
            prop_assert_eq!(&again.parent[3..35], &out.parent[3..35]);
        }
    }
}

//! EDNS options by which a DNS server tells how it came to its answer.

/// The option that asks a DNS server by which revision it answers, as [`super::header::EXPLAIN`] asks a gateway: empty in a question; in the
/// answer for an app's name eight bytes, the revision of what the server was told of the app, big-endian.
///
/// No registered option tells of such a thing, so the code is one for local use (RFC 6891, section 9: 65001 to 65534), and all who do not know
/// it pass over it. 65001 and its neighbours, and 65073 and 65074, are what forwarders add to their clients' questions.
pub const REVISION: u16 = 65_053;

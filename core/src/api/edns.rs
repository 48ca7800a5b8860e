//! EDNS options with which a DNS server explains its answer.

/// The option that asks a DNS server for the revision it answers by, as [`super::header::EXPLAIN`] asks a gateway. It is empty in a
/// query; in the answer for an app's name it holds eight bytes: the revision of the app's bindings that the server was told, big-endian.
///
/// No registered option has this purpose, so the code is from the range for local use (RFC 6891, section 9: 65001 to 65534), and servers
/// that do not know it ignore it. 65001 and its neighbours, and 65073 and 65074, are avoided because forwarders add them to their
/// clients' queries.
pub const REVISION: u16 = 65_053;

//! The client's address: the peer's, or the one that a trusted proxy reports in `X-Forwarded-For`.

use std::net::IpAddr;

use actix_web::HttpRequest;
use fdn_core::ClientPrefix;

/// The client's address; `None` for a connection without one, which this process made to itself.
pub(super) fn client(request: &HttpRequest, trusted: &[ClientPrefix]) -> Option<IpAddr> {
    let peer = request.peer_addr()?.ip().to_canonical();
    let forwarded: Vec<&str> = request
        .headers()
        .get_all("x-forwarded-for")
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .collect();
    Some(behind(peer, &forwarded, trusted))
}

/// The client behind the proxies. Each proxy appends the address that called it. Going back from the end, the first address that is not a trusted
/// proxy's is the client's; anybody can have written what is before it.
fn behind(peer: IpAddr, forwarded: &[&str], trusted: &[ClientPrefix]) -> IpAddr {
    let mut client = peer;
    for text in forwarded.iter().rev() {
        if !trusted.iter().any(|prefix| prefix.contains(client)) {
            break;
        }
        match text.trim().parse::<IpAddr>() {
            Ok(before) => client = before.to_canonical(),
            Err(_) => break,
        }
    }
    client
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trusted_proxies_are_believed() {
        let trusted: Vec<ClientPrefix> = vec!["10.0.0.0/8".parse().expect("prefix")];
        let of = |peer: &str, forwarded: &[&str]| {
            behind(peer.parse().expect("address"), forwarded, &trusted).to_string()
        };
        assert_eq!(
            of("192.0.2.1", &["203.0.113.9"]),
            "192.0.2.1",
            "anybody can write it"
        );
        assert_eq!(of("10.0.0.1", &["203.0.113.9"]), "203.0.113.9");
        assert_eq!(
            of("10.0.0.1", &["198.51.100.1", " 203.0.113.9", "10.0.0.2"]),
            "203.0.113.9"
        );
        assert_eq!(of("10.0.0.1", &["nonsense"]), "10.0.0.1");
        assert_eq!(of("10.0.0.1", &[]), "10.0.0.1");
    }
}

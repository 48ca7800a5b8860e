//! Chooses the version of an app for a call, if there are several: `fdn_core::policy::traffic` decides by a point, this module derives the point
//! from the request.

use std::sync::Arc;

use actix_http::RequestHead;
use actix_http::header::{COOKIE, HeaderName, HeaderValue};
use fdn_core::api::header;
use fdn_core::policy::traffic::{Sticky, choose, point_of};
use fdn_core::{AppName, VersionNumber};

use super::head::Peer;
use crate::apps::Deployed;
use crate::policy::guard::client_key;

const PIN: HeaderName = HeaderName::from_static(header::PIN);
/// The cookie that stores a client's point.
const NAME: &str = "fdn-split=";
/// How long a client keeps the cookie, in seconds: 30 days.
const AGE_S: u32 = 30 * 86_400;

/// The versions of an app and their weights.
pub struct Split {
    /// The weights and versions, in the order in which they divide the range of points.
    pub shares: Vec<(u32, Arc<Deployed>)>,
    /// How a client stays with its version.
    pub sticky: Sticky,
    /// Whether a call may choose its version by a header.
    pub pin: bool,
}

/// The version chosen for a call.
pub(super) struct Chosen {
    pub(super) deployed: Arc<Deployed>,
    /// The cookie to set for the client, if any.
    pub(super) cookie: Option<HeaderValue>,
}

impl Split {
    /// Chooses the version for a call; `None` if all weights are 0.
    pub(super) fn choose(&self, app: &AppName, head: &RequestHead, peer: &Peer) -> Option<Chosen> {
        if let Some(deployed) = self.pinned(head) {
            return Some(Chosen {
                deployed,
                cookie: None,
            });
        }
        let (point, cookie) = match self.sticky {
            Sticky::None => (rand::random(), None),
            Sticky::Address => (point_of(app, client_key(head, peer)), None),
            Sticky::Cookie => match kept(head) {
                Some(point) => (point, None),
                None => {
                    let point: u64 = rand::random();
                    (point, cookie(point))
                }
            },
        };
        let at = choose(self.shares.iter().map(|(weight, _)| *weight), point)?;
        Some(Chosen {
            deployed: Arc::clone(&self.shares[at].1),
            cookie,
        })
    }

    fn pinned(&self, head: &RequestHead) -> Option<Arc<Deployed>> {
        if !self.pin {
            return None;
        }
        let text = head.headers().get(PIN)?.to_str().ok()?;
        let version: VersionNumber = text.parse().ok()?;
        let found = self.shares.iter().find(|(_, d)| d.version == version);
        found.map(|(_, deployed)| Arc::clone(deployed))
    }
}

/// The point in the client's cookie.
fn kept(head: &RequestHead) -> Option<u64> {
    head.headers()
        .get_all(COOKIE)
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().strip_prefix(NAME))
        .find_map(|text| {
            let whole = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
            u64::from_str_radix(text, 16).ok().filter(|_| whole)
        })
}

fn cookie(point: u64) -> Option<HeaderValue> {
    let text = format!("{NAME}{point:016x}; Path=/; Max-Age={AGE_S}; HttpOnly; SameSite=Lax");
    HeaderValue::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use actix_http::test::TestRequest;

    use super::*;

    #[test]
    fn a_client_keeps_its_point_and_nothing_else_is_one() {
        let read = |cookies: &[&'static str]| {
            let mut request = TestRequest::default();
            for cookie in cookies {
                request.append_header(("cookie", *cookie));
            }
            kept(request.finish().head())
        };
        let sent = cookie(0x12).expect("a header");
        let pair = sent
            .to_str()
            .expect("text")
            .split(';')
            .next()
            .expect("a pair");
        assert_eq!(pair, "fdn-split=0000000000000012");
        assert_eq!(read(&["a=1; fdn-split=0000000000000012"]), Some(0x12));
        assert_eq!(
            read(&["a=1", "fdn-split=ffffffffffffffff; b=2"]),
            Some(u64::MAX)
        );
        for other in [
            "fdn-split=12",
            "fdn-split=+000000000000012",
            "xfdn-split=0000000000000012",
        ] {
            assert_eq!(read(&[other]), None, "{other}");
        }
    }
}

//! The limits for names that exist by a wildcard: clients can make up as many of them as they like.

use fdn_core::{HostName, Timestamp};

use super::*;
use crate::dnssec::Signing;
use crate::dnssec::key::ZoneKey;
use crate::dnssec::ring::{Ring, TimedKey};
use crate::dnssec::rollover::{KeyTimes, Timing};
use crate::dnssec::rrset::Validity;
use crate::metrics::SigningMetrics;
use crate::policy::records::{NamedRecords, text};

const NOW: u32 = 1_800_000_000;

/// A signer that makes one signature per second for names that clients make up.
fn signer(metrics: SigningMetrics) -> Signer {
    let zone: HostName = "fn.test".parse().expect("zone");
    let key = ZoneKey::new(&zone, &ZoneKey::generate().expect("random")).expect("a key");
    let times = KeyTimes {
        created: Timestamp(0),
        seen: None,
    };
    let timing = Timing {
        key_ttl: 1,
        propagation: 1,
        parent_ttl: 1,
        drain: 1,
    };
    let timed = TimedKey {
        key: Arc::new(key),
        times,
    };
    let ring = Ring::new(zone, vec![timed], Timestamp(1), &timing).expect("a ring");
    let signing = Signing {
        validity: Validity::new(1000),
        answers: 320,
        denials: 320,
        denials_per_second: 1,
    };
    Signer::new(ring, signing, metrics)
}

/// A responder for a signed zone without apps, with the wildcard `*.wild.fn.test`.
fn responder() -> Responder {
    let wildcard = NamedRecords {
        name: Name::from_ascii("*.wild.fn.test.").expect("name"),
        ttl: 60,
        data: vec![text("from a wildcard")],
    };
    let zone = ZoneData {
        records: vec![wildcard],
        ..zone()
    };
    let metrics = Arc::new(Metrics::new(&Registry::new()).expect("metrics"));
    let names = Names::new(&zone, std::iter::empty(), Revision(2), true).expect("names");
    let published = Arc::new(Published::new(names, None, Arc::clone(&metrics)));
    let demand = Arc::new(Demand::new(100, Arc::clone(&metrics)));
    let policy = Policy {
        when_all_dead: WhenAllDead::ServeAll,
        max_addresses: 255,
    };
    let signer = signer(metrics.signing.clone());
    Responder::new(published, policy, demand, metrics, 1232).signing(Some(Arc::new(signer)))
}

/// The class of the answer at [`NOW`], and whether it is truncated.
fn asked(responder: &Responder, message: &Message, transport: Transport) -> (Class, bool) {
    let packet = message.to_vec().expect("encoded");
    let from = SocketAddr::from(([192, 0, 2, 53], 4053));
    let reply = responder.reply(&packet, from, transport, NOW);
    let reply = reply.expect("an answer");
    let answer = Message::from_vec(&reply.bytes).expect("decoded");
    assert_eq!(answer.metadata.response_code, ResponseCode::NoError);
    (reply.class, answer.metadata.truncation)
}

#[test]
fn names_that_a_wildcard_covers_count_by_zone_whatever_the_type() {
    let responder = responder();
    for kind in [RecordType::ANY, RecordType::TXT, RecordType::A] {
        for name in ["one.wild.fn.test.", "a.two.wild.fn.test."] {
            let (class, _) = asked(&responder, &query(name, kind), Transport::Udp);
            assert_eq!(class, Class::Zone, "{name} {kind}");
        }
        // The wildcard itself is one name, and so is the apex.
        for name in ["*.wild.fn.test.", "fn.test."] {
            let (class, _) = asked(&responder, &query(name, kind), Transport::Udp);
            assert_eq!(class, Class::Name, "{name} {kind}");
        }
    }
}

#[test]
fn who_makes_up_names_and_asks_for_any_gets_so_many_signatures_in_a_second() {
    let responder = responder();
    let made_up = |number: u32, transport| {
        let name = format!("n{number}.wild.fn.test.");
        let question = with_edns(query(&name, RecordType::ANY), 1232, None);
        asked(&responder, &question, transport)
    };
    // One of this second, and one that has accumulated.
    for number in 0..6 {
        let expected = (Class::Zone, number >= 2);
        assert_eq!(made_up(number, Transport::Udp), expected, "{number}");
    }
    // Over a stream the address is not forged, and what was signed once is kept.
    assert_eq!(made_up(7, Transport::Tcp), (Class::Zone, false));
    assert_eq!(made_up(7, Transport::Udp), (Class::Zone, false));
    // A name that exists is not limited by them.
    let apex = with_edns(query("fn.test.", RecordType::ANY), 1232, None);
    let there = asked(&responder, &apex, Transport::Udp);
    assert_eq!(there, (Class::Name, false));
}

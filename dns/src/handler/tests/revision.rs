//! Answers with their revision.

use std::time::Duration;

use fdn_core::api::edns::REVISION;

use super::*;
use crate::handler::limit::Limits;

/// The same query with the revision option of this payload.
fn asking(message: &Message, payload: &[u8]) -> Message {
    let mut message = message.clone();
    let option = EdnsOption::Unknown(REVISION, payload.to_vec());
    let edns = message.edns.get_or_insert_with(Edns::new);
    edns.options_mut().insert(option);
    message
}

fn revision_of(message: &Message) -> Option<Vec<u8>> {
    match message.edns.as_ref()?.option(REVISION.into())? {
        EdnsOption::Unknown(_, bytes) => Some(bytes.clone()),
        other => panic!("{other:?}"),
    }
}

const TRANSPORTS: [Transport; 4] = [
    Transport::Udp,
    Transport::Tcp,
    Transport::Tls,
    Transport::Https,
];

#[test]
fn whoever_asks_for_the_revision_is_told_it_for_names_of_apps() {
    let bench = bench(2);
    let told = Some(vec![0, 0, 0, 0, 0, 0, 0, 2]);
    // Bound, not bound, without records of the type, and other types.
    let bound: &[u8] = &[0, 1, 24, 0, 192, 0, 2];
    let elsewhere: &[u8] = &[0, 1, 24, 0, 203, 0, 113];
    for (name, kind, subnet, expected) in [
        ("hello.fn.test.", RecordType::A, Some(bound), &told),
        ("HELLO.fn.test.", RecordType::A, Some(elsewhere), &told),
        ("hello.fn.test.", RecordType::A, None, &told),
        ("hello.fn.test.", RecordType::AAAA, None, &told),
        ("hello.fn.test.", RecordType::TXT, None, &told),
        ("hello.fn.test.", RecordType::ANY, None, &told),
        ("fn.test.", RecordType::SOA, None, &None),
        ("ns1.fn.test.", RecordType::A, None, &None),
        ("nobody.fn.test.", RecordType::A, None, &None),
        ("www.example.org.", RecordType::A, None, &None),
        ("hello.fn.test.", RecordType::AXFR, None, &None),
    ] {
        let plain = with_edns(query(name, kind), 1232, subnet);
        for transport in TRANSPORTS {
            let what = format!("{name} {kind} {subnet:?} {transport:?}");
            let ask = |message: &Message| {
                let raw = bench.raw(message, transport);
                (Message::from_vec(&raw).expect("decoded"), raw)
            };
            let (unasked, before) = ask(&plain);
            assert_eq!(revision_of(&unasked), None, "{what}");
            let (asked, _) = ask(&asking(&plain, &[]));
            assert_eq!(&revision_of(&asked), expected, "{what}");
            assert_eq!(asked.answers, unasked.answers, "{what}");
            assert_eq!(subnet_of(&asked), subnet_of(&unasked), "{what}");
            // With data, the option is not the revision option.
            for strange in [&[0][..], &[0; 8]] {
                assert_eq!(ask(&asking(&plain, strange)).1, before, "{what}");
            }
        }
    }
    let mut chaos = query("version.bind.", RecordType::TXT);
    chaos.queries[0].set_query_class(DNSClass::CH);
    assert_eq!(revision_of(&bench.ask(&asking(&chaos, &[]))), None);
}

#[test]
fn an_answer_with_its_revision_keeps_to_the_size_that_the_asker_takes() {
    // 29 addresses and the OPT record take 506 bytes, which leaves six.
    let (bench, larger) = (super::bench(29), super::bench(120));
    let plain = with_edns(query("hello.fn.test.", RecordType::A), 512, None);
    assert_eq!(bench.raw(&plain, Transport::Udp).len(), 506);
    for (bench, payload) in [(&bench, 512), (&larger, 1232)] {
        let plain = with_edns(query("hello.fn.test.", RecordType::A), payload, None);
        let asked = asking(&plain, &[]);
        let raw = bench.raw(&asked, Transport::Udp);
        let cut = Message::from_vec(&raw).expect("decoded");
        assert!(raw.len() <= usize::from(payload) && cut.metadata.truncation);
        assert!(cut.answers.is_empty() && revision_of(&cut).is_some());
        let whole = Message::from_vec(&bench.raw(&asked, Transport::Tcp)).expect("decoded");
        assert!(!whole.metadata.truncation && revision_of(&whole).is_some());
    }
}

/// Queries for the revision are subject to the same limits: answers over UDP are limited in number and size like all others.
#[test]
fn a_flood_of_questions_for_the_revision_is_limited_and_answers_stay_short() {
    let Bench { responder, .. } = super::bench(60);
    let limiter = Limiter::new(Limits {
        names: 5,
        zone: 0,
        errors: 0,
        total: 0,
        burst: Duration::from_secs(1),
        slip: 0,
        ipv4_len: 24,
        ipv6_len: 56,
        exempt: vec![],
        buckets: 64,
    });
    let responder = responder.guarded(Guard {
        limiter: Some(limiter),
        amplification: 2,
        ..Guard::default()
    });
    let plain = with_edns(query("hello.fn.test.", RecordType::A), 1232, None);
    let packet = asking(&plain, &[]).to_vec().expect("encoded");
    let (from, now) = (
        SocketAddr::from(([192, 0, 2, 53], 4053)),
        std::time::Instant::now(),
    );
    let mut sent = 0;
    for _ in 0..50 {
        let mut out = Vec::new();
        if responder.datagram(&packet, from, now, &mut out) {
            sent += 1;
            let answer = Message::from_vec(&out).expect("decoded");
            assert!(out.len() < 2 * packet.len() && answer.metadata.truncation);
            assert!(revision_of(&answer).is_some());
        }
    }
    // One second's allowance, plus the one that is due.
    assert_eq!(sent, 6);
}

//! Tests of the signer: signatures, caching and the rate limit.

use fdn_core::{HostName, Timestamp};
use hickory_proto::dnssec::Verifier;
use hickory_proto::rr::Name;
use hickory_proto::rr::rdata::A;
use prometheus::Registry;

use super::ring::TimedKey;
use super::rollover::{KeyTimes, Timing};
use super::*;

const NOW: u32 = 1_800_000_000;

fn signer(denials_per_second: u32) -> Signer {
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
        denials_per_second,
    };
    let metrics = SigningMetrics::new(&Registry::new()).expect("metrics");
    Signer::new(ring, signing, metrics)
}

fn records(name: &str, last: &[u8]) -> Vec<Record> {
    let name = Name::from_ascii(name).expect("name");
    last.iter()
        .map(|last| Record::from_rdata(name.clone(), 20, RData::A(A([192, 0, 2, *last].into()))))
        .collect()
}

const fn signing_context(now: u32, synthetic: bool, verified: bool) -> SigningContext {
    SigningContext {
        now,
        synthetic,
        verified,
    }
}

fn rrsig(record: &Record) -> &RRSIG {
    match &record.data {
        RData::DNSSEC(DNSSECRData::RRSIG(rrsig)) => rrsig,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_signature_is_right_and_made_once() {
    let signer = signer(0);
    let set = records("A.fn.test.", &[2, 1]);
    let first = signer
        .sign(&set, 20, signing_context(NOW, false, false))
        .expect("signed");
    assert_eq!((first.len(), first[0].ttl), (1, 20));
    let RData::DNSSEC(DNSSECRData::DNSKEY(dnskey)) = signer
        .ring()
        .records(RecordType::DNSKEY, &set[0].name)
        .expect("keys")[0]
        .data
        .clone()
    else {
        panic!("no DNSKEY");
    };
    // Verified by the library, whose canonical form is implemented separately.
    let check = |set: &[Record]| {
        dnskey.verify_rrsig(&set[0].name, set[0].dns_class, rrsig(&first[0]), set.iter())
    };
    check(&set).expect("it is right");
    check(&records("A.fn.test.", &[2, 3])).expect_err("for other records it is not");
    // A different order and spelling gives the same signature, also after a while: less than half of its validity period, which is at most an
    // eighth shorter.
    let again = signer.sign(
        &records("a.FN.test.", &[1, 2]),
        20,
        signing_context(NOW + 370, false, false),
    );
    assert_eq!(
        rrsig(&again.expect("signed")[0]).sig(),
        rrsig(&first[0]).sig()
    );
    assert_eq!(signer.metrics().made.get(), 1);
    // After half of the validity period there is a new one.
    let renewed = signer
        .sign(&set, 20, signing_context(NOW + 500, false, false))
        .expect("signed");
    assert_ne!(rrsig(&renewed[0]).sig(), rrsig(&first[0]).sig());
    check(&set).expect("the first one still holds");
    assert_eq!(signer.metrics().made.get(), 2);
    assert!(
        signer
            .sign(&[], 20, signing_context(NOW, false, false))
            .expect("nothing")
            .is_empty()
    );
}

#[test]
fn a_signature_of_a_clock_that_ran_ahead_is_not_used_once_the_clock_is_right() {
    let signer = signer(5);
    let set = records("a.fn.test.", &[1]);
    let day = 86_400;
    for synthetic in [false, true] {
        let sign = |now| signer.sign(&set, 20, signing_context(now, synthetic, false));
        sign(NOW + day).expect("signed");
        let right = sign(NOW).expect("signed");
        let begins = rrsig(&right[0]).input().sig_inception.get();
        assert!(begins <= NOW, "{begins}");
    }
}

#[test]
fn strangers_get_so_many_proofs_in_a_second() {
    let signer = signer(5);
    let ask = |number: u8, signing_context| {
        let name = format!("n{number}.fn.test.");
        signer.sign(&records(&name, &[1]), 20, signing_context)
    };
    let stranger = |now| signing_context(now, true, false);
    let got: Vec<bool> = (0..20).map(|n| ask(n, stranger(NOW)).is_ok()).collect();
    let made = got.iter().filter(|ok| **ok).count();
    assert!((5..=11).contains(&made), "{got:?}");
    assert_eq!(ask(19, stranger(NOW)), Err(SigningError::RateLimited));
    assert_eq!(
        signer.metrics().over_limit.get(),
        21 - u64::try_from(made).expect("few")
    );
    // Cached proofs are free; clients with a verified address are not limited, and neither are names that exist.
    ask(0, stranger(NOW)).expect("kept");
    ask(19, signing_context(NOW, true, true)).expect("shown");
    ask(18, signing_context(NOW, false, false)).expect("exists");
    // Later more are allowed; a cached signature that is still valid is better than none; and the seconds may wrap around.
    ask(17, stranger(NOW + 2)).expect("later");
    for number in 0..20 {
        drop(ask(number, stranger(NOW + 600)));
    }
    ask(0, stranger(NOW + 600)).expect("it holds");
    ask(30, stranger(5)).expect("in another era");
}

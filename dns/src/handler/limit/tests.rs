use proptest::prelude::*;

use super::*;

fn limits() -> Limits {
    Limits {
        names: 10,
        zone: 5,
        errors: 2,
        total: 100,
        burst: Duration::from_secs(1),
        slip: 2,
        ipv4_len: 24,
        ipv6_len: 56,
        exempt: vec!["192.0.2.0/24".parse().expect("prefix")],
        buckets: 4096,
    }
}

fn addr(text: &str) -> IpAddr {
    text.parse().expect("address")
}

/// The number of `n` requests at `now` that are answered.
fn sent(limiter: &Limiter, now: u64, n: u16, source: &str, class: Class, name: &[u8]) -> u16 {
    let decide = |id| limiter.decide(now, addr(source), class, name, id);
    let all = (0..n).filter(|id| decide(*id) == Outcome::Send).count();
    u16::try_from(all).expect("few")
}

#[test]
fn each_network_name_and_class_has_its_own_limit() {
    let limiter = Limiter::new(limits());
    // One second's allowance has accumulated, and one more answer is due now.
    assert_eq!(
        sent(&limiter, 0, 50, "10.0.0.1", Class::Name, b"\x01a\x00"),
        11
    );
    assert_eq!(
        sent(&limiter, 0, 50, "10.0.0.9", Class::Name, b"\x01A\x00"),
        0,
        "same network and name"
    );
    assert_eq!(
        sent(&limiter, 0, 50, "10.0.0.9", Class::Name, b"\x01b\x00"),
        11,
        "another name"
    );
    assert_eq!(
        sent(&limiter, 0, 50, "10.0.1.1", Class::Name, b"\x01a\x00"),
        11,
        "another network"
    );
    assert_eq!(
        sent(
            &limiter,
            0,
            50,
            "::ffff:10.0.1.2",
            Class::Name,
            b"\x01a\x00"
        ),
        0,
        "the same, mapped"
    );
    assert_eq!(
        sent(&limiter, 0, 50, "2001:db8::1", Class::Name, b"\x01a\x00"),
        11
    );
    assert_eq!(
        sent(
            &limiter,
            0,
            50,
            "2001:db8:0:ff::1",
            Class::Name,
            b"\x01a\x00"
        ),
        0
    );
    assert_eq!(
        sent(&limiter, SECOND, 50, "10.0.0.1", Class::Name, b"\x01a\x00"),
        10,
        "a second later"
    );
    assert_eq!(
        sent(&limiter, 0, 50, "192.0.2.1", Class::Error, b""),
        50,
        "exempt"
    );
}

#[test]
fn names_that_do_not_exist_are_counted_together() {
    let limiter = Limiter::new(limits());
    let all: u16 = (0..50u8)
        .map(|i| sent(&limiter, 0, 1, "10.0.0.1", Class::Zone, &[1, i, 0]))
        .sum();
    assert_eq!(all, 6);
    assert_eq!(sent(&limiter, 0, 50, "10.0.0.1", Class::Error, b""), 3);
}

#[test]
fn many_names_reach_the_total() {
    let limiter = Limiter::new(limits());
    let all: u16 = (0..250u8)
        .map(|i| sent(&limiter, 0, 1, "10.0.0.1", Class::Name, &[1, i, 0]))
        .sum();
    assert_eq!(all, 101);
}

#[test]
fn beyond_a_limit_some_are_sent_to_tcp() {
    let limiter = Limiter::new(limits());
    sent(&limiter, 0, 50, "10.0.0.1", Class::Error, b"");
    let decide = |id| limiter.decide(0, addr("10.0.0.1"), Class::Error, b"", id);
    assert_eq!((decide(4), decide(5)), (Outcome::Slip, Outcome::Drop));
    let never = Limiter::new(Limits {
        slip: 0,
        ..limits()
    });
    sent(&never, 0, 50, "10.0.0.1", Class::Error, b"");
    assert_eq!(
        never.decide(0, addr("10.0.0.1"), Class::Error, b"", 4),
        Outcome::Drop
    );
}

#[test]
fn no_limit_is_no_limit() {
    let free = Limits {
        names: 0,
        zone: 0,
        errors: 0,
        total: 0,
        ..limits()
    };
    let limiter = Limiter::new(free);
    assert_eq!(
        sent(&limiter, 0, 10_000, "10.0.0.1", Class::Zone, b""),
        10_000
    );
}

#[test]
fn forged_addresses_do_not_limit_others_while_buckets_are_enough() {
    let limiter = Limiter::new(limits());
    // 1000 forged networks with one request each; then a legitimate client.
    for i in 0..1000u16 {
        let [high, low] = i.to_be_bytes();
        let source = IpAddr::from([11, high, low, 1]);
        let _ = limiter.decide(0, source, Class::Zone, b"", i);
    }
    assert_eq!(sent(&limiter, 0, 1, "10.0.0.1", Class::Zone, b""), 1);
}

proptest! {
    /// Whatever the times of requests, no interval has more answers than burst and rate allow, and a request after a long enough pause
    /// always passes.
    #[test]
    fn no_stretch_exceeds_the_rate(
        gaps in proptest::collection::vec(0u64..400_000_000, 1..300), per_second in 1u32..50, burst_ms in 0u64..3000,
    ) {
        let rate = Rate::new(per_second, Duration::from_millis(burst_ms)).expect("a limit");
        let (mut due, mut now, mut passed) = (0, 0, Vec::new());
        for gap in gaps {
            now += gap;
            match admit(due, now, rate) {
                Some(next) => {
                    prop_assert!(next > due && next >= now + rate.cost);
                    due = next;
                    passed.push(now);
                }
                None => prop_assert!(due > now + rate.ahead),
            }
        }
        for (i, from) in passed.iter().enumerate() {
            for (j, to) in passed.iter().enumerate().skip(i) {
                let most = (to - from + rate.ahead) / rate.cost + 1;
                prop_assert!(u64::try_from(j - i + 1).expect("few") <= most);
            }
        }
        prop_assert!(admit(due, due, rate).is_some());
    }

    /// A limiter never exceeds its rate, whoever else shares its buckets, and tolerates a clock that does not advance.
    #[test]
    fn sharing_buckets_never_lets_more_through(
        requests in proptest::collection::vec((0u8..8, 0u64..50_000_000), 1..400),
    ) {
        let limiter = Limiter::new(Limits { buckets: 2, ..limits() });
        let (mut now, mut passed) = (0, [0u64; 8]);
        for (network, gap) in requests {
            now += gap;
            let source = IpAddr::from([10, 0, network, 1]);
            if limiter.decide(now, source, Class::Zone, b"", 1) == Outcome::Send {
                passed[usize::from(network)] += 1;
            }
        }
        let most = (now + SECOND) / (SECOND / 5) + 1;
        prop_assert!(passed.iter().all(|n| *n <= most), "{passed:?} of {most}");
    }
}

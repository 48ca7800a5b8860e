use proptest::prelude::*;

use super::*;

/// A request for `a.` with these header counts, followed by additional records.
fn packet(counts: [u16; 4], tail: &[u8]) -> Vec<u8> {
    let mut out = vec![0x12, 0x34, 0x01, 0x00];
    out.extend(counts.iter().flat_map(|n| n.to_be_bytes()));
    out.extend_from_slice(b"\x01a\x00\x00\x01\x00\x01");
    out.extend_from_slice(tail);
    out
}

fn opt(version: u8, options: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 0, 41, 0x10, 0, 0, version, 0x80, 0];
    out.extend(u16::try_from(options.len()).expect("short").to_be_bytes());
    out.extend_from_slice(options);
    out
}

fn subnet(data: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 8];
    out.extend(u16::try_from(data.len()).expect("short").to_be_bytes());
    out.extend_from_slice(data);
    out
}

fn code(packet: &[u8]) -> ResponseCode {
    match scan(packet) {
        Err(Reject::Error(failure)) => failure.code,
        other => panic!("expected an error, got {other:?}"),
    }
}

fn with_subnet(data: &[u8]) -> Vec<u8> {
    packet([1, 0, 0, 1], &opt(0, &subnet(data)))
}

#[test]
fn a_plain_request_passes() {
    assert_eq!(
        scan(&packet([1, 0, 0, 0], b"")),
        Ok(Scan {
            edns: None,
            question: 12..19,
            tsig: None,
        })
    );
}

#[test]
fn answers_and_stumps_are_dropped() {
    let mut answer = packet([1, 0, 0, 0], b"");
    answer[2] |= 0x80;
    assert_eq!(scan(&answer), Err(Reject::Drop));
    assert_eq!(scan(&[0; 11]), Err(Reject::Drop));
}

#[test]
fn the_header_decides_first() {
    let mut update = packet([1, 0, 0, 0], b"");
    update[2] |= 5 << 3;
    assert_eq!(code(&update), ResponseCode::NotImp);
    for counts in [
        [0, 0, 0, 0],
        [2, 0, 0, 0],
        [65_535, 0, 0, 0],
        [1, 0, 0, 1],
        [1, 65_535, 0, 0],
    ] {
        assert_eq!(
            code(&packet(counts, b"")),
            ResponseCode::FormErr,
            "{counts:?}"
        );
    }
}

#[test]
fn opt_is_read() {
    let edns = scan(&packet([1, 0, 0, 1], &opt(0, b"")))
        .expect("valid")
        .edns
        .expect("edns");
    assert_eq!(
        edns,
        Edns {
            payload: 4096,
            dnssec_ok: true,
            ..Edns::default()
        }
    );
    assert_eq!(
        code(&packet([1, 0, 0, 1], &opt(1, b"\xff"))),
        ResponseCode::BADVERS
    );
    // Unknown options are ignored; malformed ones are not.
    assert!(scan(&packet([1, 0, 0, 1], &opt(0, &[0xfd, 0xe9, 0, 1, 7]))).is_ok());
    assert_eq!(
        code(&packet([1, 0, 0, 1], &opt(0, &[0, 10, 0, 9, 7]))),
        ResponseCode::FormErr
    );
}

#[test]
fn opt_stands_once_in_the_additional_section_and_belongs_to_the_root() {
    let one = opt(0, b"");
    assert_eq!(
        code(&packet([1, 0, 0, 2], &[one.clone(), one.clone()].concat())),
        ResponseCode::FormErr
    );
    assert_eq!(code(&packet([1, 1, 0, 0], &one)), ResponseCode::FormErr);
    let owned = [b"\x01b".as_slice(), &one].concat();
    assert_eq!(code(&packet([1, 0, 0, 1], &owned)), ResponseCode::FormErr);
}

#[test]
fn a_client_subnet_must_be_exact() {
    let good: [(&[u8], Option<&str>); 6] = [
        (&[0, 1, 24, 0, 203, 0, 113], Some("203.0.113.0/24")),
        (&[0, 1, 20, 0, 203, 0, 112], Some("203.0.112.0/20")),
        (&[0, 1, 32, 0, 203, 0, 113, 7], Some("203.0.113.7/32")),
        (
            &[0, 2, 48, 0, 0x20, 1, 0xd, 0xb8, 0, 1],
            Some("2001:db8:1::/48"),
        ),
        (&[0, 1, 0, 0], None),
        (&[0, 0, 0, 0], None),
    ];
    for (data, client) in good {
        let subnet = scan(&with_subnet(data))
            .expect("valid")
            .edns
            .and_then(|e| e.subnet)
            .expect("subnet");
        assert_eq!(
            subnet.client.map(|c| c.to_string()).as_deref(),
            client,
            "{data:?}"
        );
        let answer = subnet.answer(24);
        assert_eq!((&answer[..3], &answer[4..]), (&data[..3], &data[4..]));
        assert_eq!(answer[3], if client.is_some() { 24 } else { 0 });
    }
    let bad: [(&str, &[u8]); 10] = [
        ("surplus byte", &[0, 1, 24, 0, 203, 0, 113, 0]),
        ("missing byte", &[0, 1, 24, 0, 203, 0]),
        ("host bits", &[0, 1, 20, 0, 203, 0, 113]),
        ("scope in a request", &[0, 1, 24, 24, 203, 0, 113]),
        ("longer than the family", &[0, 1, 33, 0, 203, 0, 113, 7, 0]),
        (
            "longer than IPv6",
            &[
                0, 2, 129, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0,
            ],
        ),
        ("unknown family", &[0, 3, 8, 0, 1]),
        ("family 0 with an address", &[0, 0, 8, 0, 1]),
        ("too short", &[0, 1, 0]),
        ("empty", &[]),
    ];
    for (why, data) in bad {
        assert_eq!(code(&with_subnet(data)), ResponseCode::FormErr, "{why}");
    }
    let two = [subnet(&[0, 1, 0, 0]), subnet(&[0, 1, 0, 0])].concat();
    assert_eq!(
        code(&packet([1, 0, 0, 1], &opt(0, &two))),
        ResponseCode::FormErr
    );
}

#[test]
fn errors_repeat_questions_and_opt() {
    let request = with_subnet(&[0, 1, 24, 0, 1]);
    let Err(Reject::Error(failure)) = scan(&request) else {
        panic!("not an error")
    };
    let reply = failure.reply(&request, 1232);
    assert_eq!(&reply[..4], &[0x12, 0x34, 0x81, 1]);
    assert_eq!(&reply[4..12], &[0, 1, 0, 0, 0, 0, 0, 1]);
    assert_eq!(&reply[12..19], b"\x01a\x00\x00\x01\x00\x01");
    assert_eq!(&reply[19..], &[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    let badvers = Failure {
        code: ResponseCode::BADVERS,
        ..failure
    };
    let badvers = badvers.reply(&request, 1232);
    assert_eq!(
        (badvers[3] & 15, badvers[24]),
        (0, 1),
        "16 is split between header and OPT"
    );
}

#[test]
fn other_opcodes_and_several_questions_keep_questions_and_opt() {
    let mut notify = packet([1, 0, 0, 1], &opt(0, b""));
    notify[2] |= 4 << 3;
    // The second question's name is a pointer to the first.
    let second = [b"\xc0\x0c\x00\x1c\x00\x01".as_slice(), &opt(0, b"")].concat();
    let two = packet([2, 0, 0, 1], &second);
    for (request, code, questions) in [
        (&notify, ResponseCode::NotImp, 12..19),
        (&two, ResponseCode::FormErr, 12..25),
    ] {
        let Err(Reject::Error(failure)) = scan(request) else {
            panic!("not an error")
        };
        assert_eq!(failure.code, code);
        assert_eq!((failure.questions.clone(), failure.edns), (questions, true));
        let reply = failure.reply(request, 1232);
        assert_eq!(&reply[4..6], &request[4..6], "all of them come back");
        assert_eq!(
            &reply[12..failure.questions.end],
            &request[12..failure.questions.end]
        );
    }
    // A pointer to outside the question section would have another meaning in the answer.
    let ahead = packet([2, 0, 0, 0], b"\xc0\x30\x00\x1c\x00\x01");
    let Err(Reject::Error(failure)) = scan(&ahead) else {
        panic!("not an error")
    };
    assert!(failure.questions.is_empty() && failure.count == 0);
}

#[test]
fn a_cookie_must_be_exact_and_may_come_without_a_question() {
    let cookie = |data: &[u8]| {
        let mut option = vec![0, 10];
        option.extend(u16::try_from(data.len()).expect("short").to_be_bytes());
        option.extend_from_slice(data);
        option
    };
    let with = |data: &[u8]| packet([1, 0, 0, 1], &opt(0, &cookie(data)));
    for len in [8, 16, 24, 40] {
        let edns = scan(&with(&vec![7; len])).expect("valid").edns;
        let found = edns.and_then(|e| e.cookie).expect("a cookie");
        assert_eq!((found.client, found.server.is_some()), ([7; 8], len == 24));
    }
    for len in [0, 1, 7, 9, 15, 41] {
        assert_eq!(code(&with(&vec![7; len])), ResponseCode::FormErr, "{len}");
    }
    // The first of two cookies is used, whatever the second is.
    let two = [cookie(&[1; 8]), cookie(&[2; 3])].concat();
    let edns = scan(&packet([1, 0, 0, 1], &opt(0, &two)))
        .expect("valid")
        .edns;
    assert_eq!(edns.and_then(|e| e.cookie).map(|c| c.client), Some([1; 8]));
    let mut bare = vec![0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    bare.extend(opt(0, &cookie(&[1; 8])));
    assert_eq!(scan(&bare).expect("valid").question, 12..12);
    let mut without = vec![0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    without.extend(opt(0, b""));
    assert_eq!(code(&without), ResponseCode::FormErr);
}

#[test]
fn a_hidden_subnet_is_no_longer_one() {
    let mut request = with_subnet(&[0, 1, 24, 0, 203, 0, 113]);
    let first = scan(&request).expect("valid");
    first.hide_options(&mut request);
    assert_eq!(
        scan(&request)
            .expect("still valid")
            .edns
            .and_then(|e| e.subnet),
        None
    );
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Err(Reject::Error(failure)) = scan(&bytes) {
            prop_assert!(failure.reply(&bytes, 1232).len() <= bytes.len() + 11);
        }
    }

    #[test]
    fn no_change_of_one_byte_makes_it_panic(at in 0usize..60, to in any::<u8>()) {
        let mut request = with_subnet(&[0, 2, 48, 0, 0x20, 1, 0xd, 0xb8, 0, 1]);
        if let Some(byte) = request.get_mut(at) {
            *byte = to;
        }
        if let Ok(found) = scan(&request) {
            found.hide_options(&mut request);
        }
    }
}

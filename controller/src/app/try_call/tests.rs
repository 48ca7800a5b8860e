use super::*;

fn gateway() -> SocketAddr {
    "127.0.1.1:8080".parse().expect("address")
}

fn node() -> NodeAddress {
    NodeAddress {
        node: "fdn://cluster/eu/node/a".parse().expect("node"),
        address: gateway(),
    }
}

fn ask(change: impl FnOnce(&mut TryRequest)) -> Result<Call, TryError> {
    let mut request = TryRequest::default();
    change(&mut request);
    Call::read(&request)
}

#[test]
fn only_the_gateway_is_called_whatever_the_path() {
    for path in [
        "/",
        "/a?b=c&d=%20",
        "//evil.example/x",
        "/@evil.example",
        "/:80@evil/",
    ] {
        let call = ask(|request| request.path = Some(path.to_owned())).expect(path);
        let url = node().url(call.target(&node()).expect(path));
        let url: Url = url.parse().expect(path);
        assert_eq!(
            (url.host_str(), url.port()),
            (Some("a.eu.7f000101.node.fdn"), Some(8080)),
            "{path}"
        );
    }
    for path in [
        "",
        "x",
        "@evil.example/",
        "http://evil.example/",
        ".evil.example/",
        "/a b",
        "/a#b",
        "/\u{e4}",
        "/a\r\nhost: x",
    ] {
        assert!(
            ask(|request| request.path = Some(path.to_owned())).is_err(),
            "{path:?}"
        );
    }
    let six = NodeAddress {
        address: "[::1]:8080".parse().expect("address"),
        ..node()
    };
    assert!(ask(|_| {}).expect("a call").target(&six).is_ok());
}

#[test]
fn what_is_the_connections_or_says_who_calls_is_not_sent() {
    for name in [
        "Host",
        "connection",
        "content-length",
        "x-fdn-job",
        "X-FDN-Identity",
        "bad name",
        "",
    ] {
        let refused = ask(|request| request.headers = vec![(name.to_owned(), "x".to_owned())]);
        assert!(
            matches!(
                refused,
                Err(TryError::Invalid {
                    field: "headers",
                    ..
                })
            ),
            "{name}"
        );
    }
    let call = ask(|request| {
        request.method = Some("PATCH".to_owned());
        request.headers = vec![
            ("X-Api-Key".to_owned(), "k".to_owned()),
            ("accept".to_owned(), "*/*".to_owned()),
        ];
        (request.body, request.encoding) = ("aGk=".to_owned(), BodyEncoding::Base64);
    })
    .expect("a call");
    assert_eq!(
        (call.method, call.headers.len(), call.body),
        (Method::PATCH, 2, Bytes::from_static(b"hi"))
    );
    assert!(
        ask(|request| (request.body, request.encoding) = ("%".to_owned(), BodyEncoding::Base64))
            .is_err()
    );
    assert!(ask(|request| request.method = Some("CONNECT".to_owned())).is_err());
}

#[test]
fn an_answer_tells_who_gave_it_and_how_long_each_part_took() {
    let mut headers = HeaderMap::new();
    let mut set = |name: &'static str, value: &'static str| {
        headers.append(name, HeaderValue::from_static(value))
    };
    set("x-fdn-cluster", "eu-west");
    set("x-fdn-node", "eu-1");
    set("x-fdn-version", "v3");
    set("x-fdn-stages", "resize=eu-west, face=us-east");
    set(
        "server-timing",
        "wait;dur=0.5, start;dur=0.5, exec;dur=4, hit",
    );
    let body = Bytes::from_static("grüße".as_bytes());
    let told = answer(
        (200, &headers),
        (&body, false),
        gateway(),
        "r-1",
        Duration::from_millis(8),
    );
    assert_eq!(
        (told.encoding, told.body.as_str(), told.request.as_str()),
        (BodyEncoding::Text, "grüße", "r-1")
    );
    assert_eq!(told.version.expect("told").get(), 3);
    assert_eq!(told.stages[1].cluster.as_str(), "us-east");
    let timings: Vec<(String, f64)> = told
        .timings
        .iter()
        .map(|t| (t.phase.clone(), t.ms.get()))
        .collect();
    let expected = [
        ("wait", 0.5),
        ("start", 0.5),
        ("exec", 4.0),
        ("network", 3.0),
        ("total", 8.0),
    ];
    assert_eq!(timings, expected.map(|(phase, ms)| (phase.to_owned(), ms)));
    let cut = answer(
        (200, &headers),
        (&body.slice(..3), true),
        gateway(),
        "r",
        Duration::ZERO,
    );
    assert_eq!(
        (cut.encoding, cut.body.as_str()),
        (BodyEncoding::Text, "gr"),
        "cut within a character"
    );
    let bytes = answer(
        (502, &headers),
        (&body.slice(..3), false),
        gateway(),
        "r",
        Duration::ZERO,
    );
    assert_eq!(
        (bytes.encoding, bytes.body.as_str()),
        (BodyEncoding::Base64, "Z3LD")
    );
}

//! The server's identification, and cookies.

use crate::endpoints::four_endpoints;

/// The cookie in hexadecimal, in the output of `dig`.
fn cookie(text: &str) -> String {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("; COOKIE: "));
    let line = line.unwrap_or_else(|| panic!("no cookie in\n{text}"));
    line.split(' ').next().expect("digits").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_told_unless_it_was_set() {
    let (fixture, endpoints) = four_endpoints(|_| {}).await;
    for endpoint in &endpoints {
        assert!(
            !endpoint
                .dig(&["hello.fn.test", "+nsid"])
                .await
                .contains("NSID")
        );
        for name in [
            "version.bind",
            "version.server",
            "id.server",
            "hostname.bind",
            "authors.bind",
        ] {
            let text = endpoint.dig(&[name, "TXT", "CH"]).await;
            assert!(
                text.contains("status: REFUSED") && !text.contains("fdn"),
                "{text}"
            );
        }
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_set_is_told() {
    let (fixture, endpoints) = four_endpoints(|s| {
        s.identity.nsid = Some("dns-7.example".to_owned());
        s.identity.version = Some("one of many".to_owned());
    })
    .await;
    for endpoint in &endpoints {
        let asked = endpoint.dig(&["hello.fn.test", "+nsid"]).await;
        assert!(
            asked.contains("(\"dns-7.example\")") && asked.contains("ANSWER: 2"),
            "{asked}"
        );
        assert!(
            !endpoint.dig(&["hello.fn.test"]).await.contains("NSID"),
            "only those who ask"
        );
        for (name, told) in [
            ("id.server", "\"dns-7.example\""),
            ("HOSTNAME.bind", "\"dns-7.example\""),
            ("version.bind", "\"one of many\""),
            ("version.server", "\"one of many\""),
        ] {
            assert_eq!(
                endpoint.dig(&[name, "TXT", "CH", "+short"]).await.trim(),
                told
            );
        }
        assert!(
            endpoint
                .dig(&["version.bind", "A", "CH"])
                .await
                .contains("status: REFUSED")
        );
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cookies_are_given_out_and_known_again() {
    let (fixture, endpoints) = four_endpoints(|_| {}).await;
    for endpoint in &endpoints {
        let first = endpoint
            .dig(&["hello.fn.test", "+cookie=0123456789abcdef"])
            .await;
        assert!(
            first.contains("ANSWER: 2") && first.contains("(good)"),
            "{first}"
        );
        let given = cookie(&first);
        assert_eq!(given.len(), 48, "{first}");
        assert!(
            given.starts_with("0123456789abcdef01000000"),
            "version 1, as RFC 9018 writes it: {given}"
        );
        let again = endpoint
            .dig(&["hello.fn.test", &format!("+cookie={given}")])
            .await;
        assert!(
            again.contains("(good)") && again.contains("ANSWER: 2"),
            "{again}"
        );
        // A cookie of another server is not an error: the answer contains a new one.
        let strange = endpoint
            .dig(&[
                "hello.fn.test",
                "+cookie=0123456789abcdef00000000000000000000000000000000",
            ])
            .await;
        assert!(
            strange.contains("(good)") && strange.contains("ANSWER: 2"),
            "{strange}"
        );
        // Also with errors that are answered, and without a question.
        assert!(
            endpoint
                .dig(&["example.org", "+cookie"])
                .await
                .contains("(good)")
        );
        let bare = endpoint
            .dig(&["+header-only", "+cookie=0123456789abcdef"])
            .await;
        assert!(
            bare.contains("NOERROR")
                && bare.contains("QUERY: 0, ANSWER: 0")
                && bare.contains("(good)"),
            "{bare}"
        );
        for bytes in [
            "01",
            "0123456789abcd",
            "0123456789abcdef01",
            &"ab".repeat(41),
        ] {
            let text = endpoint
                .dig(&["hello.fn.test", &format!("+ednsopt=10:{bytes}")])
                .await;
            assert!(
                text.contains("status: FORMERR") && text.contains("EDNS: version: 0"),
                "{text}"
            );
        }
        let none = endpoint.dig(&["hello.fn.test", "+nocookie"]).await;
        assert!(!none.contains("COOKIE"), "{none}");
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_with_one_key_know_each_others_cookies() {
    let dir = tempfile::tempdir().expect("folder");
    let file = dir.path().join("keys");
    std::fs::write(
        &file,
        "e5e973e5a6b2a43f48e7dc849e37bfcf\n445536bcd2513298075a5d379663c962\n",
    )
    .expect("written");
    // Long answers go only to clients with a valid cookie: 600 bytes are more than ten times the request.
    let strict = |s: &mut fdn_dns::Settings| {
        s.cookie.key_file = Some(file.clone());
        let record = format!(
            "[[records]]\nname = \"long.fn.test\"\ntxt = [\"{}\"]",
            "x".repeat(600)
        );
        s.zone = toml::from_str(&record).expect("settings of a zone");
    };
    let (first, endpoints) = four_endpoints(strict).await;
    let (second, others) = four_endpoints(strict).await;
    let (endpoint, other) = (endpoints[0], others[0]);
    let ask = async |endpoint: crate::endpoints::Endpoint, cookie: &str| {
        endpoint
            .dig(&["long.fn.test", "TXT", cookie, "+ignore"])
            .await
    };
    let without = ask(endpoint, "+cookie=0123456789abcdef").await;
    assert!(
        without.contains(" tc;") && without.contains("(good)"),
        "{without}"
    );
    let given = format!("+cookie={}", cookie(&without));
    for server in [endpoint, other] {
        let text = ask(server, &given).await;
        assert!(
            !text.contains(" tc;") && text.contains("ANSWER: 1"),
            "{text}"
        );
    }
    assert!(ask(other, "+nocookie").await.contains(" tc;"));
    first.dns.stop().await;
    second.dns.stop().await;
}

//! The revision of an answer, as read by `dig` and `kdig`.

use fdn_core::api::edns::REVISION;
use fdn_dns::Settings;

use crate::certificates::NAME;
use crate::common::{Fixture, app};
use crate::encrypted::Encrypted;
use crate::endpoints::four_endpoints;
use crate::keys::Keys;

/// All bytes differ, so that their order is tested.
const AT: u64 = 0x0102_0304_0506_0708;
/// 32 bytes in base64.
const SECRET: &str = "c2VjcmV0IG9mIDMyIG9jdGV0cywgc3VyZWx5LCB5ZXM=";

/// The revision in the output of `dig`.
fn revision(text: &str) -> Option<u64> {
    let begin = format!("; OPT={REVISION}: ");
    let line = text.lines().find_map(|line| line.strip_prefix(&begin))?;
    let digits: String = line.split(' ').take(8).collect();
    Some(u64::from_str_radix(&digits, 16).unwrap_or_else(|e| panic!("{e}: {line}")))
}

/// Publishes `hello` at [`AT`], bound for one network.
async fn bound(fixture: &Fixture) {
    let client = "192.0.2.0/24";
    fixture
        .publish(app("hello", AT, &[(client, "ap-south")]))
        .await;
    let there = ["127.0.3.1", "127.0.3.2"];
    fixture.answers("hello.fn.test", client, &there).await;
}

fn option() -> String {
    format!("+ednsopt={REVISION}")
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_apps_are_answered_with_it_on_request() {
    let (fixture, endpoints) = four_endpoints(|_| {}).await;
    bound(&fixture).await;
    let option = option();
    for endpoint in &endpoints {
        for (question, expected) in [
            // Bound, sent to the nearest cluster, and without an address of the type.
            (&["hello.fn.test", "+subnet=192.0.2.0/24"][..], Some(AT)),
            (&["hello.fn.test", "+subnet=198.51.100.0/24"], Some(AT)),
            (&["HELLO.fn.test", "AAAA"], Some(AT)),
            (&["hello.fn.test", "TXT"], Some(AT)),
            (&["fn.test", "SOA"], None),
            (&["nobody.fn.test"], None),
            (&["example.org"], None),
        ] {
            let text = endpoint.dig(&[question, &[option.as_str()]].concat()).await;
            assert_eq!(
                revision(&text),
                expected,
                "{endpoint:?} {question:?}: {text}"
            );
            let unasked = endpoint.dig(question).await;
            assert!(!unasked.contains("OPT="), "{unasked}");
            // With data, the option is somebody else's.
            let strange = format!("{option}:00");
            let text = endpoint
                .dig(&[question, &[strange.as_str()]].concat())
                .await;
            assert!(
                !text.contains("OPT=") && !text.contains("FORMERR"),
                "{text}"
            );
        }
    }
    fixture.publish(app("hello", AT + 1, &[])).await;
    let home = ["127.0.1.1", "127.0.1.2"];
    fixture
        .answers("hello.fn.test", "192.0.2.0/24", &home)
        .await;
    let text = endpoints[0].dig(&["hello.fn.test", &option]).await;
    assert_eq!(revision(&text), Some(AT + 1), "{text}");
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_stands_beside_all_other_options_and_signatures() {
    let (keys, dir) = (
        Keys::new(&[(100, None)]),
        tempfile::tempdir().expect("folder"),
    );
    let secret = dir.path().join("secret");
    std::fs::write(&secret, SECRET).expect("written");
    let all = |settings: &mut Settings| {
        keys.set(settings);
        let key = format!(
            "[[keys]]\nname = \"k.fn.test\"\nalgorithm = \"hmac-sha256\"\nsecret_file = {secret:?}\n"
        );
        settings.transfer = toml::from_str(&key).expect("settings of transfers");
        settings.identity.nsid = Some("dns-1".to_owned());
    };
    let (fixture, endpoints) = four_endpoints(all).await;
    bound(&fixture).await;
    let (option, key) = (option(), format!("hmac-sha256:k.fn.test:{SECRET}"));
    for endpoint in &endpoints {
        let cookie = "+cookie=0123456789abcdef";
        let beside = [
            "hello.fn.test",
            "+dnssec",
            cookie,
            "+nsid",
            "+subnet=192.0.2.0/24",
        ];
        let text = endpoint
            .dig(&[&beside[..], &[option.as_str(), "-y", key.as_str()]].concat())
            .await;
        assert_eq!(revision(&text), Some(AT), "{text}");
        for expected in [
            "RRSIG",
            "127.0.3.1",
            "(good)",
            "dns-1",
            "CLIENT-SUBNET: 192.0.2.0/24/",
            "NOERROR",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(
            text.contains("hmac-sha256.") && !text.contains("verify"),
            "{text}"
        );
        // A proof that the type does not exist depends on the app too.
        let text = endpoint
            .dig(&["hello.fn.test", "MX", "+dnssec", &option])
            .await;
        assert!(text.contains("NSEC"), "{text}");
        assert_eq!(revision(&text), Some(AT), "{text}");
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_told_over_tls_and_https() {
    let server = Encrypted::start(|_| {}).await;
    bound(&server.fixture).await;
    let option = option();
    for (name, expected) in [("hello.fn.test", Some(AT)), ("fn.test", None)] {
        for text in server.dig(&[name, &option]).await {
            assert_eq!(revision(&text), expected, "{text}");
        }
        for text in server.kdig(NAME, &[name, "+padding=468", &option]).await {
            let told = text.to_lowercase().contains("0102030405060708");
            assert_eq!(told, expected.is_some(), "{text}");
        }
    }
    server.fixture.dns.stop().await;
}

//! DNS over TLS and over HTTPS, queried with `dig`, `kdig` (Debian's knot-dnsutils) and `curl`, which share no code with the server or with
//! each other: BIND's own TLS and HTTP/2, GnuTLS, OpenSSL.

mod certificates;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::DurationMs;
use fdn_dns::Settings;
use fdn_testkit::wait;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::certificates::{Certificates, NAME};
use crate::common::{Fixture, dig};
use crate::endpoints::{HELLO_A, OPT, request};

/// A server that knows the app `hello`, with its encrypted addresses on free ports.
pub(crate) struct Encrypted {
    pub(crate) fixture: Fixture,
    certificates: Certificates,
    tls: SocketAddr,
    https: SocketAddr,
}

fn listening(settings: &mut Settings, certificates: &Certificates) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let encrypted = &mut settings.encrypted;
    (encrypted.tls, encrypted.https) = (vec![any], vec![any]);
    encrypted.certificate_file = Some(certificates.certificate());
    encrypted.key_file = Some(certificates.key());
    encrypted.check_interval = DurationMs::from_millis(50);
}

impl Encrypted {
    pub(crate) async fn start(change: impl FnOnce(&mut Settings)) -> Self {
        let certificates = Certificates::new();
        let fixture = Fixture::with_hello(|s| {
            listening(s, &certificates);
            change(s);
        })
        .await;
        Self {
            tls: fixture.dns.tls_address().expect("an address"),
            https: fixture.dns.https_address().expect("an address"),
            fixture,
            certificates,
        }
    }

    /// The output of `dig` and `kdig` over each transport: TLS, HTTPS by POST, HTTPS by GET.
    pub(crate) async fn dig(&self, arguments: &[&str]) -> [String; 3] {
        let authority = self.certificates.authority().display().to_string();
        let trust = [
            format!("+tls-ca={authority}"),
            format!("+tls-hostname={NAME}"),
        ];
        let ask = async |server, transport: &str| {
            let secure = [transport, &trust[0], &trust[1], "+nocookie"];
            dig(server, &[&secure, arguments].concat()).await
        };
        [
            ask(self.tls, "+tls").await,
            ask(self.https, "+https=/dns-query").await,
            ask(self.https, "+https-get=/dns-query").await,
        ]
    }

    /// The same with `kdig`, verifying this server name.
    pub(crate) async fn kdig(&self, name: &str, arguments: &[&str]) -> Vec<String> {
        let mut texts = Vec::new();
        for (server, transport) in [
            (self.tls, &["+tls"][..]),
            (self.https, &["+https=/dns-query"]),
            (self.https, &["+https=/dns-query", "+https-get"]),
        ] {
            let output = tokio::process::Command::new("kdig")
                .arg(format!("@{}", server.ip()))
                .args(["-p", &server.port().to_string(), "+retry=0", "+time=30"])
                .arg(format!(
                    "+tls-ca={}",
                    self.certificates.authority().display()
                ))
                .arg(format!("+tls-hostname={name}"))
                .args(transport)
                .args(arguments)
                .output()
                .await
                .expect("these tests need the client `kdig` (Debian package knot-dnsutils)");
            let text = [output.stdout, output.stderr].concat();
            texts.push(String::from_utf8_lossy(&text).into_owned());
        }
        texts
    }

    /// The result of `curl` for a path: status, HTTP version, content type, cache lifetime, and number of bytes.
    async fn curl(&self, path: &str, arguments: &[&str]) -> [String; 5] {
        let output = tokio::process::Command::new("curl")
            .args(["--silent", "--show-error", "--http2", "--output", "/dev/null"])
            .arg("--cacert")
            .arg(self.certificates.authority())
            .args(["--resolve", &format!("{NAME}:{}:127.0.0.1", self.https.port())])
            .args(["--write-out", "%{http_code} %{http_version} [%{content_type}] [%header{cache-control}] %{size_download}"])
            .args(arguments)
            .arg(format!("https://{NAME}:{}{path}", self.https.port()))
            .output()
            .await
            .expect("these tests need the client `curl`");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let parts: Vec<&str> = text.split(['[', ']']).map(str::trim).collect();
        let [codes, kind, "", kept, size] = parts[..] else {
            panic!("{text} {}", String::from_utf8_lossy(&output.stderr));
        };
        let (status, version) = codes.split_once(' ').expect("both");
        [status, version, kind, kept, size].map(str::to_owned)
    }

    async fn metric(&self, name: &str, transport: &str) -> u64 {
        let name = format!("{name}{{transport=\"{transport}\"}}");
        self.fixture.metric(&name).await
    }

    /// A TLS connection with this ALPN protocol.
    async fn connect(
        &self,
        server: SocketAddr,
        protocol: &[u8],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        let authority =
            CertificateDer::from_pem_file(self.certificates.authority()).expect("a certificate");
        roots.add(authority).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(server).await?;
        let name = ServerName::try_from(NAME).expect("a name");
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    }

    /// Waits until no connections are open.
    async fn nobody(&self, transport: &str) {
        wait::until("the connections to be given back", async || {
            match self.metric("fdn_dns_encrypted_open", transport).await {
                0 => Ok(()),
                open => Err(format!("{open} are open")),
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_those_of_tcp() {
    let server = Encrypted::start(|_| {}).await;
    for (arguments, expected) in [
        (
            &["hello.fn.test", "A", "+subnet=198.51.100.0/24"][..],
            "127.0.2.1",
        ),
        (&["hello.fn.test", "A"], "ANSWER: 2"),
        (&["HeLLo.fn.TesT", "A"], "HeLLo.fn.TesT."),
        (&["fn.test", "SOA"], "ns1.fn.test."),
        (&["hello.fn.test", "AAAA"], "ANSWER: 0, AUTHORITY: 1"),
        (&["nobody.fn.test", "A"], "status: NXDOMAIN"),
        (&["example.org", "A"], "status: REFUSED"),
    ] {
        let plain = server
            .fixture
            .dig(
                &[
                    &[
                        "+tcp",
                        "+nocookie",
                        "+noall",
                        "+answer",
                        "+authority",
                        "+comments",
                    ],
                    arguments,
                ]
                .concat(),
            )
            .await;
        let records = |text: &str| {
            let mut lines: Vec<String> = text
                .lines()
                .filter(|line| !line.starts_with(';') && !line.is_empty())
                .map(str::to_owned)
                .collect();
            lines.sort();
            lines
        };
        for text in server.dig(arguments).await {
            assert!(text.contains(expected), "{arguments:?}: {text}");
            assert_eq!(records(&text), records(&plain), "{arguments:?}");
        }
        for text in server.kdig(NAME, arguments).await {
            // It formats counts differently, and prints names in lower case.
            let expected = expected.replace("ANSWER: 0, AUTHORITY: 1", "ANSWER: 0; AUTHORITY: 1");
            let (text, expected) = (text.to_lowercase(), expected.to_lowercase());
            assert!(text.contains(&expected), "{arguments:?}: {text}");
        }
    }
    for transport in ["tls", "https"] {
        let counted = format!(
            "fdn_dns_queries_total{{rcode=\"REFUSED\",transport=\"{transport}\",type=\"A\"}}"
        );
        assert!(server.fixture.metric(&counted).await >= 2, "{counted}");
        server.nobody(transport).await;
    }
    server.fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn padded_requests_get_answers_of_one_length() {
    let server = Encrypted::start(|_| {}).await;
    for arguments in [
        &["hello.fn.test", "A"][..],
        &["fn.test", "SOA"],
        &["nobody.fn.test", "A"],
        // Errors too, whether found by the scan or later.
        &["example.org", "A"],
        &["hello.fn.test", "A", "+opcode=4"],
    ] {
        let padded = [arguments, &["+padding=128"]].concat();
        for text in server.dig(&padded).await {
            assert!(text.contains("MSG SIZE  rcvd: 468"), "{padded:?}: {text}");
            assert!(text.contains("; PAD: "), "{padded:?}: {text}");
        }
        for text in server.dig(arguments).await {
            assert!(!text.contains("; PAD: "), "{arguments:?}: {text}");
        }
        // Where others can read the answer, padding would be useless.
        for transport in ["+tcp", "+notcp"] {
            let plain = server
                .fixture
                .dig(&[&padded[..], &[transport, "+nocookie"]].concat())
                .await;
            assert!(!plain.contains("; PAD: "), "{plain}");
        }
    }
    for text in server.kdig(NAME, &["hello.fn.test", "+padding"]).await {
        assert!(text.contains("Received 468 B"), "{text}");
    }
    server.fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_over_https_say_how_long_they_may_be_kept() {
    let server = Encrypted::start(|_| {}).await;
    let written = |name: &str, bytes: &[u8]| {
        let path = server.certificates.dir().join(name);
        std::fs::write(&path, bytes).expect("written");
        format!("@{}", path.display())
    };
    // 198.51.100.0/24, source length 24.
    let subnet =
        b"\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x0b\x00\x08\x00\x07\x00\x01\x18\x00\xc6\x33\x64";
    let nobody = b"\x06nobody\x02fn\x04test\x00\x00\x01\x00\x01";
    let foreign = b"\x07example\x03org\x00\x00\x01\x00\x01";
    for (asked, kept) in [
        (request([1, 0, 0, 1], &[HELLO_A, subnet]), "max-age=20"),
        (
            request([1, 0, 0, 1], &[HELLO_A, OPT]),
            "private, max-age=20",
        ),
        (request([1, 0, 0, 0], &[HELLO_A]), "private, max-age=20"),
        (request([1, 0, 0, 1], &[nobody, subnet]), "max-age=30"),
        (request([1, 0, 0, 0], &[foreign]), "private, max-age=0"),
    ] {
        let body = written("message", &asked);
        let type_of = "content-type: application/dns-message";
        let got = server
            .curl("/dns-query", &["--header", type_of, "--data-binary", &body])
            .await;
        assert_eq!(
            got[..4],
            ["200", "2", "application/dns-message", kept],
            "{asked:?}"
        );
    }
    // RFC 8484, section 4.1.1: the same in the URL, without padding; a query for www.example.com.
    let example = "/dns-query?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQAB";
    let got = server.curl(example, &[]).await;
    assert_eq!(got[..3], ["200", "2", "application/dns-message"]);
    assert_eq!(got[4], "33", "a refusal with its question");
    server.fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_over_https_that_are_none_get_a_status() {
    let server = Encrypted::start(|_| {}).await;
    let long = server.certificates.dir().join("long");
    std::fs::write(&long, [0; 5000]).expect("written");
    let answer = server.certificates.dir().join("answer");
    std::fs::write(&answer, [0, 1, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0]).expect("written");
    let (long, answer) = (
        format!("@{}", long.display()),
        format!("@{}", answer.display()),
    );
    let of_type = "content-type: application/dns-message";
    let no_length = [
        "--header",
        of_type,
        "--header",
        "transfer-encoding: chunked",
        "--data-binary",
        &long,
    ];
    let variable = format!("/dns-query?dns={}", "A".repeat(6000));
    for (path, arguments, expected) in [
        ("/", &[][..], "404"),
        ("/dns-query/", &[], "404"),
        ("/dns-query", &[], "400"),
        ("/dns-query?dns=", &[], "400"),
        ("/dns-query?dns=AAAB$", &[], "400"),
        ("/dns-query?dns=AAAB&dns=AAAB", &[], "400"),
        // A message shorter than a header, and a response instead of a query.
        ("/dns-query?dns=AAAB", &[], "400"),
        (
            "/dns-query",
            &["--header", of_type, "--data-binary", &answer],
            "400",
        ),
        (&variable, &[], "414"),
        (
            "/dns-query",
            &["--request", "PUT", "--header", of_type, "--data", "x"],
            "405",
        ),
        ("/dns-query", &["--request", "DELETE"], "405"),
        ("/dns-query", &["--data", "x"], "415"),
        (
            "/dns-query",
            &["--header", "content-type: application/json", "--data", "{}"],
            "415",
        ),
        (
            "/dns-query",
            &["--header", of_type, "--data-binary", &long],
            "413",
        ),
        ("/dns-query", &no_length, "413"),
    ] {
        let got = server.curl(path, arguments).await;
        assert_eq!(
            (got[0].as_str(), got[4].as_str()),
            (expected, "0"),
            "{path} {arguments:?}"
        );
    }
    let refused = "fdn_dns_https_refused_total{status=\"415\"}";
    assert_eq!(server.fixture.metric(refused).await, 2);
    // HTTP/1.1 is not supported: a client that offers only that gets no connection.
    let old = tokio::process::Command::new("curl")
        .args(["--silent", "--http1.1", "--insecure"])
        .arg(format!("https://{}/dns-query", server.https))
        .output()
        .await
        .expect("curl");
    assert!(!old.status.success());
    server.fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_protocol_and_the_certificate_are_shown() {
    let server = Encrypted::start(|_| {}).await;
    for (address, own, other) in [
        (server.tls, b"dot".as_slice(), b"h2".as_slice()),
        (server.https, b"h2", b"dot"),
    ] {
        let stream = server.connect(address, own).await.expect("connected");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(own));
        let refused = server
            .connect(address, other)
            .await
            .expect_err("another protocol");
        assert!(
            refused.to_string().contains("NoApplicationProtocol"),
            "{refused}"
        );
    }
    // A client that expects another server name gets nothing.
    for text in server.kdig("other.fn.test", &["hello.fn.test"]).await {
        assert!(!text.contains("ANSWER SECTION"), "{text}");
    }
    server.fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_that_say_nothing_or_little_are_let_go() {
    let server = Encrypted::start(|s| {
        s.encrypted.idle = DurationMs::from_millis(300);
        s.encrypted.handshake = DurationMs::from_millis(300);
    })
    .await;
    for (address, protocol, transport) in [
        (server.tls, b"dot".as_slice(), "tls"),
        (server.https, b"h2", "https"),
    ] {
        // No data at all, half a handshake, and a handshake without a request.
        let silent = TcpStream::connect(address).await.expect("connected");
        let mut half = TcpStream::connect(address).await.expect("connected");
        half.write_all(&[22, 3, 1, 2, 0, 1]).await.expect("sent");
        // A busy machine may not complete each handshake within that time.
        let connect = async || {
            wait::until("a handshake", async || {
                server.connect(address, protocol).await
            })
            .await
        };
        let idle = connect().await;
        // One byte at a time: of a message, or of the HTTP/2 preface.
        let slow = connect().await;
        let (mut reader, mut writer) = tokio::io::split(slow);
        let trickle = tokio::spawn(async move {
            let bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
            for byte in bytes.iter().cycle() {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if writer.write_all(&[*byte]).await.is_err() || writer.flush().await.is_err() {
                    return;
                }
            }
        });
        let mut rest = Vec::new();
        // The connection may be reset, because unread data was in flight.
        drop(reader.read_to_end(&mut rest).await);
        server.nobody(transport).await;
        assert!(
            server
                .metric("fdn_dns_handshakes_failed_total", transport)
                .await
                >= 2
        );
        trickle.abort();
        drop((silent, half, idle));
    }
    server.fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handshakes_and_connections_are_capped() {
    let server = Encrypted::start(|s| {
        s.encrypted.handshakes = 4;
        s.encrypted.per_client = 8;
        s.encrypted.handshake = DurationMs::from_secs(20);
    })
    .await;
    for (address, protocol, transport) in [
        (server.tls, b"dot".as_slice(), "tls"),
        (server.https, b"h2", "https"),
    ] {
        let mut held = Vec::new();
        // All beyond the fourth are closed at once.
        for _ in 0..6 {
            held.push(TcpStream::connect(address).await.expect("connected"));
        }
        wait::until("two to be refused", async || {
            match server
                .metric("fdn_dns_encrypted_refused_total", transport)
                .await
            {
                2 => Ok(()),
                n => Err(format!("{n} are")),
            }
        })
        .await;
        // While three of four places are in use, the last one has a tenth of the time: a legitimate client gets in.
        let stream = wait::until("a place to be free", async || {
            server.connect(address, protocol).await
        })
        .await;
        drop(held);
        drop(stream);
        server.nobody(transport).await;
        // Connections per client are limited as for TCP.
        let mut held = Vec::new();
        for _ in 0..8 {
            let connected = wait::until("a place to be free", async || {
                server.connect(address, protocol).await
            });
            held.push(connected.await);
        }
        server
            .connect(address, protocol)
            .await
            .expect_err("one too many");
        drop(held);
        server.nobody(transport).await;
    }
    server.fixture.dns.stop().await;
}

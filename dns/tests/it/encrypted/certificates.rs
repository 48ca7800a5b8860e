//! The certificate of the encrypted transports: it may be replaced while the server runs, and without it the server does not start.

use fdn_dns::Dns;
use fdn_testkit::wait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::{Encrypted, listening};
use crate::certificates::{Certificates, NAME};
use crate::common::{FakeController, settings};
use crate::endpoints::{HELLO_A, head, request};

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_certificate_counts_without_a_restart() {
    let server = Encrypted::start(|_| {}).await;
    let answered = async |name: &str| {
        let texts = server.kdig(name, &["hello.fn.test"]).await;
        texts.iter().all(|text| text.contains("ANSWER SECTION"))
    };
    assert!(answered(NAME).await);
    // An open connection stays open.
    let mut open = server.connect(server.tls, b"dot").await.expect("connected");
    server.certificates.issue("new.fn.test");
    wait::until("the new certificate to be shown", async || {
        if answered("new.fn.test").await {
            Ok(())
        } else {
            Err("not yet")
        }
    })
    .await;
    assert!(!answered(NAME).await);
    assert_eq!(ask(&mut open).await.expect("an answer").counts[1], 2);
    // Unreadable or mismatched files change nothing.
    let other = Certificates::new();
    for (path, text) in [
        (
            server.certificates.certificate(),
            "no certificate".to_owned(),
        ),
        (
            server.certificates.certificate(),
            std::fs::read_to_string(other.certificate()).expect("read"),
        ),
    ] {
        std::fs::write(path, text).expect("written");
        let name = "fdn_dns_certificate_errors_total";
        let before = server.fixture.metric(name).await;
        wait::until("the files to be found broken", async || {
            match server.fixture.metric(name).await {
                now if now > before => Ok(()),
                _ => Err("not yet"),
            }
        })
        .await;
        assert!(answered("new.fn.test").await);
    }
    server.certificates.issue(NAME);
    wait::until("the next certificate to be shown", async || {
        if answered(NAME).await {
            Ok(())
        } else {
            Err("not yet")
        }
    })
    .await;
    server.fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_certificate_a_server_does_not_start() {
    let dir = tempfile::tempdir().expect("folder");
    let certificates = Certificates::new();
    let other = Certificates::new();
    for (certificate, key, expected) in [
        (dir.path().join("none"), certificates.key(), "No such file"),
        (
            certificates.certificate(),
            dir.path().join("none"),
            "No such file",
        ),
        (certificates.certificate(), other.key(), "KeyMismatch"),
        (certificates.key(), certificates.key(), "no certificate"),
    ] {
        let mut settings = settings(dir.path());
        listening(&mut settings, &certificates);
        let name = certificate.display().to_string();
        settings.encrypted.certificate_file = Some(certificate);
        settings.encrypted.key_file = Some(key);
        let started = Dns::start(settings, Some(FakeController::new().0)).await;
        let error = started.err().expect("not started").to_string();
        assert!(error.contains(expected) && error.contains(&name), "{error}");
        assert!(error.contains("encrypted.key_file"), "{error}");
    }
}

/// Queries `hello.fn.test` over a stream.
async fn ask(stream: &mut TlsStream<TcpStream>) -> std::io::Result<crate::endpoints::Head> {
    let asked = request([1, 0, 0, 0], &[HELLO_A]);
    let len = u16::try_from(asked.len()).expect("short").to_be_bytes();
    stream.write_all(&[&len[..], &asked].concat()).await?;
    let mut answer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut answer).await?;
    Ok(head(&answer))
}

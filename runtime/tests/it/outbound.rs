//! Outbound requests of functions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fdn_core::ByteSize;
use fdn_runtime::{CallContext, Limits, MemoryLog};
use fdn_testkit::components;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::{call, context_with, generous, system_lines, until};

/// A server that answers every connection with these bytes, and counts connections and those closed by the other side.
struct Server {
    address: SocketAddr,
    opened: Arc<AtomicUsize>,
    closed: Arc<AtomicUsize>,
}

impl Server {
    async fn start(answer: &'static [u8]) -> Self {
        Self::start_on("127.0.0.1", answer).await
    }

    async fn start_on(ip: &str, answer: impl Into<Vec<u8>>) -> Self {
        let answer: Arc<[u8]> = answer.into().into();
        let listener = TcpListener::bind((ip, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (opened, closed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counts = (opened.clone(), closed.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counts.0.fetch_add(1, Ordering::SeqCst);
                let (closed, answer) = (counts.1.clone(), answer.clone());
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    while !request.ends_with(b"\r\n\r\n") {
                        match stream.read_buf(&mut request).await {
                            Ok(n) if n > 0 => {}
                            _ => break,
                        }
                    }
                    // The client may be gone already; that is what some tests check.
                    let _ = stream.write_all(&answer).await;
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                    closed.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self {
            address,
            opened,
            closed,
        }
    }

    fn opened(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nupstream";

fn allowing(hosts: &[String], limits: Limits) -> (CallContext, Arc<MemoryLog>) {
    let (mut context, log) = context_with(limits);
    context.allowed_hosts = Arc::new(hosts.iter().map(|h| h.parse().expect("a host")).collect());
    (context, log)
}

#[tokio::test]
async fn an_address_that_operator_and_manifest_name_is_reached() {
    let server = Server::start(OK).await;
    let authority = server.address.to_string();
    let (context, log) = allowing(std::slice::from_ref(&authority), generous());
    let answer = call(&components::outbound(&authority), context).await;
    assert_eq!(
        answer,
        Ok((200, Bytes::from_static(b"upstream"))),
        "{:?}",
        log.lines()
    );
    until("the connection is closed", || {
        server.closed.load(Ordering::SeqCst) == 1
    })
    .await;
}

#[tokio::test]
async fn what_is_not_allowed_is_denied_and_logged() {
    let server = Server::start(OK).await;
    let authority = server.address.to_string();
    for hosts in [
        vec![],
        vec!["api.example.com".to_owned()],
        vec![format!("127.0.0.1:{}", server.address.port() ^ 1)],
    ] {
        let (context, log) = allowing(&hosts, generous());
        let answer = call(&components::outbound(&authority), context).await;
        assert_eq!(answer, Ok((502, Bytes::from_static(b"15"))), "{hosts:?}");
        let lines = system_lines(&log);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains("allowed_hosts"), "{lines:?}");
    }
    assert_eq!(server.opened(), 0);
}

/// A loopback address that is not permitted: the engine's operator permits only 127.0.0.1.
const INNER: &str = "127.0.0.2";

#[tokio::test]
async fn an_address_that_only_the_manifest_names_is_not_reached() {
    let server = Server::start_on(INNER, OK).await;
    let port = server.address.port();
    // By the address itself, by other spellings of it, and by a wildcard that happens to match.
    for (allowed, host) in [
        (INNER, INNER),
        ("2130706434", "2130706434"),
        ("0x7f000002", "0x7f000002"),
        ("0177.0.0.2", "0177.0.0.2"),
        ("127.2", "127.2"),
        ("*.0.0.2", INNER),
    ] {
        let (context, log) = allowing(&[format!("{allowed}:{port}")], generous());
        let answer = call(&components::outbound(&format!("{host}:{port}")), context).await;
        assert_eq!(answer, Ok((502, Bytes::from_static(b"4"))), "{host}");
        assert!(
            system_lines(&log)[0].contains("loopback"),
            "{:?}",
            log.lines()
        );
    }
    assert_eq!(server.opened(), 0);
}

#[tokio::test]
async fn a_name_whose_address_the_operator_names_is_reached() {
    let server = Server::start(OK).await;
    let authority = format!("localhost:{}", server.address.port());
    let (context, log) = allowing(std::slice::from_ref(&authority), generous());
    let answer = call(&components::outbound(&authority), context).await;
    assert_eq!(
        answer.map(|(status, _)| status),
        Ok(200),
        "{:?}",
        log.lines()
    );
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let inner = Server::start_on(INNER, OK).await;
    let found = format!(
        "HTTP/1.1 302 Found\r\nlocation: http://{}/\r\ncontent-length: 0\r\n\r\n",
        inner.address
    );
    let server = Server::start_on("127.0.0.1", found).await;
    let authorities = [server.address.to_string(), inner.address.to_string()];
    let (context, _) = allowing(&authorities, generous());
    let answer = call(&components::outbound(&authorities[0]), context).await;
    assert_eq!(
        answer,
        Ok((200, Bytes::new())),
        "the function has the answer"
    );
    // A function that follows the redirect sends another request, which is checked like the first.
    let (context, _) = allowing(&authorities, generous());
    let answer = call(&components::outbound(&authorities[1]), context).await;
    assert_eq!(answer, Ok((502, Bytes::from_static(b"4"))));
    assert_eq!((server.opened(), inner.opened()), (1, 0));
}

#[tokio::test]
async fn a_refused_connection_is_an_error_for_the_function() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let authority = listener.local_addr().expect("an address").to_string();
    drop(listener);
    let (context, _) = allowing(std::slice::from_ref(&authority), generous());
    let answer = call(&components::outbound(&authority), context).await;
    assert_eq!(answer, Ok((502, Bytes::from_static(b"6"))));
}

#[tokio::test]
async fn a_silent_server_costs_no_more_than_the_timeout() {
    let server = Server::start(b"").await;
    let authority = server.address.to_string();
    let limits = Limits {
        // Long enough to make the connection on a busy machine.
        timeout: Duration::from_secs(3),
        ..generous()
    };
    let (context, _) = allowing(std::slice::from_ref(&authority), limits);
    let answer = call(&components::outbound(&authority), context).await;
    // Either of two timers may fire first: the request's or the call's.
    let refused = matches!(&answer, Ok((502, _)))
        || matches!(&answer, Err(fdn_runtime::CallError::Timeout { .. }));
    assert!(refused, "{answer:?}");
    until("the connection is closed", || {
        server.closed.load(Ordering::SeqCst) == 1
    })
    .await;
}

#[tokio::test]
async fn a_large_response_is_cut() {
    let server = Server::start(OK).await;
    let authority = server.address.to_string();
    let limits = Limits {
        outbound_body: ByteSize::from_bytes(7),
        ..generous()
    };
    let (context, _) = allowing(std::slice::from_ref(&authority), limits);
    let answer = call(&components::outbound(&authority), context).await;
    assert_eq!(
        answer,
        Ok((200, Bytes::new())),
        "the function saw an error in place of the body"
    );
}

#[tokio::test]
async fn the_number_of_requests_is_bounded() {
    let server = Server::start(OK).await;
    let authority = server.address.to_string();
    let limits = Limits {
        outbound_total: 0,
        ..generous()
    };
    let (context, log) = allowing(std::slice::from_ref(&authority), limits);
    let answer = call(&components::outbound(&authority), context).await;
    assert_eq!(answer, Ok((502, Bytes::from_static(b"11"))));
    assert!(
        system_lines(&log)[0].contains("too many"),
        "{:?}",
        log.lines()
    );
}

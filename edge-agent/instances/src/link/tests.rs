//! Classification of failures, against servers that misbehave in one way each.

use std::net::SocketAddr;

use http::HeaderValue;
use http::header::HOST;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::body::{empty_body, full_body};
use crate::call::CallOver;

fn get(path: &str) -> Request {
    http::Request::get(path).body(empty_body()).unwrap()
}

fn link(address: SocketAddr) -> HttpLink {
    HttpLink::new(Endpoint::Address(address), LinkLimits::default())
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Reads a request's head.
async fn head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(bytes).unwrap()
}

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

async fn body(response: Response) -> Result<Vec<u8>, crate::BoxError> {
    Ok(response.into_body().collect().await?.to_bytes().to_vec())
}

#[tokio::test]
async fn nobody_listening_gives_the_request_back() {
    let (listener, address) = listen().await;
    drop(listener);
    let request = http::Request::post("/x").body(full_body("whole")).unwrap();
    let failure = link(address).call(request).await.unwrap_err();
    let back = failure.into_request().expect("it was not sent");
    assert_eq!(
        back.into_body().collect().await.unwrap().to_bytes(),
        "whole"
    );
}

#[tokio::test]
async fn a_connection_that_ends_before_an_answer_is_an_interruption() {
    let (listener, address) = listen().await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await
    });
    let failure = link(address).call(get("/x")).await.unwrap_err();
    assert!(matches!(failure, CallFailure::Interrupted { .. }));
    assert!(server.await.unwrap().starts_with("GET /x HTTP/1.1\r\n"));
}

#[tokio::test]
async fn a_connection_serves_one_call_after_another() {
    let (listener, address) = listen().await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        for _ in 0..3 {
            head(&mut stream).await;
            stream.write_all(ANSWER).await.unwrap();
        }
    });
    let link = link(address);
    for _ in 0..3 {
        assert_eq!(
            body(link.call(get("/x")).await.unwrap()).await.unwrap(),
            b"ok"
        );
        assert_eq!(link.in_flight(), 0, "counted down when the body has ended");
    }
    server.await.unwrap();
}

#[tokio::test]
async fn an_idle_connection_that_the_server_closed_costs_nothing() {
    let (listener, address) = listen().await;
    let link = link(address);
    let server = tokio::spawn(async move {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            head(&mut stream).await;
            stream.write_all(ANSWER).await.unwrap();
        }
    });
    for _ in 0..2 {
        assert_eq!(
            body(link.call(get("/x")).await.unwrap()).await.unwrap(),
            b"ok"
        );
        // The server has closed the connection when this reads its end.
        loop {
            let closed = {
                let idle = link.pool.idle.lock().unwrap();
                idle.iter().all(|idle| idle.connection.sender.is_closed())
            };
            if closed {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    server.await.unwrap();
}

/// A request whose end can be observed.
fn held(path: &str) -> (Request, CallOver) {
    let (hold, over) = CallGuard::new();
    let mut request = get(path);
    request.extensions_mut().insert(hold);
    (request, over)
}

#[tokio::test]
async fn a_call_that_is_given_up_is_over_when_the_server_closes_and_not_before() {
    let (listener, address) = listen().await;
    let link = link(address);
    let (request, over) = held("/x");
    let mut calling = Box::pin(link.call(request));
    let served = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        stream
    };
    let mut stream = tokio::select! {
        answer = &mut calling => panic!("{answer:?}"),
        stream = served => stream,
    };
    assert!(!over.is_over(), "the server works on it");
    drop(calling);
    // The server sees the end of its input, and may continue working.
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    assert!(!over.is_over(), "and it is seen that it does");
    stream.write_all(ANSWER).await.unwrap();
    drop(stream);
    over.wait().await;
}

#[tokio::test]
async fn a_server_that_streams_to_nobody_is_cut_off() {
    let (listener, address) = listen().await;
    let link = link(address);
    let (request, over) = held("/x");
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head).await.unwrap();
        // It only checks its writes.
        while stream.write_all(b"1\r\nx\r\n").await.is_ok() {
            tokio::task::yield_now().await;
        }
    });
    let response = link.call(request).await.unwrap();
    assert!(!over.is_over(), "it streams");
    drop(response);
    serving.await.unwrap();
    over.wait().await;
}

#[tokio::test]
async fn whoever_does_not_want_to_know_cuts_the_connection() {
    let (listener, address) = listen().await;
    let link = link(address);
    let (request, over) = held("/x");
    let mut calling = Box::pin(link.call(request));
    let served = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        stream
    };
    let mut stream = tokio::select! {
        answer = &mut calling => panic!("{answer:?}"),
        stream = served => stream,
    };
    drop((calling, over));
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    // Sooner or later nobody receives what is written.
    while stream.write_all(&[b'x'; 1024]).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_call_that_was_answered_or_cut_is_over() {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        stream.write_all(ANSWER).await.unwrap();
        head(&mut stream).await;
    });
    let link = link(address);
    let (request, over) = held("/answered");
    body(link.call(request).await.unwrap()).await.unwrap();
    assert!(over.is_over());
    let (request, over) = held("/cut");
    let failure = link.call(request).await.unwrap_err();
    assert!(matches!(failure, CallFailure::Interrupted { .. }));
    over.wait().await;
}

#[tokio::test]
async fn a_short_body_ends_with_an_error() {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        let half = b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nonly half";
        stream.write_all(half).await.unwrap();
    });
    let response = link(address).call(get("/x")).await.unwrap();
    assert!(body(response).await.is_err());
}

#[test]
fn a_request_is_sent_in_origin_form_with_a_host() {
    let request = in_origin_form(get("http://hello.fn.test/a?b=c"));
    assert_eq!(request.uri(), "/a?b=c");
    assert_eq!(request.headers()[HOST], "hello.fn.test");
    let mut request = get("/a");
    request
        .headers_mut()
        .insert(HOST, HeaderValue::from_static("kept.example"));
    assert_eq!(in_origin_form(request).headers()[HOST], "kept.example");
}

//! Requests in, responses out.

use bytes::Bytes;
use fdn_runtime::{CallError, RequestBody};
use fdn_testkit::components;
use http_body::Body as _;
use http_body_util::{BodyExt as _, StreamBody};

use super::{PATIENCE, call, context, finish, get, light, load, request};

fn assert_send<T: Send>(value: T) -> T {
    value
}

#[tokio::test]
async fn a_small_answer_is_whole_when_its_head_is() {
    let function = load(&components::hello("hello, world"));
    let (response, stats) = light(|| assert_send(function.call(context(), get()))).await;
    assert_eq!(response.status(), 200);
    let body = assert_send(response.into_body());
    assert_eq!(body.as_full(), Some(&Bytes::from_static(b"hello, world")));
    assert_eq!(body.size_hint().exact(), Some(12));
    assert!(stats.finished && !stats.reused, "{stats:?}");
    assert_eq!(stats.response_bytes, 12);
    assert!(stats.memory_peak >= 65_536, "{stats:?}");
    assert!(stats.instance.is_some());
    assert!(stats.first_byte >= stats.instantiate, "{stats:?}");
    drop(assert_send(function.call(context(), get()).response()));
}

#[tokio::test]
async fn every_patch_version_of_wasi_runs() {
    for version in ["0.2.0", "0.2.3", "0.2.12", "0.2.99"] {
        let answer = call(&components::hello_for("hi", version), context()).await;
        assert_eq!(answer, Ok((200, Bytes::from_static(b"hi"))), "{version}");
    }
}

#[tokio::test]
async fn status_and_path_pass_through() {
    assert_eq!(
        call(&components::status(418), context()).await,
        Ok((418, Bytes::from_static(b"status")))
    );
    assert_eq!(
        call(&components::path(), context()).await,
        Ok((200, Bytes::from_static(b"/some/path?and=query")))
    );
}

#[tokio::test]
async fn bodies_of_every_kind_and_size_come_back() {
    let function = load(&components::echo());
    for size in [0, 1, 4096, 100_000, 3_000_000] {
        let bytes: Bytes = (0..size)
            .map(|i| (i % 251) as u8)
            .collect::<Vec<_>>()
            .into();
        let pieces: Vec<_> = bytes
            .chunks(10_000)
            .map(|piece| {
                Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::copy_from_slice(piece)))
            })
            .collect();
        for body in [
            RequestBody::full(bytes.clone()),
            RequestBody::new(StreamBody::new(futures::stream::iter(pieces))),
        ] {
            let (status, echoed) = finish(function.call(context(), request(body)))
                .await
                .expect("an answer");
            assert_eq!(status, 200);
            assert!(
                echoed == bytes,
                "{size} bytes came back as {}",
                echoed.len()
            );
        }
    }
}

#[tokio::test]
async fn a_body_streams_both_ways_at_once() {
    let (mut sender, body) = RequestBody::channel(1);
    let response = load(&components::echo())
        .call(context(), request(body))
        .response()
        .await
        .expect("a head before the body has begun");
    let mut body = response.into_body();
    for piece in ["one", "two", "three"] {
        sender.send(Bytes::from(piece)).await.expect("a reader");
        let frame = body.frame().await.expect("a frame").expect("no error");
        assert_eq!(frame.into_data().expect("data"), piece);
    }
    drop(sender);
    assert!(body.frame().await.is_none());
    assert!(body.is_end_stream());
}

#[tokio::test]
async fn an_aborted_upload_is_no_end_of_body() {
    let (mut sender, body) = RequestBody::channel(4);
    sender
        .send(Bytes::from_static(b"half"))
        .await
        .expect("room");
    sender.abort("the client went away");
    // The echo stops at the error; what matters is that it did not see a clean end of the body, which its own trap shows elsewhere.
    let answer = finish(load(&components::echo()).call(context(), request(body))).await;
    assert_eq!(answer, Ok((200, Bytes::from_static(b"half"))));
}

#[tokio::test]
async fn a_guest_that_waits_stays_on_its_task() {
    let function = load(&components::sleeping(20));
    let (response, stats) = light(|| function.call(context(), get())).await;
    assert_eq!(
        response.into_body().as_full(),
        Some(&Bytes::from_static(b"awake"))
    );
    assert!(stats.exec.as_millis() >= 20, "{stats:?}");
    assert!(stats.cpu < stats.exec, "waiting is no CPU time: {stats:?}");
}

#[tokio::test]
async fn a_guest_waits_for_as_long_as_its_path_says() {
    let mut asked = get();
    *asked.uri_mut() = "/30".parse().expect("a path");
    let call = load(&components::waiting()).call(context(), asked);
    let stats = call.stats();
    assert_eq!(finish(call).await, Ok((200, Bytes::from_static(b"awake"))));
    let stats = super::finished(&stats).await;
    assert!(stats.exec.as_millis() >= 30, "{stats:?}");
}

#[tokio::test]
async fn a_guest_may_go_on_after_its_answer() {
    let (context, log) = super::context_with(super::generous());
    let call = load(&components::lingering(20)).call(context, get());
    let stats = call.stats();
    assert_eq!(finish(call).await, Ok((200, Bytes::from_static(b"sent"))));
    let stats = super::finished(&stats).await;
    assert!(stats.heavy, "{stats:?}");
    assert_eq!(
        log.lines(),
        [(fdn_core::api::LogStream::Stdout, "after".to_owned())]
    );
}

#[tokio::test]
async fn a_trap_of_a_panic_names_where_it_happened() {
    let panicked = call(&components::panicking(), context()).await;
    let place = "executed in core::option::unwrap_failed, called by function::answer, called by ";
    assert!(
        matches!(&panicked, Err(CallError::Trapped { reason }) if reason.contains(place)),
        "{panicked:?}"
    );
}

#[tokio::test]
async fn a_guest_that_fails_before_anything_was_sent_is_a_clean_error() {
    let trapped = call(&components::trapping(), context()).await;
    assert!(
        matches!(&trapped, Err(CallError::Trapped { reason }) if reason.contains("unreachable")),
        "{trapped:?}"
    );
    let midway = call(&components::trapping_midway(), context()).await;
    assert!(
        matches!(midway, Err(CallError::Trapped { .. })),
        "{midway:?}"
    );
    let exited = call(&components::exiting(), context()).await;
    assert!(
        matches!(&exited, Err(CallError::Trapped { reason }) if reason.contains("status 1")),
        "{exited:?}"
    );
    let silent = call(&components::no_response(), context()).await;
    assert!(
        matches!(silent, Err(CallError::NoResponse { .. })),
        "{silent:?}"
    );
    let error = call(&components::answers_error(), context()).await;
    assert!(
        matches!(&error, Err(CallError::NoResponse { reason }) if reason.contains("InternalError")),
        "{error:?}"
    );
    let interim = call(&components::status(103), context()).await;
    assert!(
        matches!(&interim, Err(CallError::NoResponse { reason }) if reason.contains("103")),
        "{interim:?}"
    );
}

#[tokio::test]
async fn every_failure_is_in_the_log_once() {
    for component in [
        components::trapping(),
        components::no_response(),
        components::answers_error(),
    ] {
        let (context, log) = super::context_with(super::generous());
        let error = call(&component, context).await.expect_err("a failure");
        assert_eq!(super::system_lines(&log), [error.to_string()]);
    }
}

#[tokio::test]
async fn a_request_without_a_host_is_refused() {
    let request = http::Request::get("/")
        .body(RequestBody::empty())
        .expect("a request");
    let answer = finish(load(&components::hello("hi")).call(context(), request)).await;
    assert!(
        matches!(answer, Err(CallError::BadRequest { .. })),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_dropped_call_ends_its_guest() {
    let (context, log) = super::context_with(super::generous());
    let call = load(&components::sleeping(3_600_000)).call(context, get());
    let stats = call.stats();
    let waiting = tokio::time::timeout(std::time::Duration::from_millis(20), call.response()).await;
    assert!(waiting.is_err());
    let running = stats.snapshot();
    super::finished(&stats).await;
    let ended = stats.snapshot();
    // From the call's start, the instance's making included; the wait began just after it.
    let took = ended.instantiate + ended.exec;
    assert!(took >= std::time::Duration::from_millis(20), "{ended:?}");
    assert!(!ended.exec.is_zero(), "{ended:?}");
    assert!(running.exec <= ended.exec, "{running:?}");
    assert!(
        log.lines().is_empty(),
        "a client that left is no fault of the function"
    );
}

#[tokio::test]
async fn calls_run_at_the_same_time() {
    let function = load(&components::echo());
    let answers = futures::future::join_all((0..50_u8).map(|i| {
        let call = function.call(context(), request(RequestBody::full(vec![i; 20_000])));
        tokio::spawn(async move { (i, finish(call).await) })
    }));
    for answer in tokio::time::timeout(PATIENCE, answers)
        .await
        .expect("in time")
    {
        let (i, answer) = answer.expect("no panic");
        assert_eq!(answer, Ok((200, Bytes::from(vec![i; 20_000]))));
    }
}

//! Calls of a running instance.

use std::num::NonZeroU32;
use std::time::Duration;

use bytes::Bytes;
use fdn_core::{ErrorCode, MebiBytes};
use fdn_instances::{BoxError, CallFailure, InstanceState};
use futures::future::join_all;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::mpsc;

use crate::subject::{PATIENCE, Program, Running, Subject, ask, get};

pub(crate) async fn a_started_instance_answers_at_once(subject: &dyn Subject) {
    let running = Running::start(subject, Program::Hello).await;
    assert_eq!(*running.instance.state().borrow(), InstanceState::Ready);
    for _ in 0..20 {
        assert_eq!(ask(&*running.instance, "/hello").await, "hello");
    }
    running.end().await;
}

pub(crate) async fn calls_run_at_the_same_time(subject: &dyn Subject) {
    let running = Running::with(subject, Program::Sleep, |spec| {
        spec.description.concurrency = NonZeroU32::new(16).expect("it cannot fail here");
        spec.description.resources.memory_mib = MebiBytes(16 * 64);
    })
    .await;
    let began = tokio::time::Instant::now();
    join_all((0..16).map(|_| ask(&*running.instance, "/sleep/3000"))).await;
    // One after another they would take at least forty-eight seconds; the bound is not a measurement.
    assert!(began.elapsed() < Duration::from_secs(48));
    running.end().await;
}

pub(crate) async fn bodies_stream_in_both_directions(subject: &dyn Subject) {
    let running = Running::start(subject, Program::Echo).await;
    let (sender, mut receiver) = mpsc::channel::<Bytes>(1);
    let pieces = futures::stream::poll_fn(move |cx| {
        receiver
            .poll_recv(cx)
            .map(|piece| piece.map(|bytes| Ok::<_, BoxError>(Frame::data(bytes))))
    });
    let request = http::Request::post("/echo")
        .body(StreamBody::new(pieces).boxed_unsync())
        .expect("it cannot fail here");
    let exchange = async {
        sender
            .send(Bytes::from_static(b"first "))
            .await
            .expect("it cannot fail here");
        let mut body = running
            .instance
            .call(request)
            .await
            .expect("it cannot fail here")
            .into_body();
        let mut seen = Vec::new();
        // The first piece comes back while the request is still open.
        while seen.len() < 6 {
            let frame = body.frame().await.expect("a frame").expect("no error");
            seen.extend_from_slice(&frame.into_data().unwrap_or_default());
        }
        assert_eq!(seen, b"first ");
        sender
            .send(Bytes::from_static(b"second"))
            .await
            .expect("it cannot fail here");
        drop(sender);
        let rest = body.collect().await.expect("a whole body").to_bytes();
        assert_eq!(rest, "second");
    };
    tokio::time::timeout(PATIENCE, exchange)
        .await
        .expect("both directions are open at once");
    let large: Bytes = vec![7; 3 << 20].into();
    let request = http::Request::post("/echo")
        .body(fdn_instances::full_body(large.clone()))
        .expect("it cannot fail here");
    let answer = running.instance.call(request).await.expect("an answer");
    let back = answer.into_body().collect().await.expect("a whole body");
    assert_eq!(back.to_bytes(), large);
    running.end().await;
}

pub(crate) async fn variables_and_secrets_reach_it(subject: &dyn Subject) {
    let expected = [
        (Program::Env, "/env/GREETING", "good day, =\"x\""),
        (Program::Secret, "/env/TOKEN", "hush"),
    ];
    for (program, path, value) in expected {
        let running = Running::with(subject, program, |spec| {
            spec.env.insert(
                "GREETING".parse().expect("it parses"),
                "good day, =\"x\"".to_owned(),
            );
            spec.secrets
                .0
                .insert("TOKEN".parse().expect("it parses"), "hush".to_owned());
        })
        .await;
        assert_eq!(ask(&*running.instance, path).await, value, "{path}");
        let shown = format!("{:?}", running.instance);
        assert!(!shown.contains("hush"), "{shown}");
        running.end().await;
    }
}

pub(crate) async fn a_dropped_call_leaves_the_instance_usable(subject: &dyn Subject) {
    let running = Running::start(subject, Program::Sleep).await;
    let call = running.instance.call(get("/sleep/3000"));
    let dropped = tokio::time::timeout(Duration::from_millis(50), call).await;
    assert!(dropped.is_err(), "it was dropped while it ran");
    ask(&*running.instance, "/sleep/1").await;
    running.end().await;
}

pub(crate) async fn memory_is_limited(subject: &dyn Subject) {
    let running = Running::start(subject, Program::Hog).await;
    match running.instance.call(get("/alloc/200")).await {
        // The head may be sent before memory runs short.
        Ok(response) => {
            let status = response.status();
            let body = response.into_body().collect().await;
            assert!(body.is_err(), "200 MiB in an instance of 64: {status}");
        }
        Err(CallFailure::Interrupted { code, .. }) => {
            let codes = [ErrorCode::InstanceLost, ErrorCode::FunctionMemoryLimit];
            assert!(codes.contains(&code), "{code}");
        }
        Err(failure) => panic!("the function was called: {failure:?}"),
    }
    running
        .instance
        .stop(Duration::ZERO)
        .await
        .expect("it ends");
    assert_eq!(subject.leftovers(&running.owner).await, 0, "nothing stays");
}

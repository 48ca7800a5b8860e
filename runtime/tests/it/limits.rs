//! What a function must not do, and how it ends when it tries.

use std::time::Duration;

use bytes::Bytes;
use fdn_core::{ByteSize, Coded as _, ErrorCode};
use fdn_runtime::{CallError, Engine, EngineOptions, Limits, RequestBody};
use fdn_testkit::components;
use http_body_util::BodyExt as _;

use super::{
    call, context, context_with, finish, generous, get, load, load_into, request, system_lines,
};

#[tokio::test]
async fn an_endless_loop_ends_with_its_cpu_time() {
    let limit = Duration::from_millis(50);
    let (context, log) = context_with(Limits {
        cpu_time: limit,
        ..generous()
    });
    let call = load(&components::looping()).call(context, get());
    let stats = call.stats();
    let error = finish(call).await.expect_err("no answer");
    assert_eq!(error, CallError::CpuLimit { limit });
    assert_eq!(error.code(), ErrorCode::FunctionCpuLimit);
    let stats = stats.snapshot();
    assert!(stats.heavy && stats.cpu >= limit, "{stats:?}");
    assert_eq!(system_lines(&log), [error.to_string()]);
}

#[tokio::test]
async fn an_endless_loop_ends_with_its_timeout() {
    let limit = Duration::from_millis(50);
    let answer = call(
        &components::looping(),
        context_with(Limits {
            timeout: limit,
            ..generous()
        })
        .0,
    )
    .await;
    assert_eq!(answer, Err(CallError::Timeout { limit }));
}

#[tokio::test]
async fn waiting_ends_with_the_timeout() {
    let limit = Duration::from_millis(50);
    let (context, log) = context_with(Limits {
        timeout: limit,
        ..generous()
    });
    let answer = call(&components::sleeping(3_600_000), context).await;
    assert_eq!(answer, Err(CallError::Timeout { limit }));
    assert_eq!(system_lines(&log).len(), 1);
}

#[tokio::test]
async fn a_loop_after_the_head_cuts_the_body() {
    let limit = Duration::from_millis(50);
    let (context, log) = context_with(Limits {
        cpu_time: limit,
        ..generous()
    });
    let response = load(&components::looping_midway())
        .call(context, get())
        .response()
        .await
        .expect("a head");
    let mut body = response.into_body();
    let first = body.frame().await.expect("a frame").expect("no error");
    assert_eq!(first.into_data().expect("data"), "partial");
    let error = body
        .frame()
        .await
        .expect("an end")
        .expect_err("not a clean one");
    assert_eq!(error, CallError::CpuLimit { limit });
    assert!(body.frame().await.is_none());
    assert_eq!(system_lines(&log), [error.to_string()]);
}

#[tokio::test]
async fn memory_is_refused_beyond_its_limit() {
    let limits = Limits {
        memory: ByteSize::from_mib(4),
        ..generous()
    };
    let (context, log) = context_with(limits);
    let call_ = load(&components::hog()).call(context, get());
    let stats = call_.stats();
    let error = finish(call_).await.expect_err("no answer");
    assert!(
        matches!(&error, CallError::MemoryLimit { limit, .. } if *limit == limits.memory),
        "{error}"
    );
    assert_eq!(error.code(), ErrorCode::FunctionMemoryLimit);
    let peak = stats.snapshot().memory_peak;
    assert!(peak <= 4 << 20 && peak > 3 << 20, "{peak}");
    assert_eq!(system_lines(&log).len(), 1);
    // A guest that can live with the refusal is not punished.
    assert_eq!(
        call(&components::frugal(), context_with(limits).0).await,
        Ok((200, Bytes::from_static(b"full")))
    );
    // A guest whose first memory is too large gets the same error.
    let tiny = Limits {
        memory: ByteSize::from_bytes(1 << 15),
        ..generous()
    };
    let answer = call(&components::hello("hi"), context_with(tiny).0).await;
    assert!(
        matches!(answer, Err(CallError::MemoryLimit { .. })),
        "{answer:?}"
    );
}

#[tokio::test]
async fn what_a_guest_leaves_with_the_host_is_bounded() {
    for component in [
        components::hoarding_answers(140),
        components::hoarding_requests(400),
        components::hoarding_headers(1100),
    ] {
        let (context, log) = context_with(generous());
        let error = call(&component, context).await.expect_err("no answer");
        assert!(
            matches!(&error, CallError::Trapped { reason } if reason.contains("not sent")),
            "{error}"
        );
        assert_eq!(system_lines(&log), [error.to_string()]);
    }
    // As many as a call may send do no harm: the guest ends for another reason.
    let limit = Duration::from_millis(50);
    let limits = Limits {
        cpu_time: limit,
        ..generous()
    };
    let answer = call(&components::hoarding_answers(100), context_with(limits).0).await;
    assert_eq!(answer, Err(CallError::CpuLimit { limit }));
}

#[tokio::test]
async fn an_endless_body_is_cut_at_its_limit() {
    let limit = ByteSize::from_mib(1);
    let (context, log) = context_with(Limits {
        response: limit,
        ..generous()
    });
    let response = load(&components::endless_body())
        .call(context, get())
        .response()
        .await
        .expect("a head");
    let mut body = response.into_body();
    let mut size = 0;
    let error = loop {
        match body.frame().await.expect("no clean end") {
            Ok(frame) => size += frame.into_data().expect("data").len(),
            Err(error) => break error,
        }
    };
    assert_eq!(error, CallError::ResponseTooLarge { limit });
    assert!(size <= 1 << 20, "{size}");
    assert_eq!(system_lines(&log), [error.to_string()]);
}

#[tokio::test]
async fn a_body_that_is_too_large_before_anything_was_sent_is_a_clean_error() {
    let limit = ByteSize::from_bytes(4);
    let (context, log) = context_with(Limits {
        response: limit,
        ..generous()
    });
    let error = call(&components::hello("hello"), context)
        .await
        .expect_err("no answer");
    assert_eq!(error, CallError::ResponseTooLarge { limit });
    assert_eq!(system_lines(&log), [error.to_string()]);
}

#[tokio::test]
async fn a_request_body_is_cut_at_its_limit() {
    let limit = ByteSize::from_bytes(10);
    let limits = Limits {
        body: limit,
        ..generous()
    };
    let echo = load(&components::echo());
    let send = |size: usize| {
        let body = RequestBody::full(vec![b'x'; size]);
        finish(echo.call(context_with(limits).0, request(body)))
    };
    assert_eq!(send(10).await, Ok((200, Bytes::from_static(b"xxxxxxxxxx"))));
    let error = send(11).await.expect_err("too large");
    assert_eq!(error, CallError::RequestTooLarge { limit });
    assert_eq!(error.code(), ErrorCode::BodyTooLarge);
}

#[tokio::test]
async fn a_full_node_refuses_and_recovers() {
    let engine = Engine::new(EngineOptions {
        max_instances: 1,
        ..EngineOptions::default()
    })
    .expect("an engine");
    let sleeper = load_into(&engine, &components::sleeping(3_600_000));
    let hello = load_into(&engine, &components::hello("hi"));
    let sleeping = tokio::spawn(sleeper.call(context(), get()).response());
    super::until("the first instance lives", || {
        engine.stats().live_instances == 1
    })
    .await;
    let refused = finish(hello.call(context(), get()))
        .await
        .expect_err("no room");
    assert!(matches!(refused, CallError::Overloaded { .. }), "{refused}");
    assert_eq!(refused.code(), ErrorCode::Overloaded);
    sleeping.abort();
    super::until("the first instance is gone", || {
        engine.stats().live_instances == 0
    })
    .await;
    assert_eq!(
        finish(hello.call(context(), get())).await,
        Ok((200, Bytes::from_static(b"hi")))
    );
}

#[tokio::test]
async fn variables_are_those_of_the_context_and_no_others() {
    let mut with = context();
    with.env = [("GREETING".to_owned(), "hi".to_owned())]
        .into_iter()
        .collect();
    let answer = call(&components::env_dump("GREETING"), with.clone()).await;
    assert_eq!(answer, Ok((200, Bytes::from_static(b"hi"))));
    // The test's own environment has a PATH.
    assert_eq!(
        call(&components::env_dump("PATH"), with)
            .await
            .map(|(status, _)| status),
        Ok(404)
    );
}

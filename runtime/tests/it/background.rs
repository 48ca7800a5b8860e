//! Heavy guests beside light ones.

use bytes::Bytes;
use fdn_runtime::{CallError, Engine, EngineOptions};
use fdn_testkit::components;
use http_body_util::BodyExt as _;

use super::{context, context_with, finish, generous, get, load, load_into, system_lines, until};

/// One thread for callers, as in an agent's gateway.
#[tokio::test]
async fn endless_loops_do_not_keep_a_light_call_from_ending() {
    let engine = Engine::new(EngineOptions {
        max_instances: 20,
        heavy_threads: 1,
        ..EngineOptions::default()
    })
    .expect("an engine");
    let looping = load_into(&engine, &components::looping());
    let hello = load_into(&engine, &components::hello("hi"));
    let loops: Vec<_> = (0..2)
        .map(|_| tokio::spawn(looping.call(context(), get()).response()))
        .collect();
    until("both loops are in the background", || {
        engine.stats().heavy_calls == 2
    })
    .await;
    for _ in 0..100 {
        let call = hello.call(context(), get());
        assert_eq!(finish(call).await, Ok((200, Bytes::from_static(b"hi"))));
    }
    // The light call did not just wait for the loops to end.
    assert!(loops.iter().all(|task| !task.is_finished()));
    assert_eq!(engine.stats().heavy_calls, 2);
    // Heavy guests that end get their share of the one thread as well.
    let burning = load_into(&engine, &components::cpu_bound(20));
    let call = burning.call(context(), get());
    let stats = call.stats();
    assert_eq!(finish(call).await, Ok((200, Bytes::from_static(b"done"))));
    assert!(stats.snapshot().heavy);
    for task in &loops {
        task.abort();
    }
    until("aborted calls leave the background", || {
        engine.stats().heavy_calls == 0
    })
    .await;
    until("and their instances are gone", || {
        engine.stats().live_instances == 0
    })
    .await;
}

#[tokio::test]
async fn the_background_is_bounded() {
    let engine = Engine::new(EngineOptions {
        max_instances: 10,
        heavy_threads: 1,
        heavy_calls: 1,
        ..EngineOptions::default()
    })
    .expect("an engine");
    let looping = load_into(&engine, &components::looping());
    let first = tokio::spawn(looping.call(context(), get()).response());
    until("the first loop is in the background", || {
        engine.stats().heavy_calls == 1
    })
    .await;
    let second = finish(looping.call(context(), get()))
        .await
        .expect_err("no place");
    assert!(matches!(second, CallError::Overloaded { .. }), "{second}");
    assert!(!first.is_finished());
    first.abort();
}

#[tokio::test]
async fn a_heavy_guest_answers_from_the_background() {
    let call = load(&components::cpu_bound(50)).call(context(), get());
    let stats = call.stats();
    assert_eq!(finish(call).await, Ok((200, Bytes::from_static(b"done"))));
    let stats = super::finished(&stats).await;
    assert!(stats.heavy && stats.cpu.as_millis() >= 1, "{stats:?}");
}

#[tokio::test]
async fn dropping_the_body_ends_a_heavy_guest() {
    let engine = Engine::new(EngineOptions {
        max_instances: 10,
        ..EngineOptions::default()
    })
    .expect("an engine");
    let call = load_into(&engine, &components::looping_midway()).call(context(), get());
    let response = call.response().await.expect("a head");
    drop(response);
    until("the guest is gone", || engine.stats().heavy_calls == 0).await;
    until("and its instance", || engine.stats().live_instances == 0).await;
}

#[tokio::test]
async fn a_guest_whose_body_nobody_polls_can_be_ended_at_its_timeout() {
    let engine = Engine::new(EngineOptions {
        max_instances: 10,
        ..EngineOptions::default()
    })
    .expect("an engine");
    let (context, log) = context_with(generous());
    let call = load_into(&engine, &components::looping_midway()).call(context, get());
    let response = call.response().await.expect("a head");
    let mut body = response.into_body();
    body.expire();
    until("the guest is gone", || engine.stats().heavy_calls == 0).await;
    let limit = generous().timeout;
    let cut = body.collect().await.expect_err("a truncated body");
    assert_eq!(cut, CallError::Timeout { limit });
    assert_eq!(system_lines(&log), [cut.to_string()]);
}

#[tokio::test]
async fn an_answer_is_complete_though_there_is_no_place_for_what_follows_it() {
    let engine = Engine::new(EngineOptions {
        max_instances: 10,
        heavy_calls: 0,
        ..EngineOptions::default()
    })
    .expect("an engine");
    let function = load_into(&engine, &components::lingering(60_000));
    let mut answer = finish(function.call(context(), get())).await;
    for _ in 0..100 {
        if answer.is_ok() {
            break;
        }
        // On a busy machine even a light guest may need a place before it answers.
        answer = finish(function.call(context(), get())).await;
    }
    assert_eq!(answer, Ok((200, Bytes::from_static(b"sent"))));
}

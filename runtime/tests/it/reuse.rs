//! Fresh instances, and instances that serve several calls.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fdn_runtime::{CallContext, Engine, EngineOptions, Function, RequestBody};
use fdn_testkit::components;

use super::{context, finish, get, load, load_into, request, until};

fn reusing(reuse: u32) -> CallContext {
    CallContext { reuse, ..context() }
}

async fn count(function: &std::sync::Arc<Function>, context: CallContext) -> String {
    let (_, body) = finish(function.call(context, get()))
        .await
        .expect("an answer");
    String::from_utf8(body.to_vec()).expect("digits")
}

#[tokio::test]
async fn every_call_has_a_fresh_instance_by_default() {
    let counter = load(&components::counter());
    for _ in 0..3 {
        assert_eq!(count(&counter, context()).await, "1");
    }
    assert_eq!(counter.idle_instances(), 0);
}

#[tokio::test]
async fn an_instance_serves_as_many_calls_as_it_may() {
    let counter = load(&components::counter());
    let mut seen = Vec::new();
    for _ in 0..7 {
        seen.push(count(&counter, reusing(3)).await);
    }
    assert_eq!(seen, ["1", "2", "3", "1", "2", "3", "1"]);
    assert_eq!(counter.idle_instances(), 1);
    let call = counter.call(reusing(3), get());
    let stats = call.stats();
    finish(call).await.expect("an answer");
    assert!(stats.snapshot().reused);
    // A call that requires a fresh instance gets one although an idle one exists.
    assert_eq!(count(&counter, context()).await, "1");
    assert_eq!(counter.drop_idle(), 1);
    assert_eq!(count(&counter, reusing(3)).await, "1");
}

#[tokio::test]
async fn as_many_idle_instances_are_dropped_as_hold_what_is_wanted() {
    let engine = Engine::new(EngineOptions {
        max_instances: 10,
        ..EngineOptions::default()
    })
    .expect("an engine");
    let functions: Vec<_> = (0..3)
        .map(|_| load_into(&engine, &components::counter()))
        .collect();
    for (holds, function) in [2_u64, 3, 4].into_iter().zip(&functions) {
        let context = CallContext {
            resource_guard: Some(Arc::new(holds)),
            ..reusing(10)
        };
        assert_eq!(count(function, context).await, "1");
    }
    // One that holds nothing.
    let other = load_into(&engine, &components::counter());
    assert_eq!(count(&other, reusing(10)).await, "1");
    let idle = || -> Vec<usize> {
        let all = functions.iter().chain([&other]);
        all.map(|function| function.idle_instances()).collect()
    };
    let drop_for = |wanted| {
        engine.drop_idle_holding(wanted, |guard| {
            guard.downcast_ref::<u64>().copied().unwrap_or_default()
        })
    };
    assert_eq!(drop_for(10), 0, "all of them hold less");
    assert_eq!(idle(), [1, 1, 1, 1]);
    // The first one is the last used now.
    assert_eq!(count(&functions[0], reusing(10)).await, "2");
    assert_eq!(drop_for(5), 2);
    assert_eq!(idle(), [1, 0, 0, 1]);
}

#[tokio::test]
async fn other_variables_mean_another_instance() {
    let counter = load(&components::counter());
    let mut other = reusing(10);
    other.env = [("A".to_owned(), "1".to_owned())].into_iter().collect();
    assert_eq!(count(&counter, reusing(10)).await, "1");
    assert_eq!(count(&counter, other.clone()).await, "1");
    assert_eq!(count(&counter, reusing(10)).await, "2");
    assert_eq!(count(&counter, other).await, "2");
}

#[tokio::test]
async fn what_fails_is_not_used_again() {
    for component in [
        components::trapping(),
        components::no_response(),
        components::hog(),
    ] {
        let function = load(&component);
        finish(function.call(reusing(10), get()))
            .await
            .expect_err("a failure");
        assert_eq!(function.idle_instances(), 0);
    }
}

#[tokio::test]
async fn bodies_do_not_mix_between_calls_of_one_instance() {
    let echo = load(&components::echo());
    for i in 0..50_u8 {
        let body = RequestBody::full(vec![i; 10_000]);
        let answer = finish(echo.call(reusing(1000), request(body))).await;
        assert_eq!(answer, Ok((200, Bytes::from(vec![i; 10_000]))));
    }
    assert_eq!(echo.idle_instances(), 1);
}

#[tokio::test]
async fn output_goes_to_the_call_that_wrote_it() {
    // The guest requests its stream again in each call; for the host, all are the same stream.
    let logging = load(&components::logging("out\n", "err\n"));
    for _ in 0..3 {
        let (mut context, log) = super::context_with(super::generous());
        context.reuse = 10;
        finish(logging.call(context, get()))
            .await
            .expect("an answer");
        assert_eq!(log.lines().len(), 2);
    }
}

#[tokio::test]
async fn idle_instances_are_bounded_and_expire() {
    let engine = Engine::new(EngineOptions {
        max_instances: 20,
        idle_per_function: 2,
        idle_expiry: Duration::from_millis(50),
        ..EngineOptions::default()
    })
    .expect("an engine");
    let sleeping = load_into(&engine, &components::sleeping(30));
    let calls = (0..5).map(|_| finish(sleeping.call(reusing(10), get())));
    for answer in futures::future::join_all(calls).await {
        answer.expect("an answer");
    }
    assert!(sleeping.idle_instances() <= 2);
    until("idle instances have expired", || {
        engine.stats().live_instances == 0
    })
    .await;
    assert_eq!(sleeping.idle_instances(), 0);
}

#[tokio::test]
async fn idle_instances_make_room_for_calls() {
    let engine = Engine::new(EngineOptions {
        max_instances: 1,
        ..EngineOptions::default()
    })
    .expect("an engine");
    let counter = load_into(&engine, &components::counter());
    assert_eq!(count(&counter, reusing(10)).await, "1");
    assert_eq!(engine.stats().idle_instances, 1);
    let hello = load_into(&engine, &components::hello("hi"));
    assert_eq!(
        finish(hello.call(context(), get())).await,
        Ok((200, Bytes::from_static(b"hi")))
    );
    assert_eq!(engine.stats().idle_instances, 0);
}

#[tokio::test]
async fn a_call_that_needs_room_drops_the_instances_that_were_used_longest_ago() {
    let engine = Engine::new(EngineOptions {
        max_instances: 6,
        ..EngineOptions::default()
    })
    .expect("an engine");
    let functions: Vec<_> = (0..6)
        .map(|_| load_into(&engine, &components::counter()))
        .collect();
    for function in &functions {
        assert_eq!(count(function, reusing(10)).await, "1");
    }
    assert_eq!(engine.stats().idle_instances, 6);
    let hello = load_into(&engine, &components::hello("hi"));
    let answer = finish(hello.call(context(), get())).await;
    assert_eq!(answer, Ok((200, Bytes::from_static(b"hi"))));
    let idle: Vec<_> = functions.iter().map(|f| f.idle_instances()).collect();
    assert_eq!(idle, [0, 0, 0, 0, 1, 1]);
    assert_eq!(engine.drop_idle_oldest(1), 1);
    assert_eq!(functions[5].idle_instances(), 1);
    assert_eq!(engine.drop_idle_oldest(10), 1);
    assert_eq!(engine.drop_idle_oldest(1), 0);
}

#[tokio::test]
async fn an_unloaded_function_leaves_nothing() {
    let engine = Engine::new(EngineOptions {
        max_instances: 5,
        ..EngineOptions::default()
    })
    .expect("an engine");
    let counter = load_into(&engine, &components::counter());
    count(&counter, reusing(10)).await;
    assert_eq!(
        (engine.stats().functions, engine.stats().live_instances),
        (1, 1)
    );
    drop(counter);
    assert_eq!(
        (engine.stats().functions, engine.stats().live_instances),
        (0, 0)
    );
}

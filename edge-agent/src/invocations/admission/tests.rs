use fdn_core::{DurationMs, MilliCpu, Resources};
use futures::FutureExt;

use super::*;

struct Node {
    admission: Admission,
    app: Arc<AppMetrics>,
    metrics: Metrics,
}

fn node(memory: u64, slots: u32, waiting: u32, wait: u64) -> Node {
    shared_node(memory, (slots, 100), waiting, wait)
}

fn shared_node(memory: u64, shared: (u32, u8), waiting: u32, wait: u64) -> Node {
    reclaiming_node(memory, shared, (waiting, wait), Box::new(|_| 0))
}

fn reclaiming_node(
    memory: u64,
    (slots, share): (u32, u8),
    (waiting, wait): (u32, u64),
    reclaim: Reclaim,
) -> Node {
    let metrics = Metrics::new(&"n-1".parse().expect("node")).expect("metrics");
    let settings = AdmissionSettings {
        slots,
        app_share: share.try_into().expect("a share"),
        tenant_share: fdn_core::device::Percent::WHOLE,
        waiting,
        wait: DurationMs::from_millis(wait),
        held: 1,
        hold: DurationMs::from_secs(1),
    };
    let ledger = Ledger::new(Resources::new(MilliCpu(1000), MebiBytes(memory)), slots);
    let queue = QueueSettings {
        per_function: 10_000,
        ..QueueSettings::default()
    };
    let admission = Admission::new(&settings, &queue, ledger, reclaim, &metrics);
    Node {
        admission: admission.expect("valid"),
        app: metrics.app(&"hello".parse().expect("app")),
        metrics,
    }
}

/// Later than any of these tests ends.
fn far() -> Instant {
    Instant::now() + Duration::from_secs(600)
}

fn of(execution: f64) -> Expected {
    Expected {
        execution: Millis::new(execution),
        start: Millis::ZERO,
        warm: false,
    }
}

impl Node {
    async fn enter(
        &self,
        function_queue: &FunctionQueue,
    ) -> Result<(Slot, MemoryReservation), Refused> {
        self.admission
            .enter(function_queue, &self.app, far(), || of(1.0))
            .await
    }

    fn waiting(&self) -> usize {
        self.admission.queue.lock().admission_queue.waiting()
    }
}

#[tokio::test]
async fn who_finds_no_slot_waits_and_who_waits_too_long_is_refused() {
    let node = node(100, 1, 1, 20);
    let function_queue = FunctionQueue::new(MebiBytes(1));
    let slot = node.enter(&function_queue).await.expect("free");
    assert_eq!(
        (node.admission.ledger.running(), node.app.busy_now()),
        (1, 1)
    );
    let (first, second) = tokio::join!(node.enter(&function_queue), node.enter(&function_queue));
    assert_eq!(first.expect_err("waited too long"), Refused::Late);
    assert_eq!(second.expect_err("no place to wait"), Refused::Full);
    drop(slot);
    assert_eq!(
        (
            node.admission.ledger.running(),
            node.app.busy_now(),
            node.app.waiting_now()
        ),
        (0, 0, 0)
    );
    assert!(node.enter(&function_queue).await.is_ok());
}

#[tokio::test]
async fn a_slot_goes_to_who_waited_and_not_to_who_comes_new() {
    let node = node(100, 1, 8, 60_000);
    let function_queue = FunctionQueue::new(MebiBytes(1));
    let slot = node.enter(&function_queue).await.expect("free");
    let mut first = Box::pin(node.enter(&function_queue));
    assert!(first.as_mut().now_or_never().is_none());
    drop(slot);
    let mut second = Box::pin(node.enter(&function_queue));
    assert!(
        second.as_mut().now_or_never().is_none(),
        "the slot is taken"
    );
    let slot = first.now_or_never().expect("let in").expect("let in");
    assert_eq!(node.waiting(), 1);
    drop(slot);
    assert!(second.now_or_never().expect("let in").is_ok());
    assert_eq!(node.waiting(), 0);
}

#[tokio::test]
async fn a_full_node_lets_in_by_memory_time_and_the_head_blocks() {
    let node = node(10, 9, 9, 60_000);
    let (small, large) = (
        FunctionQueue::new(MebiBytes(2)),
        FunctionQueue::new(MebiBytes(9)),
    );
    let running = node.enter(&small).await.expect("free");
    let also = node.enter(&small).await.expect("free");
    let enter = |function_queue, time| {
        Box::pin(
            node.admission
                .enter(function_queue, &node.app, far(), move || of(time)),
        )
    };
    let mut slow = enter(&small, 100.0);
    let mut quick = enter(&large, 1.0);
    assert!(quick.as_mut().now_or_never().is_none(), "memory is short");
    assert!(slow.as_mut().now_or_never().is_none(), "somebody waits");
    assert_eq!(
        node.admission.ledger.room_for_instances(),
        MebiBytes(0),
        "instances are asked to give up what the first in the queue lacks"
    );
    drop(also);
    assert!(
        slow.as_mut().now_or_never().is_none(),
        "9 goes before 200, and blocks it"
    );
    drop(running);
    let quick = quick.now_or_never().expect("let in").expect("let in");
    assert!(slow.as_mut().now_or_never().is_none());
    drop(quick);
    assert!(slow.now_or_never().expect("let in").is_ok());
}

#[tokio::test]
async fn a_call_that_gives_up_leaves_no_trace_and_passes_the_turn_on() {
    let node = node(10, 9, 9, 60_000);
    let (large, small) = (
        FunctionQueue::new(MebiBytes(10)),
        FunctionQueue::new(MebiBytes(1)),
    );
    let running = node.enter(&small).await.expect("free");
    let mut blocked = Box::pin(node.enter(&large));
    assert!(blocked.as_mut().now_or_never().is_none());
    let mut behind = Box::pin(
        node.admission
            .enter(&small, &node.app, far(), || of(1000.0)),
    );
    assert!(behind.as_mut().now_or_never().is_none());
    drop(blocked);
    assert!(behind.now_or_never().expect("let in").is_ok());
    drop(running);
    let too_large = FunctionQueue::new(MebiBytes(11));
    let refused = node.enter(&too_large).await.expect_err("refused");
    assert_eq!(refused, Refused::TooLarge);
    assert_eq!(
        (node.waiting(), node.admission.ledger.held()),
        (0, MebiBytes(0))
    );
}

/// The memory of sandboxes that are kept for reuse, the least recently used first.
#[derive(Clone, Default)]
struct Idle(Arc<Mutex<Vec<(MebiBytes, MemoryReservation)>>>);

impl Idle {
    fn keep(&self, mib: u64, memory: MemoryReservation) {
        self.0.lock().expect("lock").push((MebiBytes(mib), memory));
    }

    fn len(&self) -> usize {
        self.0.lock().expect("lock").len()
    }

    fn reclaim(&self) -> Reclaim {
        let idle = self.clone();
        Box::new(move |lacking| {
            let dropped: Vec<_> = {
                let mut kept = idle.0.lock().expect("lock");
                let mut freed = MebiBytes(0);
                let enough = kept.iter().position(|(memory, _)| {
                    freed = freed.saturating_add(*memory);
                    freed >= lacking
                });
                kept.drain(..enough.map_or(0, |last| last + 1)).collect()
            };
            dropped.len()
        })
    }
}

#[tokio::test]
async fn sandboxes_that_become_idle_make_room_for_those_who_wait_already() {
    let idle = Idle::default();
    let node = reclaiming_node(4, (9, 100), (9, 60_000), idle.reclaim());
    let function_queue = FunctionQueue::new(MebiBytes(1));
    let mut running = Vec::new();
    for _ in 0..4 {
        running.push(node.enter(&function_queue).await.expect("room"));
    }
    let mut waiting: Vec<_> = (0..3)
        .map(|_| Box::pin(node.enter(&function_queue)))
        .collect();
    for call in &mut waiting {
        assert!(call.as_mut().now_or_never().is_none(), "memory is short");
    }
    // A call's sandbox is kept before its place is given back.
    for (slot, memory) in running {
        idle.keep(1, memory);
        drop(slot);
    }
    for call in waiting {
        assert!(call.now_or_never().expect("let in").is_ok());
    }
    assert_eq!(node.waiting(), 0);
}

#[tokio::test]
async fn idle_sandboxes_are_dropped_before_anybody_waits_for_memory() {
    let idle = Idle::default();
    let node = reclaiming_node(10, (9, 100), (9, 60_000), idle.reclaim());
    let sandbox = node.admission.ledger.enter(MebiBytes(8)).expect("room");
    idle.keep(8, sandbox.memory);
    let function_queue = FunctionQueue::new(MebiBytes(9));
    assert!(
        node.enter(&function_queue)
            .now_or_never()
            .expect("at once")
            .is_ok()
    );
}

#[tokio::test]
async fn as_many_idle_sandboxes_go_as_a_call_lacks_and_none_in_vain() {
    let idle = Idle::default();
    let node = reclaiming_node(10, (9, 100), (9, 60_000), idle.reclaim());
    for _ in 0..3 {
        let sandbox = node.admission.ledger.enter(MebiBytes(2)).expect("room");
        idle.keep(2, sandbox.memory);
    }
    let (three, four, five) = (
        FunctionQueue::new(MebiBytes(3)),
        FunctionQueue::new(MebiBytes(4)),
        FunctionQueue::new(MebiBytes(5)),
    );
    let running = node.enter(&three).await.expect("1 is left");
    let also = node.enter(&four).await.expect("3 are freed for it");
    assert_eq!(idle.len(), 1, "two are enough");
    let mut call = Box::pin(node.enter(&five));
    assert!(call.as_mut().now_or_never().is_none(), "memory is short");
    let mut behind = Box::pin(
        node.admission
            .enter(&three, &node.app, far(), || of(1000.0)),
    );
    assert!(behind.as_mut().now_or_never().is_none(), "somebody waits");
    assert_eq!(idle.len(), 1, "it would not be enough");
    drop(also);
    let call = call.now_or_never().expect("let in").expect("let in");
    assert_eq!(idle.len(), 1, "it is not needed");
    drop(running);
    assert!(behind.now_or_never().expect("let in").is_ok());
    drop(call);
    assert_eq!(node.admission.ledger.held(), MebiBytes(2));
    assert_eq!(node.waiting(), 0);
}

#[test]
fn a_sandbox_holds_memory_of_its_own_node() {
    let (own, other) = (node(10, 1, 1, 20), node(10, 1, 1, 20));
    let (own, other) = (own.admission.ledger(), other.admission.ledger());
    let sandbox: fdn_runtime::ResourceGuard =
        Arc::new(own.enter(MebiBytes(7)).expect("room").memory);
    assert_eq!(own.held_by(&sandbox), MebiBytes(7));
    assert_eq!(other.held_by(&sandbox), MebiBytes(0));
    let nothing: fdn_runtime::ResourceGuard = Arc::new(());
    assert_eq!(own.held_by(&nothing), MebiBytes(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_threads_every_call_is_let_in_once_and_nothing_is_left() {
    let node = Arc::new(node(64, 4, 10_000, 60_000));
    let queues: Vec<_> = [1, 7, 30]
        .map(|m| Arc::new(FunctionQueue::new(MebiBytes(m))))
        .into();
    let mut calls = Vec::new();
    for at in 0..3000usize {
        let (node, function_queue) = (Arc::clone(&node), Arc::clone(&queues[at % 3]));
        calls.push(tokio::spawn(async move {
            let entered = node.enter(&function_queue).await;
            let ledger = &node.admission.ledger;
            assert!(ledger.running() <= 4 && ledger.held() <= MebiBytes(64));
            tokio::task::yield_now().await;
            entered.map(drop)
        }));
        if at % 7 == 0 {
            // Its client disconnects, wherever the call is.
            calls.pop().expect("just pushed").abort();
        }
    }
    for call in calls {
        call.await.expect("no panic").expect("let in");
    }
    // An aborted task may be dropped a moment later.
    while node.admission.ledger.running() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        (node.waiting(), node.admission.ledger.held()),
        (0, MebiBytes(0))
    );
    drop(queues);
    assert!(
        node.admission.ledger.enter(MebiBytes(64)).is_some(),
        "open again"
    );
}

#[test]
fn holds_are_counted() {
    let node = node(1, 1, 1, 20);
    let place = node.admission.hold().expect("first");
    assert!(node.admission.hold().is_none());
    drop(place);
    assert!(node.admission.hold().is_some());
}

#[tokio::test]
async fn an_app_that_holds_its_share_leaves_the_rest_to_others() {
    let node = shared_node(100, (8, 75), 2, 60_000);
    let function_queue = FunctionQueue::new(MebiBytes(1));
    let mut hanging = Vec::new();
    for _ in 0..6 {
        hanging.push(node.enter(&function_queue).await.expect("within its share"));
    }
    let mut seventh = Box::pin(node.enter(&function_queue));
    assert!(seventh.as_mut().now_or_never().is_none(), "it waits");
    let mut eighth = Box::pin(node.enter(&function_queue));
    assert!(eighth.as_mut().now_or_never().is_none(), "it waits too");
    let ninth = node.enter(&function_queue).now_or_never().expect("at once");
    assert_eq!(ninth.map(drop), Err(Refused::AppFull));
    assert_eq!(node.waiting(), 0, "nobody else waits behind them");
    // Calls of another app are admitted as if the app were alone.
    let other = node.metrics.app(&"other".parse().expect("app"));
    for _ in 0..20 {
        let entered = node
            .admission
            .enter(&function_queue, &other, far(), || of(1.0));
        assert!(entered.now_or_never().expect("at once").is_ok());
    }
    drop(hanging.pop());
    assert!(seventh.now_or_never().expect("its turn").is_ok());
    assert!(eighth.now_or_never().expect("its turn").is_ok());
}

#[tokio::test]
async fn who_waits_too_long_for_the_share_of_its_app_is_refused() {
    let node = shared_node(100, (4, 50), 9, 20);
    let function_queue = FunctionQueue::new(MebiBytes(1));
    let held = (
        node.enter(&function_queue).await,
        node.enter(&function_queue).await,
    );
    assert_eq!(
        node.enter(&function_queue).await.map(drop),
        Err(Refused::AppFull)
    );
    drop(held);
    assert!(
        node.enter(&function_queue).await.is_ok(),
        "nothing is left of it"
    );
}

#[tokio::test]
async fn a_call_waits_no_longer_than_its_own_time() {
    // Longer than this test may take.
    let node = shared_node(100, (4, 50), 4, 600_000);
    let function_queue = FunctionQueue::new(MebiBytes(1));
    let enter = |app| {
        let soon = Instant::now() + Duration::from_millis(20);
        node.admission.enter(&function_queue, app, soon, || of(1.0))
    };
    let held = (enter(&node.app).await, enter(&node.app).await);
    assert!(held.0.is_ok() && held.1.is_ok());
    let third = enter(&node.app).await;
    assert_eq!(third.map(drop), Err(Refused::AppFull));
    let other = node.metrics.app(&"other".parse().expect("app"));
    let more = (enter(&other).await, enter(&other).await);
    assert!(more.0.is_ok() && more.1.is_ok());
    let last = node.metrics.app(&"last".parse().expect("app"));
    assert_eq!(enter(&last).await.map(drop), Err(Refused::Late));
    assert_eq!(node.waiting(), 0, "it has left the queue");
}

#[tokio::test]
async fn stages_of_a_workflow_have_one_share_together() {
    let node = shared_node(100, (4, 50), 1, 60_000);
    let function_queue = FunctionQueue::new(MebiBytes(1));
    let app = "flow".parse().expect("app");
    let stage = |name: &str| node.metrics.stage(&app, &name.parse().expect("stage"));
    let (first, second) = (stage("first"), stage("second"));
    let enter = |of_stage| {
        node.admission
            .enter(&function_queue, of_stage, far(), || of(1.0))
    };
    let held = (enter(&first).await, enter(&second).await);
    assert!(held.0.is_ok() && held.1.is_ok());
    let mut waiting = Box::pin(enter(&first));
    assert!(waiting.as_mut().now_or_never().is_none(), "both are taken");
    // The app's only waiting place is taken for the other stage's call, too.
    assert_eq!(enter(&second).await.map(drop), Err(Refused::AppFull));
    drop(held.0);
    assert!(waiting.await.is_ok());
}

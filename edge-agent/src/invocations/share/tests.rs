//! Shares of tenants: their limits in relation to each other, in any order of events, and that every waiting call gets its turn.

use std::thread;

use fdn_core::DurationMs;
use fdn_core::device::Percent;
use futures::FutureExt as _;
use proptest::prelude::*;

use super::*;

/// Longer than any of these tests, in ms.
const LONG: u64 = 600_000;

fn far() -> Instant {
    Instant::now() + Duration::from_millis(LONG)
}

fn share(slots: u32, percent: u8, waiting: u32, wait: u64) -> Arc<TenantShare> {
    let settings = AdmissionSettings {
        slots,
        tenant_share: Percent::try_from(percent).expect("a share"),
        waiting,
        wait: DurationMs::from_millis(wait),
        ..AdmissionSettings::default()
    };
    let gauge = IntGauge::new("waiting", "Those that wait.").expect("a gauge");
    Arc::new(TenantShare::new(&settings, gauge).expect("a share"))
}

fn tenants<const N: usize>() -> [ArcSwap<TenantPlaces>; N] {
    std::array::from_fn(|_| ArcSwap::default())
}

fn held(tenant: &ArcSwap<TenantPlaces>) -> u32 {
    tenant.load().held.load(Ordering::SeqCst)
}

fn all(share: &TenantShare) -> (u32, u32, i64) {
    let watchers = share.watchers.load(Ordering::SeqCst);
    (
        share.held.load(Ordering::SeqCst),
        watchers,
        share.limits.gauge.get(),
    )
}

#[test]
fn a_share_is_of_what_others_leave_and_something_is_left_of_it() {
    let limit = |slots, percent| {
        let share = share(slots, percent, 1, 1);
        move |others| share.limit(others)
    };
    let node = limit(256, 90);
    assert_eq!([0, 100, 230, 255, 256].map(node), [230, 140, 23, 1, 0]);
    assert_eq!([0, 7, 8].map(limit(8, 90)), [7, 1, 0]);
    assert_eq!([0, 1, 2].map(limit(2, 90)), [1, 1, 0]);
    for (slots, percent) in [(256, 100), (1, 90)] {
        let whole = AdmissionSettings {
            slots,
            tenant_share: Percent::try_from(percent).expect("a share"),
            ..AdmissionSettings::default()
        };
        let gauge = IntGauge::new("waiting", "Those that wait.").expect("a gauge");
        assert!(TenantShare::new(&whole, gauge).is_none(), "no bound");
    }
}

#[tokio::test]
async fn a_tenants_calls_wait_for_their_tenant_in_their_order_and_others_come_and_go() {
    let share = share(8, 75, 3, LONG);
    let [one, other] = tenants();
    let mut hanging = Vec::new();
    for _ in 0..6 {
        hanging.push(share.enter(&one, far()).await.expect("within its share"));
    }
    let mut first = Box::pin(share.enter(&one, far()));
    assert!(first.as_mut().now_or_never().is_none(), "it waits");
    let mut second = Box::pin(share.enter(&one, far()));
    let mut third = Box::pin(share.enter(&one, far()));
    assert!(second.as_mut().now_or_never().is_none());
    assert!(third.as_mut().now_or_never().is_none());
    let fourth = share.enter(&one, far()).now_or_never().expect("at once");
    assert_eq!(fourth.map(drop), Err(Refused::TenantFull));
    assert_eq!(all(&share), (6, 1, 3));
    for _ in 0..20 {
        let entered = share.enter(&other, far()).now_or_never();
        assert!(entered.expect("at once").is_ok());
    }
    assert!(first.as_mut().now_or_never().is_none());
    // Its client disconnects: the next call is now the first.
    drop(first);
    drop(hanging.pop());
    assert!(third.as_mut().now_or_never().is_none(), "not its turn");
    let second = second.now_or_never().expect("its turn").expect("a place");
    drop((second, hanging));
    assert!(third.now_or_never().expect("its turn").is_ok());
    assert_eq!(all(&share), (0, 0, 0));
}

#[tokio::test]
async fn who_waits_too_long_for_the_share_of_its_tenant_is_refused() {
    let share = share(4, 50, 9, 20);
    let [one, other] = tenants();
    let held = (
        share.enter(&one, far()).await,
        share.enter(&one, far()).await,
    );
    assert_eq!(
        share.enter(&one, far()).await.map(drop),
        Err(Refused::TenantFull)
    );
    assert!(share.enter(&other, far()).await.is_ok());
    // A tenant that holds nothing, because others hold everything, is not refused because of its own share.
    let [third, fourth] = tenants();
    let others = (
        share.enter(&other, far()).await,
        share.enter(&third, far()).await,
    );
    assert!(others.0.is_ok() && others.1.is_ok());
    assert_eq!(
        share.enter(&fourth, far()).await.map(drop),
        Err(Refused::Late)
    );
    drop((held, others));
    assert_eq!(all(&share), (0, 0, 0));
    assert!(
        share.enter(&one, far()).await.is_ok(),
        "nothing is left of it"
    );
}

#[tokio::test]
async fn places_go_to_tenants_that_hold_nothing_before_those_that_come_again() {
    let share = share(2, 90, 9, LONG);
    let [hangs, one, second, third] = tenants();
    let hanging = share.enter(&hangs, far()).await.expect("free");
    let held = share.enter(&one, far()).await.expect("free");
    let mut waits = Box::pin(share.enter(&second, far()));
    assert!(waits.as_mut().now_or_never().is_none());
    let mut behind = Box::pin(share.enter(&third, far()));
    assert!(behind.as_mut().now_or_never().is_none());
    drop(held);
    // It arrives at the earliest moment, but has to wait for its turn.
    let mut again = Box::pin(share.enter(&one, far()));
    assert!(again.as_mut().now_or_never().is_none());
    assert!(behind.as_mut().now_or_never().is_none());
    let place = waits.now_or_never().expect("its turn").expect("a place");
    assert!(behind.as_mut().now_or_never().is_none());
    // A call that gives up does not block others.
    drop((behind, place));
    assert!(again.now_or_never().expect("its turn").is_ok());
    drop(hanging);
    assert_eq!(all(&share), (0, 0, 0));
}

proptest! {
    /// Calls of five tenants begin and end in any order: one is admitted exactly if its tenant holds less than its share of what others leave.
    #[test]
    fn a_tenant_holds_its_share_of_what_others_leave(
        slots in 2_u32..40, percent in 1_u8..100,
        steps in prop::collection::vec((0_usize..5, any::<bool>()), 1..300),
    ) {
        let share = share(slots, percent, 1, 1);
        let tenants: [_; 5] = tenants();
        let mut places: [Vec<TenantPlace>; 5] = Default::default();
        for (who, begins) in steps {
            if !begins {
                drop(places[who].pop());
                continue;
            }
            let own = u32::try_from(places[who].len()).expect("few");
            let sum: usize = places.iter().map(Vec::len).sum();
            let left = slots - (u32::try_from(sum).expect("few") - own);
            let most = (left * u32::from(percent) / 100).max(left.min(1));
            let took = share.take(&tenants[who].load_full());
            prop_assert_eq!(took.is_some(), own < most, "{} of {}", own, left);
            places[who].extend(took);
            prop_assert_eq!(held(&tenants[who]) as usize, places[who].len());
        }
        drop(places);
        prop_assert_eq!(all(&share), (0, 0, 0));
    }
}

#[test]
fn no_threads_take_more_than_there_is_or_than_a_tenants_share() {
    let share = share(7, 60, 1, 1);
    let tenants: Arc<[ArcSwap<TenantPlaces>; 3]> = Arc::new(tenants());
    let held: Arc<[AtomicU32; 4]> = Arc::default();
    let threads: Vec<_> = (0..6)
        .map(|at: usize| {
            let (share, tenants, held) =
                (Arc::clone(&share), Arc::clone(&tenants), Arc::clone(&held));
            thread::spawn(move || {
                let mut places = Vec::new();
                for round in 0..20_000_usize {
                    let who = (at + round) % 3;
                    let took = share.take(&tenants[who].load_full());
                    if let Some(place) = took {
                        assert!(held[who].fetch_add(1, Ordering::SeqCst) < share.limit(0));
                        assert!(held[3].fetch_add(1, Ordering::SeqCst) < 7);
                        places.push((who, place));
                    }
                    if round % 5 >= places.len() % 3 && !places.is_empty() {
                        let (who, place) = places.swap_remove(round % places.len());
                        held[who].fetch_sub(1, Ordering::SeqCst);
                        held[3].fetch_sub(1, Ordering::SeqCst);
                        drop(place);
                    }
                }
                for (who, _) in &places {
                    held[*who].fetch_sub(1, Ordering::SeqCst);
                    held[3].fetch_sub(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no bound was passed");
    }
    assert_eq!(all(&share), (0, 0, 0));
}

/// Tenants with one to forty calls, more tenants than places: every call gets its turn, and nothing is left held.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everybodys_turn_comes() {
    for slots in [2, 3, 8] {
        let share = share(slots, 90, 1000, LONG);
        let tenants: Arc<[ArcSwap<TenantPlaces>; 6]> = Arc::new(tenants());
        let mut calls = tokio::task::JoinSet::new();
        for at in 0..90_usize {
            // Forty calls of the first tenant, twenty-six of the second, and so on down to one.
            let who = [40, 66, 80, 86, 89, 90].iter().position(|upto| at < *upto);
            let (share, tenants) = (Arc::clone(&share), Arc::clone(&tenants));
            calls.spawn(async move {
                let tenant = &tenants[who.expect("one of them")];
                for round in 0..50_usize {
                    let place = share.enter(tenant, far());
                    if (round + at) % 9 == 8 {
                        // Its client disconnects, wherever the call is.
                        drop(timeout(Duration::from_micros(50), place).await);
                        continue;
                    }
                    let place = place.await.expect("its turn");
                    tokio::task::yield_now().await;
                    drop(place);
                }
            });
        }
        let ended = timeout(Duration::from_secs(60), calls.join_all()).await;
        assert!(ended.is_ok(), "{slots} places: {:?}", all(&share));
        assert_eq!(all(&share), (0, 0, 0));
        assert!(tenants.iter().all(|tenant| held(tenant) == 0));
    }
}

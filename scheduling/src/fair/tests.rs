use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const LARGE: Limits = Limits {
    total: 100_000,
    tenant: 10_000,
};

fn entry(cost: f64, item: u32) -> Entry<u32> {
    Entry {
        priority: 5,
        order: 0,
        cost: Millis::new(cost),
        item,
    }
}

fn pool(limits: Limits) -> Pool<&'static str, u32> {
    Pool::new(limits)
}

#[test]
fn a_burst_of_one_tenant_does_not_hold_up_another() {
    let mut pool = pool(LARGE);
    for n in 0..1000 {
        pool.push("burst", entry(10.0, n)).expect("room");
    }
    for _ in 0..10 {
        pool.take(|_| true).expect("waiting");
    }
    pool.push("late", entry(10.0, 0)).expect("room");
    let next: Vec<&str> = (0..2)
        .map(|_| pool.take(|_| true).expect("waiting").0)
        .collect();
    assert!(next.contains(&"late"), "{next:?}");
    assert_eq!(pool.len(), 989);
}

#[test]
fn the_more_urgent_goes_first_and_the_older_among_equals() {
    let mut pool = pool(LARGE);
    for (priority, order, item) in [(5, 2, 1), (5, 1, 2), (9, 3, 3), (0, 0, 4)] {
        let entry = Entry {
            priority,
            order,
            ..entry(1.0, item)
        };
        pool.push("a", entry).expect("room");
    }
    let order: Vec<u32> = std::iter::from_fn(|| Some(pool.take(|_| true)?.1)).collect();
    assert_eq!(order, [3, 2, 1, 4]);
}

#[test]
fn what_may_not_start_is_passed_over_and_saves_nothing_up() {
    let mut pool = pool(LARGE);
    for n in 0..100 {
        pool.push("blocked", entry(1.0, n)).expect("room");
        pool.push("free", entry(1.0, 1000 + n)).expect("room");
    }
    for _ in 0..50 {
        assert_eq!(pool.take(|item| *item >= 1000).expect("waiting").0, "free");
    }
    let next: Vec<&str> = (0..20)
        .map(|_| pool.take(|_| true).expect("waiting").0)
        .collect();
    let free = next.iter().filter(|tenant| **tenant == "free").count();
    assert!((9..=11).contains(&free), "{next:?}");
    assert_eq!(pool.take(|_| false), None);
}

#[test]
fn what_never_starts_costs_its_tenant_no_turn() {
    let mut pool = pool(LARGE);
    for n in 1..=100 {
        pool.push("a", entry(1.0, n)).expect("room");
        pool.push("b", entry(1.0, n)).expect("room");
    }
    let mut started: BTreeMap<&str, u32> = BTreeMap::new();
    for _ in 0..20 {
        // The most urgent of one tenant finds no place, and comes back.
        let heavy = Entry {
            priority: 9,
            ..entry(1000.0, 0)
        };
        pool.push("a", heavy).expect("room");
        for _ in 0..4 {
            match pool.take(|_| true).expect("waiting") {
                (tenant, 0) => pool.refund(&tenant, Millis::new(1000.0)),
                (tenant, _) => *started.entry(tenant).or_default() += 1,
            }
        }
    }
    assert_eq!(started, BTreeMap::from([("a", 30), ("b", 30)]));
}

#[test]
fn a_refund_is_no_credit() {
    let mut pool = pool(LARGE);
    for n in 0..10 {
        pool.push("a", entry(1.0, n)).expect("room");
        pool.push("b", entry(1.0, n)).expect("room");
    }
    for _ in 0..4 {
        pool.take(|_| true).expect("waiting");
    }
    pool.refund(&"b", Millis::new(1e9));
    pool.refund(&"unknown", Millis::new(1.0));
    let next: Vec<&str> = (0..4)
        .map(|_| pool.take(|_| true).expect("waiting").0)
        .collect();
    assert_eq!(next, ["b", "a", "b", "a"]);
}

#[test]
fn bounds_hold_and_room_says_so() {
    let mut pool = pool(Limits {
        total: 3,
        tenant: 2,
    });
    assert_eq!(pool.room(&"a"), 2);
    pool.push("a", entry(1.0, 1)).expect("room");
    pool.push("a", entry(1.0, 2)).expect("room");
    assert_eq!(pool.push("a", entry(1.0, 3)), Err(3));
    pool.push("b", entry(1.0, 4)).expect("room");
    assert_eq!(pool.push("c", entry(1.0, 5)), Err(5));
    pool.retain(|item| *item != 1);
    assert_eq!((pool.len(), pool.room(&"a")), (2, 1));
}

proptest! {
    /// All tenants have work all the while: what each got differs by no more than a job of each.
    #[test]
    fn shares_are_equal_whatever_jobs_cost(
        costs in prop::collection::vec((1.0f64..100.0, 1.0f64..100.0), 2..6),
        takes in 1usize..300,
    ) {
        let mut pool: Pool<usize, (usize, f64)> = Pool::new(LARGE);
        let mut got = vec![0.0; costs.len()];
        for (tenant, (even, odd)) in costs.iter().enumerate() {
            for n in 0..takes {
                let cost = if n % 2 == 0 { *even } else { *odd };
                let entry = Entry { priority: 5, order: n as u64, cost: Millis::new(cost), item: (tenant, cost) };
                prop_assert!(pool.push(tenant, entry).is_ok());
            }
        }
        let largest: Vec<f64> = costs.iter().map(|(a, b)| a.max(*b)).collect();
        for _ in 0..takes {
            let (_, (tenant, cost)) = pool.take(|_| true).expect("waiting");
            got[tenant] += cost;
            for a in 0..costs.len() {
                for b in 0..costs.len() {
                    prop_assert!((got[a] - got[b]).abs() <= largest[a] + largest[b] + 1e-6, "{got:?}");
                }
            }
        }
    }

    /// An entry that was taken and given back changes nothing for those that stay.
    #[test]
    fn a_refunded_take_leaves_the_order_as_it_was(
        pushes in prop::collection::vec((0usize..5, 1u32..50), 1..100),
        before in 0usize..50,
    ) {
        let (mut one, mut other): (Pool<usize, usize>, Pool<usize, usize>) = (Pool::new(LARGE), Pool::new(LARGE));
        for (n, (tenant, cost)) in pushes.iter().enumerate() {
            for pool in [&mut one, &mut other] {
                let entry = Entry { priority: 5, order: 0, cost: Millis::new(f64::from(*cost)), item: n };
                prop_assert!(pool.push(*tenant, entry).is_ok());
            }
        }
        for _ in 0..before.min(pushes.len() - 1) {
            prop_assert_eq!(one.take(|_| true), other.take(|_| true));
        }
        let (tenant, item) = one.take(|_| true).expect("waiting");
        one.refund(&tenant, Millis::new(f64::from(pushes[item].1)));
        other.retain(|kept| *kept != item);
        while let Some(next) = other.take(|_| true) {
            prop_assert_eq!(one.take(|_| true), Some(next));
        }
        prop_assert!(one.is_empty());
    }

    /// Whatever others put in and whatever may start: a tenant that can start something does so before each other tenant started more
    /// than its largest cost and ours beyond it.
    #[test]
    fn nobody_starves(
        pushes in prop::collection::vec((0usize..5, 1.0f64..50.0, any::<bool>()), 1..400),
    ) {
        let mut pool: Pool<usize, (usize, f64, bool)> = Pool::new(LARGE);
        let mut since: BTreeMap<usize, f64> = BTreeMap::new();
        for (tenant, cost, may) in pushes {
            let item = (tenant, cost, may || tenant == 0);
            let entry = Entry { priority: 5, order: 0, cost: Millis::new(cost), item };
            prop_assert!(pool.push(tenant, entry).is_ok());
            if tenant % 2 == 0 {
                continue;
            }
            let waits = pool.tenants.get(&0).is_some_and(|t| !t.waiting.is_empty());
            if let Some((taken, (_, cost, _))) = pool.take(|item| item.2) {
                if taken == 0 || !waits {
                    since.clear();
                } else {
                    let total = since.entry(taken).or_default();
                    *total += cost;
                    prop_assert!(*total <= 150.0 + 1e-6, "tenant 0 waits while {taken} started {total}");
                }
            }
        }
    }
}

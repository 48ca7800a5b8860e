//! The queue alone against all waiting invocations in a plain list.

use fdn_core::Millis;
use fdn_scheduling::invocation::{
    FunctionIndex, Order, Profile, Queue, QueueLimits, Refusal, RequestId, Ticket,
};
use proptest::prelude::*;

use super::world::{ms, profile};

#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    PopFirst,
    Warm(usize, bool),
    Cancel(usize),
    Profile(usize, u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..4).prop_map(Step::Push),
        2 => Just(Step::PopFirst),
        2 => (0usize..4, any::<bool>()).prop_map(|(f, warm)| Step::Warm(f, warm)),
        1 => any::<usize>().prop_map(Step::Cancel),
        1 => (0usize..4, 0u32..9).prop_map(|(f, e)| Step::Profile(f, e)),
    ]
}

struct Listed {
    request: RequestId,
    arrival: Millis,
    function: usize,
    ticket: Ticket,
}

fn rank(order: Order, profile: &Profile, warm: bool, arrival: Millis) -> f64 {
    let (e, d) = (profile.execution().get(), profile.cold_start().get());
    let r = profile.memory().get() as f64;
    match order {
        Order::FuncSched => (e + if warm { 0.0 } else { d }) * r,
        Order::Sjf => e,
        Order::Srf => r,
        _ => arrival.get(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_first_is_the_smallest_of_all_that_wait(
        steps in prop::collection::vec(step(), 1..80),
        order in prop::sample::select(vec![Order::FuncSched, Order::Sjf, Order::Srf, Order::Fcfs]),
    ) {
        let mut profiles = [
            profile(3.0, 5.0, 2),
            profile(4.0, 2.0, 1),
            profile(3.0, 5.0, 2),
            profile(1.0, 9.0, 3),
        ];
        let mut warm = [false; 4];
        let mut queue = Queue::new(order, QueueLimits::default(), true);
        for profile in profiles {
            queue.add_function(profile);
        }
        let mut listed: Vec<Listed> = Vec::new();
        for (at, step) in steps.into_iter().enumerate() {
            // Equal times happen, but for first come, first served, where they are told by the order of calls.
            let arrival = if order == Order::Fcfs { ms(at as f64) } else { ms((at / 3) as f64) };
            match step {
                Step::Push(function) => {
                    let request = RequestId(at as u64);
                    let ticket = queue.push(FunctionIndex::new(function), request, arrival);
                    let ticket = ticket.expect("room");
                    listed.push(Listed { request, arrival, function, ticket });
                }
                Step::PopFirst => {
                    let least = listed
                        .iter()
                        .enumerate()
                        .min_by(|(i, a), (j, b)| {
                            let key = |l: &Listed, i: usize| {
                                let rank = rank(order, &profiles[l.function], warm[l.function], l.arrival);
                                (ms(rank), l.arrival, l.function, i)
                            };
                            key(a, *i).cmp(&key(b, *j))
                        })
                        .map(|(at, _)| at);
                    let first = queue.first().map(|function| queue.pop(function).expect("a head"));
                    let expected = least.map(|at| listed.remove(at));
                    prop_assert_eq!(first.map(|q| q.request), expected.map(|l| l.request));
                }
                Step::Warm(function, is_warm) => {
                    warm[function] = is_warm;
                    queue.set_warm(FunctionIndex::new(function), is_warm);
                }
                Step::Cancel(which) if !listed.is_empty() => {
                    let gone = listed.remove(which % listed.len());
                    let cancelled = queue.cancel(gone.ticket).expect("it waits");
                    prop_assert_eq!((cancelled.request, cancelled.arrival), (gone.request, gone.arrival));
                    prop_assert_eq!(queue.cancel(gone.ticket), None);
                }
                Step::Cancel(_) => {}
                Step::Profile(function, e) => {
                    profiles[function] = profile(f64::from(e), 4.0, 1 + u64::from(e) / 3);
                    queue.set_profile(FunctionIndex::new(function), profiles[function]);
                }
            }
            prop_assert_eq!(queue.len(), listed.len());
            for function in 0..4 {
                let waits = listed.iter().filter(|l| l.function == function).count();
                prop_assert_eq!(queue.len_of(FunctionIndex::new(function)), waits);
            }
        }
    }
}

#[test]
fn a_full_queue_refuses_and_stays_as_it_is() {
    let limits = QueueLimits {
        total: 3,
        per_function: 2,
    };
    let mut queue = Queue::new(Order::FuncSched, limits, false);
    let [a, b] = [0, 1].map(|_| queue.add_function(profile(1.0, 1.0, 1)));
    let mut push = |function, number| queue.push(function, RequestId(number), Millis::ZERO);
    assert!(push(a, 0).is_ok() && push(a, 1).is_ok());
    let refused = push(a, 2);
    assert_eq!(
        refused,
        Err(Refusal::FunctionQueueFull {
            function: a,
            limit: 2
        })
    );
    assert!(push(b, 3).is_ok());
    assert_eq!(push(b, 4), Err(Refusal::QueueFull { limit: 3 }));
    assert_eq!(queue.pop(a).map(|q| q.request), Some(RequestId(0)));
    assert!(queue.push(b, RequestId(5), Millis::ZERO).is_ok());
    assert_eq!(queue.len(), 3);
}

#[test]
fn a_waiting_invocation_takes_48_bytes() {
    assert_eq!(Queue::BYTES_EACH, 48);
}

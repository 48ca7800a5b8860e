//! Encoded messages can be decoded again.

use fdn_core::{MebiBytes, MilliCpu, Millis, Resources};
use fdn_scheduling::instance::{Refusal, Task, TaskId};
use prost::Message;

use super::convert::{
    TaskContext, decode_ballot, decode_refusal, decode_task, encode_ballot, encode_refusal,
    encode_task, time,
};
use super::proto::{Body, Frame, Item, TaskDelivery};
use crate::head::{Ballot, Epoch};
use crate::identity::{Key, Tag};

fn task() -> Task<Resources> {
    Task {
        id: TaskId(0xAB_CDEF_0000_0001),
        attempt: 2,
        leg: 3,
        demand: Resources::new(MilliCpu(250), MebiBytes(128)),
        remaining: Millis::new(12.5),
        deadline: Millis::new(1.7e12),
    }
}

#[test]
fn a_task_and_its_baggage_cross_the_wire() {
    let context = TaskContext {
        issue: 9,
        payload: bytes::Bytes::from_static(b"hello@3"),
        hops: vec![1, 2],
    };
    let frame = Frame {
        items: vec![Item::from(Body::Task(encode_task(
            TaskDelivery::Assign,
            &task(),
            context.clone(),
            5,
        )))],
    };
    let read = Frame::decode(frame.encode_to_vec().as_slice()).unwrap();
    let Some(Body::Task(sent)) = read.items.into_iter().next().unwrap().body else {
        panic!("a task was sent");
    };
    assert_eq!(
        (sent.delivery, sent.number),
        (TaskDelivery::Assign as i32, 5)
    );
    assert_eq!(decode_task(sent.clone(), 7), Ok((task(), context)));
    assert!(decode_task(sent, 6).is_err(), "the payload is too long");
}

#[test]
fn times_that_are_no_times_are_refused() {
    assert!(time(0.0).is_ok());
    for bad in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
        assert!(time(bad).is_err(), "{bad}");
        let mut sent = encode_task(TaskDelivery::Submit, &task(), TaskContext::default(), 0);
        sent.deadline = bad;
        assert!(decode_task(sent, 10).is_err());
    }
}

#[test]
fn refusals_and_ballots_keep_their_meaning() {
    for refusal in [
        Refusal::QueueFull,
        Refusal::MemoryFull,
        Refusal::NoRoom,
        Refusal::TooLarge,
        Refusal::Expired,
    ] {
        assert_eq!(decode_refusal(encode_refusal(refusal)), Ok(refusal));
    }
    assert!(decode_refusal(77).is_err());
    let key = Key {
        tag: Tag::new(3),
        incarnation: 2,
    };
    for ballot in [
        Ballot::Request(Epoch(7), true),
        Ballot::Vote(Epoch(8)),
        Ballot::Head(Epoch(9), key),
        Ballot::Stale(Epoch(10)),
    ] {
        assert_eq!(decode_ballot(&encode_ballot(ballot)), Ok(ballot));
    }
}

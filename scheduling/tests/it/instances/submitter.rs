//! The messages of the submitter, one by one, and what it holds back.

use fdn_core::Millis;
use fdn_scheduling::instance::{
    Action, NodeIndex, Refusal, Settled, Slots, Submitter, SubmitterSettings, TaskId, ToGlobal,
    ToNode, ToSubmitter, TooManyOpen,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::cluster::ms;

struct Source {
    submitter: Submitter<Slots>,
    rng: ChaCha8Rng,
    actions: Vec<Action<Slots>>,
}

impl Source {
    fn new(settings: SubmitterSettings) -> Self {
        Self {
            submitter: Submitter::new(3, TaskId(10), settings),
            rng: ChaCha8Rng::seed_from_u64(1),
            actions: Vec::new(),
        }
    }

    fn submit(&mut self, now: f64) -> Result<TaskId, TooManyOpen> {
        let (rng, actions) = (&mut self.rng, &mut self.actions);
        self.submitter
            .submit(ms(now), Slots(1), ms(5.0), rng, actions)
    }

    fn hears(&mut self, now: f64, message: ToSubmitter) -> Option<Settled> {
        let (rng, actions) = (&mut self.rng, &mut self.actions);
        self.submitter.receive(ms(now), message, rng, actions)
    }

    fn tick(&mut self, now: f64) -> Option<Settled> {
        let (rng, actions) = (&mut self.rng, &mut self.actions);
        self.submitter.tick(ms(now), rng, actions)
    }

    /// The node and attempt of what was sent.
    fn sent(&mut self) -> Vec<(NodeIndex, u32)> {
        let submit = |action| match action {
            Action::Node(node, ToNode::Submit(task)) => Some((node, task.attempt)),
            _ => None,
        };
        self.actions.drain(..).filter_map(submit).collect()
    }

    fn fenced(&mut self, now: f64, by: Option<u32>, started: bool) -> Option<Settled> {
        let message = ToSubmitter::Fenced {
            id: TaskId(10),
            attempt: 1,
            by: by.map(NodeIndex),
            started,
        };
        self.hears(now, message)
    }
}

fn patient() -> SubmitterSettings {
    // Sent again after 20 ms, 40 ms and so on.
    SubmitterSettings {
        wanted: ms(200.0),
        memory: ms(100.0),
        ..SubmitterSettings::for_round_trip(ms(1.0))
    }
}

#[test]
fn a_task_is_sent_to_the_same_node_again_until_there_is_news() {
    let mut source = Source::new(patient());
    assert_eq!(source.submit(0.0), Ok(TaskId(10)));
    let first = source.sent();
    assert_eq!(source.submitter.next_timer(), Some(ms(20.0)));
    assert_eq!(source.tick(19.0), None);
    assert_eq!(source.sent(), []);
    assert_eq!(source.tick(20.0), None);
    assert_eq!(source.sent(), first, "the same attempt");
    assert_eq!(
        source.submitter.next_timer(),
        Some(ms(60.0)),
        "later each time"
    );
    let started = ToSubmitter::Started {
        id: TaskId(10),
        attempt: 1,
        by: NodeIndex(2),
    };
    let settled = Some(Settled::Started(TaskId(10), NodeIndex(2)));
    assert_eq!(source.hears(30.0, started), settled);
    assert_eq!(source.hears(31.0, started), None, "known");
    assert_eq!((source.submitter.open(), source.tick(500.0)), (0, None));
}

#[test]
fn another_attempt_waits_for_every_promise() {
    let mut source = Source::new(patient());
    source.submit(0.0).expect("as set up");
    let (first, _) = source.sent()[0];
    let mut settled = Vec::new();
    let (rng, actions) = (&mut source.rng, &mut source.actions);
    source
        .submitter
        .lost(ms(5.0), first, rng, actions, &mut settled);
    let others: Vec<u32> = (0..3).filter(|node| *node != first.0).collect();
    assert_eq!(
        source.actions.len(),
        3,
        "two nodes and the global scheduler"
    );
    source.actions.clear();
    assert_eq!(source.fenced(6.0, Some(others[0]), false), None);
    assert_eq!(
        source.fenced(6.0, Some(others[0]), false),
        None,
        "twice counts once"
    );
    assert_eq!(source.fenced(6.0, None, false), None);
    assert_eq!(source.sent(), []);
    assert_eq!(source.fenced(7.0, Some(others[1]), false), None);
    let again = source.sent();
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].1, 2, "the second attempt");
    assert_ne!(again[0].0, first);
}

#[test]
fn a_fence_may_find_that_it_was_started_or_that_it_expired() {
    let broken = ToSubmitter::Broken {
        id: TaskId(10),
        attempt: 1,
    };
    let mut source = Source::new(patient());
    source.submit(0.0).expect("as set up");
    assert_eq!(source.hears(5.0, broken), None);
    let started = Some(Settled::Started(TaskId(10), NodeIndex(1)));
    assert_eq!(source.fenced(6.0, Some(1), true), started);

    let mut source = Source::new(patient());
    source.submit(0.0).expect("as set up");
    assert_eq!(source.tick(220.0), None, "past the deadline: a fence");
    for by in [Some(0), Some(1), Some(2)] {
        assert_eq!(source.fenced(221.0, by, false), None);
    }
    let expired = Some(Settled::Refused(TaskId(10), Refusal::Expired));
    assert_eq!(source.fenced(221.0, None, false), expired);

    let mut source = Source::new(patient());
    source.submit(0.0).expect("as set up");
    source.tick(220.0);
    assert_eq!(
        source.tick(301.0),
        Some(Settled::Unresolved(TaskId(10))),
        "all have forgotten it"
    );
}

#[test]
fn no_more_tasks_are_open_than_may_be() {
    let mut source = Source::new(SubmitterSettings {
        open: 1,
        ..patient()
    });
    source.submit(0.0).expect("as set up");
    let error = source.submit(0.0).expect_err("too many");
    assert_eq!(error.to_string(), "1 tasks are open, as many as may be");
}

#[test]
fn with_a_centre_only_the_global_scheduler_gets_tasks() {
    let central = SubmitterSettings {
        central: true,
        ..patient()
    };
    let mut source = Source::new(central);
    source.submit(0.0).expect("as set up");
    assert!(
        matches!(source.actions[..], [Action::Global(ToGlobal::Forward(task, _))] if task.leg == 0)
    );
    assert_eq!(source.submitter.next_timer(), Some(Millis::new(20.0)));
}

fn narrow() -> SubmitterSettings {
    SubmitterSettings {
        window: 2,
        patience: ms(50.0),
        ..patient()
    }
}

fn started(id: u64) -> ToSubmitter {
    ToSubmitter::Started {
        id: TaskId(id),
        attempt: 1,
        by: NodeIndex(0),
    }
}

impl Source {
    /// The tasks that were sent.
    fn tasks_sent(&mut self) -> Vec<u64> {
        let submit = |action| match action {
            Action::Node(_, ToNode::Submit(task)) => Some(task.id.0),
            _ => None,
        };
        self.actions.drain(..).filter_map(submit).collect()
    }

    fn submit_as_long(&mut self, now: f64, remaining: f64) {
        let (rng, actions) = (&mut self.rng, &mut self.actions);
        let submitted = self
            .submitter
            .submit(ms(now), Slots(1), ms(remaining), rng, actions);
        submitted.expect("few are open");
    }
}

#[test]
fn beyond_the_window_tasks_are_held_and_the_shortest_goes_first_when_there_is_news() {
    let mut source = Source::new(narrow());
    for remaining in [5.0, 5.0, 9.0, 3.0] {
        source.submit_as_long(0.0, remaining);
    }
    assert_eq!(source.tasks_sent(), [10, 11]);
    assert_eq!((source.submitter.open(), source.submitter.held()), (4, 2));
    assert_eq!(source.tick(1.0), None);
    assert!(source.tasks_sent().is_empty(), "there is no news");
    let settled = Some(Settled::Started(TaskId(10), NodeIndex(0)));
    assert_eq!(source.hears(2.0, started(10)), settled);
    assert_eq!(source.tick(2.0), None);
    assert_eq!(source.tasks_sent(), [13], "the shorter one");
    source.hears(3.0, started(13));
    source.tick(3.0);
    assert_eq!(source.tasks_sent(), [12]);
}

#[test]
fn tasks_that_wait_for_long_hold_back_no_others() {
    let never_again = SubmitterSettings {
        resend: Millis::INFINITY,
        ..narrow()
    };
    let mut source = Source::new(never_again);
    for _ in 0..3 {
        source.submit_as_long(0.0, 5.0);
    }
    source.tasks_sent();
    assert_eq!(source.submitter.next_timer(), Some(ms(50.0)));
    assert_eq!(source.tick(49.9), None);
    assert!(source.tasks_sent().is_empty());
    assert_eq!(source.tick(50.0), None);
    assert_eq!(source.tasks_sent(), [12]);
}

#[test]
fn a_task_that_was_never_sent_is_refused_at_its_deadline_without_a_word_to_anybody() {
    let settings = SubmitterSettings {
        resend: Millis::INFINITY,
        patience: Millis::INFINITY,
        ..narrow()
    };
    let mut source = Source::new(settings);
    for _ in 0..3 {
        source.submit_as_long(0.0, 5.0);
    }
    source.actions.clear();
    assert_eq!(
        source.submitter.next_timer(),
        Some(ms(200.0)),
        "its deadline"
    );
    let refused = Some(Settled::Refused(TaskId(12), Refusal::Expired));
    assert_eq!(source.tick(200.0), refused);
    assert_eq!(source.actions, []);
    // Its place in the queue is skipped.
    source.hears(201.0, started(10));
    assert_eq!(source.tick(201.0), None);
    assert!(source.tasks_sent().is_empty());
    assert_eq!(source.submitter.open(), 1);
}

//! Whether a run keeps every rule, told from its trail alone: what was ordered, and what containers did.

use std::collections::BTreeMap;

use fdn_scheduling::invocation::{Action, ContainerId, Profile};

use super::world::Trail;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    LoadsFor(u64),
    LoadsAhead,
    Runs(u64),
    Idles,
}

#[derive(Debug)]
struct Held {
    function: usize,
    worker: usize,
    memory: u64,
    does: Does,
}

#[derive(Debug, Default)]
struct Checker {
    held: BTreeMap<ContainerId, Held>,
    memory: Vec<u64>,
    used: Vec<u64>,
    /// By request: the function it was first loaded for, and how often it ended.
    function_of: BTreeMap<u64, usize>,
    ended: BTreeMap<u64, u32>,
}

/// Checks a trail: memory is never overdrawn; a container serves one invocation at a time, of its own function, and is released
/// only when idle; only what runs is interrupted; every invocation ends once.
pub(crate) fn check(trail: &[Trail], profiles: &[Profile], workers: &[u64], invocations: usize) {
    let mut checker = Checker {
        memory: workers.to_vec(),
        used: vec![0; workers.len()],
        ..Checker::default()
    };
    for step in trail {
        match *step {
            Trail::Ordered(action) => checker.ordered(action, profiles),
            Trail::Ready(container) => checker.ready(container),
            Trail::Finished(container) => checker.finished(container),
        }
    }
    assert_eq!(checker.ended.len(), invocations, "every invocation ends");
    assert!(checker.ended.values().all(|&times| times == 1), "and once");
    assert!(checker.held.values().all(|held| held.does == Does::Idles));
}

impl Checker {
    fn ordered(&mut self, action: Action, profiles: &[Profile]) {
        match action {
            Action::StartWarm {
                request,
                container,
                worker,
            } => {
                let held = self.held.get_mut(&container).expect("it is there");
                assert_eq!(
                    held.does,
                    Does::Idles,
                    "a warm start needs an idle container"
                );
                assert_eq!(held.worker, worker.get());
                held.does = Does::Runs(request.0);
                let known = *self.function_of.entry(request.0).or_insert(held.function);
                assert_eq!(known, held.function, "a container serves its own function");
            }
            Action::StartCold {
                request,
                function,
                container,
                worker,
            } => {
                let known = *self.function_of.entry(request.0).or_insert(function.get());
                assert_eq!(known, function.get());
                let does = Does::LoadsFor(request.0);
                self.hold(container, function.get(), worker.get(), does, profiles);
            }
            Action::Prewarm {
                function,
                container,
                worker,
            } => self.hold(
                container,
                function.get(),
                worker.get(),
                Does::LoadsAhead,
                profiles,
            ),
            Action::Release {
                container, worker, ..
            } => {
                let held = self.held.remove(&container).expect("it was there");
                assert_eq!(held.does, Does::Idles, "busy containers are never released");
                assert_eq!(held.worker, worker.get());
                self.used[held.worker] -= held.memory;
            }
            Action::Interrupt { request, container } => {
                let held = self.held.get_mut(&container).expect("it is there");
                assert_eq!(
                    held.does,
                    Does::Runs(request.0),
                    "loading is not interrupted"
                );
                held.does = Does::Idles;
            }
            Action::Lost { request } => panic!("nothing was lost, but {request:?}"),
        }
    }

    fn hold(
        &mut self,
        container: ContainerId,
        function: usize,
        worker: usize,
        does: Does,
        profiles: &[Profile],
    ) {
        let memory = profiles[function].memory().get();
        self.used[worker] += memory;
        assert!(
            self.used[worker] <= self.memory[worker],
            "memory is overdrawn"
        );
        let held = Held {
            function,
            worker,
            memory,
            does,
        };
        let before = self.held.insert(container, held);
        assert!(before.is_none(), "a new container has a name of its own");
        let slots = self.held.keys().filter(|id| id.slot() == container.slot());
        assert_eq!(slots.count(), 1, "and a place of its own");
    }

    fn ready(&mut self, container: ContainerId) {
        let held = self.held.get_mut(&container).expect("it is there");
        held.does = match held.does {
            Does::LoadsFor(request) => Does::Runs(request),
            Does::LoadsAhead => Does::Idles,
            other => panic!("{other:?} cannot become ready"),
        };
    }

    fn finished(&mut self, container: ContainerId) {
        let held = self.held.get_mut(&container).expect("it is there");
        let Does::Runs(request) = held.does else {
            panic!("{:?} cannot finish", held.does);
        };
        held.does = Does::Idles;
        *self.ended.entry(request).or_default() += 1;
    }
}

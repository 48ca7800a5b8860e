//! The rules once more, as slowly and plainly as they read: no heap, no index, no count that is kept. Every question is
//! answered by looking at everything.

use fdn_scheduling::invocation::{Order, Profile};

/// What the rules decide, with containers numbered in the order of their loading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Decision {
    Warm {
        request: u64,
        container: usize,
    },
    Cold {
        request: u64,
        worker: usize,
        container: usize,
    },
    Release {
        container: usize,
    },
    Lost {
        request: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Does {
    Loads(u64),
    Runs(u64),
    Idles,
}

#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) number: usize,
    pub(crate) function: usize,
    pub(crate) worker: usize,
    pub(crate) memory: u64,
    pub(crate) does: Does,
    used: u64,
    standing: f64,
    expected: f64,
    keep_until: f64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) request: u64,
    pub(crate) arrival: f64,
    pub(crate) function: usize,
    turn: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Keeps {
    Lru,
    Gdsf,
    Fixed(f64),
}

#[derive(Debug)]
pub(crate) struct Naive {
    pub(crate) order: Order,
    pub(crate) queue_or_cold: bool,
    pub(crate) use_before_evicting: bool,
    pub(crate) starve_after: Option<f64>,
    pub(crate) keeps: Keeps,
    pub(crate) profiles: Vec<Profile>,
    pub(crate) workers: Vec<u64>,
    pub(crate) now: f64,
    pub(crate) pending: Vec<Pending>,
    pub(crate) containers: Vec<Held>,
    pub(crate) log: Vec<Decision>,
    uses: u64,
    loaded: usize,
    turns: u64,
    clock: f64,
    frequency: Vec<u64>,
}

impl Naive {
    pub(crate) fn new(
        order: Order,
        queue_or_cold: bool,
        starve_after: Option<f64>,
        keeps: Keeps,
        profiles: &[Profile],
        workers: &[u64],
    ) -> Self {
        Self {
            order,
            queue_or_cold,
            use_before_evicting: false,
            starve_after,
            keeps,
            profiles: profiles.to_vec(),
            workers: workers.to_vec(),
            now: 0.0,
            pending: Vec::new(),
            containers: Vec::new(),
            log: Vec::new(),
            uses: 0,
            loaded: 0,
            turns: 0,
            clock: 0.0,
            frequency: vec![0; profiles.len()],
        }
    }

    pub(crate) fn fits_somewhere(&self, function: usize) -> bool {
        let memory = self.profiles[function].memory().get();
        self.warm(function) > 0 || self.workers.iter().any(|&has| has >= memory)
    }

    pub(crate) fn arrive(&mut self, request: u64, function: usize) {
        self.turns += 1;
        self.pending.push(Pending {
            request,
            arrival: self.now,
            function,
            turn: self.turns,
        });
        self.dispatch();
    }

    pub(crate) fn cancel(&mut self, request: u64) {
        self.pending.retain(|pending| pending.request != request);
        self.dispatch();
    }

    pub(crate) fn ready(&mut self, number: usize) {
        let container = self.container(number);
        if let Does::Loads(request) = container.does {
            container.does = Does::Runs(request);
        }
        self.dispatch();
    }

    pub(crate) fn finished(&mut self, number: usize) {
        let (now, keeps) = (self.now, self.keeps);
        let container = self.container(number);
        container.does = Does::Idles;
        if let Keeps::Fixed(time) = keeps {
            container.keep_until = now + time;
        }
        let worker = container.worker;
        if self.free(worker) < 0 {
            self.release(number);
        }
        self.dispatch();
    }

    pub(crate) fn failed(&mut self, number: usize) {
        self.lose(|container| container.number == number);
        self.dispatch();
    }

    pub(crate) fn set_memory(&mut self, worker: usize, memory: u64) {
        self.workers[worker] = memory;
        while self.free(worker) < 0 && self.idle_memory(worker) > 0 {
            let victim = self.victim(worker);
            self.release(victim);
        }
        self.dispatch();
    }

    pub(crate) fn worker_lost(&mut self, worker: usize) {
        self.lose(|container| container.worker == worker);
        self.workers[worker] = 0;
        self.dispatch();
    }

    pub(crate) fn tick(&mut self) {
        loop {
            let due = self
                .containers
                .iter()
                .filter(|c| c.does == Does::Idles && c.keep_until <= self.now)
                .min_by(|a, b| {
                    a.keep_until
                        .total_cmp(&b.keep_until)
                        .then(a.used.cmp(&b.used))
                });
            match due.map(|c| c.number) {
                Some(number) => self.release(number),
                None => break,
            }
        }
        self.dispatch();
    }

    fn container(&mut self, number: usize) -> &mut Held {
        let found = self.containers.iter_mut().find(|c| c.number == number);
        found.expect("it is there")
    }

    pub(crate) fn warm(&self, function: usize) -> usize {
        let idle = |c: &&Held| c.function == function && c.does == Does::Idles;
        self.containers.iter().filter(idle).count()
    }

    fn sum(&self, worker: usize, which: impl Fn(&Held) -> bool) -> i64 {
        let there = self
            .containers
            .iter()
            .filter(|c| c.worker == worker && which(c));
        there.map(|c| c.memory as i64).sum()
    }

    fn free(&self, worker: usize) -> i64 {
        self.workers[worker] as i64 - self.sum(worker, |_| true)
    }

    fn idle_memory(&self, worker: usize) -> i64 {
        self.sum(worker, |c| c.does == Does::Idles)
    }

    fn most(&self, room: impl Fn(usize) -> i64) -> Option<usize> {
        (0..self.workers.len()).max_by_key(|&worker| (room(worker), std::cmp::Reverse(worker)))
    }

    fn victim(&self, worker: usize) -> usize {
        let idle = self
            .containers
            .iter()
            .filter(|c| c.worker == worker && c.does == Does::Idles);
        idle.min_by(|a, b| a.standing.total_cmp(&b.standing).then(a.used.cmp(&b.used)))
            .expect("something is idle")
            .number
    }

    fn release(&mut self, number: usize) {
        self.containers.retain(|c| c.number != number);
        self.log.push(Decision::Release { container: number });
    }

    fn lose(&mut self, which: impl Fn(&Held) -> bool) {
        for container in &self.containers {
            if let (true, Does::Loads(request) | Does::Runs(request)) =
                (which(container), container.does)
            {
                self.log.push(Decision::Lost { request });
            }
        }
        self.containers.retain(|container| !which(container));
    }

    /// The rank of a waiting invocation.
    fn rank(&self, pending: &Pending) -> f64 {
        let profile = &self.profiles[pending.function];
        let (e, d) = (profile.execution().get(), profile.cold_start().get());
        let r = profile.memory().get() as f64;
        match self.order {
            Order::FuncSched if self.warm(pending.function) == 0 => (e + d) * r,
            Order::FuncSched => e * r,
            Order::Sjf => e,
            Order::Srf => r,
            _ => pending.turn as f64,
        }
    }

    /// Waiting invocations, the first to start first.
    fn ordered(&self) -> Vec<Pending> {
        let mut ordered = self.pending.clone();
        ordered.sort_by(|a, b| {
            (self.rank(a).total_cmp(&self.rank(b)))
                .then(a.arrival.total_cmp(&b.arrival))
                .then(a.function.cmp(&b.function))
                .then(a.turn.cmp(&b.turn))
        });
        ordered
    }

    fn starved(&self) -> Option<Pending> {
        let after = self.starve_after?;
        let can_ever = |p: &&Pending| self.fits_somewhere(p.function);
        let oldest = self.pending.iter().filter(can_ever).min_by(|a, b| {
            (a.arrival.total_cmp(&b.arrival))
                .then(a.function.cmp(&b.function))
                .then(a.turn.cmp(&b.turn))
        });
        oldest.filter(|p| p.arrival + after <= self.now).copied()
    }

    fn is_skipped(&self, function: usize) -> bool {
        let profile = &self.profiles[function];
        let memory = profile.memory().get() as i64;
        let busy = self
            .containers
            .iter()
            .filter(|c| c.function == function && c.does != Does::Idles && c.expected > self.now)
            .count();
        let waiting = self
            .pending
            .iter()
            .filter(|p| p.function == function)
            .count();
        self.warm(function) == 0
            && (0..self.workers.len()).all(|worker| self.free(worker) < memory)
            && busy >= 1
            && waiting as f64 * profile.execution().get() / (busy as f64)
                < profile.cold_start().get()
    }

    fn dispatch(&mut self) {
        while self.start_one() {}
    }

    fn start_one(&mut self) -> bool {
        if let Some(starved) = self.starved() {
            return self.start(&starved, true);
        }
        let next = self.ordered().into_iter().find(|pending| {
            let skipped = self.queue_or_cold && self.is_skipped(pending.function);
            !skipped && self.fits_somewhere(pending.function)
        });
        next.is_some_and(|pending| self.start(&pending, false))
    }

    fn start(&mut self, pending: &Pending, for_its_age: bool) -> bool {
        let function = pending.function;
        let memory = self.profiles[function].memory().get() as i64;
        let idle = self
            .containers
            .iter()
            .filter(|c| c.function == function && c.does == Does::Idles);
        if let Some(number) = idle.max_by_key(|c| c.used).map(|c| c.number) {
            self.take(number, pending, false);
            self.log.push(Decision::Warm {
                request: pending.request,
                container: number,
            });
            return true;
        }
        let by_free = self.most(|worker| self.free(worker));
        let by_room = self.most(|worker| self.free(worker) + self.idle_memory(worker));
        let fits = |worker: &usize| self.free(*worker) >= memory;
        let would_fit = |worker: &usize| self.free(*worker) + self.idle_memory(*worker) >= memory;
        let Some(worker) = by_free.filter(fits).or(by_room.filter(would_fit)) else {
            return false;
        };
        if self.use_before_evicting && !for_its_age && self.free(worker) < memory {
            let victim = self.victim(worker);
            let function = self.container(victim).function;
            let waiting = self.ordered().into_iter().find(|p| p.function == function);
            if let Some(waiting) = waiting {
                return self.start(&waiting, false);
            }
        }
        while self.free(worker) < memory {
            let victim = self.victim(worker);
            self.clock = self.clock.max(self.container(victim).standing);
            self.release(victim);
        }
        let number = self.loaded;
        self.loaded += 1;
        self.containers.push(Held {
            number,
            function,
            worker,
            memory: memory as u64,
            does: Does::Loads(pending.request),
            used: 0,
            standing: 0.0,
            expected: 0.0,
            keep_until: f64::INFINITY,
        });
        self.take(number, pending, true);
        let request = pending.request;
        self.log.push(Decision::Cold {
            request,
            worker,
            container: number,
        });
        true
    }

    fn take(&mut self, number: usize, pending: &Pending, cold: bool) {
        let profile = self.profiles[pending.function];
        self.pending.retain(|p| p.request != pending.request);
        self.uses += 1;
        self.frequency[pending.function] += 1;
        let (uses, now, clock) = (self.uses, self.now, self.clock);
        let benefit = self.frequency[pending.function] as f64 * profile.cold_start().get()
            / profile.memory().get() as f64;
        let standing = if self.keeps == Keeps::Gdsf {
            clock + benefit
        } else {
            0.0
        };
        let container = self.container(number);
        container.used = uses;
        container.standing = standing;
        container.keep_until = f64::INFINITY;
        container.expected = now + profile.span(cold).get();
        container.does = if cold {
            Does::Loads(pending.request)
        } else {
            Does::Runs(pending.request)
        };
    }
}

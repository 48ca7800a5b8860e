//! Waiting time and congestion toll of a call in a cluster under a given offered load.
//!
//! **Model.** A cluster has `c` slots; the offered load keeps `a` of them busy on average (in erlangs: arrival rate times service time).
//! With the utilization `u = a / c` a call waits, on average and in the steady state,
//!
//! `W = T u^k / (c (1 - u))`, `k = max(1, floor(sqrt(2 (c + 1))) - 1)`.
//!
//! For runs of one kind `T` is their mean run time, and this is Sakasegawa's approximation of the M/M/c queue (Annals of the Institute of
//! Statistical Mathematics 29A, 1977), exact for one slot. Its exponent is rounded down to a whole number so that every machine computes
//! the same, which only makes the wait look longer. Runs of several kinds, of which kind `i` keeps `a_i` slots busy for `S_i` each, wait
//! for those that are in service, and the long ones are there for longer: `T = sum(a_i S_i) / a`. That is the factor of Allen and Cunneen
//! for the M/G/c queue (Allen, Probability, Statistics, and Queueing Theory, 1990), `E(S^2) / 2 E(S)^2`, with run times that are
//! exponential within a kind; for one slot it is the formula of Pollaczek and Khinchine, which is exact.
//!
//! Beyond the utilization [`FULL`] the formula diverges and no longer predicts anything; there the wait grows with the excess load
//! instead: in a queue whose utilization exceeds [`FULL`] by `x` for a time `H`, the wait has grown by `x H` at its end. `T` is
//! `sum(a_i S_i) / (FULL c)` there, so that short runs beside too many long ones do not make the wait look shorter.
//!
//! **Toll.** A new call makes all others wait longer. If `N` calls per second waited `W` and now wait `W'`, this adds `N (W' - W)` of
//! waiting per second; divided by the rate of the new calls it is their toll ([`Load::toll`]; the congestion toll of Pigou, The Economics
//! of Welfare, 1920).

use fdn_core::Millis;

use crate::place::Cluster;

/// The utilization up to which the steady-state formula is used.
pub const FULL: f64 = 0.95;

/// The arrival rate, in calls per second, that stands for clients that do not call yet; the toll hardly depends on it while it is small.
const RARE: f64 = 1e-3;

/// An arrival rate in calls per second, at least 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    /// From calls per second; anything but a positive finite number becomes 0.
    #[must_use]
    pub fn per_second(rate: f64) -> Self {
        Self(if rate.is_finite() && rate > 0.0 {
            rate
        } else {
            0.0
        })
    }

    /// The rate in calls per second.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// The offered load in erlangs, that is, the mean number of busy slots, if each call takes `time`.
    #[must_use]
    pub fn erlangs(self, time: Millis) -> f64 {
        if self.0 == 0.0 {
            return 0.0;
        }
        self.0 * time.get() / 1000.0
    }
}

/// The run times of the runs that a call consists of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunTime {
    /// Of a run that arrives, on average.
    pub mean: Millis,
    /// Of a run that is in service, on average: each counts by how long it is there.
    pub in_service: Millis,
}

impl From<Millis> for RunTime {
    /// Of runs of one kind.
    fn from(mean: Millis) -> Self {
        Self {
            mean,
            in_service: mean,
        }
    }
}

impl RunTime {
    /// Of runs that take these times, one of each.
    #[must_use]
    pub fn of(times: impl Iterator<Item = Millis>) -> Self {
        let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
        for time in times {
            count += 1.0;
            sum += time.get();
            squares += time.get() * time.get();
        }
        if sum > 0.0 {
            Self {
                mean: Millis::new(sum / count),
                in_service: Millis::new(squares / sum),
            }
        } else {
            Millis::ZERO.into()
        }
    }
}

/// The offered load of one cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    slots: f64,
    exponent: u32,
    /// The load in erlangs: the mean number of busy slots.
    erlangs: f64,
    /// The sum over all kinds of runs of their erlangs times their run time in milliseconds.
    weighted: f64,
    /// The arrival rate of task runs, per second.
    runs: f64,
}

impl Load {
    /// No load on a cluster's slots.
    #[must_use]
    pub fn of(cluster: &Cluster) -> Self {
        Self::of_slots(cluster.slots.len())
    }

    /// No load on `slots` slots.
    #[must_use]
    pub fn of_slots(slots: usize) -> Self {
        Self::of_servers(slots as f64)
    }

    fn of_servers(slots: f64) -> Self {
        // The root is exact to the last bit everywhere (IEEE 754).
        let exponent = ((2.0 * (slots + 1.0)).sqrt().floor() - 1.0).max(1.0);
        Self {
            slots,
            exponent: exponent as u32,
            erlangs: 0.0,
            weighted: 0.0,
            runs: 0.0,
        }
    }

    /// The load as a task sees it that can use only a `share` of the slots: `narrow` is the part of the load that is confined to the
    /// same share; the rest is assumed to be spread evenly over all slots.
    #[must_use]
    pub fn part(&self, share: f64, narrow: &Self) -> Self {
        if share >= 1.0 {
            return *self;
        }
        let share = share.max(0.0);
        let of = |all: f64, narrow: f64| narrow + share * (all - narrow).max(0.0);
        Self {
            erlangs: of(self.erlangs, narrow.erlangs),
            weighted: of(self.weighted, narrow.weighted),
            runs: of(self.runs, narrow.runs),
            ..Self::of_servers(self.slots * share)
        }
    }

    /// Replaces the load by so many erlangs and runs per second, of which those in service have this mean run time; a number that is
    /// not finite counts as zero.
    #[must_use]
    pub fn asking(mut self, erlangs: f64, runs: f64, in_service: Millis) -> Self {
        let known = |number: f64| {
            if number.is_finite() {
                number.max(0.0)
            } else {
                0.0
            }
        };
        (self.erlangs, self.runs) = (known(erlangs), known(runs));
        self.weighted = self.erlangs * known(in_service.get());
        self
    }

    /// This load on the slots of another.
    #[must_use]
    pub const fn on_slots_of(self, other: &Self) -> Self {
        Self {
            slots: other.slots,
            exponent: other.exponent,
            ..self
        }
    }

    /// The mean run time of the runs in service; zero without load.
    #[must_use]
    pub fn in_service(&self) -> Millis {
        if self.erlangs > 0.0 {
            Millis::new(self.weighted / self.erlangs)
        } else {
            Millis::ZERO
        }
    }

    /// The arrival rate of task runs, per second.
    #[must_use]
    pub const fn runs(&self) -> f64 {
        self.runs
    }

    /// The utilization: offered load per slot, above 1 under overload; infinite if there is load but no slot.
    #[must_use]
    pub fn utilization(&self) -> f64 {
        self.erlangs / self.slots
    }

    /// The offered load in erlangs: the mean number of busy slots.
    #[must_use]
    pub const fn erlangs(&self) -> f64 {
        self.erlangs
    }

    /// Adds runs that arrive at `rate` and take `time` each.
    pub fn add(&mut self, rate: Rate, time: impl Into<RunTime>) {
        *self = self.with(rate, time.into());
    }

    /// Reverts [`Load::add`]; not below zero.
    pub fn take(&mut self, rate: Rate, time: impl Into<RunTime>) {
        let time = time.into();
        let erlangs = rate.erlangs(time.mean);
        self.erlangs = (self.erlangs - erlangs).max(0.0);
        self.weighted = (self.weighted - erlangs * time.in_service.get()).max(0.0);
        self.runs = (self.runs - rate.get()).max(0.0);
    }

    fn with(mut self, rate: Rate, time: RunTime) -> Self {
        let erlangs = rate.erlangs(time.mean);
        if erlangs > 0.0 {
            self.erlangs += erlangs;
            self.weighted += erlangs * time.in_service.get();
        }
        self.runs += rate.get();
        self
    }

    /// The mean wait with `rate` more calls of `time` each; overload is assumed to last for `horizon`. Infinite without slots.
    #[must_use]
    pub fn wait(&self, rate: Rate, time: impl Into<RunTime>, horizon: Millis) -> Millis {
        self.with(rate, time.into()).present_wait(horizon)
    }

    /// The mean wait with `rate` more calls of `time` each, and their toll: by how much each of them lengthens the waits of all present calls.
    /// For a rate of zero the toll is that of a very small one. `alone` is the present wait ([`Load::wait`] with no more calls).
    #[must_use]
    pub fn wait_and_toll(
        &self,
        (rate, time): (Rate, RunTime),
        alone: Millis,
        horizon: Millis,
    ) -> (Millis, Millis) {
        let wait = self.wait(rate, time, horizon);
        if self.runs <= 0.0 {
            return (wait, Millis::ZERO);
        }
        let some = Rate(rate.get().max(RARE));
        let beside = if some == rate {
            wait
        } else {
            self.wait(some, time, horizon)
        };
        if !(alone.get().is_finite() && beside.get().is_finite()) {
            return (wait, Millis::INFINITY);
        }
        let longer = (beside.get() - alone.get()).max(0.0);
        (wait, Millis::new(longer * self.runs / some.get()))
    }

    /// The present mean wait, without further calls.
    #[must_use]
    pub fn present_wait(&self, horizon: Millis) -> Millis {
        if self.erlangs <= 0.0 {
            return Millis::ZERO;
        }
        if !(self.erlangs.is_finite() && self.slots > 0.0) {
            return Millis::INFINITY;
        }
        let share = self.erlangs / self.slots;
        let steady = share.min(FULL);
        let in_service = self.weighted / (self.slots * steady);
        let queue = in_service * power(steady, self.exponent) / (self.slots * (1.0 - steady));
        Millis::new(queue + (share - FULL).max(0.0) * horizon.get())
    }

    /// The toll of `rate` more calls of `time` each ([`Load::wait_and_toll`]).
    #[must_use]
    pub fn toll(&self, rate: Rate, time: impl Into<RunTime>, horizon: Millis) -> Millis {
        self.wait_and_toll((rate, time.into()), self.present_wait(horizon), horizon)
            .1
    }
}

/// Power by repeated squaring, with the same order of operations on every machine.
fn power(base: f64, mut exponent: u32) -> f64 {
    let (mut result, mut square) = (1.0, base);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= square;
        }
        square *= square;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HORIZON: Millis = Millis::new(10_000.0);

    fn wait(slots: usize, rate: f64, time: f64) -> f64 {
        let load = Load::of_slots(slots);
        load.wait(Rate::per_second(rate), Millis::new(time), HORIZON)
            .get()
    }

    /// The exact mean wait of M/M/c (Erlang C), by the recursion for Erlang B.
    fn erlang_c(slots: usize, rate: f64, time: f64) -> f64 {
        let offered = rate * time / 1000.0;
        let mut blocked = 1.0;
        for n in 1..=slots {
            blocked = offered * blocked / (n as f64 + offered * blocked);
        }
        let share = offered / slots as f64;
        let waits = blocked / (1.0 - share * (1.0 - blocked));
        waits * time / (slots as f64 * (1.0 - share))
    }

    #[test]
    fn one_slot_is_the_queue_of_the_textbook() {
        // rho = 0.5: W = rho S / (1 - rho) = S.
        assert!((wait(1, 50.0, 10.0) - 10.0).abs() < 1e-9);
        assert!((wait(1, 90.0, 10.0) - 90.0).abs() < 1e-9);
        assert_eq!(wait(1, 0.0, 10.0), 0.0);
        assert_eq!(wait(0, 1.0, 10.0), f64::INFINITY, "nothing runs there");
    }

    #[test]
    fn many_slots_are_near_the_exact_formula() {
        for slots in [2, 4, 10, 40, 200] {
            for share in [0.5, 0.8, 0.9, 0.95] {
                let rate = share * slots as f64 * 100.0;
                let (ours, exact) = (wait(slots, rate, 10.0), erlang_c(slots, rate, 10.0));
                // Never far below, and above by less than half a run.
                assert!(ours >= exact * 0.93, "{slots} {share}: {ours} {exact}");
                assert!(ours <= exact * 1.3 + 5.0, "{slots} {share}: {ours} {exact}");
            }
        }
    }

    #[test]
    fn short_runs_wait_for_the_long_ones_in_service() {
        // 20 runs a second of 10 ms and 2 of 200 ms: of one slot, a fifth and two fifths are busy. By the formula of Pollaczek and
        // Khinchine, with exponential times, a call waits sum(rate_i * 2 S_i^2) / 2 (1 - u).
        let (short, long) = (Millis::new(10.0), Millis::new(200.0));
        let mut load = Load::of_slots(1);
        load.add(Rate::per_second(20.0), short);
        load.add(Rate::per_second(2.0), long);
        let exact = (0.02 * 10.0 * 10.0 + 0.002 * 200.0 * 200.0) / (1.0 - 0.6);
        assert!((load.present_wait(HORIZON).get() - exact).abs() < 1e-9);
        assert!((load.in_service().get() - (0.2 * 10.0 + 0.4 * 200.0) / 0.6).abs() < 1e-9);
        // A call of one short and one long run is the same as the two.
        let both = RunTime::of([short, long].into_iter());
        let (mut one, mut two) = (Load::of_slots(4), Load::of_slots(4));
        one.add(Rate::per_second(6.0), both);
        two.add(Rate::per_second(3.0), short);
        two.add(Rate::per_second(3.0), long);
        for (a, b) in [
            (one.erlangs(), two.erlangs()),
            (one.weighted, two.weighted),
            (one.runs(), two.runs()),
        ] {
            assert!((a - b).abs() < 1e-9, "{a} {b}");
        }
        assert_eq!(RunTime::of([].into_iter()), Millis::ZERO.into());
        // What is stored of a load is all of it.
        let stored = Load::of_slots(0).asking(two.erlangs(), two.runs(), two.in_service());
        let stored = stored.on_slots_of(&one);
        assert!(
            (stored.present_wait(HORIZON).get() - two.present_wait(HORIZON).get()).abs() < 1e-9
        );
    }

    proptest! {
        /// Neither do more runs of another kind.
        #[test]
        fn it_grows_with_runs_of_another_kind(slots in 1usize..300, a in 0.0f64..2.0, time in 0.1f64..1e4, more in 0.0f64..0.5) {
            let mut load = Load::of_slots(slots);
            load.add(Rate::per_second(a * slots as f64 * 100.0), Millis::new(10.0));
            let others = Rate::per_second(more * slots as f64 * 1000.0 / time);
            let (before, after) = (load.present_wait(HORIZON), load.wait(others, Millis::new(time), HORIZON));
            prop_assert!(before.get() <= after.get() * (1.0 + 1e-9), "{:?} {:?}", before, after);
        }

        /// More of anything never shortens the wait, and there is no jump where the formula changes.
        #[test]
        fn it_grows_with_what_is_asked(slots in 1usize..300, a in 0.0f64..2.0, more in 0.0f64..0.5) {
            let at = |share: f64| wait(slots, share * slots as f64 * 100.0, 10.0);
            prop_assert!(at(a) <= at(a + more) + 1e-9);
            prop_assert!((at(FULL + 1e-9) - at(FULL - 1e-9)).abs() < 1e-3 * (1.0 + at(FULL)));
        }

        #[test]
        fn what_was_added_is_taken_back(rates in prop::collection::vec((0.0f64..1e4, 0.0f64..1e4), 1..20)) {
            let mut load = Load::of_slots(10);
            for (rate, time) in &rates {
                load.add(Rate::per_second(*rate), Millis::new(*time));
            }
            let full = load.erlangs();
            for (rate, time) in &rates {
                load.take(Rate::per_second(*rate), Millis::new(*time));
            }
            prop_assert!(load.erlangs() <= full * 1e-9);
        }
    }

    fn toll(load: &Load, rate: f64) -> f64 {
        load.toll(Rate::per_second(rate), Millis::new(10.0), HORIZON)
            .get()
    }

    #[test]
    fn a_toll_is_what_the_others_wait_longer() {
        let mut load = Load::of_slots(1);
        assert_eq!(toll(&load, 50.0), 0.0, "nobody else is there");
        load.add(Rate::per_second(50.0), Millis::new(10.0));
        // From 0.5 to 0.9 of a slot: 50 calls a second wait 90 ms instead of 10, for the sake of 40.
        assert!((toll(&load, 40.0) - 50.0 * 80.0 / 40.0).abs() < 1e-6);
        // Of M/M/1 with a share r the wait's slope is S^2 / (1 - r)^2 for each call in a millisecond more: 400 here, times 50 calls in 1000 ms.
        assert!((toll(&load, 0.0) - 20.0).abs() < 1e-2);
        assert_eq!(toll(&Load::of_slots(0), 1.0), 0.0, "nobody can be there");
    }

    proptest! {
        /// What all wait together is what they waited before, what the newcomer waits, and its toll.
        #[test]
        fn with_its_toll_a_call_costs_what_all_lose(slots in 1usize..50, others in 0.01f64..1.2, rate in 0.01f64..100.0) {
            let mut load = Load::of_slots(slots);
            load.add(Rate::per_second(others * slots as f64 * 100.0), Millis::new(10.0));
            let all = |load: &Load| load.runs * load.wait(Rate::default(), Millis::new(10.0), HORIZON).get();
            let before = all(&load);
            let own = load.wait(Rate::per_second(rate), Millis::new(10.0), HORIZON).get();
            let lost = rate * (own + toll(&load, rate));
            let both = load.wait_and_toll((Rate::per_second(rate), Millis::new(10.0).into()), load.present_wait(HORIZON), HORIZON);
            prop_assert_eq!((both.0.get(), both.1.get()), (own, toll(&load, rate)));
            load.add(Rate::per_second(rate), Millis::new(10.0));
            prop_assert!((all(&load) - before - lost).abs() <= 1e-6 * all(&load).max(1.0));
        }
    }

    #[test]
    fn a_part_of_a_cluster_is_full_before_the_whole_is() {
        let at = |load: Load| load.wait(Rate::per_second(100.0), Millis::new(10.0), HORIZON);
        let mut load = Load::of_slots(20);
        load.add(Rate::per_second(1000.0), Millis::new(10.0));
        let none = Load::of_slots(20);
        assert_eq!(load.part(1.0, &none), load);
        // Half of ten busy slots are in half of the cluster; two slots have one that is busy, and another comes.
        let half = load.part(0.5, &none);
        assert_eq!(
            (half.erlangs(), half.utilization()),
            (5.0, load.utilization())
        );
        assert!(at(half) > at(load));
        let tenth = load.part(0.1, &none);
        assert!(
            at(tenth) > Millis::new(0.05 * HORIZON.get() - 1e-9),
            "overfull"
        );
        // All of the others are there as well.
        assert_eq!(load.part(0.5, &load).erlangs(), 10.0);
        assert_eq!(at(load.part(0.0, &none)), Millis::INFINITY);
    }

    #[test]
    fn rates_are_numbers() {
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Rate::per_second(bad), Rate::default());
        }
    }
}

//! How restless a number of instances is, and what perfect provisioning would have cost.
//!
//! **Oscillation.** A size that goes up and comes down follows the load or swings by itself; what tells them apart is time, and the
//! load. What was needed within a stable window may be needed again within another, so a size that goes up, down and up again within
//! one, or down, up and down, swings ([`Reversals::flaps`]). Beyond that, a scaler that only follows changes its direction no more often
//! than the load does: than the largest load of the last stable window, which is the size that a scaler would hold that knew the
//! load exactly ([`load_reversals`]).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use fdn_core::Millis;

use super::input::Request;

/// Ups and downs of a size.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reversals {
    window: Millis,
    /// The last change: when, and whether it went up.
    last: Option<(Millis, bool)>,
    /// The last change in the other direction before it.
    opposite: Option<Millis>,
    /// How often the direction changed.
    pub count: u64,
    /// How often it changed and changed back within the window: up, down, up or down, up, down.
    pub flaps: u64,
}

impl Reversals {
    /// With this window for flaps.
    #[must_use]
    pub fn new(window: Millis) -> Self {
        Self {
            window,
            ..Self::default()
        }
    }

    /// A change of the size.
    pub fn change(&mut self, now: Millis, from: u32, to: u32) {
        let up = to > from;
        if let Some((when, was_up)) = self.last
            && was_up != up
        {
            self.count += 1;
            let swung = self
                .opposite
                .is_some_and(|before| now - before < self.window);
            self.flaps += u64::from(swung);
            self.opposite = Some(when);
        }
        self.last = Some((now, up));
    }
}

/// How often the size would change its direction if it were the largest load of the last `window`, the load being the mean number of
/// requests in execution in each `step`, had none of them waited.
#[must_use]
pub fn load_reversals(requests: &[Request], window: Millis, step: Millis) -> u64 {
    let step = step.get();
    let width = (window.get() / step).ceil().max(1.0) as usize;
    let end = requests.iter().map(|r| r.at + r.exec).fold(0.0, f64::max);
    // Until the last request has left the window.
    let mut busy = vec![0.0; (end / step) as usize + 1 + width];
    for request in requests {
        let finish = request.at + request.exec;
        let (first, last) = ((request.at / step) as usize, (finish / step) as usize);
        for (at, busy) in busy.iter_mut().enumerate().take(last + 1).skip(first) {
            let begin = at as f64 * step;
            *busy += (finish.min(begin + step) - request.at.max(begin)).max(0.0);
        }
    }
    let whole = |busy: f64| (busy / step - 1e-6).ceil().max(0.0) as u32;
    let mut reversals = Reversals::new(window);
    // The steps of the window that no later one passes, the largest first.
    let mut largest = VecDeque::<(usize, u32)>::new();
    let mut size = 0;
    for (at, load) in busy.into_iter().map(whole).enumerate() {
        while largest.back().is_some_and(|(_, other)| *other <= load) {
            largest.pop_back();
        }
        largest.push_back((at, load));
        while largest.front().is_some_and(|(of, _)| of + width <= at) {
            largest.pop_front();
        }
        let next = largest.front().map_or(0, |(_, load)| *load);
        if next != size {
            reversals.change(Millis::new(at as f64 * step), size, next);
            size = next;
        }
    }
    reversals.count
}

/// How long instances would be there, in ms, if every request found one that was started just in time: instances are used last in,
/// first out, and one that is not needed for longer than a start takes is stopped and started again.
#[must_use]
pub fn perfect_ms(requests: &[Request], cold: Millis) -> f64 {
    let cold = cold.get();
    // Finish times: of those that run, by time; of those that are idle, the latest on top.
    let mut running = BinaryHeap::<Reverse<Millis>>::new();
    let mut idle: Vec<f64> = Vec::new();
    let mut sum = 0.0;
    for request in requests {
        while let Some(&Reverse(finish)) = running.peek()
            && finish <= Millis::new(request.at)
        {
            running.pop();
            idle.push(finish.get());
        }
        sum += request.exec
            + idle
                .pop()
                .map_or(cold, |since| (request.at - since).min(cold));
        running.push(Reverse(Millis::new(request.at + request.exec)));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(list: &[(f64, f64)]) -> Vec<Request> {
        list.iter()
            .map(|&(at, exec)| Request { at, exec })
            .collect()
    }

    #[test]
    fn a_flap_is_there_and_back_within_the_window() {
        let mut reversals = Reversals::new(Millis::new(60.0));
        let changes = [
            (0.0, 0, 1),
            (5.0, 1, 3),
            (50.0, 3, 2),
            (66.0, 2, 3),
            (70.0, 3, 1),
        ];
        let seen: Vec<_> = changes
            .iter()
            .map(|&(at, from, to)| {
                reversals.change(Millis::new(at), from, to);
                (reversals.count, reversals.flaps)
            })
            .collect();
        // Up again at 66 is 61 after the last up; down at 70 is 20 after the last down.
        assert_eq!(seen, [(0, 0), (0, 0), (1, 0), (2, 0), (3, 1)]);
    }

    #[test]
    fn the_load_turns_when_its_largest_value_of_a_window_does() {
        let (window, step) = (Millis::new(10.0), Millis::new(2.0));
        // Up, and down when the window has passed.
        let one = requests(&[(0.0, 10.0), (10.0, 10.0)]);
        assert_eq!(load_reversals(&one, window, step), 1);
        let two = requests(&[(0.0, 4.0), (40.0, 4.0)]);
        assert_eq!(load_reversals(&two, window, step), 3, "up, down, up, down");
        // The second comes before the first has left the window.
        let soon = requests(&[(0.0, 4.0), (12.0, 4.0)]);
        assert_eq!(load_reversals(&soon, window, step), 1);
        let double = requests(&[(0.0, 40.0), (10.0, 2.0)]);
        assert_eq!(load_reversals(&double, window, step), 1, "1, 2, 1, 0");
        assert_eq!(load_reversals(&[], window, step), 0);
    }

    #[test]
    fn perfect_provisioning_keeps_an_instance_if_that_is_cheaper() {
        let cold = Millis::new(100.0);
        let one = [(0.0, 10.0)];
        assert_eq!(perfect_ms(&requests(&one), cold), 110.0);
        let soon = [(0.0, 10.0), (60.0, 10.0)];
        assert_eq!(perfect_ms(&requests(&soon), cold), 110.0 + 50.0 + 10.0);
        let late = [(0.0, 10.0), (1000.0, 10.0)];
        assert_eq!(perfect_ms(&requests(&late), cold), 220.0);
        let both = [(0.0, 10.0), (5.0, 10.0), (20.0, 1.0)];
        // The third takes the one that was free last, at 15.
        assert_eq!(perfect_ms(&requests(&both), cold), 220.0 + 5.0 + 1.0);
    }
}

//! Announced calls: an instance is ready when such a call arrives.
//!
//! The gateway that leads a workflow announces some time before that a call will arrive. If no instance is free for it, one is started as late as
//! possible; idle instances are not evicted for it, and there are never more instances than calls. Whichever call arrives next takes the place of
//! the one announced first. An instance whose call does not arrive is kept or stopped like any other idle one.

use fdn_core::Millis;
use fdn_scheduling::invocation::FunctionIndex;
use fdn_scheduling::prewarm::{Answer, is_due};

use super::Pool;
use super::function::Function;

/// The most announced calls of one function that are remembered; further ones are refused.
const ANNOUNCED: usize = 64;

impl Function {
    /// The number of instances that are kept without any load.
    pub(super) fn kept(&mut self, now: Millis) -> u32 {
        self.expire_announcements(now);
        let announced = self.announced.len().div_ceil(self.concurrency as usize);
        let announced = u32::try_from(announced).unwrap_or(u32::MAX);
        announced.max(1).min(self.instances())
    }

    /// Removes the announcement with the earliest deadline, if any, because a call has arrived.
    pub(super) fn call_arrived(&mut self) {
        if !self.announced.is_empty() {
            self.announced.remove(0);
        }
    }

    /// Forgets announced calls that did not arrive in time.
    fn expire_announcements(&mut self, now: Millis) {
        self.announced.retain(|until| *until > now);
    }

    fn announce(&mut self, until: Millis) {
        let at = self.announced.partition_point(|other| *other <= until);
        self.announced.insert(at, until);
    }

    /// The number of seats, including those of instances that are being started, that no waiting call will take.
    fn free_seats(&self) -> usize {
        let seats = self.concurrency as usize;
        let empty = (self.loading + self.warming + self.idle + self.waking) as usize * seats;
        let open = self.open.iter();
        let open = open.map(|(_, running)| self.concurrency.saturating_sub(*running) as usize);
        (empty + open.sum::<usize>()).saturating_sub(self.waiting.len())
    }
}

impl Pool {
    /// Announces a call that will arrive in `within` and is waited for `patience` longer: an instance is started if none is free and it is time
    /// to start one.
    pub fn announce(
        &mut self,
        now: Millis,
        index: FunctionIndex,
        (within, patience): (Millis, Millis),
    ) -> Answer {
        let cold = self.profile(index).map(|profile| profile.cold_start());
        let function = self.function_mut(index);
        let function = function.filter(|function| !function.is_retiring);
        let (Some(function), Some(cold)) = (function, cold) else {
            return Answer::Unknown;
        };
        function.expire_announcements(now);
        if function.announced.len() >= ANNOUNCED {
            return Answer::NoRoom;
        }
        let until = now + within + patience;
        if function.free_seats() > function.announced.len() {
            function.announce(until);
            return Answer::Warm;
        }
        if !is_due(within, cold) {
            return Answer::Later(cold);
        }
        let is_failing = function.paused_until.is_some_and(|paused| paused > now);
        if is_failing || function.instances() >= function.max_instances {
            return Answer::NoRoom;
        }
        // First, so that a call that arrives meanwhile waits for this instance, even if the function had none before.
        self.apply_limit(now, index);
        let actions = &mut self.actions;
        let ordered = self.scheduler.prewarm(now, index, 1, until, actions);
        self.settle(now);
        if ordered != Ok(1) {
            return Answer::NoRoom;
        }
        if let Some(function) = self.function_mut(index) {
            function.announce(until);
        }
        Answer::Started
    }
}

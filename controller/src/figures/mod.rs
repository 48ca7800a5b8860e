//! Figures of calls, as series in memory: by app and cluster, in steps of ten seconds for a quarter of an hour and of five minutes for a day.
//!
//! Nodes count from their start and report the totals in every status; the difference between two statuses goes into the steps between them. Every
//! controller gets every status, from the node or from the store, so all of them show the same. The series begin with the controller: earlier calls
//! are not in them.

mod summary;

use std::collections::{BTreeMap, VecDeque};

use fdn_core::figures::{Tally, Window};
use fdn_core::message::NodeStatus;
use fdn_core::{AppName, ClusterId, RegionName, Timestamp};

pub use summary::{SeriesSnapshot, summarize};

/// The most steps over which the difference between two statuses is spread: if a node was silent for longer, it is unknown when the calls were.
const SPREAD: u64 = 6;

/// The series of one app in one cluster.
#[derive(Clone, Debug)]
struct Series {
    region: RegionName,
    short: Steps,
    long: Steps,
}

/// The steps of a window that are not empty, in the order of time.
#[derive(Clone, Debug, Default)]
struct Steps(VecDeque<(u64, Tally)>);

impl Steps {
    fn add(&mut self, step: u64, tally: &Tally) {
        // With several nodes, a status about an earlier step may arrive later.
        let at = self.0.partition_point(|(other, _)| *other < step);
        match self.0.get_mut(at) {
            Some((other, sum)) if *other == step => *sum = sum.plus(tally),
            _ => self.0.insert(at, (step, tally.clone())),
        }
    }

    fn trim(&mut self, window: Window, now: Timestamp) {
        let first = first_step(window, now);
        while self.0.front().is_some_and(|(step, _)| *step < first) {
            self.0.pop_front();
        }
    }

    fn last(&self) -> Option<u64> {
        self.0.back().map(|(step, _)| *step)
    }
}

/// The number of the step that contains a time.
const fn step_of(window: Window, at: Timestamp) -> u64 {
    at.get() / window.step_ms()
}

/// The number of the first step of the window that ends at `now`.
const fn first_step(window: Window, now: Timestamp) -> u64 {
    (step_of(window, now) + 1).saturating_sub(window.steps())
}

/// All series.
#[derive(Debug)]
pub struct SeriesStore {
    series: BTreeMap<(AppName, ClusterId), Series>,
    limit: usize,
    dropped: u64,
}

impl SeriesStore {
    /// An empty store that keeps at most `limit` series.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            series: BTreeMap::new(),
            limit,
            dropped: 0,
        }
    }

    /// The number of series.
    #[must_use]
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Whether there are no series.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// The number of counts dropped because there were too many series.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Adds the difference between two statuses of a node, `before` received at `then` and `after` at `now`.
    pub fn observe(
        &mut self,
        (before, then): (&NodeStatus, Timestamp),
        (after, now): (&NodeStatus, Timestamp),
    ) {
        let counted = before.apps.iter().filter(|_| before.boot == after.boot);
        let counted: BTreeMap<&AppName, &Tally> = counted
            .filter_map(|app| Some((&app.app, app.figures.as_deref()?)))
            .collect();
        for app in &after.apps {
            let Some(tally) = app.figures.as_deref() else {
                continue;
            };
            // If the app was not in the earlier status, all its calls are new.
            let new = match counted.get(&app.app) {
                Some(known) => tally.since(known),
                None => tally.clone(),
            };
            if !new.is_empty() {
                self.add((&app.app, after), &new, (then, now));
            }
        }
    }

    fn add(
        &mut self,
        (app, node): (&AppName, &NodeStatus),
        tally: &Tally,
        (then, now): (Timestamp, Timestamp),
    ) {
        let key = (app.clone(), node.cluster.clone());
        if !self.series.contains_key(&key) && !self.has_room(now) {
            self.dropped += 1;
            return;
        }
        let series = self.series.entry(key).or_insert_with(|| Series {
            region: node.region.clone(),
            short: Steps::default(),
            long: Steps::default(),
        });
        series.region.clone_from(&node.region);
        let last = step_of(Window::Quarter, now);
        let first =
            (step_of(Window::Quarter, then) + 1).clamp(last.saturating_sub(SPREAD - 1), last);
        let parts = last - first + 1;
        for part in 0..parts {
            let share = tally.part(part, parts);
            if !share.is_empty() {
                series.short.add(first + part, &share);
            }
        }
        series.long.add(step_of(Window::Day, now), tally);
        series.short.trim(Window::Quarter, now);
        series.long.trim(Window::Day, now);
    }

    /// Makes room for another series if necessary: the one silent for the longest is dropped, if that is at least a quarter of an hour.
    fn has_room(&mut self, now: Timestamp) -> bool {
        if self.series.len() < self.limit {
            return true;
        }
        let silent = step_of(Window::Day, now).saturating_sub(3);
        let oldest = self
            .series
            .iter()
            .map(|(key, series)| (series.long.last().unwrap_or(0), key))
            .min();
        let Some((_, key)) = oldest.filter(|(last, _)| *last < silent) else {
            return false;
        };
        let key = key.clone();
        self.series.remove(&key);
        true
    }

    /// The series of the apps for which `since` gives a time, as of `now`, without the steps that began before that time.
    pub fn snapshots(
        &self,
        window: Window,
        now: Timestamp,
        since: impl Fn(&AppName) -> Option<Timestamp>,
    ) -> Vec<SeriesSnapshot> {
        let first = first_step(window, now);
        let line = |((app, cluster), series): (&(AppName, ClusterId), &Series)| {
            let first = since(app)?.get().div_ceil(window.step_ms()).max(first);
            let steps = match window {
                Window::Quarter => &series.short,
                Window::Day => &series.long,
            };
            let steps = steps.0.iter().filter(|(step, _)| *step >= first);
            Some(SeriesSnapshot {
                app: app.clone(),
                cluster: cluster.clone(),
                region: series.region.clone(),
                steps: steps.cloned().collect(),
            })
        };
        self.series
            .iter()
            .filter_map(line)
            .filter(|line| !line.steps.is_empty())
            .collect()
    }
}

#[cfg(test)]
mod tests;

//! The pre-schedulers of a cluster in virtual time: their copies are old, and their lists come late, twice or never.

use fdn_scheduling::commit::{Choice, List, NodeSelection, PreScheduler, View};
use fdn_scheduling::instance::{ByRoom, Global, ListSettings, Slots};
use rand::RngExt;

use super::{Cluster, Event, Plan, ms};

pub(super) fn pre_schedulers(plan: &Plan) -> Vec<(PreScheduler<ByRoom>, View)> {
    let choice = Choice {
        length: 2,
        selection: NodeSelection::Sample(3),
        ..Choice::default()
    };
    let one = |_| (PreScheduler::new(ByRoom, choice), View::default());
    (0..plan.pre_schedulers).map(one).collect()
}

pub(super) fn with_lists(plan: &Plan, global: Global<Slots>) -> Global<Slots> {
    let settings = ListSettings {
        in_flight: 3,
        lease: ms(20.0),
        ..ListSettings::default()
    };
    if plan.pre_schedulers == 0 {
        global
    } else {
        global.with_lists(settings)
    }
}

impl Cluster {
    /// Every global scheduler that believes to be one decides what it can, or hands it out.
    pub(super) fn decide(&mut self) {
        let (now, actions) = (self.now, &mut self.actions);
        let mut made = Vec::new();
        let current = (!self.head_lost).then_some(&mut self.global);
        for global in current.into_iter().chain(&mut self.deposed) {
            let is_due = global.next_timer().is_some_and(|at| at <= now);
            if global.records().is_none() {
                while (is_due || global.has_work()) && global.decide(now, actions) {}
                continue;
            }
            while let Some(wanted) = global.take(now, actions) {
                let at = self.network.random_range(0..self.pre_schedulers.len());
                let (scheduler, view) = &mut self.pre_schedulers[at];
                let store = global.records().expect("it has pre-schedulers");
                // A copy belongs to one global scheduler; the one before gets a new one each time.
                let mut other = View::default();
                let view = if global.term() == self.term {
                    view
                } else {
                    &mut other
                };
                if view.records().is_empty() || self.network.random_range(0..3) > 0 {
                    view.read(store);
                }
                let mut list = List::default();
                scheduler.list_for(&wanted, view.records(), &mut self.network, &mut list);
                made.push((global.term(), list));
            }
        }
        for (term, list) in made {
            self.lists.push(list);
            self.send(Event::Listed(term, self.lists.len() - 1));
        }
    }
}

//! What happens when, drawn from a seed: the same seed and length, the same schedule.
//!
//! Four lanes go on beside each other, each with one thing at a time: what stands in the centre, the DNS servers, the machines at the edge, and what
//! people change. So a controller, a DNS server and one machine may be away at the same time, but never two machines at the edge: what must not fail
//! then is known. In each lane all kinds come once, in a drawn order, before any comes again.
//!
//! One controller, one DNS server and a machine in each of two clusters are not killed after the first quarter: of a process that begins anew
//! every few minutes nobody can say whether it grows.

use std::fmt;
use std::time::Duration;

use crate::network::{NODES, REGIONS};

/// Nothing happens before and after: everything is measured while all is well, too.
const QUIET: Duration = Duration::from_secs(15);
/// How long something lasts, and how long it is well then.
const LASTS: (u64, u64) = (6_000, 15_000);
const REST: (u64, u64) = (4_000, 12_000);
/// Between two changes that people make.
const CHANGES: (u64, u64) = (8_000, 20_000);
/// The region whose machines come and go.
pub const GUESTS: usize = 2;

/// A process of the network, or a server that it stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// A controller, the first or the second.
    Controller(usize),
    /// A DNS server, the first or the second.
    Dns(usize),
    /// RabbitMQ.
    Rabbit,
    /// PostgreSQL.
    Postgres,
    /// A machine at the edge, by region and number.
    Node(usize, usize),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Controller(n) => write!(f, "controller-{}", n + 1),
            Self::Dns(n) => write!(f, "dns-{}", n + 1),
            Self::Rabbit => f.write_str("rabbitmq"),
            Self::Postgres => f.write_str("postgresql"),
            Self::Node(region, n) => write!(f, "{}-{}", REGIONS[*region].name, n + 1),
        }
    }
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// It is killed as a power loss would.
    Kill(Part),
    /// It is started again.
    Start(Part),
    /// It is cut off from the controllers: what is sent is lost on the way, no connection ends.
    Cut(Part),
    /// That is over.
    Mend(Part),
    /// It stands still, as a machine that hangs: it takes connections and answers nothing.
    Freeze(Part),
    /// It goes on.
    Thaw(Part),
    /// The machine takes no new work.
    Drain(Part),
    /// It takes work again.
    Uncordon(Part),
    /// The machine is drained, removed from the network and switched off.
    Remove(Part),
    /// The machine joins.
    Join(Part),
    /// The next version of the function is deployed.
    Deploy,
    /// The version before is made current.
    Rollback,
    /// The workflow is deployed anew.
    Workflow,
}

impl Event {
    /// What kind it is, as the report counts it.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Kill(part) => match part {
                Part::Controller(_) => "kill controller",
                Part::Dns(_) => "kill dns",
                Part::Rabbit => "kill rabbitmq",
                Part::Postgres => "kill postgresql",
                Part::Node(..) => "kill agent",
            },
            Self::Start(_) => "start",
            Self::Cut(Part::Dns(_)) => "cut dns",
            Self::Cut(_) => "cut agent",
            Self::Mend(_) => "mend",
            Self::Freeze(_) => "freeze",
            Self::Thaw(_) => "thaw",
            Self::Drain(_) => "drain",
            Self::Uncordon(_) => "uncordon",
            Self::Remove(_) => "remove",
            Self::Join(_) => "join",
            Self::Deploy => "deploy",
            Self::Rollback => "rollback",
            Self::Workflow => "workflow",
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(part) => write!(f, "kill {part}"),
            Self::Start(part)
            | Self::Cut(part)
            | Self::Mend(part)
            | Self::Freeze(part)
            | Self::Thaw(part)
            | Self::Drain(part)
            | Self::Uncordon(part)
            | Self::Remove(part)
            | Self::Join(part) => write!(f, "{} {part}", self.word()),
            Self::Deploy | Self::Rollback | Self::Workflow => f.write_str(self.kind()),
        }
    }
}

impl Event {
    const fn word(&self) -> &'static str {
        match self {
            Self::Cut(_) => "cut off",
            other => other.kind(),
        }
    }
}

/// What goes on beside what else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Controllers, broker, database.
    Centre,
    /// DNS servers.
    Names,
    /// Machines.
    Edge,
    /// What people change.
    Changes,
}

/// An event with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Planned {
    /// After the beginning.
    pub at: Duration,
    /// In which lane.
    pub lane: Lane,
    /// What.
    pub event: Event,
}

/// Numbers that look drawn and are always the same (`SplitMix64`; Steele, Lea, Flood: OOPSLA 2014).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`, which is small: the bias is none to speak of.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap_or(0)
    }

    fn time(&mut self, (from, to): (u64, u64)) -> Duration {
        Duration::from_millis(from + self.next() % (to - from))
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// All kinds of a lane once, in a drawn order, then again.
struct Bag<T> {
    all: Vec<T>,
    left: Vec<T>,
}

impl<T: Copy> Bag<T> {
    fn new(all: &[T]) -> Self {
        Self {
            all: all.to_vec(),
            left: Vec::new(),
        }
    }

    fn draw(&mut self, numbers: &mut Numbers) -> T {
        if self.left.is_empty() {
            self.left.clone_from(&self.all);
        }
        let at = numbers.below(self.left.len());
        self.left.swap_remove(at)
    }
}

/// The events of a run of this length, in the order of their times. Everything that begins also ends.
#[must_use]
pub fn schedule(seed: u64, length: Duration) -> Vec<Planned> {
    // A generator for each lane: one that is changed does not change the others.
    let numbers = |lane: u64| Numbers(seed.wrapping_mul(4).wrapping_add(lane));
    let mut all = centre(&mut numbers(0), length);
    all.extend(names(&mut numbers(1), length));
    all.extend(edge(&mut numbers(2), length));
    all.extend(changes(&mut numbers(3), length));
    all.sort();
    all
}

/// Pairs of an event and its end, until the last end would come too late.
fn pairs(
    lane: Lane,
    numbers: &mut Numbers,
    length: Duration,
    mut draw: impl FnMut(&mut Numbers, Duration) -> (Event, Event),
) -> Vec<Planned> {
    let mut all = Vec::new();
    let mut at = QUIET + numbers.time(REST);
    loop {
        let (begin, end) = draw(numbers, at);
        let over = at + numbers.time(LASTS);
        if over + QUIET > length {
            return all;
        }
        for (at, event) in [(at, begin), (over, end)] {
            all.push(Planned { at, lane, event });
        }
        at = over + numbers.time(REST);
    }
}

/// Whether those that are spared later may still be killed.
fn early(at: Duration, length: Duration) -> bool {
    at < length / 4
}

fn centre(numbers: &mut Numbers, length: Duration) -> Vec<Planned> {
    let mut bag = Bag::new(&[
        Part::Controller(0),
        Part::Rabbit,
        Part::Controller(1),
        Part::Postgres,
    ]);
    pairs(Lane::Centre, numbers, length, |numbers, at| {
        let part = match bag.draw(numbers) {
            Part::Controller(_) if !early(at, length) => Part::Controller(1),
            part => part,
        };
        (Event::Kill(part), Event::Start(part))
    })
}

fn names(numbers: &mut Numbers, length: Duration) -> Vec<Planned> {
    let mut bag = Bag::new(&[(true, 0), (true, 1), (false, 0), (false, 1)]);
    pairs(Lane::Names, numbers, length, |numbers, at| {
        match bag.draw(numbers) {
            (true, n) => {
                let part = Part::Dns(if early(at, length) { n } else { 1 });
                (Event::Kill(part), Event::Start(part))
            }
            (false, n) => (Event::Cut(Part::Dns(n)), Event::Mend(Part::Dns(n))),
        }
    })
}

#[derive(Clone, Copy)]
enum Fate {
    Kill,
    Freeze,
    Cut,
    Drain,
    Leave,
}

fn edge(numbers: &mut Numbers, length: Duration) -> Vec<Planned> {
    let nodes: Vec<Part> = (0..=GUESTS)
        .flat_map(|region| (0..NODES).map(move |n| Part::Node(region, n)))
        .collect();
    let spared = |part: Part| matches!(part, Part::Node(region, 0) if region < GUESTS);
    let mortal: Vec<Part> = nodes
        .iter()
        .copied()
        .filter(|node| !spared(*node))
        .collect();
    let mut bag = Bag::new(&[
        Fate::Kill,
        Fate::Freeze,
        Fate::Cut,
        Fate::Drain,
        Fate::Kill,
        Fate::Leave,
    ]);
    // The guests are there from the first event on.
    let joins = (0..NODES).map(|n| Planned {
        at: QUIET,
        lane: Lane::Edge,
        event: Event::Join(Part::Node(GUESTS, n)),
    });
    let rest = pairs(Lane::Edge, numbers, length, |numbers, at| {
        match bag.draw(numbers) {
            Fate::Kill => {
                let of = if early(at, length) { &nodes } else { &mortal };
                let node = numbers.one_of(of);
                (Event::Kill(node), Event::Start(node))
            }
            Fate::Freeze => {
                let node = numbers.one_of(&nodes);
                (Event::Freeze(node), Event::Thaw(node))
            }
            Fate::Cut => {
                let node = numbers.one_of(&nodes);
                (Event::Cut(node), Event::Mend(node))
            }
            Fate::Drain => {
                let node = numbers.one_of(&nodes);
                (Event::Drain(node), Event::Uncordon(node))
            }
            Fate::Leave => {
                let node = Part::Node(GUESTS, numbers.below(NODES));
                (Event::Remove(node), Event::Join(node))
            }
        }
    });
    joins.chain(rest).collect()
}

fn changes(numbers: &mut Numbers, length: Duration) -> Vec<Planned> {
    let mut bag = Bag::new(&[
        Event::Deploy,
        Event::Rollback,
        Event::Deploy,
        Event::Workflow,
    ]);
    let mut all = Vec::new();
    let mut at = QUIET + numbers.time(CHANGES);
    while at + QUIET <= length {
        all.push(Planned {
            at,
            lane: Lane::Changes,
            event: bag.draw(numbers),
        });
        at += numbers.time(CHANGES);
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_secs(180);

    #[test]
    fn the_same_seed_gives_the_same_schedule_and_another_one_another() {
        assert_eq!(schedule(7, HOUR), schedule(7, HOUR));
        assert_ne!(schedule(7, HOUR), schedule(8, HOUR));
    }

    #[test]
    fn all_kinds_happen_in_an_hour_and_most_in_three_minutes() {
        let kinds = |length| -> BTreeSet<&str> {
            let all = schedule(11, length);
            all.iter().map(|planned| planned.event.kind()).collect()
        };
        assert_eq!(kinds(HOUR).len(), 18, "{:?}", kinds(HOUR));
        assert!(kinds(SHORT).len() >= 12, "{:?}", kinds(SHORT));
    }

    #[test]
    fn in_each_lane_one_thing_happens_at_a_time_and_ends() {
        for seed in 0..50 {
            let mut under_way: BTreeMap<Lane, Part> = BTreeMap::new();
            let mut before = Duration::ZERO;
            for planned in schedule(seed, HOUR) {
                assert!(planned.at >= before && planned.at + QUIET <= HOUR);
                before = planned.at;
                let lane = planned.lane;
                match planned.event {
                    Event::Kill(part)
                    | Event::Cut(part)
                    | Event::Freeze(part)
                    | Event::Drain(part)
                    | Event::Remove(part) => {
                        assert_eq!(under_way.insert(lane, part), None, "{planned:?}");
                    }
                    // The first joins end nothing.
                    Event::Join(_) if planned.at == QUIET => {}
                    Event::Start(part)
                    | Event::Mend(part)
                    | Event::Thaw(part)
                    | Event::Uncordon(part)
                    | Event::Join(part) => assert_eq!(under_way.remove(&lane), Some(part)),
                    Event::Deploy | Event::Rollback | Event::Workflow => {}
                }
            }
            assert!(under_way.is_empty(), "{under_way:?}");
        }
    }

    #[test]
    fn who_is_spared_is_not_killed_after_the_first_quarter() {
        for seed in 0..50 {
            for planned in schedule(seed, HOUR) {
                let Event::Kill(part) = planned.event else {
                    continue;
                };
                let spared = [
                    Part::Controller(0),
                    Part::Dns(0),
                    Part::Node(0, 0),
                    Part::Node(1, 0),
                ];
                assert!(
                    planned.at < HOUR / 4 || !spared.contains(&part),
                    "{planned:?}"
                );
            }
        }
    }

    #[test]
    fn events_are_called_as_a_person_would() {
        let node = Part::Node(0, 1);
        assert_eq!(Event::Kill(node).to_string(), "kill eu-west-2");
        assert_eq!(Event::Cut(Part::Dns(0)).to_string(), "cut off dns-1");
        assert_eq!(Event::Deploy.to_string(), "deploy");
    }
}

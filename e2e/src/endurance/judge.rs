//! What must never be, held against what is seen.
//!
//! | rule | what is held against it |
//! | --- | --- |
//! | a call fails that must not | an attempt at a gateway may break, or be answered with 5xx, only if this gateway's machine was killed, hung, started or was taken away at some time during it; one at a workflow, whose stages run elsewhere too, if any machine was so, or had been just before. Controllers, broker, database, DNS servers, cut links and drained machines excuse nothing |
//! | a client is not answered | it asks another DNS server and the other gateways of an answer, then again, within [`PATIENCE`] |
//! | an answer names who is dead | a machine that has been dead for longer than [`DEAD_IN_ANSWERS`] before the question was sent, at a server that has looked for as long |
//! | more is held than there is | of memory: by the calls that a node says it runs, each with the memory of the smallest function |
//! | a revision goes back | of what one life of a DNS server, a gateway or a controller says of itself |
//! | an accepted job is lost or doubled | every key has one job, every job one end, `succeeded`, and its function ran as often as jobs ended at least, and no more often than attempts were made |
//! | usage differs from calls | see [`Tally`] |
//! | a process grows | [`super::growth`] |
//! | a process ends by itself | |

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::lives::{Lives, State};
use super::schedule::{Event, Part};

/// How long a machine may be named after its death: `health.interval` and `health.fall` times `health.timeout`, 2 s, as docs/operations/steering.md promises; as
/// much again, for a check that came late on a busy machine is repeated; and a second for the answer's own way.
pub const DEAD_IN_ANSWERS: Duration = Duration::from_secs(5);
/// Within this a client is answered, whoever dies: until the dead have left the answers, and some tries on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long after a machine's death a stage may still break: those who hand stages on hear of it by their own connections.
const STAGES: Duration = Duration::from_secs(5);
/// So many of a kind are told in full.
const TOLD: usize = 50;

/// What must never be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A call failed that must not.
    CallFailed,
    /// A client was not answered at all.
    Unanswered,
    /// DNS named who was dead.
    DeadInAnswer,
    /// A node held more than it has.
    BeyondResources,
    /// A revision went back.
    RevisionBack,
    /// An accepted job has vanished, or has not ended well.
    JobLost,
    /// A key has two jobs, or a function ran more often than it was told to.
    JobTwice,
    /// What was billed is not what was answered.
    Usage,
    /// A process grows.
    Growth,
    /// A process ended by itself.
    Ended,
    /// The network did not do what was asked of it, in the time that it has.
    Stuck,
}

impl Rule {
    /// Its name in the report.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CallFailed => "a call failed that must not",
            Self::Unanswered => "a client was not answered",
            Self::DeadInAnswer => "an answer named who was dead",
            Self::BeyondResources => "more was held than there is",
            Self::RevisionBack => "a revision went back",
            Self::JobLost => "an accepted job was lost",
            Self::JobTwice => "a job was doubled",
            Self::Usage => "usage differs from calls",
            Self::Growth => "a process grew",
            Self::Ended => "a process ended by itself",
            Self::Stuck => "what was asked for did not come about",
        }
    }
}

/// Something that must never be, and was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// After the beginning.
    pub at: Duration,
    /// Against which rule.
    pub rule: Rule,
    /// What was seen.
    pub what: String,
    /// The event before it, with its time.
    pub after: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            rule,
            what,
            after,
        } = self;
        let at = at.as_secs_f64();
        write!(f, "{at:.3} s, {}: {what} (after: {after})", rule.as_str())
    }
}

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// A function: it runs where the call comes in.
    Function,
    /// A workflow.
    Workflow,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// 200 with what was expected.
    Answered,
    /// Another status.
    Status(u16, String),
    /// 200 with something else.
    Wrong(String),
    /// No whole answer.
    Broken(String),
}

/// A call at one gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The gateway's machine.
    pub node: Part,
    /// What was called.
    pub called: Called,
    /// When it began.
    pub from: Duration,
    /// When it ended.
    pub to: Duration,
    /// How.
    pub outcome: Outcome,
}

/// Calls of an app, as its clients count them. A record of a call is on disk before its answer is whole, so each answer that is whole has one; a call whose
/// client has no whole answer may have one. Usage counts each call once, however it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Answered as expected.
    pub answered: u64,
    /// Not; whether something ran is not known.
    pub unclear: u64,
}

impl Tally {
    /// Whether so many records are what must be.
    #[must_use]
    pub const fn fits(&self, recorded: u64) -> bool {
        self.answered <= recorded && recorded <= self.answered + self.unclear
    }
}

/// All that was seen so far.
#[derive(Debug, Default)]
pub struct Judge {
    /// Who was well when.
    pub lives: Lives,
    violations: Vec<Violation>,
    left_out: u64,
    last: Option<(Duration, Event)>,
    events: BTreeMap<&'static str, u64>,
    counts: BTreeMap<&'static str, u64>,
    revisions: BTreeMap<(String, u32), u64>,
}

impl Judge {
    /// Something happens.
    pub fn event(&mut self, at: Duration, event: Event) {
        *self.events.entry(event.kind()).or_default() += 1;
        self.last = Some((at, event));
    }

    /// Counts something for the report.
    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Something is against a rule.
    pub fn violated(&mut self, at: Duration, rule: Rule, what: String) {
        let so_far = self.violations.iter().filter(|v| v.rule == rule).count();
        if so_far >= TOLD {
            self.left_out += 1;
            return;
        }
        let after = match &self.last {
            Some((when, event)) => format!("{event} at {:.3} s", when.as_secs_f64()),
            None => "nothing yet".to_owned(),
        };
        self.violations.push(Violation {
            at,
            rule,
            what,
            after,
        });
    }

    /// A call at one gateway has ended. Whether it was answered.
    pub fn attempt(&mut self, attempt: &Attempt) -> bool {
        let what = match &attempt.outcome {
            Outcome::Answered => {
                self.count(match attempt.called {
                    Called::Function => "calls answered",
                    Called::Workflow => "workflows answered",
                });
                return true;
            }
            Outcome::Status(status, text) => format!("{status} {text}"),
            Outcome::Wrong(text) => format!("a wrong answer: {text}"),
            Outcome::Broken(text) => text.clone(),
        };
        let excused = !matches!(attempt.outcome, Outcome::Wrong(_)) && self.is_excused(attempt);
        if excused {
            self.count("attempts that a death excuses");
        } else {
            let took = (attempt.to - attempt.from).as_secs_f64();
            let (node, called) = (attempt.node, attempt.called);
            let what = format!("{called:?} at {node}, after {took:.3} s: {what}");
            self.violated(attempt.to, Rule::CallFailed, what);
        }
        false
    }

    fn is_excused(&self, attempt: &Attempt) -> bool {
        let Attempt { node, from, to, .. } = *attempt;
        let elsewhere = attempt.called == Called::Workflow
            && self
                .lives
                .was_any_node_disturbed(from.saturating_sub(STAGES), to);
        elsewhere || self.lives.was_disturbed(node, from, to)
    }

    /// A server has answered a question of `asked` with these machines.
    pub fn answer(&mut self, server: Part, asked: Duration, named: &[Part]) {
        self.count("questions answered");
        // One that has just begun has to look first.
        let looked = self.lives.well_for(server, asked).unwrap_or_default();
        for node in named {
            let dead = self.lives.gone_for(*node, asked).unwrap_or_default();
            if dead > DEAD_IN_ANSWERS && looked > DEAD_IN_ANSWERS {
                let dead = dead.as_secs_f64();
                let what = format!("{server} named {node}, dead for {dead:.3} s");
                self.violated(asked, Rule::DeadInAnswer, what);
            }
        }
    }

    /// A question was not answered. One to a server that was well must be.
    pub fn no_answer(&mut self, server: Part, from: Duration, to: Duration, why: &str) {
        if self.lives.was_disturbed(server, from, to) {
            self.count("questions that a death excuses");
        } else {
            self.violated(to, Rule::CallFailed, format!("asking {server}: {why}"));
        }
    }

    /// What a node says it holds, of what it has.
    pub fn held(&mut self, node: Part, at: Duration, what: &str, held: f64, has: f64) {
        self.count("looks at what nodes hold");
        if held > has {
            let what = format!("{node} holds {held} of {has} {what}");
            self.violated(at, Rule::BeyondResources, what);
        }
    }

    /// The newest revision that this life of a process is known to have had.
    #[must_use]
    pub fn newest(&self, who: &str, life: u32) -> u64 {
        let key = (who.to_owned(), life);
        self.revisions.get(&key).copied().unwrap_or_default()
    }

    /// What a process says of the revision that it has; `life` is another one after each start. `before` is the newest that was known when it
    /// was asked: answers that are under way together may be read in any order.
    pub fn revision(&mut self, who: &str, life: u32, at: Duration, before: u64, revision: u64) {
        self.count("looks at revisions");
        let newest = self.revisions.entry((who.to_owned(), life)).or_default();
        *newest = (*newest).max(revision);
        if revision < before {
            let what = format!("{who} went back from {before} to {revision}");
            self.violated(at, Rule::RevisionBack, what);
        }
    }

    /// Usage of an app, after everything was handed over.
    pub fn usage(&mut self, at: Duration, app: &str, tally: Tally, recorded: u64) {
        if !tally.fits(recorded) {
            let what = format!("{app}: {recorded} recorded, {tally:?}");
            self.violated(at, Rule::Usage, what);
        }
    }

    /// How jobs have ended: by id, how often each is listed, its state and its attempts; of those that were accepted by their keys. `ran` is how often the
    /// function did what it does.
    pub fn jobs(
        &mut self,
        at: Duration,
        accepted: &BTreeMap<String, String>,
        listed: &[Job],
        ran: u64,
    ) {
        let mut by_id: BTreeMap<&str, Vec<&Job>> = BTreeMap::new();
        for job in listed {
            by_id.entry(&job.id).or_default().push(job);
        }
        for (key, id) in accepted {
            match by_id.remove(id.as_str()).as_deref() {
                Some([job]) if job.state == "succeeded" => {}
                Some([job]) => {
                    let what = format!("{key}, {id}, is {}", job.state);
                    self.violated(at, Rule::JobLost, what);
                }
                Some(_) => self.violated(at, Rule::JobTwice, format!("{id} is listed twice")),
                None => self.violated(at, Rule::JobLost, format!("{key}, {id}, has vanished")),
            }
        }
        // A submission whose answer was lost may have been accepted, and was then submitted again under its key, so all are known.
        for id in by_id.into_keys() {
            self.violated(at, Rule::JobTwice, format!("{id} is nobody's"));
        }
        let ended = listed.iter().filter(|job| job.state == "succeeded").count() as u64;
        let attempts: u64 = listed.iter().map(|job| job.attempts).sum();
        if ran < ended {
            let what = format!("{ended} jobs have ended, their function ran {ran} times");
            self.violated(at, Rule::JobLost, what);
        }
        if ran > attempts {
            let what = format!("{attempts} attempts, their function ran {ran} times");
            self.violated(at, Rule::JobTwice, what);
        }
    }

    /// All violations so far, and how many more there were.
    #[must_use]
    pub fn violations(&self) -> (&[Violation], u64) {
        (&self.violations, self.left_out)
    }

    /// How often each kind of event happened.
    #[must_use]
    pub const fn events(&self) -> &BTreeMap<&'static str, u64> {
        &self.events
    }

    /// What was counted.
    #[must_use]
    pub const fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }

    /// How a process is from now on.
    pub fn becomes(&mut self, part: Part, at: Duration, state: State) {
        self.lives.becomes(part, at, state);
    }
}

/// A job as the controllers list it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its id.
    pub id: String,
    /// Where it stands.
    pub state: String,
    /// Attempts so far.
    pub attempts: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Part = Part::Node(0, 1);
    const OTHER: Part = Part::Node(1, 0);
    const DNS: Part = Part::Dns(0);

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// All are well; the node dies at 20 and is back at 40.
    fn judge() -> Judge {
        let mut judge = Judge::default();
        for part in [NODE, OTHER, DNS] {
            judge.becomes(part, secs(0), State::Well);
        }
        judge.event(secs(20), Event::Kill(NODE));
        judge.becomes(NODE, secs(20), State::Gone);
        judge.becomes(NODE, secs(38), State::Between);
        judge.becomes(NODE, secs(40), State::Well);
        judge
    }

    fn rules(judge: &Judge) -> Vec<Rule> {
        judge.violations().0.iter().map(|v| v.rule).collect()
    }

    fn attempt(node: Part, from: u64, to: u64, outcome: Outcome) -> Attempt {
        Attempt {
            node,
            called: Called::Function,
            from: secs(from),
            to: secs(to),
            outcome,
        }
    }

    #[test]
    fn a_call_may_fail_where_it_was_killed_and_nowhere_else() {
        let mut judge = judge();
        let broken = || Outcome::Broken("reset".to_owned());
        assert!(judge.attempt(&attempt(OTHER, 21, 22, Outcome::Answered)));
        assert!(!judge.attempt(&attempt(NODE, 19, 21, broken())));
        assert!(!judge.attempt(&attempt(NODE, 39, 40, Outcome::Status(503, String::new()))));
        assert_eq!(rules(&judge), []);
        judge.attempt(&attempt(OTHER, 19, 21, broken()));
        judge.attempt(&attempt(
            NODE,
            10,
            11,
            Outcome::Status(503, "busy".to_owned()),
        ));
        judge.attempt(&attempt(NODE, 19, 21, Outcome::Wrong("other".to_owned())));
        assert_eq!(rules(&judge), [Rule::CallFailed; 3]);
        let told = judge.violations().0[0].to_string();
        assert!(
            told.contains("us-east-1") && told.contains("kill eu-west-2 at 20.000 s"),
            "{told}"
        );
        assert_eq!(judge.counts()["attempts that a death excuses"], 2);
    }

    #[test]
    fn a_workflow_may_fail_for_a_death_elsewhere_and_just_before() {
        let mut judge = judge();
        let mut flow = attempt(OTHER, 44, 46, Outcome::Status(502, String::new()));
        flow.called = Called::Workflow;
        judge.attempt(&flow);
        assert_eq!(rules(&judge), []);
        flow.from = secs(46);
        judge.attempt(&flow);
        assert_eq!(rules(&judge), [Rule::CallFailed]);
    }

    #[test]
    fn the_dead_leave_the_answers_in_time() {
        let mut judge = judge();
        judge.answer(DNS, secs(24), &[NODE, OTHER]);
        judge.answer(DNS, secs(50), &[NODE, OTHER]);
        assert_eq!(rules(&judge), []);
        judge.answer(DNS, secs(27), &[OTHER, NODE]);
        assert_eq!(rules(&judge), [Rule::DeadInAnswer]);
        // A server that has just begun has to look first.
        judge.becomes(DNS, secs(28), State::Gone);
        judge.becomes(DNS, secs(30), State::Well);
        judge.answer(DNS, secs(33), &[NODE]);
        judge.no_answer(DNS, secs(28), secs(29), "timeout");
        assert_eq!(rules(&judge).len(), 1);
        judge.no_answer(DNS, secs(31), secs(33), "timeout");
        assert_eq!(rules(&judge).len(), 2);
    }

    #[test]
    fn revisions_go_up_in_each_life() {
        let mut judge = judge();
        for (life, revision) in [(1, 5), (1, 5), (1, 8), (2, 7), (2, 9)] {
            let before = judge.newest("dns-1", life);
            judge.revision("dns-1", life, secs(1), before, revision);
        }
        // Asked before the newest was known.
        judge.revision("dns-1", 2, secs(1), 7, 8);
        assert_eq!((rules(&judge).len(), judge.newest("dns-1", 2)), (0, 9));
        judge.revision("dns-1", 2, secs(2), 9, 8);
        assert_eq!(rules(&judge), [Rule::RevisionBack]);
    }

    #[test]
    fn a_node_holds_no_more_than_it_has() {
        let mut judge = judge();
        judge.held(NODE, secs(1), "MiB", 512.0, 512.0);
        assert_eq!(rules(&judge), []);
        judge.held(NODE, secs(1), "MiB", 513.0, 512.0);
        assert_eq!(rules(&judge), [Rule::BeyondResources]);
    }

    #[test]
    fn usage_is_what_was_answered_and_what_nobody_knows_of() {
        let tally = Tally {
            answered: 10,
            unclear: 2,
        };
        let fits: Vec<bool> = [9, 10, 12, 13].map(|n| tally.fits(n)).to_vec();
        assert_eq!(fits, [false, true, true, false]);
        let mut judge = judge();
        judge.usage(secs(1), "hello", tally, 13);
        assert_eq!(rules(&judge), [Rule::Usage]);
    }

    fn job(id: &str, state: &str, attempts: u64) -> Job {
        Job {
            id: id.to_owned(),
            state: state.to_owned(),
            attempts,
        }
    }

    #[test]
    fn every_accepted_job_ends_once() {
        let accepted: BTreeMap<String, String> = [("k-1", "a"), ("k-2", "b")]
            .map(|(key, id)| (key.to_owned(), id.to_owned()))
            .into();
        let ended = [job("a", "succeeded", 1), job("b", "succeeded", 2)];
        let after = |listed: &[Job], ran| {
            let mut judge = judge();
            judge.jobs(secs(1), &accepted, listed, ran);
            rules(&judge)
        };
        assert_eq!(after(&ended, 2), []);
        assert_eq!(after(&ended, 3), []);
        assert_eq!(after(&ended, 4), [Rule::JobTwice]);
        assert_eq!(after(&ended, 1), [Rule::JobLost]);
        assert_eq!(after(&ended[..1], 1), [Rule::JobLost]);
        let more = [ended[0].clone(), ended[1].clone(), job("c", "succeeded", 1)];
        assert_eq!(after(&more, 4), [Rule::JobTwice]);
        let twice = [ended[0].clone(), ended[1].clone(), ended[1].clone()];
        assert_eq!(after(&twice, 4), [Rule::JobTwice]);
        let dead = [ended[0].clone(), job("b", "dead", 5)];
        assert_eq!(after(&dead, 3), [Rule::JobLost]);
    }

    #[test]
    fn what_is_wrong_without_end_is_told_so_often() {
        let mut judge = judge();
        for _ in 0..TOLD + 3 {
            judge.violated(secs(1), Rule::Stuck, String::new());
        }
        let (told, left_out) = judge.violations();
        assert_eq!((told.len(), left_out), (TOLD, 3));
    }
}

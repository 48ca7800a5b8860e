//! The record of a job's attempts: where each ran, from when to when, and how it ended.
//!
//! A pure function from the present record and a step of [`super::progress`] to the new record. It is stored together with the step itself,
//! so that the two never disagree. Only the last [`ATTEMPTS_KEPT`] are kept: a job may be tried any number of times while no cluster can
//! take it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::progress::{AttemptResult, Event, JobProgress};
use super::state::JobState;
use crate::id::ClusterId;
use crate::unit::Timestamp;

/// How many attempts of a job are kept, the latest ones.
pub const ATTEMPTS_KEPT: usize = 32;
/// The most bytes kept of an attempt's failure reason.
const REASON_MAX: usize = 300;

/// The end of an attempt at a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttemptEnd {
    /// The app answered successfully.
    Succeeded,
    /// The app refused it with an answer that would be the same again.
    Refused,
    /// It certainly did not reach a function.
    NeverBegun,
    /// It was cut short, and may have run completely or in part.
    CutShort,
    /// The owner cancelled the job.
    Cancelled,
}

/// An attempt at a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobAttempt {
    /// The number of the attempt; the first is 1.
    pub number: u32,
    /// The cluster to which it was sent; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterId>,
    /// When the attempt began.
    pub started_at: Timestamp,
    /// When the attempt ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// How the attempt ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<AttemptEnd>,
    /// The HTTP status of the app's answer; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why it ended as it did, in words; absent where `end` says everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Facts about an attempt that the step does not contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptContext {
    /// The cluster to which it is sent, when it begins.
    pub cluster: Option<ClusterId>,
    /// The status of the app's answer, when it ends with one.
    pub status: Option<u16>,
    /// Why it ended as it did, when it ends.
    pub reason: Option<String>,
}

impl AttemptEnd {
    /// How an attempt ended by this event; `None` for events that end none.
    const fn of(event: Event) -> Option<Self> {
        match event {
            Event::Ended { ending, .. } => Some(match ending {
                AttemptResult::Succeeded => Self::Succeeded,
                AttemptResult::Refused => Self::Refused,
                AttemptResult::NeverBegun => Self::NeverBegun,
                AttemptResult::CutShort => Self::CutShort,
            }),
            Event::LeaseLost { .. } => Some(Self::CutShort),
            Event::Cancelled => Some(Self::Cancelled),
            Event::Confirmed | Event::Claimed { .. } | Event::Tick | Event::Redriven { .. } => None,
        }
    }
}

/// The new record once `event` has led a job from one state to the next at `now`; `None` if the step does not concern an attempt.
#[must_use]
pub fn record_step(
    kept: &[JobAttempt],
    (from, to): (&JobProgress, &JobProgress),
    event: Event,
    about: &AttemptContext,
    now: Timestamp,
) -> Option<Vec<JobAttempt>> {
    match (
        from.state == JobState::Running,
        to.state == JobState::Running,
    ) {
        (false, true) => {
            let skip = (kept.len() + 1).saturating_sub(ATTEMPTS_KEPT);
            let begun = JobAttempt {
                number: to.attempt,
                cluster: about.cluster.clone(),
                started_at: now,
                ended_at: None,
                end: None,
                status: None,
                reason: None,
            };
            let before = kept.iter().skip(skip).cloned();
            let before = before.map(|attempt| attempt.over_by(now));
            Some(before.chain([begun]).collect())
        }
        (true, false) => {
            let mut attempts = kept.to_vec();
            // A job that an earlier release began has no record of the attempt that ends.
            let last = attempts
                .last_mut()
                .filter(|last| last.number == from.attempt && last.ended_at.is_none())?;
            last.ended_at = Some(now);
            last.end = AttemptEnd::of(event);
            last.status = about.status;
            last.reason = about.reason.as_deref().map(shortened);
            Some(attempts)
        }
        (false, false) | (true, true) => None,
    }
}

impl JobAttempt {
    /// The attempt once the next one begins at `now`. If a controller of a release without records ended it, nothing is known but that it is over.
    fn over_by(self, now: Timestamp) -> Self {
        if self.ended_at.is_some() {
            return self;
        }
        Self {
            ended_at: Some(now),
            end: Some(AttemptEnd::CutShort),
            reason: Some(
                "it ended before the next attempt began; how was not written down".to_owned(),
            ),
            ..self
        }
    }
}

fn shortened(reason: &str) -> String {
    if reason.len() <= REASON_MAX {
        return reason.to_owned();
    }
    let end = (0..=REASON_MAX)
        .rev()
        .find(|at| reason.is_char_boundary(*at));
    format!("{}…", &reason[..end.unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::job::{JobRules, RetryPolicy, Step};
    use crate::unit::DurationMs;

    const TERMS: JobRules = JobRules {
        retry: RetryPolicy {
            attempts: 3,
            first: DurationMs::from_millis(10),
            longest: DurationMs::from_millis(100),
        },
        idempotent: true,
    };

    fn at(cluster: &str) -> AttemptContext {
        AttemptContext {
            cluster: Some(cluster.parse().expect("a cluster")),
            ..AttemptContext::default()
        }
    }

    /// Lets an event happen and keeps the record as the store does.
    fn happen(
        (progress, kept): (&mut JobProgress, &mut Vec<JobAttempt>),
        event: Event,
        about: &AttemptContext,
        now: u64,
    ) {
        let Step::To(to) = progress.step(&TERMS, event, Timestamp(now), 0.0) else {
            return;
        };
        if let Some(next) = record_step(kept, (progress, &to), event, about, Timestamp(now)) {
            *kept = next;
        }
        *progress = to;
    }

    const fn claimed(now: u64) -> Event {
        Event::Claimed {
            lease_until: Timestamp(now + 50),
        }
    }

    const fn ended(attempt: u32, ending: AttemptResult) -> Event {
        Event::Ended { attempt, ending }
    }

    #[test]
    fn each_attempt_has_its_place_its_times_and_its_end() {
        let mut progress = JobProgress::submitted(Timestamp(0), Timestamp(10_000));
        let mut kept = Vec::new();
        let none = AttemptContext::default();
        let cut = AttemptContext {
            reason: Some("no answer".to_owned()),
            ..AttemptContext::default()
        };
        let well = AttemptContext {
            status: Some(200),
            ..AttemptContext::default()
        };
        happen((&mut progress, &mut kept), Event::Confirmed, &none, 1);
        assert!(kept.is_empty(), "nothing has been tried");
        happen((&mut progress, &mut kept), claimed(5), &at("eu-west"), 5);
        happen(
            (&mut progress, &mut kept),
            ended(1, AttemptResult::CutShort),
            &cut,
            40,
        );
        happen(
            (&mut progress, &mut kept),
            claimed(200),
            &at("us-east"),
            200,
        );
        assert_eq!(kept[1].ended_at, None, "it runs");
        happen(
            (&mut progress, &mut kept),
            ended(1, AttemptResult::Refused),
            &none,
            210,
        );
        assert_eq!(kept[1].ended_at, None, "the end of an attempt that is past");
        happen(
            (&mut progress, &mut kept),
            ended(2, AttemptResult::Succeeded),
            &well,
            260,
        );

        let shown: Vec<_> = kept
            .iter()
            .map(|one| {
                (
                    one.number,
                    one.started_at.get(),
                    one.ended_at.map(Timestamp::get),
                    one.end,
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                (1, 5, Some(40), Some(AttemptEnd::CutShort)),
                (2, 200, Some(260), Some(AttemptEnd::Succeeded)),
            ]
        );
        assert_eq!(kept[0].cluster, at("eu-west").cluster);
        assert_eq!(kept[0].reason.as_deref(), Some("no answer"));
        assert_eq!(
            (kept[1].status, kept[1].reason.as_deref()),
            (Some(200), None)
        );
    }

    #[test]
    fn a_job_taken_back_while_it_runs_says_so() {
        let mut progress = JobProgress::submitted(Timestamp(0), Timestamp(10_000));
        let mut kept = Vec::new();
        happen((&mut progress, &mut kept), Event::Confirmed, &at("a"), 1);
        happen((&mut progress, &mut kept), claimed(2), &at("a"), 2);
        happen((&mut progress, &mut kept), Event::Cancelled, &at("a"), 9);
        assert_eq!(kept[0].end, Some(AttemptEnd::Cancelled));
        assert_eq!(kept[0].ended_at, Some(Timestamp(9)));
    }

    #[test]
    fn an_attempt_that_an_earlier_release_began_is_not_made_up() {
        let running = JobProgress {
            state: JobState::Running,
            attempt: 4,
            ..JobProgress::submitted(Timestamp(0), Timestamp(10_000))
        };
        let done = JobProgress {
            state: JobState::Succeeded,
            ..running.clone()
        };
        let event = ended(4, AttemptResult::Succeeded);
        let none = AttemptContext::default();
        let kept = record_step(&[], (&running, &done), event, &none, Timestamp(7));
        assert_eq!(kept, None);
    }

    #[test]
    fn an_attempt_that_an_earlier_release_ended_is_over_when_the_next_begins() {
        let waiting = JobProgress {
            state: JobState::Queued,
            attempt: 1,
            ..JobProgress::submitted(Timestamp(0), Timestamp(10_000))
        };
        let running = JobProgress {
            state: JobState::Running,
            attempt: 2,
            ..waiting.clone()
        };
        let open = JobAttempt {
            number: 1,
            cluster: at("a").cluster,
            started_at: Timestamp(3),
            ended_at: None,
            end: None,
            status: None,
            reason: None,
        };
        let step = (&waiting, &running);
        let kept = record_step(&[open], step, claimed(9), &at("b"), Timestamp(9)).expect("a step");
        assert_eq!(
            (kept[0].ended_at, kept[0].end),
            (Some(Timestamp(9)), Some(AttemptEnd::CutShort))
        );
        assert_eq!((kept[1].number, kept[1].ended_at), (2, None));
    }

    proptest! {
        #[test]
        fn the_record_is_bounded_and_its_last_entry_runs_only_while_the_job_does(
            events in proptest::collection::vec((0_u8..6, 0_u32..3), 0..200),
        ) {
            let mut progress = JobProgress::submitted(Timestamp(0), Timestamp(u64::MAX));
            let mut kept = Vec::new();
            let mut now = 0;
            for (kind, back) in events {
                now += 1000;
                let attempt = progress.attempt.saturating_sub(back);
                let event = match kind {
                    0 => Event::Confirmed,
                    1 | 2 => claimed(now),
                    3 => ended(attempt, AttemptResult::NeverBegun),
                    4 => ended(attempt, AttemptResult::CutShort),
                    _ => Event::LeaseLost { attempt },
                };
                happen((&mut progress, &mut kept), event, &at("a"), now);
                prop_assert!(kept.len() <= ATTEMPTS_KEPT);
                prop_assert!(kept.is_sorted_by_key(|one| one.number));
                let open = kept.iter().filter(|one| one.ended_at.is_none()).count();
                prop_assert_eq!(open, usize::from(progress.state == JobState::Running));
                prop_assert!(kept.iter().all(|one| one.end.is_some() == one.ended_at.is_some()));
                if progress.state == JobState::Running {
                    prop_assert_eq!(kept.last().map(|one| one.number), Some(progress.attempt));
                }
            }
        }

        #[test]
        fn reasons_are_cut_at_a_character(text in "\\PC{0,400}") {
            let short = shortened(&text);
            prop_assert!(short.len() <= REASON_MAX + '…'.len_utf8());
            prop_assert!(text.starts_with(short.trim_end_matches('…')) || text.starts_with(&short));
        }
    }
}

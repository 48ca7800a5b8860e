//! Builds a stage's input from the outputs of its parents.
//!
//! With one parent, the body is its output, with its content type. With several, it is `multipart/form-data`: one part for each parent, named by
//! the stage, in the order of the stages. A failed parent's part is the problem; a skipped parent has no part.
//!
//! Parts are copies of the outputs, so such a body is made once for all stages with the same parents, and counts against the run's budget.

use std::collections::BTreeMap;

use bytes::Bytes;
use fdn_core::workflow::parts::{Multipart, Part};
use fdn_core::{ErrorCode, Problem, StageName};
use fdn_scheduling::run::{Failure, Settled};
use http::{HeaderMap, HeaderValue};

use super::budget::{Budget, Held, too_large};
use super::call::Output;

/// A parent of the stage that is called.
pub(super) struct Parent<'a> {
    pub(super) stage: &'a StageName,
    pub(super) settled: Settled,
    /// Its output, if it succeeded.
    pub(super) output: Option<&'a Output>,
    /// Its failure and the failed attempt, if it failed.
    pub(super) failure: Option<(&'a Failure, u32)>,
}

/// Builds the problem that reports a stage's failure.
pub(super) fn problem(code: ErrorCode, stage: &StageName, attempt: u32, reason: &str) -> Problem {
    let detail = match attempt {
        0 => format!("stage {stage} did not run: {reason}"),
        _ => format!("stage {stage} failed at attempt {attempt}: {reason}"),
    };
    let mut problem = Problem::new(code, detail);
    problem.stage = Some(stage.to_string());
    problem.attempt = Some(attempt);
    problem.reason = Some(reason.to_owned());
    problem
}

/// The body of a stage's input, and its media type if it has one.
#[derive(Clone, Debug, Default)]
pub(super) struct Input {
    pub(super) kind: Option<HeaderValue>,
    pub(super) body: Bytes,
}

/// The inputs of stages with several parents, by the indexes of these.
#[derive(Debug, Default)]
pub(super) struct SharedInputs(BTreeMap<Vec<usize>, (Input, Held)>);

impl SharedInputs {
    /// The input of a stage with these parents, whose indexes are `of`. Parents that have ended do not change, so all their children get the same.
    ///
    /// # Errors
    /// When it is larger than what `budget` has left.
    pub(super) fn of(
        &mut self,
        of: &[usize],
        parents: &[Parent<'_>],
        budget: &Budget,
    ) -> Result<Input, Failure> {
        if let Some((input, _)) = self.0.get(of) {
            return Ok(input.clone());
        }
        let (input, held) = compose_input(parents, budget)?;
        // With one parent there is nothing to share: the body is the output itself.
        if parents.len() > 1 {
            self.0.insert(of.to_vec(), (input.clone(), held));
        }
        Ok(input)
    }

    /// Drops the inputs of stages whose parents are not `needed` any more.
    pub(super) fn retain(&mut self, needed: impl Fn(&[usize]) -> bool) {
        self.0.retain(|of, _| needed(of));
    }
}

/// Adds the header field about the parents to `headers`.
pub(super) fn add_parents(parents: &[Parent<'_>], headers: &mut HeaderMap) {
    let how: Vec<String> = parents
        .iter()
        .map(|parent| format!("{}={}", parent.stage, parent.settled.as_str()))
        .collect();
    if let Ok(how) = HeaderValue::from_str(&how.join(", ")) {
        headers.insert(fdn_core::api::header::PARENTS, how);
    }
}

/// Builds the input, and takes from `budget` what it copies.
fn compose_input(parents: &[Parent<'_>], budget: &Budget) -> Result<(Input, Held), Failure> {
    let mut held = budget.nothing();
    let mut told: Vec<(&StageName, String, Bytes)> = Vec::with_capacity(parents.len());
    for parent in parents {
        match (parent.output, parent.failure) {
            (Some(output), _) => {
                let kind = output.content_type().to_owned();
                told.push((parent.stage, kind, output.body.clone()));
            }
            (None, Some((failure, attempt))) if parent.settled == Settled::Failed => {
                let problem = problem(
                    ErrorCode::StageFailed,
                    parent.stage,
                    attempt,
                    &failure.reason,
                );
                // A problem consists of strings and numbers and can always be serialized.
                let body = serde_json::to_vec(&problem).unwrap_or_default();
                told.push((parent.stage, Problem::MEDIA_TYPE.to_owned(), body.into()));
            }
            (None, _) => {}
        }
    }
    let (kind, body) = if parents.len() > 1 {
        // Before it is made: what has no room is not copied first.
        let least: usize = told.iter().map(|(_, _, body)| body.len()).sum();
        if !held.grow(least) {
            return Err(too_large("input", held.most()));
        }
        let parts: Vec<Part<'_>> = told
            .iter()
            .map(|(stage, kind, body)| Part {
                stage,
                content_type: kind,
                body,
            })
            .collect();
        let whole = Multipart::new(&parts);
        if !held.grow(whole.body.len().saturating_sub(least)) {
            return Err(too_large("input", held.most()));
        }
        (whole.content_type, Bytes::from(whole.body))
    } else {
        match told.pop() {
            Some((_, kind, body)) => (kind, body),
            None => return Ok((Input::default(), held)),
        }
    };
    let kind = HeaderValue::from_str(&kind).ok();
    Ok((Input { kind, body }, held))
}

#[cfg(test)]
mod tests {
    use fdn_scheduling::run::FailureKind;

    use super::*;

    fn output(body: &'static str) -> Output {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("text/plain"));
        Output {
            status: http::StatusCode::OK,
            headers,
            body: Bytes::from_static(body.as_bytes()),
            held: Budget::new(0).nothing(),
        }
    }

    fn done<'a>(stage: &'a StageName, output: &'a Output) -> Parent<'a> {
        Parent {
            stage,
            settled: Settled::Done,
            output: Some(output),
            failure: None,
        }
    }

    /// The input, and the header field about the parents.
    fn composed(parents: &[Parent<'_>]) -> (Input, String) {
        let mut headers = HeaderMap::new();
        add_parents(parents, &mut headers);
        let how = headers["x-fdn-parents"].to_str().expect("text").to_owned();
        let (input, _) = compose_input(parents, &Budget::new(10_000)).expect("there is room");
        (input, how)
    }

    #[test]
    fn one_parent_is_plain_and_several_are_parts_by_name() {
        let (a, b, c): (StageName, StageName, StageName) = (
            "a".parse().expect("a"),
            "b".parse().expect("b"),
            "c".parse().expect("c"),
        );
        let (one, two) = (output("one"), output("two"));
        let (input, how) = composed(&[done(&a, &one)]);
        assert_eq!((&input.body[..], how.as_str()), (&b"one"[..], "a=done"));
        assert_eq!(input.kind.expect("a type"), "text/plain");

        let failure = Failure::new(FailureKind::Answered, "it broke");
        let parents = [
            done(&a, &one),
            Parent {
                stage: &b,
                settled: Settled::Failed,
                output: None,
                failure: Some((&failure, 3)),
            },
            Parent {
                stage: &c,
                settled: Settled::Skipped,
                output: None,
                failure: None,
            },
            done(&c, &two),
        ];
        let (input, how) = composed(&parents[..3]);
        assert_eq!(how, "a=done, b=failed, c=skipped");
        let kind = input.kind.expect("a type");
        let kind = kind.to_str().expect("text");
        assert!(kind.starts_with("multipart/form-data; boundary="), "{kind}");
        let text = String::from_utf8_lossy(&input.body);
        let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
        assert!(place("name=\"a\"") < place("one") && place("one") < place("name=\"b\""));
        assert!(place("\"attempt\":3") > place("application/problem+json"));
        assert!(!text.contains("name=\"c\""), "{text}");
    }

    #[test]
    fn all_stages_with_the_same_parents_share_one_input_within_the_budget() {
        const EACH: usize = 400 << 10;
        let (a, b): (StageName, StageName) = ("a".parse().expect("a"), "b".parse().expect("b"));
        let large = || Output {
            body: vec![b'x'; EACH].into(),
            ..output("")
        };
        let (one, two) = (large(), large());
        let parents = [done(&a, &one), done(&b, &two)];
        let budget = Budget::new(1 << 20);
        let mut shared = SharedInputs::default();
        let mut input = || {
            shared
                .of(&[0, 1], &parents, &budget)
                .expect("there is room")
        };
        let first = input();
        let kept = budget.left();
        for _ in 1..10 {
            assert_eq!(input().body.as_ptr(), first.body.as_ptr());
        }
        assert_eq!(budget.left(), kept);
        assert_eq!(kept, (1 << 20) - first.body.len());
        // Other parents, or the same in another order, make another input, which has no room; with one parent nothing is copied.
        let other = shared.of(&[1, 0], &parents, &budget).expect_err("no room");
        assert_eq!(other, too_large("input", kept));
        let alone = shared.of(&[0], &parents[..1], &budget).expect("the output");
        assert_eq!(alone.body.as_ptr(), one.body.as_ptr());
        shared.retain(|of| of == [0, 1]);
        assert_eq!(budget.left(), kept);
        shared.retain(|_| false);
        assert_eq!(budget.left(), 1 << 20);
    }
}

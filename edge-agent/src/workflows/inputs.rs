//! Builds a stage's input from the outputs of its parents.
//!
//! With one parent, the body is its output, with its content type. With several, it is `multipart/form-data`: one part for each parent, named by
//! the stage, in the order of the stages. A failed parent's part is the problem; a skipped parent has no part.

use bytes::Bytes;
use fdn_core::workflow::parts::{Multipart, Part};
use fdn_core::{ErrorCode, Problem, StageName};
use fdn_scheduling::run::{Failure, Settled};
use http::{HeaderMap, HeaderValue};

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

/// Adds the header fields about the parents to `headers`; returns the body.
pub(super) fn compose_input(parents: &[Parent<'_>], headers: &mut HeaderMap) -> Bytes {
    let how: Vec<String> = parents
        .iter()
        .map(|parent| format!("{}={}", parent.stage, parent.settled.as_str()))
        .collect();
    if let Ok(how) = HeaderValue::from_str(&how.join(", ")) {
        headers.insert(fdn_core::api::header::PARENTS, how);
    }
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
        let parts: Vec<Part<'_>> = told
            .iter()
            .map(|(stage, kind, body)| Part {
                stage,
                content_type: kind,
                body,
            })
            .collect();
        let whole = Multipart::new(&parts);
        (whole.content_type, Bytes::from(whole.body))
    } else {
        match told.pop() {
            Some((_, kind, body)) => (kind, body),
            None => return Bytes::new(),
        }
    };
    if let Ok(kind) = HeaderValue::from_str(&kind) {
        headers.insert(http::header::CONTENT_TYPE, kind);
    }
    body
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
        }
    }

    #[test]
    fn one_parent_is_plain_and_several_are_parts_by_name() {
        let (a, b, c): (StageName, StageName, StageName) = (
            "a".parse().expect("a"),
            "b".parse().expect("b"),
            "c".parse().expect("c"),
        );
        let (one, two) = (output("one"), output("two"));
        let done = |stage, output| Parent {
            stage,
            settled: Settled::Done,
            output: Some(output),
            failure: None,
        };
        let mut headers = HeaderMap::new();
        assert_eq!(compose_input(&[done(&a, &one)], &mut headers), "one");
        assert_eq!(headers["content-type"], "text/plain");
        assert_eq!(headers["x-fdn-parents"], "a=done");

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
        let body = compose_input(&parents[..3], &mut headers);
        assert_eq!(headers["x-fdn-parents"], "a=done, b=failed, c=skipped");
        let kind = headers["content-type"].to_str().expect("text");
        assert!(kind.starts_with("multipart/form-data; boundary="), "{kind}");
        let text = String::from_utf8_lossy(&body);
        let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
        assert!(place("name=\"a\"") < place("one") && place("one") < place("name=\"b\""));
        assert!(place("\"attempt\":3") > place("application/problem+json"));
        assert!(!text.contains("name=\"c\""), "{text}");
    }
}

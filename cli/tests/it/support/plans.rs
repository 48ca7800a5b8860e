//! Sample plans, as explained by a controller.

use fdn_core::api::*;
use fdn_core::billing::{Currency, Money};
use fdn_core::latency::{LatencyEstimate, LatencySource};
use fdn_core::predicted::{Compared, StageCompared};
use fdn_core::preview::{PlanPreview, PlannedGroup, PlannedPrice, WhatIfOutcome};
use fdn_core::*;

use super::sample::*;

pub(crate) fn explanation() -> Explanation {
    let candidate = |name: &str, rtt: f64, work: f64, excluded: Option<&str>, verdict: &str| {
        let d = rtt / 2.0;
        // For a cluster that cannot be chosen, the controller reports only the distance.
        let known = |ms: f64| {
            if excluded.is_some() {
                Millis::INFINITY
            } else {
                Millis::new(ms)
            }
        };
        Candidate {
            cluster: parse(name),
            latency: LatencyEstimate {
                rtt: Millis::new(rtt),
                source: LatencySource::Located,
            },
            distance: Millis::new(d),
            available: known(0.0),
            start: known(d),
            work: known(work),
            toll: known(rtt / 100.0),
            finish: known(d + work),
            total: known(rtt + work),
            excluded: excluded.map(Into::into),
            verdict: verdict.into(),
        }
    };
    Explanation {
        app: parse("hello"),
        client: parse("203.0.113.7"),
        chosen: Some(parse("ap-south")),
        reason: "it finishes first".into(),
        bound: Some(BindingInfo {
            prefix: parse("203.0.113.0/24"),
            cluster: parse("ap-south"),
            revision: Revision(6),
        }),
        candidates: vec![
            candidate("ap-south", 60.0, 10.0, None, "chosen"),
            candidate("eu-west", 165.5, 10.0, None, "105.50 ms later"),
            candidate("us-east", 230.0, 10.0, Some("no node lives"), ""),
        ],
        stages: Vec::new(),
        plan: Some(StoredPlan {
            group: "ap-south=30".into(),
            revision: Revision(6),
            planned_at: Timestamp(1_795_000_000_123),
            reason: "no plan before".into(),
            candidates: vec![
                candidate("ap-south", 60.0, 25.0, None, "chosen"),
                candidate("eu-west", 165.5, 25.0, None, "105.50 ms later"),
            ],
            stages: std::collections::BTreeMap::new(),
        }),
        actual: vec![StageCompared {
            stage: parse("hello"),
            cluster: parse("ap-south"),
            calls: 1204,
            way: Some(compared(60.0, Some(60.0))),
            queue: compared(0.0, Some(0.25)),
            execution: compared(10.0, Some(12.5)),
            correction: 1.25,
            error: Some(0.2),
        }],
        forms: Vec::new(),
    }
}

fn compared(predicted: f64, actual: Option<f64>) -> Compared {
    Compared {
        predicted: Millis::new(predicted),
        actual: actual.map(Millis::new),
    }
}

/// A plan for the networks of three clients, with the nearest of two clusters down.
pub(crate) fn what_if() -> PlanPreview {
    let group = |clients: &[&str], cluster: &str, latency: f64, reason: &str| PlannedGroup {
        clients: clients.iter().map(|client| parse(client)).collect(),
        cluster: parse(cluster),
        stages: [(parse("hello"), parse(cluster))].into(),
        latency: Some(Millis::new(latency)),
        reason: reason.into(),
        candidates: Vec::new(),
    };
    PlanPreview {
        app: Some(parse("hello")),
        rate: 12.5,
        groups: vec![
            group(
                &["192.0.2.0/24", "203.0.113.0/24"],
                "us-east",
                98.5,
                "the cluster before, eu-west, does not answer",
            ),
            group(
                &["198.51.100.0/24"],
                "us-east",
                24.25,
                "still the best, with 24.25 ms",
            ),
        ],
        unplaced: Vec::new(),
        price: PlannedPrice {
            price_list: None,
            million: Money::new(0, Currency::EUR),
            month: Money::new(0, Currency::EUR),
        },
        what_if: Some(WhatIfOutcome {
            before: vec![
                group(&["192.0.2.0/24", "203.0.113.0/24"], "eu-west", 31.0, ""),
                group(&["198.51.100.0/24"], "us-east", 24.25, ""),
            ],
            others_moved: 418,
            others_unplaced: 0,
        }),
        forms: Vec::new(),
    }
}

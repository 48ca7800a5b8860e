//! The output of each command in each format, as golden files.

use fdn_cli::args::SortBy;
use fdn_cli::commands::bill::{Bill, Usage};
use fdn_cli::commands::cluster::ClusterReport;
use fdn_cli::commands::deploy::DeployReport;
use fdn_cli::commands::describe::AppReport;
use fdn_cli::commands::dns::{LookupReport, ServerAnswer, ServerExplanation};
use fdn_cli::commands::explain::ExplanationReport;
use fdn_cli::commands::node::NodeReport;
use fdn_cli::commands::plan::PreviewReport;
use fdn_cli::commands::top::view::Top;
use fdn_cli::commands::txt::Records;
use fdn_cli::output::{Format, Listing, Report, render};
use serde::Serialize;

use crate::golden;
use crate::support::{bills, plans, sample};

pub(crate) fn check<R: Report + Serialize>(name: &str, report: &R) {
    for (format, suffix) in [
        (Format::Table, "table.txt"),
        (Format::Wide, "wide.txt"),
        (Format::Json, "json"),
        (Format::Yaml, "yaml"),
        (Format::Name, "name.txt"),
    ] {
        golden::check(
            &format!("{name}.{suffix}"),
            &render(format, report).expect("rendered"),
        );
    }
}

pub(crate) fn listing<T>(rows: &[T]) -> Listing<'_, T> {
    Listing {
        rows,
        nothing: "nothing",
        now: sample::NOW,
    }
}

#[test]
fn lists_are_printed_as_reviewed() {
    check(
        "list",
        &listing(&[sample::summary("hello"), sample::summary("thumbnails")]),
    );
    check("clusters", &listing(&sample::clusters()));
    check("nodes", &listing(&sample::nodes()));
    check("join-tokens", &listing(&sample::join_tokens()));
    check("prices", &listing(&bills::price_lists()));
    check("budgets", &listing(&bills::budgets()));
    check("alerts", &listing(&bills::budget_alerts()));
}

#[test]
fn an_empty_list_says_so_to_people_and_stays_empty_for_scripts() {
    let empty = listing::<fdn_core::api::AppSummary>(&[]);
    assert_eq!(
        render(Format::Table, &empty).expect("rendered"),
        "nothing\n"
    );
    assert_eq!(render(Format::Json, &empty).expect("rendered"), "[]\n");
    assert_eq!(render(Format::Name, &empty).expect("rendered"), "");
}

#[test]
fn pages_are_printed_as_reviewed() {
    check(
        "describe",
        &AppReport {
            detail: &sample::detail("hello"),
            now: sample::NOW,
        },
    );
    check("bill", &Bill(&bills::statement()));
    check("usage", &Usage(&bills::usage_view()));
    check("explain", &ExplanationReport(&plans::explanation()));
    check("plan-what-if", &PreviewReport(&plans::what_if()));
    check("lookup", &LookupReport(&sample::lookup()));
    check("server-lookup", &ServerExplanation(&sample::server_says()));
    check("dns-answer", &sample::dns_answer());
    let none = ServerAnswer {
        addresses: Vec::new(),
        ttl: None,
        revision: None,
        ..sample::dns_answer()
    };
    check("dns-no-answer", &none);
    check("bindings", &listing(&sample::bindings()));
    check("txt", &listing(&sample::txt()));
    check("txt-set", &Records(&sample::txt()[0]));
    check(
        "node",
        &NodeReport {
            detail: &sample::node_detail(),
            now: sample::NOW,
        },
    );
    check(
        "cluster",
        &ClusterReport {
            detail: &sample::cluster_detail(),
            now: sample::NOW,
        },
    );
    check(
        "deploy",
        &DeployReport::new(&sample::deployed("hello"), Some(8080)),
    );
}

#[test]
fn the_network_at_work_is_printed_as_reviewed() {
    let responses = sample::responses();
    check("top", &Top::new(&responses, sample::NOW, SortBy::Calls));
    let first = |sort: SortBy| Top::new(&responses, sample::NOW, sort).apps[0].app.clone();
    assert_eq!(first(SortBy::Calls), "thumbnails");
    assert_eq!(first(SortBy::P99), "hello", "the slower one");
    assert_eq!(first(SortBy::Errors), "thumbnails");
    assert_eq!(first(SortBy::Name), "hello");
    assert_eq!(first(SortBy::Cpu), "hello", "apps tell none: by name");
}

#[test]
fn json_is_exactly_what_the_api_answers() {
    let detail = sample::detail("hello");
    let described = AppReport {
        detail: &detail,
        now: sample::NOW,
    };
    let printed = render(Format::Json, &described).expect("rendered");
    let read: fdn_core::api::AppDetail =
        serde_json::from_str(&printed).expect("the API's own type");
    assert_eq!(read, detail);
    let explanation = plans::explanation();
    let printed = render(Format::Json, &ExplanationReport(&explanation)).expect("rendered");
    let read: fdn_core::api::Explanation =
        serde_json::from_str(&printed).expect("the API's own type");
    assert_eq!(read, explanation, "what is infinite survives too");
    let yaml = render(Format::Yaml, &described).expect("rendered");
    let read: fdn_core::api::AppDetail = serde_norway::from_str(&yaml).expect("the API's own type");
    assert_eq!(read, detail);
}

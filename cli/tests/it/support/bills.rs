//! Sample values of the billing API.

use fdn_core::billing::*;

use super::sample::{NOW, ago, parse};

fn line(kind: Kind, meter: Meter, quantity: i128, micros: i64) -> Line {
    let usage = kind == Kind::Usage;
    let quantity = Quantity(quantity);
    Line {
        month: parse("2026-11"),
        kind,
        meter,
        app: usage.then(|| parse("thumbs")),
        function: usage.then(|| parse("thumbs")),
        region: usage.then(|| parse("eu")),
        cluster: usage.then(|| parse("eu-west")),
        price_list: Some(parse("basic")),
        from: parse("2026-11-01"),
        to: parse("2026-12-01"),
        quantity,
        unit: meter.smallest().to_owned(),
        units: meter.in_units(quantity),
        amount: Money::new(micros, Currency::EUR),
    }
}

pub(crate) fn statement() -> Statement {
    let lines = vec![
        line(Kind::Usage, Meter::Invocations, 3_000_000, 600_000),
        line(Kind::Usage, Meter::GibSeconds, 384_000_000_000, 6250),
        Line {
            month: parse("2026-10"),
            ..line(Kind::Usage, Meter::Invocations, 1000, 200)
        },
        line(Kind::FreeTier, Meter::Invocations, -1_000_000, -200_000),
    ];
    Statement {
        tenant: parse("ten_00000000000000000000000000000001"),
        month: parse("2026-11"),
        state: StatementState::Open,
        at: NOW,
        total: Money::new(406_450, Currency::EUR),
        meters: Vec::new(),
        line_count: 4,
        lines,
    }
}

pub(crate) fn usage_view() -> UsageView {
    UsageView {
        month: parse("2026-10"),
        by: View::Region,
        rows: vec![UsageRow {
            name: "eu-west".to_owned(),
            quantities: [
                (Meter::Invocations, Quantity(7)),
                (Meter::VcpuSeconds, Quantity(1_500_000)),
            ]
            .into(),
            cost: Money::new(12, Currency::EUR),
        }],
    }
}

pub(crate) fn price_lists() -> Vec<PriceList> {
    vec![PriceList {
        name: parse("basic"),
        currency: Currency::EUR,
        from: parse("2026-11-01"),
        to: Some(parse("2026-12-01")),
        prices: [(Meter::Invocations, Price::new(200_000, 1_000_000))].into(),
        free: [(Meter::Invocations, 1_000_000)].into(),
    }]
}

pub(crate) fn budgets() -> Vec<Budget> {
    vec![Budget {
        name: parse("all"),
        limit: Money::new(99_500_000, Currency::EUR),
        thresholds: [50, 100].into(),
        webhook: Some("https://example.org/bills".to_owned()),
    }]
}

pub(crate) fn budget_alerts() -> Vec<BudgetAlert> {
    vec![BudgetAlert {
        budget: parse("all"),
        month: parse("2026-11"),
        threshold: 50,
        spent: Money::new(50_000_000, Currency::EUR),
        limit: Money::new(99_500_000, Currency::EUR),
        at: ago(300),
    }]
}

//! `fdn bill`.

use fdn_core::Timestamp;
use fdn_core::billing::{Kind, Line, Meter, Statement, StatementState, UsageRow, UsageView};
use serde::Serialize;

use super::client;
use crate::args::{BillArgs, BillOutput};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Format, Report, table, time};

/// Runs the command.
///
/// # Errors
/// When the controller refuses or cannot be reached.
pub async fn run(
    args: &BillArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    let tenant = args.tenant.as_ref();
    let format = match args.output {
        BillOutput::Table => Format::Table,
        BillOutput::Wide => Format::Wide,
        BillOutput::Json => Format::Json,
        BillOutput::Yaml => Format::Yaml,
        BillOutput::Csv if args.by.is_some() => {
            return Err(CliError::Usage(
                "-o csv prints the lines of a statement; leave --by out".to_owned(),
            ));
        }
        BillOutput::Csv => {
            let text = client.statement_csv(tenant, args.month).await?;
            return console.line(text.trim_end());
        }
    };
    if let Some(by) = args.by {
        let usage = client.usage(tenant, args.month, by).await?;
        return console.report(format, &Usage(&usage));
    }
    console.report(format, &Bill(&client.statement(tenant, args.month).await?))
}

/// A statement in text form.
#[derive(Serialize)]
#[serde(transparent)]
pub struct Bill<'a>(pub &'a Statement);

const COLUMNS: [&str; 10] = [
    "METER", "FUNCTION", "REGION", "UNITS", "AMOUNT", "APP", "CLUSTER", "PRICES", "FROM", "TO",
];
const NARROW: usize = 5;

fn cells(line: &Line) -> Vec<String> {
    let or = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let what = match line.kind {
        Kind::Usage => or(line.function.as_ref().map(ToString::to_string)),
        Kind::FreeTier => "(free)".to_owned(),
    };
    vec![
        line.meter.to_string(),
        what,
        or(line.region.as_ref().map(ToString::to_string)),
        line.units.clone(),
        line.amount.decimal(),
        or(line.app.as_ref().map(ToString::to_string)),
        or(line.cluster.as_ref().map(ToString::to_string)),
        or(line.price_list.as_ref().map(ToString::to_string)),
        line.from.to_string(),
        line.to.to_string(),
    ]
}

fn when(at: Timestamp, state: StatementState) -> String {
    match state {
        StatementState::Open => format!("open, as of {}", time(at)),
        StatementState::Closed => "closed, about to be issued".to_owned(),
        StatementState::Issued => format!("issued {}", time(at)),
    }
}

impl Report for Bill<'_> {
    fn text(&self, wide: bool) -> String {
        let statement = self.0;
        let columns = if wide {
            &COLUMNS[..]
        } else {
            &COLUMNS[..NARROW]
        };
        let lines = |late: bool| {
            let month = statement.month;
            let lines = statement
                .lines
                .iter()
                .filter(move |line| (line.month != month) == late);
            lines.map(|line| cells(line).into_iter().take(columns.len()).collect())
        };
        let mut text = format!(
            "{}  {}\n\n",
            statement.month,
            when(statement.at, statement.state)
        );
        text += &table(columns, lines(false));
        if statement
            .lines
            .iter()
            .any(|line| line.month != statement.month)
        {
            text += "\nlate usage of earlier months\n";
            text += &table(columns, lines(true));
        }
        if statement.lines.iter().any(|line| line.price_list.is_none()) {
            text += "\nno price list was valid for some of it, which costs nothing\n";
        }
        text + &format!("\ntotal  {}\n", statement.total)
    }

    fn names(&self) -> Vec<String> {
        vec![self.0.month.to_string()]
    }
}

/// Usage in text form.
#[derive(Serialize)]
#[serde(transparent)]
pub struct Usage<'a>(pub &'a UsageView);

fn row(row: &UsageRow, wide: bool) -> Vec<String> {
    let units = |meter: &Meter| {
        let quantity = row.quantities.get(meter);
        quantity.map_or("-".to_owned(), |quantity| meter.in_units(*quantity))
    };
    let meters: &[Meter] = if wide {
        &Meter::ALL[..5]
    } else {
        &Meter::ALL[..3]
    };
    let mut cells = vec![row.name.clone()];
    cells.extend(meters.iter().map(units));
    cells.push(row.cost.decimal());
    cells
}

impl Report for Usage<'_> {
    fn text(&self, wide: bool) -> String {
        let view = self.0;
        if view.rows.is_empty() {
            return format!("nothing was used in {}\n", view.month);
        }
        let name = view.by.as_str().to_uppercase();
        let mut columns = vec![name.as_str(), "CALLS", "GIB-SECONDS", "VCPU-SECONDS"];
        if wide {
            columns.extend(["GPU GIB-SECONDS", "EGRESS GIB"]);
        }
        columns.push("COST");
        table(&columns, view.rows.iter().map(|one| row(one, wide)))
    }

    fn names(&self) -> Vec<String> {
        self.0.rows.iter().map(|row| row.name.clone()).collect()
    }
}

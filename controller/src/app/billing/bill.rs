//! Statements and usage views, computed from the sums of usage.

use std::collections::BTreeMap;

use fdn_core::billing::{
    BillingError, Currency, Day, Dimensions, LateUsage, Meter, Money, Month, Prices, Quantities,
    Segment, Statement, StatementState, StatementSummary, UsageEntry, UsageRow, UsageView, View,
    bill, cost,
};
use fdn_core::{TenantId, Timestamp};
use sqlx::AnyConnection;

use crate::Error;
use crate::state::State;
use crate::store::billing::artifact::artifact_list_stored;
use crate::store::billing::clock::clock_get;
use crate::store::billing::price::price_list_all;
use crate::store::billing::statement::{statement_get, statement_list};
use crate::store::billing::sums::{GroupBy, Span, late_months, sums_list};

/// A page of a list, and where the next page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<T> {
    /// The page.
    pub value: T,
    /// The number of entries before the next page; `None` on the last one.
    pub next: Option<u64>,
}

/// Which page of a list: where it begins, and the most entries it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The number of entries before the page.
    pub from: u64,
    /// The most entries of the page.
    pub limit: u32,
}

impl Page {
    /// The entries of this page, and where the next page begins; `None` if this is the last one.
    #[must_use]
    pub fn cut<T>(self, all: Vec<T>) -> (Vec<T>, Option<u64>) {
        let from = usize::try_from(self.from).unwrap_or(usize::MAX);
        let (count, next) = (all.len(), from.saturating_add(self.limit as usize));
        let page = all
            .into_iter()
            .skip(from)
            .take(self.limit as usize)
            .collect();
        (page, (next < count).then_some(next as u64))
    }
}

/// The currency and the time that a statement is computed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The network's currency.
    pub currency: Currency,
    /// The time up to which the storage of artifacts is counted.
    pub now: Timestamp,
}

impl Terms {
    /// The network's currency, and the present time.
    #[must_use]
    pub fn of(state: &State) -> Self {
        Self {
            currency: state.settings.billing.currency,
            now: fdn_service::now(),
        }
    }
}

/// The usage of a month, in segments with one price list each, restricted to what is on the statements of the months from `first` to `last`.
async fn used<'a>(
    connection: &mut AnyConnection,
    tenant: TenantId,
    month: Month,
    prices: &'a Prices,
    (first, last): (Month, Month),
) -> Result<Vec<(Segment<'a>, Vec<UsageEntry>)>, Error> {
    let mut parts = Vec::new();
    for segment in prices.segments(month) {
        let span = Span {
            tenant,
            first,
            last,
            from: segment.from.start(),
            to: segment.to.start(),
        };
        let sums = sums_list(connection, span, GroupBy::Place).await?;
        parts.push((segment, sums.into_iter().map(|sum| sum.used).collect()));
    }
    Ok(parts)
}

/// The storage of artifacts within a segment of a month, up to now. The end of an artifact is recorded when it happens, so that storage is never
/// billed late.
async fn storage_used(
    connection: &mut AnyConnection,
    tenant: TenantId,
    segment: &Segment<'_>,
    now: Timestamp,
) -> Result<Vec<UsageEntry>, Error> {
    let (from, to) = (segment.from.start(), segment.to.start().min(now));
    if to <= from {
        return Ok(Vec::new());
    }
    let kept = artifact_list_stored(connection, tenant, from, to).await?;
    let used = kept.into_iter().map(|kept| {
        let span = kept.to.get().saturating_sub(kept.from.get());
        UsageEntry {
            place: Dimensions {
                function: Some(kept.function),
                ..Dimensions::default()
            },
            // Sizes and spans of time are far below 2^63: the product fits.
            quantities: Quantities::one(
                Meter::StorageGibHours,
                i128::from(kept.size) * i128::from(span),
            ),
        }
    });
    Ok(used.collect())
}

/// Computes the statement of a month from its sums.
///
/// # Errors
/// When an amount does not fit or the store fails.
pub async fn compute(
    connection: &mut AnyConnection,
    tenant: TenantId,
    month: Month,
    terms: Terms,
) -> Result<Statement, Error> {
    let prices = price_list_all(connection, terms.currency).await?;
    let mut parts = used(connection, tenant, month, &prices, (month, month)).await?;
    for (segment, used) in &mut parts {
        used.extend(storage_used(connection, tenant, segment, terms.now).await?);
    }
    let mut late = Vec::new();
    for of in late_months(connection, tenant, month).await? {
        late.push(LateUsage {
            month: of,
            before: used(connection, tenant, of, &prices, (of, month.previous())).await?,
            after: used(connection, tenant, of, &prices, (of, month)).await?,
        });
    }
    let lines = bill(month, &parts, &late)?;
    let closed = clock_get(connection)
        .await?
        .is_some_and(|open| month < open);
    let state = if closed {
        StatementState::Closed
    } else {
        StatementState::Open
    };
    Ok(Statement::new(
        tenant,
        month,
        state,
        terms.now,
        (lines, terms.currency),
    )?)
}

/// The statement of a month: as it was issued, else as it stands now.
///
/// # Errors
/// When the month has not begun, or the store fails.
pub async fn statement(
    state: &State,
    tenant: TenantId,
    month: Month,
    page: Page,
) -> Result<Part<Statement>, Error> {
    let terms = Terms::of(state);
    check_begun(month, terms.now)?;
    let mut snapshot = state.store.snapshot().await?;
    if let Some(issued) =
        statement_get(&mut snapshot, tenant, month, (page.from, page.limit)).await?
    {
        let next = page.from.saturating_add(issued.lines.len() as u64);
        let more = next < issued.line_count && !issued.lines.is_empty();
        return Ok(Part {
            value: issued,
            next: more.then_some(next),
        });
    }
    let statement = compute(&mut snapshot, tenant, month, terms).await?;
    let (lines, next) = page.cut(statement.lines);
    Ok(Part {
        value: Statement { lines, ..statement },
        next,
    })
}

/// The current month.
#[must_use]
pub fn current() -> Month {
    Month::of(fdn_service::now())
}

fn check_begun(month: Month, now: Timestamp) -> Result<(), Error> {
    if month > Month::of(now) {
        return Err(Error::BadRequest(format!("month: {month} has not begun")));
    }
    Ok(())
}

/// Summaries of the statements of months before `before`, newest first: those of open months as they stand now, then issued ones.
///
/// # Errors
/// When the store fails.
pub async fn statements(
    state: &State,
    tenant: TenantId,
    before: Option<Month>,
    limit: u32,
) -> Result<Vec<StatementSummary>, Error> {
    let terms = Terms::of(state);
    let mut snapshot = state.store.snapshot().await?;
    let mut all = Vec::new();
    let running = Month::of(terms.now);
    let mut month = before.map_or(running, |before| before.previous().min(running));
    let open = clock_get(&mut snapshot).await?.unwrap_or(running);
    while month >= open && all.len() < limit as usize {
        let now = compute(&mut snapshot, tenant, month, terms).await?;
        all.push(StatementSummary {
            month,
            state: now.state,
            at: now.at,
            total: now.total,
        });
        month = month.previous();
    }
    let rest = limit.saturating_sub(u32::try_from(all.len()).unwrap_or(limit));
    all.extend(statement_list(&mut snapshot, tenant, month.next(), rest).await?);
    Ok(all)
}

/// The usage of a month, grouped by `by`, including usage that arrived late. Storage of artifacts appears on the statement only.
///
/// # Errors
/// When the month has not begun, an amount does not fit, or the store fails.
pub async fn view(
    state: &State,
    tenant: TenantId,
    month: Month,
    by: View,
    page: Page,
) -> Result<Part<UsageView>, Error> {
    let terms = Terms::of(state);
    check_begun(month, terms.now)?;
    let mut snapshot = state.store.snapshot().await?;
    let prices = price_list_all(&mut snapshot, terms.currency).await?;
    let column = match by {
        View::App => "app",
        View::Function => "function",
        View::Region => "region",
        View::Cluster => "cluster",
        View::Day => "at",
    };
    let mut rows: BTreeMap<String, (Quantities, i64)> = BTreeMap::new();
    for segment in prices.segments(month) {
        let (from, to) = (segment.from.start(), segment.to.start());
        let span = Span {
            tenant,
            first: month,
            last: Month::of(Timestamp(u64::MAX)),
            from,
            to,
        };
        for sum in sums_list(&mut snapshot, span, GroupBy::Column(column)).await? {
            let row = rows.entry(name(by, sum.name)?).or_default();
            row.0.add(&sum.used.quantities)?;
            let total = row.1.checked_add(cost(&segment, &sum.used.quantities)?);
            row.1 = total.ok_or(BillingError::Overflow("a sum of money"))?;
        }
    }
    let rows = rows
        .into_iter()
        .map(|(name, (quantities, micros))| UsageRow {
            name,
            quantities: quantities.to_map(),
            cost: Money::new(micros, terms.currency),
        });
    let (rows, next) = page.cut(rows.collect());
    Ok(Part {
        value: UsageView { month, by, rows },
        next,
    })
}

/// The name of a row. Days are stored as numbers and are formatted here.
fn name(by: View, text: String) -> Result<String, Error> {
    if by != View::Day {
        return Ok(text);
    }
    let at = text
        .parse()
        .map_err(|_| Error::Internal(format!("usage_days.at: {text:?}")))?;
    Ok(Day::of(Timestamp(at)).to_string())
}

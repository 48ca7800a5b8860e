//! `/v1/billing/`: statements, usage, prices, budgets.

use actix_web::{HttpRequest, HttpResponse, delete, get, post, put, web};
use fdn_core::Problem;
use fdn_core::billing::{
    Budget, BudgetAlert, BudgetName, BudgetSet, CSV_COLUMNS, Month, PriceList, PriceListName,
    SetBudget, Statement, StatementSummary, UsageView, View, csv_line,
};
use fdn_service::now;
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::{Administer, Authorized, LookNetwork, ManageBudgets, ReadBilling};
use super::error::ApiError;
use super::page::{PageParams, PageRequest};
use crate::Error;
use crate::app::billing::bill::{self, Page};
use crate::app::billing::{budgets, prices};
use crate::state::State;

type Answer<T> = Result<web::Json<T>, ApiError>;
type Shared = web::Data<State>;
type Of = web::Path<String>;
type Name = web::Path<BudgetName>;

/// Parses a month; the current one if absent or `current`.
fn month(text: Option<&str>) -> Result<Month, Error> {
    match text {
        None | Some("current") => Ok(bill::current()),
        Some(text) => Ok(text.parse()?),
    }
}

/// Parameters for a page of a list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PartParams {
    /// Where the page begins: from the `link` of the page before.
    cursor: Option<String>,
    /// The most entries of a page.
    #[param(minimum = 1)]
    limit: Option<u32>,
    /// Whose; by default your only tenant's.
    #[serde(rename = "tenant")]
    _tenant: Option<String>,
}

/// The requested page.
fn wanted(
    state: &State,
    cursor: &Option<String>,
    limit: Option<u32>,
) -> Result<PageRequest, Error> {
    let page = PageParams {
        limit,
        cursor: cursor.clone(),
    };
    page.validate(&state.settings.api)
}

/// Like [`wanted`], as an offset and a limit.
fn page(state: &State, cursor: &Option<String>, limit: Option<u32>) -> Result<Page, Error> {
    let wanted = wanted(state, cursor, limit)?;
    Ok(Page {
        from: wanted.from()?,
        limit: wanted.limit(),
    })
}

/// Statements, the newest first: of open months as they stand now, then those that were issued.
#[utoipa::path(
    tag = "billing",
    security(("session" = [])),
    params(PartParams),
    responses((status = 200, body = [StatementSummary]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/billing/statements")]
pub(crate) async fn statement_list(
    call: Authorized<ReadBilling, web::Query<PartParams>>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let params = &call.input;
    let wanted = wanted(&state, &params.cursor, params.limit)?;
    let before = match wanted.after.as_str() {
        "" => None,
        month => Some(month.parse::<Month>()?),
    };
    let rows = bill::statements(&state, call.tenant()?, before, wanted.rows()).await?;
    Ok(wanted.answer(&request, rows, |row| row.month.to_string()))
}

/// A month's statement: as it was issued, or as it stands now. Its lines come in pages.
#[utoipa::path(
    tag = "billing",
    security(("session" = [])),
    params(("month" = String, Path, description = "Such as `2026-11`, or `current`"), PartParams),
    responses((status = 200, body = Statement), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/billing/statements/{month}")]
pub(crate) async fn statement_get(
    call: Authorized<ReadBilling, (Of, web::Query<PartParams>)>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let (of, params) = &call.input;
    let page = page(&state, &params.cursor, params.limit)?;
    let part = bill::statement(&state, call.tenant()?, month(Some(of))?, page).await?;
    Ok(PageRequest::part(&request, &part.value, part.next))
}

/// All lines of a month's statement as comma-separated values.
#[utoipa::path(
    tag = "billing",
    security(("session" = [])),
    params(
        ("month" = String, Path, description = "Such as `2026-11`, or `current`"),
        ("tenant" = Option<String>, Query, description = "Whose (name or id); by default your only tenant's"),
    ),
    responses(
        (status = 200, description = "RFC 4180, with a header line", body = String, content_type = "text/csv"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[get("/v1/billing/statements/{month}/csv")]
pub(crate) async fn statement_csv(
    call: Authorized<ReadBilling, web::Path<String>>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let of = month(Some(&call.input))?;
    let all = Page {
        from: 0,
        limit: u32::MAX,
    };
    let statement = bill::statement(&state, call.tenant()?, of, all)
        .await?
        .value;
    let mut text = CSV_COLUMNS.to_owned();
    text.extend(statement.lines.iter().map(csv_line));
    Ok(HttpResponse::Ok()
        .content_type("text/csv; charset=utf-8; header=present")
        .insert_header((
            "content-disposition",
            format!("attachment; filename=\"fdn-{of}.csv\""),
        ))
        .insert_header(("cache-control", "no-store"))
        .body(text))
}

/// Parameters for views of usage.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct UsageParams {
    /// The month in which it was used; the running one if absent.
    #[param(example = "2026-11")]
    month: Option<String>,
    /// What there is a row for.
    by: View,
    /// Where the page begins: from the `link` of the page before.
    cursor: Option<String>,
    /// The most rows of a page.
    #[param(minimum = 1)]
    limit: Option<u32>,
    /// Whose; by default your only tenant's.
    #[serde(rename = "tenant")]
    _tenant: Option<String>,
}

/// Usage of a month by app, function, region, cluster or day.
#[utoipa::path(
    tag = "billing",
    security(("session" = [])),
    params(UsageParams),
    responses((status = 200, body = UsageView), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/billing/usage")]
pub(crate) async fn usage_view(
    call: Authorized<ReadBilling, web::Query<UsageParams>>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let params = &call.input;
    let page = page(&state, &params.cursor, params.limit)?;
    let month = month(params.month.as_deref())?;
    let part = bill::view(&state, call.tenant()?, month, params.by, page).await?;
    Ok(PageRequest::part(&request, &part.value, part.next))
}

/// All price lists, the earliest first.
#[utoipa::path(
    tag = "billing",
    security(("session" = [])),
    responses((status = 200, body = [PriceList]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/billing/prices")]
pub(crate) async fn price_list(
    _: Authorized<LookNetwork>,
    state: Shared,
) -> Answer<Vec<PriceList>> {
    Ok(web::Json(prices::list(&state).await?))
}

/// Add a price list, or replace one that has not begun.
#[utoipa::path(
    tag = "billing",
    security(("session" = [])),
    request_body = PriceList,
    responses(
        (status = 200, body = PriceList),
        (status = 409, description = "FDN-8003, FDN-8004: another one is valid then, or it has begun", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "FDN-8002: it is not valid", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/billing/prices")]
pub(crate) async fn price_apply(
    call: Authorized<Administer, web::Json<PriceList>>,
    state: Shared,
) -> Answer<PriceList> {
    let applied = prices::apply(&state, &call.actor(), &call.input, now()).await?;
    Ok(web::Json(applied))
}

/// Remove a price list that has not begun.
#[utoipa::path(
    tag = "billing",
    security(("session" = [])),
    params(("name" = String, Path, description = "The price list's name")),
    responses(
        (status = 204, description = "Removed"),
        (status = 409, description = "FDN-8004: it has begun", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[delete("/v1/billing/prices/{name}")]
pub(crate) async fn price_remove(
    call: Authorized<Administer, web::Path<PriceListName>>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    prices::remove(&state, &call.actor(), &call.input, now()).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Budgets, by name.
#[utoipa::path(
    tag = "billing",
    security(("session" = [])),
    params(("tenant" = Option<String>, Query, description = "Whose (name or id); by default your only tenant's")),
    responses((status = 200, body = [Budget]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/billing/budgets")]
pub(crate) async fn budget_list(
    call: Authorized<ReadBilling>,
    state: Shared,
) -> Answer<Vec<Budget>> {
    Ok(web::Json(budgets::list(&state, call.tenant()?).await?))
}

/// Set a budget, new or not.
#[utoipa::path(
    tag = "billing",
    security(("session" = [])),
    params(
        ("name" = String, Path, description = "The budget's name"),
        ("tenant" = Option<String>, Query, description = "Whose (name or id); by default your only tenant's"),
    ),
    request_body = SetBudget,
    responses(
        (status = 200, body = BudgetSet),
        (status = 422, description = "FDN-8006: it is not valid; FDN-6018: its webhook may not be told", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[put("/v1/billing/budgets/{name}")]
pub(crate) async fn budget_set(
    call: Authorized<ManageBudgets, (Name, web::Json<SetBudget>)>,
    state: Shared,
) -> Answer<BudgetSet> {
    let (name, request) = &call.input;
    let set = budgets::set(
        &state,
        (call.tenant()?, &call.actor()),
        name,
        request,
        now(),
    )
    .await?;
    Ok(web::Json(set))
}

/// Remove a budget. The alerts it gave stay.
#[utoipa::path(
    tag = "billing",
    security(("session" = [])),
    params(
        ("name" = String, Path, description = "The budget's name"),
        ("tenant" = Option<String>, Query, description = "Whose (name or id); by default your only tenant's"),
    ),
    responses((status = 204, description = "Removed"), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[delete("/v1/billing/budgets/{name}")]
pub(crate) async fn budget_remove(
    call: Authorized<ManageBudgets, web::Path<BudgetName>>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    budgets::remove(&state, (call.tenant()?, &call.actor()), &call.input, now()).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Alerts that budgets gave, the newest first: one for each threshold and month.
#[utoipa::path(
    tag = "billing",
    security(("session" = [])),
    params(PartParams),
    responses((status = 200, body = [BudgetAlert]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/billing/alerts")]
pub(crate) async fn alert_list(
    call: Authorized<ReadBilling, web::Query<PartParams>>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let params = &call.input;
    let wanted = wanted(&state, &params.cursor, params.limit)?;
    let page = Page {
        from: wanted.from()?,
        limit: wanted.rows(),
    };
    let rows = budgets::alerts(&state, call.tenant()?, page).await?;
    let next = page.from.saturating_add(u64::from(wanted.limit()));
    Ok(wanted.answer(&request, rows, |_| next.to_string()))
}

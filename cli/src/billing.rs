//! The billing API of the controller, as typed calls. Those about a tenant mean the named one, else the caller's only one.

use fdn_core::account::TenantRef;
use fdn_core::billing::{
    Budget, BudgetAlert, BudgetName, BudgetSet, Month, PriceList, PriceListName, Statement,
    UsageView, View,
};
use reqwest::Method;
use serde::Serialize;

use crate::client::{Client, collect, read, read_part, send};
use crate::error::CliError;

/// Fails if a page has no rows or repeats the cursor, which would result in an endless loop.
fn ends(next: &Option<String>, before: &Option<String>, rows: usize) -> Result<(), CliError> {
    if next.is_some() && (rows == 0 || next == before) {
        return Err(CliError::Answer {
            url: "the billing centre".to_owned(),
            reason: "its pages do not end".to_owned(),
        });
    }
    Ok(())
}

fn named(month: Option<Month>) -> String {
    month.map_or_else(|| "current".to_owned(), |month| month.to_string())
}

impl Client {
    /// A month's statement with all its lines; `None` for the current month.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn statement(
        &self,
        tenant: Option<&TenantRef>,
        month: Option<Month>,
    ) -> Result<Statement, CliError> {
        let (mut whole, mut cursor): (Option<Statement>, Option<String>) = (None, None);
        loop {
            // The current month may end between two pages.
            let month = whole.as_ref().map(|whole| whole.month).or(month);
            let path = ["v1", "billing", "statements", &named(month)];
            let mut request = self.request_of(tenant, Method::GET, &path)?;
            if let Some(cursor) = &cursor {
                request = request.query(&[("cursor", cursor)]);
            }
            let (page, next): (Statement, _) = read_part(request).await?;
            ends(&next, &cursor, page.lines.len())?;
            let all = match whole {
                Some(mut whole) => {
                    whole.lines.extend(page.lines);
                    whole
                }
                None => page,
            };
            if next.is_none() {
                return Ok(all);
            }
            (whole, cursor) = (Some(all), next);
        }
    }

    /// The lines of a month's statement as CSV.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn statement_csv(
        &self,
        tenant: Option<&TenantRef>,
        month: Option<Month>,
    ) -> Result<String, CliError> {
        let path = ["v1", "billing", "statements", &named(month), "csv"];
        let response = send(self.request_of(tenant, Method::GET, &path)?).await?;
        let url = response.url().to_string();
        let bytes = collect(response).await?;
        String::from_utf8(bytes).map_err(|e| CliError::Answer {
            url,
            reason: e.to_string(),
        })
    }

    /// The usage of a month, by one dimension.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn usage(
        &self,
        tenant: Option<&TenantRef>,
        month: Option<Month>,
        by: View,
    ) -> Result<UsageView, CliError> {
        let mut rows = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let request = self.request_of(tenant, Method::GET, &["v1", "billing", "usage"])?;
            let mut request = request.query(&[("month", named(month)), ("by", by.to_string())]);
            if let Some(cursor) = &cursor {
                request = request.query(&[("cursor", cursor)]);
            }
            let (mut page, next): (UsageView, _) = read_part(request).await?;
            ends(&next, &cursor, page.rows.len())?;
            rows.append(&mut page.rows);
            if next.is_none() {
                return Ok(UsageView { rows, ..page });
            }
            cursor = next;
        }
    }

    /// All price lists.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn price_lists(&self) -> Result<Vec<PriceList>, CliError> {
        read(self.request(Method::GET, &["v1", "billing", "prices"])?).await
    }

    /// Adds or replaces a price list.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn apply_price_list(&self, list: &PriceList) -> Result<PriceList, CliError> {
        read(
            self.request(Method::POST, &["v1", "billing", "prices"])?
                .json(list),
        )
        .await
    }

    /// Removes a price list.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn remove_price_list(&self, name: &PriceListName) -> Result<(), CliError> {
        let path = ["v1", "billing", "prices", name.as_str()];
        send(self.request(Method::DELETE, &path)?).await.map(drop)
    }

    /// All budgets.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn budgets(&self, tenant: Option<&TenantRef>) -> Result<Vec<Budget>, CliError> {
        read(self.request_of(tenant, Method::GET, &["v1", "billing", "budgets"])?).await
    }

    /// Sets a budget.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn set_budget(
        &self,
        tenant: Option<&TenantRef>,
        name: &BudgetName,
        body: &impl Serialize,
    ) -> Result<BudgetSet, CliError> {
        let path = ["v1", "billing", "budgets", name.as_str()];
        read(self.request_of(tenant, Method::PUT, &path)?.json(body)).await
    }

    /// Removes a budget.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn remove_budget(
        &self,
        tenant: Option<&TenantRef>,
        name: &BudgetName,
    ) -> Result<(), CliError> {
        let path = ["v1", "billing", "budgets", name.as_str()];
        send(self.request_of(tenant, Method::DELETE, &path)?)
            .await
            .map(drop)
    }

    /// All alerts, newest first.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn budget_alerts(
        &self,
        tenant: Option<&TenantRef>,
    ) -> Result<Vec<BudgetAlert>, CliError> {
        let query = tenant.map(|tenant| ("tenant", tenant.to_string()));
        self.list(&["v1", "billing", "alerts"], query.as_slice())
            .await
    }
}

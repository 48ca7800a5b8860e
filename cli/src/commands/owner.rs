//! Shows tenants by name in tables; the rows of the API have ids, which do not change with the names.

use std::collections::BTreeMap;

use fdn_core::{TenantId, TenantName, Timestamp};
use serde::Serialize;

use crate::client::Client;
use crate::output::{Format, Row};

/// The names of the tenants that are visible to the caller.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<TenantId, TenantName>);

impl Names {
    /// Requests the names, if the format shows them. If the token may not list tenants, ids are shown.
    pub(super) async fn of(client: &Client, format: Format) -> Self {
        match format {
            Format::Wide => {
                let tenants = client.tenants().await.unwrap_or_default();
                Self(tenants.into_iter().map(|t| (t.id, t.name)).collect())
            }
            _ => Self::default(),
        }
    }

    /// A row with the name of its tenant.
    pub(super) fn row<'a, T>(&self, value: &'a T, tenant: Option<TenantId>) -> RowWithOwner<'a, T> {
        let name = tenant.and_then(|id| self.0.get(&id));
        RowWithOwner {
            value,
            tenant: name.map(ToString::to_string),
        }
    }
}

/// A row with a name in the column `TENANT`.
#[derive(Debug, Serialize)]
pub(super) struct RowWithOwner<'a, T> {
    #[serde(flatten)]
    value: &'a T,
    #[serde(skip)]
    tenant: Option<String>,
}

impl<T: Row> Row for RowWithOwner<'_, T> {
    const COLUMNS: &'static [&'static str] = T::COLUMNS;
    const NARROW: usize = T::NARROW;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let mut cells = self.value.cells(now);
        let at = T::COLUMNS.iter().position(|column| *column == "TENANT");
        let cell = at.and_then(|at| cells.get_mut(at));
        if let (Some(cell), Some(name)) = (cell, &self.tenant) {
            name.clone_into(cell);
        }
        cells
    }

    fn name(&self) -> String {
        self.value.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Thing;

    impl Row for Thing {
        const COLUMNS: &'static [&'static str] = &["NAME", "TENANT"];
        const NARROW: usize = 1;

        fn cells(&self, _: Timestamp) -> Vec<String> {
            vec!["thing".to_owned(), "ten_0".to_owned()]
        }

        fn name(&self) -> String {
            "thing".to_owned()
        }
    }

    #[test]
    fn a_tenant_is_shown_by_its_name_if_that_is_known() {
        let id = TenantId::from_uuid(uuid::Uuid::from_u128(1));
        let names = Names(BTreeMap::from([(id, "shop".parse().expect("name"))]));
        let cells = |tenant| names.row(&Thing, tenant).cells(Timestamp(0));
        assert_eq!(cells(Some(id)), ["thing", "shop"]);
        assert_eq!(cells(None), ["thing", "ten_0"]);
    }
}

//! Sets of declared items that were applied together from files.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::error::ParseError;
pub use crate::id::SetName;
use crate::id::{AppName, BudgetName, HostName, RecordName, ScheduleName, SecretName, UserName};
use crate::unit::Timestamp;

/// The most items in a set.
pub const ITEMS_MAX: usize = 10_000;
/// The pattern of an item's text form, for the OpenAPI document.
const PATTERN: &str = "^((app|budget|member)/[^/]{1,63}|txt/[^/]{1,253}|(secret|schedule|domain)/[^/]{1,63}/[^/]{1,253})$";
/// The most sets of a tenant.
pub const SETS_MAX: u64 = 100;

/// An item that files can declare. Text form: `app/NAME`, `budget/NAME`, `member/NAME`, `txt/NAME`, and for parts of an app
/// `secret/APP/NAME`, `schedule/APP/NAME`, `domain/APP/HOST`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Item {
    /// An app with everything that belongs to it.
    App(AppName),
    /// A budget.
    Budget(BudgetName),
    /// A member of the tenant.
    Member(UserName),
    /// A secret of an app.
    Secret(AppName, SecretName),
    /// A schedule of an app.
    Schedule(AppName, ScheduleName),
    /// A host name of an app in addition to its own.
    Domain(AppName, HostName),
    /// The text records of a name in the zone.
    Txt(RecordName),
}

impl Item {
    /// The app with which the item is deleted; `None` if it is independent.
    #[must_use]
    pub const fn part_of(&self) -> Option<&AppName> {
        match self {
            Self::Secret(app, _) | Self::Schedule(app, _) | Self::Domain(app, _) => Some(app),
            Self::App(_) | Self::Budget(_) | Self::Member(_) | Self::Txt(_) => None,
        }
    }
}

impl PartialSchema for Item {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("Something that files can declare."))
            .pattern(Some(PATTERN));
        RefOr::T(text.into())
    }
}

impl ToSchema for Item {}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::App(name) => write!(f, "app/{name}"),
            Self::Budget(name) => write!(f, "budget/{name}"),
            Self::Member(name) => write!(f, "member/{name}"),
            Self::Secret(app, name) => write!(f, "secret/{app}/{name}"),
            Self::Schedule(app, name) => write!(f, "schedule/{app}/{name}"),
            Self::Domain(app, host) => write!(f, "domain/{app}/{host}"),
            Self::Txt(name) => write!(f, "txt/{name}"),
        }
    }
}

impl FromStr for Item {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let error = || {
            ParseError::new(
                "item",
                s,
                "app/NAME, budget/NAME, member/NAME, txt/NAME, secret/APP/NAME, schedule/APP/NAME or domain/APP/HOST",
            )
        };
        let (kind, rest) = s.split_once('/').ok_or_else(error)?;
        let part = || rest.split_once('/').ok_or_else(error);
        match kind {
            "app" => Ok(Self::App(rest.parse()?)),
            "budget" => Ok(Self::Budget(rest.parse()?)),
            "member" => Ok(Self::Member(rest.parse()?)),
            "txt" => Ok(Self::Txt(rest.parse()?)),
            "secret" => {
                part().and_then(|(app, name)| Ok(Self::Secret(app.parse()?, name.parse()?)))
            }
            "schedule" => {
                part().and_then(|(app, name)| Ok(Self::Schedule(app.parse()?, name.parse()?)))
            }
            "domain" => {
                part().and_then(|(app, host)| Ok(Self::Domain(app.parse()?, host.parse()?)))
            }
            _ => Err(error()),
        }
    }
}

impl TryFrom<String> for Item {
    type Error = ParseError;

    fn try_from(s: String) -> Result<Self, ParseError> {
        s.parse()
    }
}

impl From<Item> for String {
    fn from(value: Item) -> Self {
        value.to_string()
    }
}

/// The items that a tenant last applied together from files, under one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppliedSet {
    /// The name of the set.
    pub set: SetName,
    /// The items that were declared when it was last applied.
    pub items: BTreeSet<Item>,
    /// When it was last applied; absent if never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_at: Option<Timestamp>,
    /// Who applied it; absent if nobody has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_by: Option<String>,
}

impl AppliedSet {
    /// A set under whose name nothing has been applied yet.
    #[must_use]
    pub const fn empty(set: SetName) -> Self {
        Self {
            set,
            items: BTreeSet::new(),
            applied_at: None,
            applied_by: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_have_one_text() {
        for (text, app) in [
            ("app/hello", None),
            ("budget/all", None),
            ("member/jane doe", None),
            ("secret/hello/API_KEY", Some("hello")),
            ("schedule/hello/nightly", Some("hello")),
            ("domain/hello/shop.example.org", Some("hello")),
            ("txt/_dmarc.hello.fn.test", None),
        ] {
            let item: Item = text.parse().expect("valid");
            assert_eq!(item.to_string(), text);
            assert_eq!(item.part_of().map(AppName::as_str), app, "{text}");
        }
        for bad in [
            "app",
            "app/",
            "node/a",
            "app/UP",
            "member/a/b",
            "secret/hello",
            "secret/hello/7",
            "schedule/hello/a/b",
            "domain//x.org",
            "txt/*.fn.test",
            "txt/a/b.fn.test",
        ] {
            assert!(bad.parse::<Item>().is_err(), "{bad}");
        }
    }
}

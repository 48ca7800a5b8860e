//! Text records: checks whether the tenant may declare their names, and compares them with the present ones.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::txt::{self, SetTxt, TxtInfo};
use fdn_core::{AppName, DurationMs, HostName, RecordName};
use serde::Serialize;

use super::diff_state::{Scope, change};
use super::read::Declarations;
use super::{Change, Item, Step};
use crate::client::Client;
use crate::error::CliError;
use crate::output::time;

/// Rejects names that no member of the tenant could set, before anything is changed: names that are not in the zone, or not below an app that the
/// tenant has and keeps. `going` are the items to be deleted.
///
/// # Errors
/// All rejected names, each with file and line; or the controller refuses or cannot be reached.
pub async fn check(
    client: &Client,
    scope: &Scope,
    declared: &Declarations,
    going: &[Item],
) -> Result<(), CliError> {
    if declared.txt.is_empty() {
        return Ok(());
    }
    let zone = client.network().await?.zone;
    let apps = client.apps(Some(&scope.tenant), None).await?;
    let apps = apps.into_iter().map(|summary| summary.app);
    let apps: BTreeSet<AppName> = apps
        .filter(|app| !going.contains(&Item::App(app.clone())))
        .chain(declared.apps.keys().cloned())
        .collect();
    let wrong: Vec<String> = declared
        .txt
        .iter()
        .filter_map(|(name, records)| {
            let what = misplaced(name, &zone, &apps)?;
            Some(records.mistake(name, what).to_string())
        })
        .collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(CliError::Declared(wrong.join("\n"))),
    }
}

/// Why this tenant cannot have text records with this name; `None` if it can.
fn misplaced(name: &RecordName, zone: &HostName, apps: &BTreeSet<AppName>) -> Option<String> {
    let Some(below) = name.below(zone) else {
        return Some(format!(
            "the name is not in the zone {zone}; write it as _NAME.APP.{zone}"
        ));
    };
    let mut labels = below.rsplit('.');
    let label = labels.next().unwrap_or_default();
    if !apps.iter().any(|app| app.as_str() == label) {
        return Some(format!(
            "{label}.{zone} is not an app that the tenant has and keeps; declare it, or take a name below one: _NAME.APP.{zone}"
        ));
    }
    match labels.next() {
        None => Some(format!(
            "it is an app's own name, whose answers are the network's; take a name below it: _NAME.{name}"
        )),
        Some(next) if !next.starts_with('_') => Some(format!(
            "the label next to the app must begin with an underscore: _{next}.{label}.{zone}"
        )),
        Some(_) => None,
    }
}

/// The text records of a name as they are compared and shown: their order does not matter.
#[derive(PartialEq, Serialize)]
struct Records {
    values: BTreeSet<String>,
    ttl: DurationMs,
    #[serde(skip_serializing_if = "Option::is_none")]
    ends: Option<String>,
}

impl Records {
    fn wanted(request: &SetTxt) -> Self {
        Self {
            values: request.values.iter().cloned().collect(),
            ttl: request.ttl.unwrap_or(txt::TTL_DEFAULT),
            ends: None,
        }
    }

    fn present(info: &TxtInfo) -> Self {
        Self {
            values: info.values.iter().cloned().collect(),
            ttl: info.ttl,
            ends: info.expires_at.map(time),
        }
    }
}

/// The changes of text records that are missing or different.
pub(super) async fn changes(
    client: &Client,
    scope: &Scope,
    declared: &Declarations,
) -> Result<Vec<Change>, CliError> {
    if declared.txt.is_empty() {
        return Ok(Vec::new());
    }
    let present: BTreeMap<RecordName, TxtInfo> = client
        .txt(Some(&scope.tenant))
        .await?
        .into_iter()
        .map(|info| (info.name.clone(), info))
        .collect();
    let changes = declared.txt.iter().filter_map(|(name, records)| {
        let old = present.get(name).map(Records::present);
        let wanted = Records::wanted(&records.request);
        let step = Step::Txt(name.clone(), records.request.clone());
        let item = Item::Txt(name.clone()).to_string();
        change(item, old.as_ref(), &wanted, step)
    });
    Ok(changes.collect())
}

/// Those of these names that still have text records and may be deleted. Records set by ACME clients are never deleted, whatever is remembered:
/// files cannot declare them.
pub(super) async fn orphans(
    client: &Client,
    scope: &Scope,
    names: Vec<&RecordName>,
) -> Result<Vec<Item>, CliError> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let present = client.txt(Some(&scope.tenant)).await?;
    let there = |name: &&RecordName| {
        !txt::is_challenge(name) && present.iter().any(|info| info.name == **name)
    };
    let names = names.into_iter().filter(there);
    Ok(names.cloned().map(Item::Txt).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(name: &str) -> Option<String> {
        let hello: AppName = "hello".parse().expect("app");
        let zone: HostName = "fn.test".parse().expect("zone");
        misplaced(
            &name.parse().expect("a name"),
            &zone,
            &BTreeSet::from([hello]),
        )
    }

    #[test]
    fn names_lie_below_an_app() {
        for good in ["_dmarc.hello.fn.test", "s1._domainkey.hello.fn.test"] {
            assert_eq!(problem(good), None, "{good}");
        }
        for (wrong, word) in [
            ("_dmarc.example.org", "not in the zone fn.test"),
            ("_dmarc.hellofn.test", "not in the zone"),
            ("_dmarc.fn.test", "_dmarc.fn.test is not an app"),
            ("_dmarc.other.fn.test", "other.fn.test is not an app"),
            ("hello.fn.test", "an app's own name"),
            ("www.hello.fn.test", "_www.hello.fn.test"),
            ("_a.www.hello.fn.test", "_www.hello.fn.test"),
        ] {
            let told = problem(wrong);
            assert!(
                told.as_ref().is_some_and(|told| told.contains(word)),
                "{wrong}: {told:?}"
            );
        }
    }

    #[test]
    fn the_order_of_values_and_a_time_that_is_not_said_are_no_difference() {
        let request = |values: &[&str], ttl: Option<u64>| SetTxt {
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            ttl: ttl.map(DurationMs::from_secs),
            expires_in: None,
        };
        let shown = |request: SetTxt| Records::wanted(&request);
        assert!(shown(request(&["a", "b"], None)) == shown(request(&["b", "a"], Some(60))));
        assert!(shown(request(&["a"], None)) != shown(request(&["a"], Some(61))));
    }
}

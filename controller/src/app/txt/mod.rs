//! TXT records of names in the zone, set through the API: a certificate authority checks by them who owns a name (ACME DNS-01).
//!
//! Users who may set records in a tenant set them below the host names of its apps, where the label next to the app's begins with an underscore
//! (RFC 8552): such names never serve clients. Users with a network role set them anywhere in the zone except at an app's own name. Every change
//! has a revision of its own, and its message to all DNS servers is written in the same transaction.

pub mod watch;

use fdn_core::message::{Message, TxtDesired};
use fdn_core::txt::{self, AddTxt, SetTxt, TxtInfo};
use fdn_core::{
    AppName, Coded, DurationMs, ErrorCode, HostName, RecordName, Revision, Right, TenantId,
    Timestamp,
};
use sqlx::AnyConnection;
use tracing::info;

use super::access::{Caller, Verdict};
use super::actor::Actor;
use crate::Error;
use crate::settings::RecordSettings;
use crate::state::State;
use crate::store::app::app_get;
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::console::app_of_host;
use crate::store::in_transaction;
use crate::store::outbox::outbox_push;
use crate::store::revision::revision_next;
use crate::store::txt::{
    TxtRow, TxtVisibility, txt_count, txt_delete, txt_get, txt_page, txt_upsert,
};

/// Why TXT records cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TxtError {
    /// The name or a value is not valid.
    #[error("text records of {name}: {problem}")]
    Invalid {
        /// The name.
        name: RecordName,
        /// What is wrong.
        problem: String,
    },
    /// The name does not belong to the caller.
    #[error(
        "{0} is not yours to set: it must lie below the host name of an app of yours, with an underscore before the label next to it, such \
         as _acme-challenge.APP.ZONE"
    )]
    Refused(RecordName),
    /// A limit is reached.
    #[error("{0}")]
    Full(String),
}

impl Coded for TxtError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid { .. } => ErrorCode::RecordInvalid,
            Self::Refused(_) => ErrorCode::RecordRefused,
            Self::Full(_) => ErrorCode::RecordsFull,
        }
    }
}

fn invalid(name: &RecordName, problem: impl Into<String>) -> Error {
    TxtError::Invalid {
        name: name.clone(),
        problem: problem.into(),
    }
    .into()
}

fn none(name: &RecordName) -> Error {
    Error::NotFound {
        what: format!("a text record of {name} with this value"),
        hint: "`fdn dns txt list` shows what there is",
    }
}

/// Who makes a request.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
    /// The caller, with their rights.
    pub caller: &'a Caller,
    /// The tenant that the request names.
    pub tenant: Option<TenantId>,
    /// The actor for the audit log.
    pub actor: &'a Actor,
}

/// The owner of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    /// The app whose host name it is or lies below, with its tenant; `None` if the name belongs to the network.
    app: Option<(AppName, TenantId)>,
    /// Whether the name is that host name itself.
    is_host: bool,
}

impl Owner {
    fn tenant(&self) -> Option<TenantId> {
        self.app.as_ref().map(|(_, tenant)| *tenant)
    }
}

/// The label next to the zone, and the one before it, of a name without its zone.
fn last_labels(below: &str) -> (&str, Option<&str>) {
    let mut labels = below.rsplit('.');
    (labels.next().unwrap_or_default(), labels.next())
}

/// The owner of a name, if the caller may set its records.
async fn owner(
    zone: &HostName,
    connection: &mut AnyConnection,
    requester: Requester<'_>,
    name: &RecordName,
) -> Result<Owner, Error> {
    let Some(below) = name.below(zone) else {
        return Err(invalid(name, format!("the name is not in the zone {zone}")));
    };
    let everywhere = requester
        .caller
        .person()
        .is_some_and(|person| person.has_everywhere(Right::ManageRecords));
    let refused = || Error::from(TxtError::Refused(name.clone()));
    let (label, next) = last_labels(below);
    let app = match format!("{label}.{zone}").parse::<HostName>() {
        Ok(host) => app_of_host(&mut *connection, &host).await?,
        // No app can have such a label.
        Err(_) => None,
    };
    let row = match app {
        Some(app) => app_get(connection, &app).await?,
        None => None,
    };
    let Some(row) = row else {
        return if everywhere {
            Ok(Owner {
                app: None,
                is_host: false,
            })
        } else {
            Err(refused())
        };
    };
    if requester.tenant.is_some_and(|named| named != row.tenant) {
        return Err(refused());
    }
    match requester
        .caller
        .allowed(Right::ManageRecords, Some(row.tenant))
    {
        Verdict::Allowed => {}
        Verdict::Suspended => return Err(Error::Suspended),
        // Names of other tenants' apps and of no app get the same answer.
        Verdict::Refused | Verdict::Hidden => return Err(refused()),
    }
    if !everywhere && next.is_some_and(|next| !next.starts_with('_')) {
        return Err(refused());
    }
    Ok(Owner {
        app: Some((row.name, row.tenant)),
        is_host: next.is_none(),
    })
}

/// The records that a name is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DesiredRecords {
    values: Vec<String>,
    ttl: DurationMs,
    expires_at: Option<Timestamp>,
}

impl DesiredRecords {
    /// The records after one more value is added.
    fn with(before: Option<&TxtRow>, request: &AddTxt, now: Timestamp) -> Self {
        let end = end(request.expires_in, now);
        let Some(row) = before else {
            return Self {
                values: vec![request.value.clone()],
                ttl: request.ttl.unwrap_or(txt::TTL_DEFAULT),
                expires_at: end,
            };
        };
        let mut values = row.values.clone();
        if !values.contains(&request.value) {
            values.push(request.value.clone());
        }
        Self {
            values,
            ttl: request.ttl.unwrap_or(row.ttl),
            // Whoever set the other values relies on them: adding one must not make them expire sooner.
            expires_at: row
                .expires_at
                .map(|old| end.map_or(old, |new| old.max(new))),
        }
    }
}

fn end(expires_in: Option<DurationMs>, now: Timestamp) -> Option<Timestamp> {
    expires_in.map(|span| Timestamp(now.get().saturating_add(span.as_millis())))
}

/// Rejects durations out of bounds.
fn check_times(
    name: &RecordName,
    ttl: Option<DurationMs>,
    expires_in: Option<DurationMs>,
) -> Result<(), Error> {
    let problem = ttl
        .and_then(txt::ttl_problem)
        .or_else(|| expires_in.and_then(txt::expiry_problem));
    problem.map_or(Ok(()), |problem| Err(invalid(name, problem)))
}

/// Rejects invalid or repeated values, and more values than a name may have.
fn check_values(
    settings: &RecordSettings,
    name: &RecordName,
    values: &[String],
) -> Result<(), Error> {
    if values.is_empty() {
        return Err(invalid(
            name,
            "values: at least one; `fdn dns txt remove` takes all away",
        ));
    }
    if values.len() > settings.values_per_name {
        return Err(TxtError::Full(format!(
            "{name} would have {} text records, more than {} are not allowed; take some away: fdn dns txt remove {name} VALUE",
            values.len(),
            settings.values_per_name
        ))
        .into());
    }
    let limit = usize::from(settings.value_bytes);
    for (index, value) in values.iter().enumerate() {
        if let Some(problem) = txt::value_problem(value, limit) {
            return Err(invalid(name, problem));
        }
        if values[..index].contains(value) {
            return Err(invalid(name, "values: each once"));
        }
    }
    Ok(())
}

/// At most `limit` visible names with records, by name, after `after`.
///
/// # Errors
/// When the store fails.
pub async fn list(
    state: &State,
    visibility: &TxtVisibility,
    after: &str,
    limit: u32,
) -> Result<Vec<TxtInfo>, Error> {
    let mut connection = state.store.read().await?;
    let rows = txt_page(
        &mut connection,
        visibility,
        fdn_service::now(),
        after,
        limit,
    )
    .await?;
    Ok(rows.into_iter().map(TxtRow::info).collect())
}

/// Replaces the records of a name. Setting the same ones again changes nothing.
///
/// # Errors
/// When the name does not belong to the caller, the records are not valid, a limit is reached, or the store fails.
pub async fn set(
    state: &State,
    requester: Requester<'_>,
    name: &RecordName,
    request: &SetTxt,
    now: Timestamp,
) -> Result<TxtInfo, Error> {
    check_times(name, request.ttl, request.expires_in)?;
    let wanted = DesiredRecords {
        values: request.values.clone(),
        ttl: request.ttl.unwrap_or(txt::TTL_DEFAULT),
        expires_at: end(request.expires_in, now),
    };
    change(state, requester, name, ("txt.set", "set"), now, |_| {
        wanted.clone()
    })
    .await
}

/// Adds a value to the records of a name. A value that is there already changes nothing.
///
/// # Errors
/// As [`set`].
pub async fn add(
    state: &State,
    requester: Requester<'_>,
    name: &RecordName,
    request: &AddTxt,
    now: Timestamp,
) -> Result<TxtInfo, Error> {
    check_times(name, request.ttl, request.expires_in)?;
    change(
        state,
        requester,
        name,
        ("txt.add", "added"),
        now,
        |before| DesiredRecords::with(before, request, now),
    )
    .await
}

async fn change(
    state: &State,
    requester: Requester<'_>,
    name: &RecordName,
    (action, result): (&'static str, &'static str),
    now: Timestamp,
    wanted: impl Fn(Option<&TxtRow>) -> DesiredRecords,
) -> Result<TxtInfo, Error> {
    let settings = &state.settings;
    let _alone = state.changes.lock().await;
    let done: Result<(TxtRow, bool), Error> = in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        let owner = owner(&settings.zone, &mut tx, requester, name).await?;
        if owner.is_host {
            return Err(invalid(name, "it is an app's own name, whose answers are the network's; take a name below it"));
        }
        let before = txt_get(&mut tx, name).await?.filter(|row| row.is_live(now));
        let wanted = wanted(before.as_ref());
        check_values(&settings.records, name, &wanted.values)?;
        let row = TxtRow {
            name: name.clone(),
            tenant: owner.tenant(),
            app: owner.app.map(|(app, _)| app),
            values: wanted.values,
            ttl: wanted.ttl,
            expires_at: wanted.expires_at,
            revision,
            updated_at: now,
            updated_by: requester.actor.to_string(),
        };
        if let Some(before) = before.as_ref().filter(|before| same_records(before, &row)) {
            return Ok((before.clone(), false));
        }
        if before.as_ref().is_none_or(|before| before.tenant != row.tenant) {
            check_limit(&settings.records, &mut tx, row.tenant, now).await?;
        }
        txt_upsert(&mut tx, &row).await?;
        outbox_push(&mut tx, revision, Message::TxtDesired(row.desired()), now).await?;
        let entry = entry(requester.actor, action, (before.as_ref(), Some(&row)), now);
        audit_insert(&mut tx, &entry).await?;
        Ok((row, true))
    });
    let counted = |result: &str| {
        let changes = &state.metrics.apps.txt_changes;
        changes.with_label_values(&[result]).inc();
    };
    if let Err(Error::Txt(TxtError::Full(_))) = &done {
        counted("full");
    }
    let (row, changed) = done?;
    if changed {
        counted(result);
        state.outbox_wake.notify_one();
        info!(%name, revision = %row.revision, actor = %requester.actor, "text records of a name were set");
    }
    Ok(row.info())
}

/// Whether two rows are equal except for revision, time and author of the change.
fn same_records(one: &TxtRow, other: &TxtRow) -> bool {
    (&one.app, one.tenant) == (&other.app, other.tenant)
        && one.values == other.values
        && (one.ttl, one.expires_at) == (other.ttl, other.expires_at)
}

/// Checks that one more name may have records.
async fn check_limit(
    settings: &RecordSettings,
    connection: &mut AnyConnection,
    tenant: Option<TenantId>,
    now: Timestamp,
) -> Result<(), Error> {
    let (whose, most) = match tenant {
        Some(_) => ("the tenant", settings.names_per_tenant),
        None => ("the network itself", settings.names_of_network),
    };
    if txt_count(connection, tenant, now).await? < u64::from(most) {
        return Ok(());
    }
    Err(TxtError::Full(format!(
        "{whose} has text records at {most} names, more are not allowed; take some away: fdn dns txt remove NAME"
    ))
    .into())
}

/// The audit log entry for a change.
fn entry(
    actor: &Actor,
    action: &'static str,
    (before, after): (Option<&TxtRow>, Option<&TxtRow>),
    now: Timestamp,
) -> AuditEntry {
    let state = |row: &TxtRow| {
        let state = serde_json::json!({ "values": row.values, "ttl": row.ttl, "expires_at": row.expires_at });
        state.to_string()
    };
    let any = after.or(before);
    AuditEntry {
        at: now,
        actor: actor.clone(),
        tenant: any.and_then(|row| row.tenant),
        action,
        subject: any.map_or_else(|| "txt/".to_owned(), |row| format!("txt/{}", row.name)),
        before: before.map(state),
        after: after.map(state),
    }
}

/// The message to DNS servers that a name has no TXT records any more.
fn removal_message(name: &RecordName, revision: Revision) -> Message {
    Message::TxtDesired(TxtDesired {
        name: name.clone(),
        revision,
        state: None,
    })
}

/// Removes one value of a name, or all.
///
/// # Errors
/// When the name does not belong to the caller, there is no such record, or the store fails.
pub async fn remove(
    state: &State,
    requester: Requester<'_>,
    name: &RecordName,
    value: Option<&str>,
    now: Timestamp,
) -> Result<(), Error> {
    let zone = &state.settings.zone;
    let _alone = state.changes.lock().await;
    let done: Result<(), Error> = in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        owner(zone, &mut tx, requester, name).await?;
        let before = txt_get(&mut tx, name).await?.filter(|row| row.is_live(now));
        let before = before.ok_or_else(|| none(name))?;
        let left: Vec<String> = match value {
            None => Vec::new(),
            Some(value) => before.values.iter().filter(|one| *one != value).cloned().collect(),
        };
        if left.len() == before.values.len() {
            return Err(none(name));
        }
        let after = (!left.is_empty()).then(|| TxtRow {
            values: left,
            revision,
            updated_at: now,
            updated_by: requester.actor.to_string(),
            ..before.clone()
        });
        let told = match &after {
            Some(row) => {
                txt_upsert(&mut tx, row).await?;
                Message::TxtDesired(row.desired())
            }
            None => {
                txt_delete(&mut tx, name).await?;
                removal_message(name, revision)
            }
        };
        outbox_push(&mut tx, revision, told, now).await?;
        let entry = entry(requester.actor, "txt.remove", (Some(&before), after.as_ref()), now);
        audit_insert(&mut tx, &entry).await?;
        Ok(())
    });
    done?;
    let changes = &state.metrics.apps.txt_changes;
    changes.with_label_values(&["removed"]).inc();
    state.outbox_wake.notify_one();
    info!(%name, actor = %requester.actor, "text records of a name were removed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[&str], expires_at: Option<u64>) -> TxtRow {
        TxtRow {
            name: "_a.hello.fn.test".parse().expect("a name"),
            app: None,
            tenant: None,
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            ttl: DurationMs::from_secs(30),
            expires_at: expires_at.map(Timestamp),
            revision: Revision(1),
            updated_at: Timestamp(1),
            updated_by: "ann".to_owned(),
        }
    }

    fn adding(value: &str, expires_in: Option<u64>) -> AddTxt {
        AddTxt {
            value: value.to_owned(),
            ttl: None,
            expires_in: expires_in.map(DurationMs::from_millis),
        }
    }

    #[test]
    fn a_value_joins_those_that_are_there() {
        let now = Timestamp(1000);
        let first = DesiredRecords::with(None, &adding("one", Some(500)), now);
        assert_eq!(first.values, ["one"]);
        assert_eq!(
            (first.ttl, first.expires_at),
            (txt::TTL_DEFAULT, Some(Timestamp(1500)))
        );
        let held = row(&["one"], Some(1200));
        let more = DesiredRecords::with(Some(&held), &adding("two", Some(500)), now);
        assert_eq!(more.values, ["one", "two"]);
        assert_eq!(
            (more.ttl, more.expires_at),
            (held.ttl, Some(Timestamp(1500)))
        );
        let same = DesiredRecords::with(Some(&held), &adding("one", None), now);
        assert_eq!(same.values, ["one"]);
        assert_eq!(same.expires_at, held.expires_at);
        let endless = row(&["one"], None);
        let more = DesiredRecords::with(Some(&endless), &adding("two", Some(500)), now);
        assert_eq!(more.expires_at, None);
    }

    #[test]
    fn labels_next_to_the_zone_are_found() {
        assert_eq!(last_labels(""), ("", None));
        assert_eq!(last_labels("hello"), ("hello", None));
        assert_eq!(last_labels("x._a.hello"), ("hello", Some("_a")));
    }

    #[test]
    fn values_are_bounded() {
        let name = "_a.hello.fn.test".parse().expect("a name");
        let settings = RecordSettings {
            values_per_name: 2,
            ..RecordSettings::default()
        };
        let code = |values: &[&str]| {
            let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
            check_values(&settings, &name, &values)
                .err()
                .map(|e| e.code())
        };
        assert_eq!(code(&["a", "b"]), None);
        assert_eq!(code(&[]), Some(ErrorCode::RecordInvalid));
        assert_eq!(code(&["a", "a"]), Some(ErrorCode::RecordInvalid));
        assert_eq!(code(&["a\n"]), Some(ErrorCode::RecordInvalid));
        assert_eq!(code(&["a", "b", "c"]), Some(ErrorCode::RecordsFull));
    }
}

//! Price lists. What was used under a price list stays billed at its prices.

use fdn_core::Timestamp;
use fdn_core::billing::{BillingError, Day, PriceList, PriceListName};
use tracing::info;

use crate::Error;
use crate::app::actor::Actor;
use crate::state::State;
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::billing::clock::clock_lock;
use crate::store::billing::price::{
    price_list_all, price_list_applied, price_list_delete, price_list_end, price_list_extend,
    price_list_insert, price_list_reopen,
};
use crate::store::in_transaction;
use crate::store::revision::revision_lock;

/// All price lists, the earliest first.
///
/// # Errors
/// When the store fails.
pub async fn list(state: &State) -> Result<Vec<PriceList>, Error> {
    let mut connection = state.store.read().await?;
    let prices = price_list_all(&mut connection, state.settings.billing.currency).await?;
    Ok(prices.lists().to_vec())
}

/// Adds a price list, or replaces one of the same name that has not begun. A list without an end that is valid on the new list's first day is
/// made to end there, if that day is in the future; the new one, if it has no end, ends where a later one begins. Applying the same list again, as
/// it was applied before or as it is listed, changes nothing.
///
/// # Errors
/// When it is not valid, another list is valid at the same time, one of its name has begun, it would change a closed month, or the store fails.
pub async fn apply(
    state: &State,
    actor: &Actor,
    list: &PriceList,
    now: Timestamp,
) -> Result<PriceList, Error> {
    let (settings, today) = (&state.settings.billing, Day::of(now));
    list.check(settings.currency)?;
    let changed: bool = in_transaction!(state.store, tx => {
        // The locks make checking and inserting one step across all controllers, and keep months from being closed meanwhile.
        revision_lock(&mut tx).await?;
        let open = clock_lock(&mut tx).await?;
        let all = price_list_all(&mut tx, settings.currency).await?;
        let before = all.lists().iter().find(|old| old.name == list.name);
        if let Some(old) = before {
            // It is listed with the end that the next list gives it, which it was applied without.
            let applied = price_list_applied(&mut tx, &old.name).await?;
            if old == list || applied.as_ref() == Some(list) {
                return Ok(false);
            }
            if old.from <= today {
                return Err(BillingError::InUse(list.name.clone()).into());
            }
            price_list_delete(&mut tx, &old.name).await?;
            price_list_reopen(&mut tx, old.from).await?;
        } else if all.lists().len() >= settings.price_lists_max as usize {
            return Err(Error::Conflict(format!("there are {} price lists; no more are kept", settings.price_lists_max)));
        }
        if open.is_some_and(|open| list.from < open.first_day()) {
            return Err(BillingError::PriceList(format!("{}: months before its first day are open only; {} is closed", list.name, list.from.month())).into());
        }
        let others = price_list_all(&mut tx, settings.currency).await?;
        let mut later = others.lists().iter().map(|other| other.from).filter(|from| *from > list.from);
        let valid = PriceList { to: list.to.or(later.next().filter(|day| *day > today)), ..list.clone() };
        for old in others.lists() {
            let Some(day) = old.overlap(&valid) else { continue };
            let applied = price_list_applied(&mut tx, &old.name).await?;
            if applied.is_none_or(|applied| applied.to.is_some()) || old.from >= list.from || list.from <= today {
                return Err(BillingError::Overlap { new: list.name.clone(), old: old.name.clone(), day }.into());
            }
            price_list_end(&mut tx, &old.name, list.from).await?;
        }
        price_list_insert(&mut tx, list, &actor.to_string(), now).await?;
        if list.to.is_none() {
            price_list_extend(&mut tx, &list.name).await?;
        }
        audit_insert(&mut tx, &audit(actor, "price.apply", &list.name, (before, Some(list)), now)).await?;
        Ok::<_, Error>(true)
    })?;
    if changed {
        info!(list = %list.name, from = %list.from, %actor, "a price list was applied");
    }
    let all = self::list(state).await?;
    all.into_iter()
        .find(|found| found.name == list.name)
        .ok_or_else(|| no_list(&list.name))
}

/// Removes a price list that has not begun. The list that would have ended at its first day is valid until the next one begins.
///
/// # Errors
/// When there is no such list, it has begun, or the store fails.
pub async fn remove(
    state: &State,
    actor: &Actor,
    name: &PriceListName,
    now: Timestamp,
) -> Result<(), Error> {
    in_transaction!(state.store, tx => {
        revision_lock(&mut tx).await?;
        let currency = state.settings.billing.currency;
        let all = price_list_all(&mut tx, currency).await?;
        let old = all.lists().iter().find(|old| old.name == *name).ok_or_else(|| no_list(name))?;
        if old.from <= Day::of(now) {
            return Err(BillingError::InUse(name.clone()).into());
        }
        price_list_delete(&mut tx, name).await?;
        price_list_reopen(&mut tx, old.from).await?;
        // No bill can be made of lists that contradict each other, so none are left.
        price_list_all(&mut tx, currency).await?;
        audit_insert(&mut tx, &audit(actor, "price.remove", name, (Some(old), None), now)).await?;
        Ok::<_, Error>(())
    })?;
    info!(list = %name, %actor, "a price list was removed");
    Ok(())
}

fn no_list(name: &PriceListName) -> Error {
    Error::NotFound {
        what: format!("price list {name}"),
        hint: "`fdn price list` shows what exists",
    }
}

fn audit(
    actor: &Actor,
    action: &'static str,
    name: &PriceListName,
    (before, after): (Option<&PriceList>, Option<&PriceList>),
    now: Timestamp,
) -> AuditEntry {
    let text = |list: Option<&PriceList>| list.and_then(|list| serde_json::to_string(list).ok());
    AuditEntry {
        at: now,
        actor: actor.clone(),
        tenant: None,
        action,
        subject: format!("price/{name}"),
        before: text(before),
        after: text(after),
    }
}

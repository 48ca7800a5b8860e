//! Webhooks: signed requests that tell others that a job has ended or that a budget raised an alert, retried until they succeed or the attempts
//! are used up.
//!
//! The address comes from users, so it must not lead into networks that only the controller can reach: an IP address is checked when it is set, a
//! name at each lookup, by the very addresses that are connected to. Redirects are not followed.

use std::collections::BTreeMap;
use std::sync::Arc;

use fdn_core::job::RetryPolicy;
use fdn_core::job::webhook::{ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, URL_MAX, signed};
use fdn_core::{AppName, MessageId, TenantId, Timestamp};
use fdn_service::address_policy::AddressPolicy;
use fdn_service::secret::Secret;
use fdn_service::{CancellationToken, http_client};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, warn};
use url::Url;

use crate::Error;
use crate::error::chain;
use crate::state::State;
use crate::store::in_transaction;
use crate::store::webhook::{
    Origin, WebhookRow, webhook_claim, webhook_done, webhook_due, webhook_reschedule,
};

/// The number of requests read from the store at a time.
const BATCH: u32 = 200;
/// The most of these of one tenant.
const TENANT_BATCH: u32 = 50;
/// How much longer than the timeout of a request another controller waits before making it too, in ms.
const LEASE_SLACK_MS: u64 = 30_000;

/// Checks that requests may be sent to an address.
///
/// # Errors
/// With the reason why not, as the rest of a sentence.
pub fn check(url: &str, private: bool) -> Result<(), &'static str> {
    if url.len() > URL_MAX {
        return Err("is longer than 2048 characters");
    }
    let url = Url::parse(url).map_err(|_| "is no address")?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err("must begin with https:// or http://");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold a user or a password; it is signed instead");
    }
    if url.host().is_none() {
        return Err("names no host");
    }
    if private {
        return Ok(());
    }
    AddressPolicy::public().check(&url)
}

/// The key that signs webhooks of an app's jobs.
#[must_use]
pub fn secret(state: &State, tenant: TenantId, app: &AppName) -> Secret {
    state
        .webhook_key
        .derive(&format!("webhook\n{tenant}\n{app}"))
}

/// The key that signs webhooks of a tenant's budgets.
#[must_use]
pub fn budget_secret(state: &State, tenant: TenantId) -> Secret {
    state
        .webhook_key
        .derive(&format!("webhook of budgets\n{tenant}"))
}

/// The HTTP client for webhooks.
///
/// # Errors
/// When it cannot be created.
pub(crate) fn client(private: bool) -> Result<reqwest::Client, Error> {
    let builder = http_client::builder()?.redirect(reqwest::redirect::Policy::none());
    let builder = match private {
        true => builder,
        false => AddressPolicy::public().restrict(builder),
    };
    let built = builder.build();
    built.map_err(|e| Error::Internal(format!("the client of webhooks: {e}")))
}

/// Sends requests until `stop` is cancelled.
pub(crate) async fn run(state: Arc<State>, stop: CancellationToken) {
    let client = match client(state.settings.jobs.webhooks.private) {
        Ok(client) => client,
        Err(error) => return warn!(error = chain(&error), "nobody is told of jobs"),
    };
    let (state, client) = (&*state, &client);
    let parallel = state.settings.jobs.webhooks.parallel;
    let mut pauses = interval(state.settings.jobs.interval.as_duration());
    pauses.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut waiting, mut sent) = (Vec::new(), BTreeMap::new());
    let mut requests = FuturesUnordered::new();
    // Whether the store may have more that can be sent now.
    let mut more = true;
    loop {
        let mut next = take_next(&mut waiting, &mut sent, parallel);
        if more && next.is_empty() && sent.len() < parallel {
            let found = tokio::select! {
                () = stop.cancelled() => return,
                found = due(state) => found,
            };
            match found {
                Ok(found) => {
                    let new = found.into_iter().filter(|row| !sent.contains_key(&row.id));
                    waiting = new.collect();
                }
                Err(error) => debug!(error = chain(&error), "webhooks cannot be looked up now"),
            }
            next = take_next(&mut waiting, &mut sent, parallel);
            more = !next.is_empty();
        }
        for row in next {
            requests.push(async move { (row.id, one(state, client, &row).await) });
        }
        tokio::select! {
            () = stop.cancelled() => return,
            Some((id, done)) = requests.next() => {
                sent.remove(&id);
                if let Err(error) = done {
                    debug!(%id, error = chain(&error), "a webhook's row cannot be written now");
                    // It is due still, and would be found again at once.
                    more = false;
                }
            }
            () = state.webhook_wake.notified() => more = true,
            _ = pauses.tick() => more = true,
        }
    }
}

/// The requests that are due.
async fn due(state: &State) -> Result<Vec<WebhookRow>, Error> {
    let (now, most) = (fdn_service::now(), (BATCH, TENANT_BATCH));
    Ok(webhook_due(&mut *state.store.read().await?, now, most).await?)
}

/// Moves the requests from `waiting` to `sent` that can be sent now, of at most `parallel` in all and half of these of one tenant: receivers that do not
/// answer keep theirs until the timeout, and must not delay those of other tenants.
fn take_next(
    waiting: &mut Vec<WebhookRow>,
    sent: &mut BTreeMap<MessageId, TenantId>,
    parallel: usize,
) -> Vec<WebhookRow> {
    let (mut next, mut later) = (Vec::new(), Vec::new());
    for row in std::mem::take(waiting) {
        let own = sent.values().filter(|tenant| **tenant == row.tenant);
        if sent.len() < parallel && own.count() < parallel.div_ceil(2) {
            sent.insert(row.id, row.tenant);
            next.push(row);
        } else {
            later.push(row);
        }
    }
    *waiting = later;
    next
}

async fn one(state: &State, client: &reqwest::Client, row: &WebhookRow) -> Result<(), Error> {
    let settings = &state.settings.jobs.webhooks;
    let now = fdn_service::now();
    let lease = settings.timeout.as_millis() + LEASE_SLACK_MS;
    let until = Timestamp(now.get().saturating_add(lease));
    let ours: bool = in_transaction!(state.store, tx => {
        Ok::<_, Error>(webhook_claim(&mut tx, row, now, until).await?)
    })?;
    if !ours {
        return Ok(());
    }
    let failure = send(state, client, row).await.err();
    let given_up = failure.is_some() && row.failures + 1 >= settings.attempts;
    let result = match (&failure, given_up) {
        (None, _) => "ok",
        (Some(_), false) => "failed",
        (Some(_), true) => "given_up",
    };
    let webhooks = match &row.origin {
        Origin::Job { .. } => &state.metrics.jobs.webhooks,
        Origin::Budget(_) => &state.metrics.billing.webhooks,
    };
    webhooks.with_label_values(&[result]).inc();
    if let Some(failure) = &failure {
        debug!(id = %row.id, failure, given_up, "a webhook was not answered well");
    }
    let retry = RetryPolicy {
        attempts: settings.attempts,
        first: settings.retry_first,
        longest: settings.retry_longest,
    };
    let pause = retry.pause(row.failures + 1, rand::random_range(0.0..1.0));
    let again = Timestamp(fdn_service::now().get() + pause.as_millis());
    in_transaction!(state.store, tx => {
        match failure.is_some() && !given_up {
            true => webhook_reschedule(&mut tx, row, again).await?,
            false => webhook_done(&mut tx, row).await?,
        }
        Ok::<_, Error>(())
    })
}

async fn send(state: &State, client: &reqwest::Client, row: &WebhookRow) -> Result<(), String> {
    let settings = &state.settings.jobs.webhooks;
    // The rules may have become stricter since the address was set.
    check(&row.url, settings.private).map_err(str::to_owned)?;
    let seconds = fdn_service::now().get() / 1000;
    let key = match &row.origin {
        Origin::Job { app, .. } => secret(state, row.tenant, app),
        Origin::Budget(_) => budget_secret(state, row.tenant),
    };
    let signature = key.derive(&signed(seconds, &row.body));
    let answer = client
        .post(&row.url)
        .timeout(settings.timeout.as_duration())
        .header("content-type", "application/json")
        .header(ID_HEADER, row.id.to_string())
        .header(TIMESTAMP_HEADER, seconds.to_string())
        .header(SIGNATURE_HEADER, format!("v1={}", signature.expose()))
        .body(row.body.clone())
        .send()
        .await;
    match answer {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => Err(format!("it answered {}", answer.status())),
        Err(error) => Err(chain(&error.without_url())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_judged_by_what_they_are() {
        for good in ["https://example.org/done?x=1", "http://93.184.216.34:8080/"] {
            assert_eq!(check(good, false), Ok(()), "{good}");
        }
        for bad in [
            "ftp://example.org/",
            "https://user:secret@example.org/",
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://[::1]/",
            "http://[::ffff:10.0.0.1]/",
            "http://169.254.169.254/latest",
            "not an address",
            &format!("https://example.org/{}", "x".repeat(3000)),
        ] {
            assert!(check(bad, false).is_err(), "{bad}");
        }
        assert_eq!(check("http://127.0.0.1/", true), Ok(()));
    }

    #[test]
    fn a_tenant_whose_receiver_is_silent_leaves_room_for_others() {
        let [silent, other] = [1, 2].map(|n| TenantId::from_uuid(uuid::Uuid::from_u128(n)));
        let row = |(n, tenant)| WebhookRow {
            id: MessageId::from_uuid(uuid::Uuid::from_u128(n)),
            origin: Origin::Budget("b".parse().expect("budget")),
            tenant,
            url: String::new(),
            body: String::new(),
            due_at: Timestamp(0),
            failures: 0,
        };
        let all = (1..=10)
            .map(|n| (n, silent))
            .chain([(11, other), (12, other)]);
        let mut waiting: Vec<WebhookRow> = all.map(row).collect();
        let mut sent = BTreeMap::new();
        let mut next = || {
            let next = take_next(&mut waiting, &mut sent, 4);
            sent.retain(|_, tenant| *tenant == silent);
            let ids = next.iter().map(|row| row.id.uuid().as_u128());
            ids.collect::<Vec<_>>()
        };
        assert_eq!(next(), [1, 2, 11, 12]);
        // Those of the other tenant were answered, the rest was not.
        assert!(next().is_empty());
        waiting.push(row((13, other)));
        assert_eq!(waiting.len(), 9);
        assert_eq!(take_next(&mut waiting, &mut sent, 4).len(), 1);
    }

    #[tokio::test]
    async fn a_name_that_leads_home_is_not_connected_to() {
        let client = client(false).expect("a client");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let port = listener.local_addr().expect("address").port();
        let sent = client
            .post(format!("http://localhost:{port}/"))
            .send()
            .await;
        let error = sent.expect_err("localhost is refused");
        assert!(chain(&error).contains("public internet"), "{error:?}");
        listener.set_nonblocking(true).expect("set");
        assert!(listener.accept().is_err(), "nobody connected");
    }
}

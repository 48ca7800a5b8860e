//! The dispatcher: receives jobs, shares capacity between tenants, and starts attempts where the network has room.
//!
//! One task owns all state here; attempts and lease extensions run in tasks of their own and report back. Jobs arrive as tickets from the broker
//! and by polling the store; a job without room here stays in the store, where a later poll finds it. Waiting jobs are limited by `jobs.buffer`
//! and `tenant_buffer`; running ones by `jobs.parallel`, by the slots of the clusters, per app by `jobs.running_per_app` or its policy, and per
//! function by the policy of its own app. The store counts over all dispatchers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fdn_bus::{Deliveries, Delivery, Subscription};
use fdn_core::enrol::NodeIdentity;
use fdn_core::job::{Event, JobState};
use fdn_core::message::{Channel, Message};
use fdn_core::{AppName, Coded, ErrorCode, JobId, Millis, TenantId, Timestamp};
use fdn_scheduling::fair::{Entry, Limits, Pool};
use fdn_service::CancellationToken;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tracing::{debug, warn};

use super::attempt::{AttemptRequest, DispatchOutcome, attempt, record_cut};
use super::change::{EventDetails, step};
use super::expected::RunCache;
use super::plan::{ExpectedRun, NetworkSnapshot, OwnAttempts, Placement, free, place};
use super::turns::in_turns;
use crate::Error;
use crate::error::chain;
use crate::state::State;
use crate::store::job::{JobRow, job_get};
use crate::store::job_queries::{held_jobs, lease_extend, waiting_jobs, waiting_tenants};

/// How long a snapshot of the network is used.
const SNAPSHOT_TTL: Duration = Duration::from_millis(50);
/// How long an app is skipped whose limit is reached or that no cluster takes.
const BLOCKED_PAUSE: Duration = Duration::from_millis(250);
/// How long an app's limit from the store is cached, and so the delay until a policy that allows more has effect.
const LIMIT_TTL: Duration = Duration::from_secs(5);
/// How long polls leave the jobs of an app in the store that could not be looked up.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(5);
/// The pause before a ticket that could not be looked up is returned to the broker, or a failed subscription is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How long it may take, while the controller stops, to record which attempts were cut short.
const RECORD_PATIENCE: Duration = Duration::from_secs(5);

/// A job that waits in memory.
struct Waiting {
    job: JobId,
    app: AppName,
    /// What its turn costs its tenant.
    cost: (TenantId, Millis),
    runs: Arc<ExpectedRun>,
    /// The ticket, if one announced it; returned to the broker if dropped without an acknowledgement.
    ticket: Option<Delivery>,
}

/// An attempt that this dispatcher runs.
struct Running {
    app: AppName,
    cost: (TenantId, Millis),
    /// The node that was called.
    node: NodeIdentity,
    /// Its number, once it is claimed.
    attempt: Option<u32>,
    stop: CancellationToken,
    ticket: Option<Delivery>,
}

/// A report from a task.
enum Report {
    /// A job has been claimed, with the number of the attempt.
    Claimed(JobId, u32),
    /// An attempt has ended.
    Ended(JobId, DispatchOutcome),
    /// Leases have been extended: the attempts that the store has for this dispatcher, and when it was asked.
    Held(BTreeMap<JobId, u32>, Instant),
}

struct Dispatcher {
    state: Arc<State>,
    pool: Pool<TenantId, Waiting>,
    waiting: BTreeMap<JobId, ()>,
    running: BTreeMap<JobId, Running>,
    claimed_at: BTreeMap<JobId, Instant>,
    blocked: BTreeMap<AppName, Instant>,
    /// The limit of an app's running jobs, as last read from the store, and until when it is valid.
    limits: BTreeMap<AppName, (u32, Instant)>,
    /// Apps that could not be looked up though the database answered, and until when polls leave their jobs in the store.
    unreadable: BTreeMap<AppName, Instant>,
    expected: RunCache,
    own: OwnAttempts,
    snapshot: Option<(Instant, NetworkSnapshot)>,
    /// Whether the store has more waiting jobs than there was room for.
    more: bool,
    /// The tenant of the last job that a poll kept: the next poll begins with the tenant after it.
    polled: Option<TenantId>,
    reports: mpsc::Sender<Report>,
    tasks: JoinSet<()>,
}

/// Dispatches until shutdown, then lets what runs end.
pub(crate) async fn run(state: Arc<State>, shutdown: CancellationToken) {
    if !state.settings.jobs.dispatch {
        return;
    }
    let settings = state.settings.jobs.clone();
    // Each attempt reports twice, each extension of leases once.
    let (reports, mut heard) = mpsc::channel(2 * settings.parallel + 16);
    let limits = Limits {
        total: settings.buffer,
        tenant: settings.tenant_buffer,
    };
    let mut dispatcher = Dispatcher {
        pool: Pool::new(limits),
        waiting: BTreeMap::new(),
        running: BTreeMap::new(),
        claimed_at: BTreeMap::new(),
        blocked: BTreeMap::new(),
        limits: BTreeMap::new(),
        unreadable: BTreeMap::new(),
        expected: RunCache::default(),
        own: OwnAttempts::default(),
        snapshot: None,
        more: false,
        polled: None,
        reports,
        tasks: JoinSet::new(),
        state: Arc::clone(&state),
    };
    let mut tickets = subscribe(&state, &shutdown).await;
    let mut polls = interval(settings.interval.as_duration());
    let mut leases = interval(settings.lease.as_duration() / 3);
    let mut rounds = interval(Duration::from_millis(100));
    for timer in [&mut polls, &mut leases, &mut rounds] {
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    loop {
        let room = dispatcher.pool.len() < settings.buffer;
        tokio::select! {
            () = shutdown.cancelled() => break,
            ticket = next(&mut tickets), if room => match ticket {
                Some(ticket) => dispatcher.ticket(ticket).await,
                None => tickets = subscribe(&state, &shutdown).await,
            },
            Some(report) = heard.recv() => {
                dispatcher.report(report);
                while let Ok(report) = heard.try_recv() {
                    dispatcher.report(report);
                }
            }
            _ = polls.tick() => dispatcher.poll_store().await,
            _ = leases.tick() => dispatcher.extend(),
            _ = rounds.tick() => {}
        }
        // Whichever branch ran: nothing begins any more.
        if shutdown.is_cancelled() {
            break;
        }
        if dispatcher.more && dispatcher.pool.len() < settings.tenant_buffer / 2 {
            dispatcher.poll_store().await;
        }
        dispatcher.start();
        while dispatcher.tasks.try_join_next().is_some() {}
    }
    drop(tickets);
    dispatcher.finish(heard).await;
}

async fn next(tickets: &mut Option<Deliveries>) -> Option<Delivery> {
    match tickets {
        Some(tickets) => tickets.next().await,
        None => None,
    }
}

async fn subscribe(state: &State, shutdown: &CancellationToken) -> Option<Deliveries> {
    loop {
        let subscription = Subscription {
            channel: Channel::Jobs,
            consumer: format!("dispatcher-{}", state.singletons.holder()),
            prefetch: state.settings.jobs.prefetch,
        };
        match state.broker.subscribe(subscription).await {
            Ok(deliveries) => return Some(deliveries),
            Err(error) => warn!(error = chain(&error), "no tickets of jobs; trying again"),
        }
        tokio::select! {
            () = shutdown.cancelled() => return None,
            () = sleep(RETRY_PAUSE) => {}
        }
    }
}

impl Dispatcher {
    fn count(&self, result: &str) {
        let tickets = &self.state.metrics.jobs.tickets;
        tickets.with_label_values(&[result]).inc();
    }

    fn knows(&self, job: JobId) -> bool {
        self.waiting.contains_key(&job) || self.running.contains_key(&job)
    }

    /// Receives a ticket. It is acknowledged at once unless the job is kept here: the store has the job anyway.
    async fn ticket(&mut self, ticket: Delivery) {
        let Message::JobTicket(announced) = &ticket.envelope().message else {
            warn!("a message that is no ticket goes to the dead letters");
            return ticket.reject();
        };
        let job = announced.job;
        if self.knows(job) {
            self.count("known");
            return ticket.ack();
        }
        match self.accepted(job).await {
            Ok(Some(row)) => match self.buffer(&row, Some(ticket)).await {
                Ok(true) => self.count("kept"),
                Ok(false) => {
                    self.more = true;
                    self.count("left");
                }
                Err(error) => {
                    self.count("failed");
                    warn!(%job, error = chain(&error), "a job's app cannot be looked up; it stays in the store");
                }
            },
            Ok(None) => {
                self.count("past");
                ticket.ack();
            }
            Err(error) => {
                self.count("failed");
                warn!(%job, error = chain(&error), "a ticket cannot be looked up");
                // Beside the other tickets, which may well be found.
                tokio::spawn(async move {
                    sleep(RETRY_PAUSE).await;
                    ticket.retry();
                });
            }
        }
    }

    /// The job of a ticket, if it waits. The ticket itself proves that the broker has it, so a submission that is still unconfirmed is confirmed
    /// now.
    async fn accepted(&self, job: JobId) -> Result<Option<JobRow>, Error> {
        let found = job_get(&mut *self.state.store.read().await?, job).await?;
        let row = match found {
            Some(row) if row.progress.state == JobState::Submitted => {
                step(&self.state, job, Event::Confirmed, &EventDetails::default()).await?;
                job_get(&mut *self.state.store.read().await?, job).await?
            }
            other => other,
        };
        let now = fdn_service::now();
        Ok(row.filter(|row| row.progress.state == JobState::Queued && row.progress.due_at <= now))
    }

    /// Keeps a job in memory if there is room; returns whether. A ticket that is not kept is acknowledged.
    async fn buffer(&mut self, row: &JobRow, ticket: Option<Delivery>) -> Result<bool, Error> {
        if self.pool.room(&row.tenant) == 0 || self.knows(row.id) {
            if let Some(ticket) = ticket {
                ticket.ack();
            }
            return Ok(false);
        }
        let runs = match self.expected.of(&self.state, row).await {
            Ok(runs) => runs,
            Err(error) => {
                if let Some(ticket) = ticket {
                    ticket.ack();
                }
                return Err(error);
            }
        };
        let dag = &runs.dag;
        let work: f64 = dag.indices().map(|task| dag.task(task).work.get()).sum();
        let cost = Millis::new(work);
        let entry = Entry {
            priority: row.priority.get(),
            order: row.submitted_at.get(),
            cost,
            item: Waiting {
                job: row.id,
                app: row.app.clone(),
                cost: (row.tenant, cost),
                runs,
                ticket,
            },
        };
        let job = row.id;
        let kept = self.pool.push(row.tenant, entry).is_ok();
        if kept {
            self.waiting.insert(job, ());
        }
        Ok(kept)
    }

    /// Polls the store for jobs without a ticket: one of each tenant in turn, so that no tenant's queue delays another's.
    async fn poll_store(&mut self) {
        self.more = false;
        if let Err(error) = self.try_poll_store().await {
            debug!(error = chain(&error), "the store cannot be looked into now");
        }
    }

    async fn try_poll_store(&mut self) -> Result<(), Error> {
        let (now, batch) = (fdn_service::now(), self.state.settings.jobs.batch);
        let instant = Instant::now();
        self.unreadable.retain(|_, until| *until > instant);
        let unreadable: Vec<&AppName> = self.unreadable.keys().collect();
        let mut connection = self.state.store.read().await?;
        let tenants = waiting_tenants(&mut connection, now, (self.polled, batch)).await?;
        let mut lists: Vec<Vec<JobId>> = Vec::new();
        for tenant in tenants {
            let room = self.pool.room(&tenant);
            if room == 0 {
                self.more = true;
                continue;
            }
            // The jobs known already are among the first: read beyond them.
            let most = room
                + self
                    .waiting
                    .len()
                    .min(self.state.settings.jobs.tenant_buffer);
            let most = most + self.running.len();
            let limit = u32::try_from(most).unwrap_or(u32::MAX);
            let of = (tenant, unreadable.as_slice());
            let found = waiting_jobs(&mut connection, of, now, limit).await?;
            self.more |= found.len() >= most;
            let new = found.into_iter().filter(|job| !self.knows(*job));
            lists.push(new.take(room).collect());
        }
        let buffer = self.state.settings.jobs.buffer;
        let room = buffer.saturating_sub(self.pool.len());
        let jobs = in_turns(lists);
        self.more |= jobs.len() > room;
        let mut rows = Vec::new();
        for job in jobs.into_iter().take(room) {
            match job_get(&mut connection, job).await {
                Ok(row) => rows.extend(row.filter(|row| row.progress.state == JobState::Queued)),
                Err(error) if error.code() == ErrorCode::DatabaseFailed => return Err(error.into()),
                Err(error) => warn!(%job, error = chain(&error), "a job cannot be read"),
            }
        }
        drop(connection);
        for row in rows {
            // Another job of this poll has shown it.
            if self.unreadable.contains_key(&row.app) {
                continue;
            }
            match self.buffer(&row, None).await {
                Ok(true) => self.polled = Some(row.tenant),
                Ok(false) => {}
                Err(error) if error.code() == ErrorCode::DatabaseFailed => return Err(error),
                Err(error) => {
                    warn!(job = %row.id, app = %row.app, error = chain(&error), "a job's app cannot be looked up; its jobs stay in the store");
                    self.unreadable.insert(row.app, instant + UNREADABLE_PAUSE);
                }
            }
        }
        Ok(())
    }

    /// Extends the leases of what runs here, and reads back which attempts the store has for this dispatcher.
    fn extend(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let (state, reports, asked) = (
            Arc::clone(&self.state),
            self.reports.clone(),
            Instant::now(),
        );
        let jobs: Vec<JobId> = self.running.keys().copied().collect();
        self.tasks.spawn(async move {
            match extend(&state, &jobs).await {
                Ok(held) => drop(reports.send(Report::Held(held, asked)).await),
                Err(error) => warn!(error = chain(&error), "leases of jobs cannot be extended"),
            }
        });
    }

    fn report(&mut self, report: Report) {
        match report {
            Report::Claimed(job, attempt) => {
                if let Some(running) = self.running.get_mut(&job) {
                    running.attempt = Some(attempt);
                    self.claimed_at.insert(job, Instant::now());
                }
            }
            Report::Ended(job, outcome) => self.ended(job, outcome),
            Report::Held(held, asked) => {
                for (job, running) in &self.running {
                    let before = self.claimed_at.get(job).is_some_and(|at| *at < asked);
                    if before && running.attempt != held.get(job).copied() {
                        // The job was cancelled, or our lease had ended.
                        running.stop.cancel();
                    }
                }
            }
        }
    }

    fn ended(&mut self, job: JobId, outcome: DispatchOutcome) {
        let Some(mut running) = self.running.remove(&job) else {
            return;
        };
        self.claimed_at.remove(&job);
        self.own.ended(&running.node);
        if running.attempt.is_none() {
            // It was not claimed.
            let (tenant, cost) = running.cost;
            self.pool.refund(&tenant, cost);
        }
        match outcome {
            DispatchOutcome::Busy(_) | DispatchOutcome::StoreUnavailable => {
                let now = Instant::now();
                if let DispatchOutcome::Busy(most) = outcome {
                    let limit = (most, now + LIMIT_TTL);
                    self.limits.insert(running.app.clone(), limit);
                }
                self.blocked.insert(running.app, now + BLOCKED_PAUSE);
                self.more = true;
            }
            // There is room for another one.
            DispatchOutcome::Settled | DispatchOutcome::Gone => {
                self.blocked.remove(&running.app);
            }
        }
        // The result is recorded in the store in any case.
        if let Some(ticket) = running.ticket.take() {
            ticket.ack();
        }
    }

    /// Starts the jobs that there is room for.
    fn start(&mut self) {
        let metrics = &self.state.metrics.jobs;
        let gauge = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        metrics.buffered.set(gauge(self.pool.len()));
        metrics.running.set(gauge(self.running.len()));
        let now = Instant::now();
        self.blocked.retain(|_, until| *until > now);
        self.limits.retain(|_, (_, until)| *until > now);
        let most = self.state.settings.jobs.parallel;
        if self.pool.is_empty() || self.running.len() >= most {
            return;
        }
        let (since, snapshot) = match self.snapshot.take() {
            Some((since, snapshot)) if now.duration_since(since) < SNAPSHOT_TTL => {
                (since, snapshot)
            }
            _ => (now, NetworkSnapshot::of(&self.state, fdn_service::now())),
        };
        self.own.observe(&snapshot);
        let room = free(&snapshot, &self.own).min(most - self.running.len());
        let chosen = self.choose(room);
        let jobs: Vec<Arc<ExpectedRun>> = chosen.iter().map(|w| Arc::clone(&w.runs)).collect();
        let places = place(&snapshot, &self.own, &jobs);
        for (waiting, place) in chosen.into_iter().zip(places) {
            self.waiting.remove(&waiting.job);
            self.send(&snapshot, waiting, place);
        }
        self.snapshot = Some((since, snapshot));
    }

    /// The next jobs, in fair turns; none of an app that has reached its limit in this dispatcher.
    fn choose(&mut self, room: usize) -> Vec<Waiting> {
        let most = self.state.settings.jobs.running_per_app as usize;
        let mut counts: BTreeMap<AppName, usize> = BTreeMap::new();
        for running in self.running.values() {
            *counts.entry(running.app.clone()).or_default() += 1;
        }
        let mut chosen: Vec<Waiting> = Vec::new();
        while chosen.len() < room {
            let (blocked, limits) = (&self.blocked, &self.limits);
            let may = |waiting: &Waiting| {
                let running = counts.get(&waiting.app).copied().unwrap_or(0);
                let own = limits
                    .get(&waiting.app)
                    .map_or(most, |(own, _)| *own as usize);
                running < most.min(own) && !blocked.contains_key(&waiting.app)
            };
            let Some((_, waiting)) = self.pool.take(may) else {
                break;
            };
            *counts.entry(waiting.app.clone()).or_default() += 1;
            chosen.push(waiting);
        }
        chosen
    }

    fn send(&mut self, snapshot: &NetworkSnapshot, waiting: Waiting, place: Placement) {
        let gateway = match &place {
            Placement::At { cluster, ready } => {
                debug!(job = %waiting.job, %cluster, %ready, "a job goes to a cluster, which can run it after so long");
                let gateway = snapshot.gateway(cluster, &waiting.app, &self.own);
                gateway.map(|gateway| (cluster.clone(), gateway))
            }
            Placement::Nowhere(why) => {
                debug!(job = %waiting.job, why, "no cluster takes a job now");
                None
            }
            Placement::Later => None,
        };
        let Some((cluster, gateway)) = gateway else {
            // It stays in the store, where the next poll finds it.
            self.blocked
                .insert(waiting.app.clone(), Instant::now() + BLOCKED_PAUSE);
            self.more = true;
            let (tenant, cost) = waiting.cost;
            self.pool.refund(&tenant, cost);
            if let Some(ticket) = waiting.ticket {
                ticket.ack();
            }
            return;
        };
        let node = gateway.node.clone();
        let request = AttemptRequest {
            job: waiting.job,
            app: waiting.app.clone(),
            cluster,
            gateway,
        };
        let stop = CancellationToken::new();
        self.own.started(&node);
        let running = Running {
            app: waiting.app,
            cost: waiting.cost,
            node,
            attempt: None,
            stop: stop.clone(),
            ticket: waiting.ticket,
        };
        self.running.insert(request.job, running);
        let (state, reports) = (Arc::clone(&self.state), self.reports.clone());
        self.tasks.spawn(async move {
            let job = request.job;
            let sender = reports.clone();
            // There is room for two reports of each attempt. If this one is lost, the attempt only counts as unclaimed here: a cancelled call runs to
            // its end, and the turn costs nothing.
            let claimed = move |number| drop(sender.try_send(Report::Claimed(job, number)));
            let outcome = Box::pin(attempt(&state, &request, claimed, &stop)).await;
            drop(reports.send(Report::Ended(job, outcome)).await);
        });
    }

    /// Lets attempts end. Those that do not end in time are cut short, and recorded as such: until their leases ended nobody would know.
    async fn finish(mut self, mut heard: mpsc::Receiver<Report>) {
        self.pool.retain(|_| false);
        let grace = self.state.settings.jobs.stop_grace.as_duration();
        let ended = async {
            let mut leases = interval(self.state.settings.jobs.lease.as_duration() / 3);
            while !self.running.is_empty() {
                tokio::select! {
                    Some(report) = heard.recv() => self.report(report),
                    _ = leases.tick() => self.extend(),
                }
            }
        };
        let in_time = timeout(grace, ended).await.is_ok();
        self.tasks.shutdown().await;
        if in_time {
            return;
        }
        while let Ok(report) = heard.try_recv() {
            self.report(report);
        }
        let claimed = |(job, running): (&JobId, &Running)| Some((*job, running.attempt?));
        let cut: Vec<(JobId, u32)> = self.running.iter().filter_map(claimed).collect();
        warn!(
            attempts = cut.len(),
            "attempts at jobs were cut short, since they did not end in time"
        );
        let state = Arc::clone(&self.state);
        let recorded = async {
            for (job, attempt) in cut {
                if let Err(error) = Box::pin(record_cut(&state, job, attempt)).await {
                    warn!(%job, error = chain(&error), "that an attempt was cut short cannot be written down; its lease ends by itself");
                }
            }
        };
        if timeout(RECORD_PATIENCE, recorded).await.is_err() {
            warn!("the leases of other attempts that were cut short end by themselves");
        }
    }
}

async fn extend(state: &State, jobs: &[JobId]) -> Result<BTreeMap<JobId, u32>, Error> {
    let lease = state.settings.jobs.lease.as_millis();
    let until = Timestamp(fdn_service::now().get().saturating_add(lease));
    let mut connection = state.store.read().await?;
    lease_extend(&mut connection, state.singletons.holder(), jobs, until).await?;
    let held = held_jobs(&mut connection, state.singletons.holder()).await?;
    Ok(held.into_iter().collect())
}

//! Announces calls of later stages of a run, and answers such announcements.
//!
//! [`Prewarm`] decides when to announce which stage. This module sends the announcements: to the pool of this node, or to a gateway of the
//! cluster where the stage will run, over the connection that its call will use. The call then goes to the gateway that got the announcement.
//! Announcements are best effort: a call never waits for one and never fails because of one, and none is sent after the run has ended.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdn_core::{ClusterId, Millis};
use fdn_scheduling::prewarm::{Announcement, Answer, Prewarm, Settings, Stage};
use fdn_scheduling::run::Run;
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use http::{Request, Response};
use hyper::body::Incoming;
use tracing::debug;

use super::Workflows;
use super::serve::{self, StageBody};
use super::wire::{self, Announced};
use crate::apps::{Deployed, Server, StageServing, Staged};
use crate::gateway::service::Gateway;
use crate::invocations::policy;

/// The number of stages of a run announced at the same time.
const AT_ONCE: usize = 16;
/// A stage that answered within this time is warm and needs no announcement.
const FRESH: Duration = Duration::from_secs(1);

/// The result of an announcement: the stage, the answer, and the gateway that gave it.
pub(super) type AnnouncementResult = (usize, Answer, Option<SocketAddr>);

/// The announcements of one run.
pub(super) struct Prewarming<'a> {
    gateway: &'a Gateway,
    staged: &'a Staged,
    decision: Prewarm,
    begun: Instant,
    /// The time up to which everything due has been announced.
    looked: Millis,
    /// By stage: when it was last called.
    since: Vec<Instant>,
    /// By stage: the gateway that got the announcement.
    at: Vec<Option<SocketAddr>>,
    pub(super) pending: FuturesUnordered<LocalBoxFuture<'a, AnnouncementResult>>,
}

impl<'a> Prewarming<'a> {
    /// Starts with a run that begins now.
    pub(super) fn new(gateway: &'a Gateway, staged: &'a Staged, begun: Instant) -> Self {
        let workflows = &gateway.workflows;
        let settings = Settings {
            horizon: policy::millis(workflows.settings.prewarm),
            at_once: AT_ONCE,
        };
        let stage = |(index, stage): (usize, &StageServing)| {
            let rules = staged.run.rules_of(&stage.name);
            let known = stage.stats.typical();
            let takes = known.unwrap_or_else(|| {
                let way = workflows.nearness.of(where_of(workflows, staged, stage));
                let way = Some(way).filter(|way| way.is_finite());
                stage.manifest.expected_millis() + way.unwrap_or(Millis::ZERO)
            });
            Stage {
                parents: staged.parents[index].clone(),
                when: rules.when,
                takes,
                is_warm: stage.stats.has_answered(FRESH),
            }
        };
        let stages: Vec<Stage> = staged.stages.iter().enumerate().map(stage).collect();
        Self {
            gateway,
            staged,
            begun,
            looked: Millis::ZERO,
            since: vec![begun; stages.len()],
            at: vec![None; stages.len()],
            decision: Prewarm::new(stages, settings),
            pending: FuturesUnordered::new(),
        }
    }

    fn now(&self) -> Millis {
        Millis::from(self.begun.elapsed())
    }

    /// Records that a stage is called. Returns the gateway that got its announcement.
    pub(super) fn calls(&mut self, stage: usize) -> Option<SocketAddr> {
        self.decision.begun(stage, self.now());
        self.since[stage] = Instant::now();
        self.at[stage]
    }

    /// Records that an attempt at a stage succeeded.
    pub(super) fn done(&self, stage: usize) {
        let took = self.since[stage].elapsed();
        self.staged.stages[stage].stats.took(took);
    }

    /// Sends the announcements that are due.
    pub(super) fn advance(&mut self, run: &Run) {
        for stage in 0..self.at.len() {
            if run.settled(stage).is_some() {
                self.decision.ended(stage);
            }
        }
        loop {
            self.looked = self.now();
            let due = self.decision.due(self.looked);
            if due.is_empty() {
                return;
            }
            for announcement in due {
                self.announce(announcement);
            }
        }
    }

    /// When the next announcement is due, counted from the start of the run.
    pub(super) fn next_due(&self) -> Option<Duration> {
        // Counted from that earlier time, so that what has become due since is not missed.
        let next = self.decision.next_due(self.looked)?;
        // Slightly late, since nothing would be due yet at a wake-up that is slightly early.
        Duration::try_from_secs_f64(next.get() / 1e3)
            .ok()
            .map(|due| due + Duration::from_millis(1))
    }

    /// Takes a gateway's answer to an announcement.
    pub(super) fn on_result(&mut self, (stage, answer, who): AnnouncementResult) {
        self.count("away", answer.as_str());
        self.at[stage] = who;
        self.decision.answered(stage, answer);
    }

    fn count(&self, place: &str, outcome: &str) {
        let counter = &self.gateway.workflows.metrics.prewarms;
        counter.with_label_values(&[place, outcome]).inc();
    }

    fn announce(&mut self, announcement: Announcement) {
        let (gateway, staged): (&'a Gateway, &'a Staged) = (self.gateway, self.staged);
        let workflows = &gateway.workflows;
        let Announcement { stage, within } = announcement;
        let serving = &staged.stages[stage];
        let cluster = where_of(workflows, staged, serving);
        let is_here = *cluster == workflows.cluster;
        if is_here && let Some(deployed) = &serving.deployed {
            let answer = gateway.announced(deployed, within);
            self.count("here", answer.as_str());
            return self.decision.answered(stage, answer);
        }
        let Some(client) = &workflows.client else {
            return self.decision.answered(stage, Answer::Unknown);
        };
        let Ok(permit) = workflows.announce_permits.try_acquire() else {
            self.count("away", "dropped");
            return self.decision.answered(stage, Answer::Lost);
        };
        let call = Announced {
            app: staged.app.clone(),
            host: staged.host.clone(),
            stage: serving.name.clone(),
            version: format!("{}@{}", serving.function, serving.version),
            within,
        };
        let first = self.at[stage];
        self.pending.push(Box::pin(async move {
            let (answer, who) = client.announce(cluster, &call, first).await;
            drop(permit);
            (stage, answer, who)
        }));
    }
}

/// The cluster where a stage is called first.
fn where_of<'a>(
    workflows: &'a Workflows,
    staged: &'a Staged,
    stage: &StageServing,
) -> &'a ClusterId {
    match workflows.client {
        Some(_) => staged.run.cluster_of(&stage.name, &workflows.cluster),
        None => &workflows.cluster,
    }
}

/// Answers a gateway's announcement of a call.
pub(super) fn answer(gateway: &Gateway, request: &Request<Incoming>) -> Response<StageBody> {
    let answer = announced(gateway, request).unwrap_or(Answer::Unknown);
    let served = &gateway.workflows.metrics.prewarms_served;
    served.with_label_values(&[answer.as_str()]).inc();
    let mut response = Response::new(StageBody::None);
    wire::answer_ahead(answer, response.headers_mut());
    response
}

fn announced(gateway: &Gateway, request: &Request<Incoming>) -> Option<Answer> {
    let call = wire::announced(request.uri(), request.headers())?;
    let found = serve::find(gateway, call.host.as_str(), &call.app);
    let (_, staged) = found.ok()?;
    let deployed = serve::deployed(&staged, &call.stage, &call.version).ok()?;
    Some(gateway.announced(deployed, call.within))
}

impl Gateway {
    /// Prepares for a stage call that is expected `within` this time: starts what its function lacks.
    fn announced(&self, deployed: &Arc<Deployed>, within: Millis) -> Answer {
        let patience = policy::millis(self.workflows.settings.prewarm);
        if patience <= Millis::ZERO {
            return Answer::Unknown;
        }
        match &deployed.server {
            Server::Instances(queue) => queue.announce(within.min(patience), patience),
            Server::Sandboxes(_) if deployed.is_loaded() => Answer::Warm,
            Server::Sandboxes(_) => {
                let (deployed, metrics) = (Arc::clone(deployed), self.metrics.clone());
                tokio::spawn(async move {
                    if let Server::Sandboxes(sandboxes) = &deployed.server
                        && let Err(failure) = sandboxes.load(&metrics).await
                    {
                        // The call itself will fail with the same error and report it.
                        debug!(app = %deployed.app, %failure, "a function could not be loaded ahead");
                    }
                });
                Answer::Started
            }
        }
    }
}

//! Telling later stages of a run that their call will come, and taking it in where they run.
//!
//! What is told when is decided by [`Prewarm`]. Here it is told: to the pool of this node, or to a gateway of the cluster where the stage will run, over
//! the connection that its call will take. The call goes to the gateway that was told. All of that is for the call's sake only: it never waits for an
//! answer and never fails for one, and when the run ends nothing more is told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdn_core::{ClusterId, Millis};
use fdn_scheduling::prewarm::{Answer, Prewarm, Settings, Stage, Tell};
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

/// Stages of one run that are told at a time.
const AT_ONCE: usize = 16;
/// A stage that answered within so long is warm, and need not be told.
const FRESH: Duration = Duration::from_secs(1);

/// What came of having told a stage: which one, the answer, and who gave it.
pub(super) type Told = (usize, Answer, Option<SocketAddr>);

/// What one run tells.
pub(super) struct Prewarming<'a> {
    gateway: &'a Gateway,
    staged: &'a Staged,
    decision: Prewarm,
    begun: Instant,
    /// By when everything that was due was told.
    looked: Millis,
    /// When each stage was called last.
    since: Vec<Instant>,
    /// Who was told of each.
    at: Vec<Option<SocketAddr>>,
    pub(super) telling: FuturesUnordered<LocalBoxFuture<'a, Told>>,
}

impl<'a> Prewarming<'a> {
    /// Of a run that begins now.
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
            telling: FuturesUnordered::new(),
        }
    }

    fn now(&self) -> Millis {
        Millis::from(self.begun.elapsed())
    }

    /// A stage is called. Returns the gateway that was told of it.
    pub(super) fn calls(&mut self, stage: usize) -> Option<SocketAddr> {
        self.decision.begun(stage, self.now());
        self.since[stage] = Instant::now();
        self.at[stage]
    }

    /// An attempt at a stage has succeeded.
    pub(super) fn done(&self, stage: usize) {
        let took = self.since[stage].elapsed();
        self.staged.stages[stage].stats.took(took);
    }

    /// Tells what is to be told now.
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
            for tell in due {
                self.tell(tell);
            }
        }
    }

    /// When something is to be told next, counted from the begin of the run.
    pub(super) fn next_due(&self) -> Option<Duration> {
        // By that time, so that what has become due since is not missed.
        let next = self.decision.next_due(self.looked)?;
        // Rather a little later than too early, when nothing would be due.
        Duration::try_from_secs_f64(next.get() / 1e3)
            .ok()
            .map(|due| due + Duration::from_millis(1))
    }

    /// A gateway has answered.
    pub(super) fn told(&mut self, (stage, answer, who): Told) {
        self.count("away", answer.word());
        self.at[stage] = who;
        self.decision.answered(stage, answer);
    }

    fn count(&self, place: &str, outcome: &str) {
        let told = &self.gateway.workflows.metrics.prewarms;
        told.with_label_values(&[place, outcome]).inc();
    }

    fn tell(&mut self, tell: Tell) {
        let (gateway, staged): (&'a Gateway, &'a Staged) = (self.gateway, self.staged);
        let workflows = &gateway.workflows;
        let Tell { stage, within } = tell;
        let serving = &staged.stages[stage];
        let cluster = where_of(workflows, staged, serving);
        let is_here = *cluster == workflows.cluster;
        if is_here && let Some(deployed) = &serving.deployed {
            let answer = gateway.announced(deployed, within);
            self.count("here", answer.word());
            return self.decision.answered(stage, answer);
        }
        let Some(client) = &workflows.client else {
            return self.decision.answered(stage, Answer::Unknown);
        };
        let Ok(permit) = workflows.telling.try_acquire() else {
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
        self.telling.push(Box::pin(async move {
            let (answer, who) = client.announce(cluster, &call, first).await;
            drop(permit);
            (stage, answer, who)
        }));
    }
}

/// Where a stage is called first.
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

/// Answers a gateway that tells of a call which will come.
pub(super) fn answer(gateway: &Gateway, request: &Request<Incoming>) -> Response<StageBody> {
    let answer = announced(gateway, request).unwrap_or(Answer::Unknown);
    let served = &gateway.workflows.metrics.prewarms_served;
    served.with_label_values(&[answer.word()]).inc();
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
    /// A call of a stage will come to this node in so long: what its function lacks is made ready.
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
                        // Its call finds out as well, and says so.
                        debug!(app = %deployed.app, %failure, "a function could not be loaded ahead");
                    }
                });
                Answer::Started
            }
        }
    }
}

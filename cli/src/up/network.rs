//! The embedded network as a whole: started part by part, stopped in the opposite order.

use std::fmt;
use std::sync::Arc;

use fdn_bus::{Limits, MemoryBroker};
use fdn_controller::Controller;
use fdn_core::Coded;
use fdn_dns::Dns;
use fdn_edge_agent::Agent;
use fdn_edge_agent::artifacts::Machine;
use futures::future::{join_all, try_join_all};
use url::Url;

use super::context::controller_url;
use super::engine::Engine;
use super::join;
use super::plan::Plan;
use super::settings::{self, Layout};
use crate::error::CliError;

/// Between the controller and itself: a queue this long means that it hangs.
const BROKER: Limits = Limits {
    queue: 20_000,
    dead_letters: 1_000,
};

/// Everything that runs.
pub struct Network {
    controller: Controller,
    dns: Dns,
    agents: Vec<Agent>,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network")
            .field("agents", &self.agents.len())
            .finish_non_exhaustive()
    }
}

impl Network {
    /// Starts all parts; all listen when this returns.
    ///
    /// # Errors
    /// When one cannot start; those that have are stopped.
    pub async fn start(
        plan: &Plan,
        layout: &Layout,
        engine: Option<&Engine>,
    ) -> Result<Self, CliError> {
        let broker = Arc::new(MemoryBroker::new(BROKER));
        let url = controller_url(plan)?;
        let controller = Controller::start(settings::controller(plan, layout)?, broker)
            .await
            .map_err(|e| failed("the controller", &e))?;
        match Self::start_rest(plan, layout, &url, engine, &controller).await {
            Ok((dns, agents)) => Ok(Self {
                controller,
                dns,
                agents,
            }),
            Err(error) => {
                controller.stop().await;
                Err(error)
            }
        }
    }

    async fn start_rest(
        plan: &Plan,
        layout: &Layout,
        url: &Url,
        engine: Option<&Engine>,
        controller: &Controller,
    ) -> Result<(Dns, Vec<Agent>), CliError> {
        let edge = controller.edge_address();
        let dns = settings::dns(plan, layout, edge);
        join::machines(controller, plan, layout, url, &dns).await?;
        let dns = Dns::start(dns, None).await.map_err(|e| failed("DNS", &e))?;
        // One engine for all nodes: they compile each component once.
        let machine = Machine::new(&fdn_edge_agent::Settings::default().runtime)
            .map_err(|e| failed("the nodes", &e))?;
        let starts = plan.nodes.iter().map(|node| {
            let mut settings = settings::agent(node, layout, url, edge);
            if let Some(engine) = engine {
                settings::add_engine(&mut settings, engine, layout, plan.nodes.len());
            }
            let machine = machine.clone();
            async move {
                Agent::start_with(settings, None, machine, None)
                    .await
                    .map_err(|e| failed("a node", &e))
            }
        });
        match try_join_all(starts).await {
            Ok(agents) => Ok((dns, agents)),
            Err(error) => {
                dns.stop().await;
                Err(error)
            }
        }
    }

    /// Stops all parts: gateways let running calls end, states are written.
    ///
    /// The controller before the nodes: it would take their end for an outage and begin to plan around it. Nor is its end an outage to them and to DNS, which
    /// hang up before.
    pub async fn stop(self) {
        self.agents.iter().for_each(Agent::disconnect);
        self.dns.stop().await;
        self.controller.stop().await;
        join_all(self.agents.into_iter().map(Agent::stop)).await;
    }
}

/// An error of a part, with its causes.
pub(super) fn failed(part: &'static str, error: &(dyn Coded + 'static)) -> CliError {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let text = source.to_string();
        // Some errors repeat their cause in their own text.
        if !message.ends_with(&text) {
            message.push_str(&format!(": {text}"));
        }
        cause = source.source();
    }
    CliError::Start {
        part,
        message,
        code: error.code(),
    }
}

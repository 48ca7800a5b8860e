//! The embedded network as a whole: its components are started one by one, and stopped in reverse order.

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

/// The limits of the embedded broker, which only the controller uses: a queue this long means that it hangs.
const BROKER: Limits = Limits {
    queue: 20_000,
    dead_letters: 1_000,
};

/// All running components.
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
    /// Starts all components; all listen when this returns.
    ///
    /// # Errors
    /// When one cannot start; those already started are stopped.
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
        // One shared engine for all nodes, so that each component is compiled once.
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
        let agents = try_join_all(starts).await?;
        // Last, since DNS knows the gateways of an earlier run: it would take them for dead while they start.
        match Dns::start(dns, None).await {
            Ok(dns) => Ok((dns, agents)),
            Err(error) => {
                join_all(agents.into_iter().map(Agent::stop)).await;
                Err(failed("DNS", &error))
            }
        }
    }

    /// Stops all components: gateways finish running calls, and states are written.
    ///
    /// The controller is stopped before the nodes: otherwise it would take their end for an outage and plan around it. Nodes and DNS
    /// disconnect before that, so that they do not take the controller's end for an outage.
    pub async fn stop(self) {
        self.agents.iter().for_each(Agent::disconnect);
        self.dns.stop().await;
        self.controller.stop().await;
        join_all(self.agents.into_iter().map(Agent::stop)).await;
    }
}

/// The error of a component, with its causes.
pub(super) fn failed(part: &'static str, error: &(dyn Coded + 'static)) -> CliError {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let text = source.to_string();
        // Some errors already contain their cause in their text.
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

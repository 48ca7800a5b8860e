//! What serves calls: the gateway, its workflows, and the listener for gateways of other clusters and controllers.

use std::sync::Arc;

use actix_http::header::HeaderValue;

use super::{Endpoints, Shared};
use crate::apps::Apps;
use crate::error::Error;
use crate::gateway::service::Gateway;
use crate::invocations::instances::Instances;
use crate::usage::CallAccess;
use crate::workflows::{AnswerSources, StageClient, StageServer, StageServerParts, Workflows};

impl Shared {
    pub(super) fn gateway(
        &self,
        apps: Apps,
        instances: Option<Instances>,
    ) -> Result<Arc<Gateway>, Error> {
        let header = |text: &str| {
            HeaderValue::from_str(text).map_err(|error| Error::Settings(error.to_string()))
        };
        Ok(Arc::new(Gateway {
            routes: Arc::clone(&self.routes),
            admission: Arc::clone(&self.admission),
            instances,
            apps,
            metrics: self.metrics.clone(),
            workflows: self.workflows()?,
            usage: self.usage.clone(),
            traces: self.traces.clone(),
            inline_body: self.settings.gateway.inline_body,
            node: header(self.settings.node.as_str())?,
            cluster: header(self.settings.cluster.as_str())?,
        }))
    }

    fn workflows(&self) -> Result<Workflows, Error> {
        let settings = &self.settings;
        let metrics = self.metrics.workflows.clone();
        let client = settings.workflows.enabled.then(|| {
            StageClient::new(
                &settings.workflows,
                &settings.tls,
                &self.token,
                Arc::clone(&self.fleet),
                metrics.connections.clone(),
            )
        });
        let client = client.transpose()?.map(Arc::new);
        Ok(Workflows::new(
            (settings.node.clone(), settings.cluster.clone()),
            Arc::clone(&self.run_changes),
            settings.workflows.clone(),
            client,
            metrics,
            (
                settings.forward.clone(),
                self.metrics.forward.clone(),
                Arc::clone(&self.nearness),
            ),
        ))
    }

    /// Starts the server for requests of controllers and gateways of other clusters, if there is a listener for it.
    pub(super) fn take_stage_calls(
        &self,
        gateway: &Arc<Gateway>,
        listener: Option<std::net::TcpListener>,
    ) -> Result<Option<StageServer>, Error> {
        let Some(listener) = listener else {
            return Ok(None);
        };
        let settings = &self.settings;
        let parts = StageServerParts {
            settings: settings.workflows.clone(),
            tls: settings.tls.clone(),
            token: self.token.clone(),
            fleet: Arc::clone(&self.fleet),
            gateway: Arc::clone(gateway),
            sources: AnswerSources {
                logs: Arc::clone(&self.hub),
                calls: CallAccess::new(self.usage.clone(), settings.node.clone()),
            },
        };
        StageServer::start(parts, listener, self.stop.clone()).map(Some)
    }

    /// How the stage server is reached by gateways and controllers.
    pub(super) fn endpoints(&self, server: Option<&StageServer>) -> Endpoints {
        let Some(server) = server else {
            return Endpoints::default();
        };
        let (settings, tls) = (&self.settings.workflows, &self.settings.tls);
        let address = settings.address(server.address(), &self.settings.gateway);
        Endpoints {
            stage_calls: settings.enabled.then_some(address),
            controller_port: settings.tls(tls).map(|_| address.port()),
        }
    }
}

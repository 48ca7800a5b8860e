//! Requests to the API server: limited in number and time, retried where that may help.
//!
//! The client is assembled here rather than by `kube` itself, whose own stack retries silently, and logs every error
//! of an unreachable API server as an error of this process.

use std::time::Duration;

use futures::{AsyncBufRead, Stream};
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{
    Api, DeleteParams, ListParams, LogParams, PostParams, Preconditions, WatchEvent, WatchParams,
};
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::sync::Semaphore;
use tower::{BoxError, ServiceBuilder};

use super::failure::Fault;
use super::options::{Access, KubernetesOptions};
use crate::error::RuntimeError;
use crate::link::chain;
use crate::metrics::Metrics;
use crate::runtime::Kind;

/// The pauses between two attempts of a request.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The most pods in one page of a list. A node runs some hundred.
const PAGE: u32 = 500;

/// The requests to the API server that this owner needs.
pub(super) struct Server {
    pods: Api<Pod>,
    secrets: Api<Secret>,
    /// Matches this owner's pods and nothing else.
    selector: String,
    requests: Semaphore,
    /// Permits for followed outputs.
    pub(super) logs: Semaphore,
    attempts: u32,
    timeout: Duration,
    watch: Duration,
    metrics: Metrics,
}

impl Server {
    pub(super) async fn new(
        options: &KubernetesOptions,
        selector: String,
    ) -> Result<Self, RuntimeError> {
        let client = client(options).await?;
        Ok(Self {
            pods: Api::namespaced(client.clone(), &options.namespace),
            secrets: Api::namespaced(client, &options.namespace),
            selector,
            requests: Semaphore::new(options.requests.max(1)),
            logs: Semaphore::new(options.logs.max(1)),
            attempts: options.attempts.max(1),
            timeout: options.engine_timeout,
            watch: options.watch,
            metrics: options.metrics.clone(),
        })
    }

    /// Sends a request until it succeeds, cannot succeed, or was attempted often enough.
    async fn request<T, F>(
        &self,
        operation: &'static str,
        request: impl Fn() -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = kube::Result<T>>,
    {
        let mut pause = FIRST_PAUSE;
        let mut attempt = 1;
        loop {
            let fault = match self.request_once(operation, request()).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            if !fault.passes() || attempt >= self.attempts {
                return Err(fault);
            }
            attempt += 1;
            let asked = fault.retry_after().unwrap_or_default();
            tokio::time::sleep(jittered(pause.max(asked).min(LONGEST_PAUSE))).await;
            pause *= 2;
        }
    }

    async fn request_once<T>(
        &self,
        operation: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Fault> {
        let _permit = self.requests.acquire().await;
        let answer = tokio::time::timeout(self.timeout, request).await;
        let answer = match answer {
            Ok(answer) => answer.map_err(Fault::from),
            Err(_) => Err(Fault::Away(format!("no answer within {:?}", self.timeout))),
        };
        let outcome = answer.as_ref().map_or_else(Fault::label, |_| "ok");
        self.metrics.request_finished(operation, outcome);
        answer
    }

    /// Checks that the API server answers, and lets this process list pods.
    pub(super) async fn check(&self) -> Result<(), Fault> {
        let params = self.listing().limit(1);
        let request = self.request_once("check", self.pods.list(&params));
        request.await.map(drop)
    }

    fn listing(&self) -> ListParams {
        ListParams::default().labels(&self.selector)
    }

    /// All pods of this owner, and the resource version of the list.
    pub(super) async fn list(&self) -> Result<(Vec<Pod>, String), Fault> {
        let mut params = self.listing().limit(PAGE);
        let mut pods = Vec::new();
        loop {
            let page = self.request("list", || self.pods.list(&params)).await;
            let page = match page {
                Ok(page) => page,
                // The API server forgot the rest of the list meanwhile: start again, without pages.
                Err(fault) if fault.is_gone() && params.continue_token.is_some() => {
                    pods.clear();
                    params = self.listing();
                    continue;
                }
                Err(fault) => return Err(fault),
            };
            pods.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = self.listing().limit(PAGE).continue_token(&token),
                None => {
                    let version = page.metadata.resource_version.unwrap_or_default();
                    return Ok((pods, version));
                }
            }
        }
    }

    /// A stream of changes of this owner's pods after a version. The caller limits how long it waits for the next one.
    pub(super) async fn watch(
        &self,
        version: &str,
    ) -> Result<impl Stream<Item = kube::Result<WatchEvent<Pod>>> + use<>, Fault> {
        let seconds = u32::try_from(self.watch.as_secs().max(1)).unwrap_or(u32::MAX);
        let params = WatchParams::default()
            .labels(&self.selector)
            .timeout(seconds);
        self.request_once("watch", self.pods.watch(&params, version))
            .await
    }

    pub(super) async fn create(&self, pod: &Pod) -> Result<Pod, Fault> {
        let params = PostParams::default();
        self.request("create", || self.pods.create(&params, pod))
            .await
    }

    pub(super) async fn create_secret(&self, secret: &Secret) -> Result<(), Fault> {
        let params = PostParams::default();
        let made = self.request("create_secret", || self.secrets.create(&params, secret));
        match made.await {
            Ok(_) => Ok(()),
            // An earlier attempt succeeded: its owner's id is part of it, so nobody else can have made it.
            Err(fault) if fault.is_taken() => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// The pod of this name; `None` if there is none.
    pub(super) async fn get(&self, name: &str) -> Result<Option<Pod>, Fault> {
        self.request("get", || self.pods.get_opt(name)).await
    }

    /// Like [`Self::get`], but with a single attempt: for use after other requests failed.
    pub(super) async fn get_once(&self, name: &str) -> Result<Option<Pod>, Fault> {
        self.request_once("get", self.pods.get_opt(name)).await
    }

    /// Requests the deletion of exactly this pod; a `grace` of 0 means not to wait for its node.
    ///
    /// Succeeds as well if the pod is gone or another one has its name now.
    pub(super) async fn delete(&self, name: &str, uid: &str, grace: u32) -> Result<(), Fault> {
        let preconditions = Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        };
        let params = DeleteParams::default()
            .grace_period(grace)
            .preconditions(preconditions);
        let asked = self.request("delete", || self.pods.delete(name, &params));
        match asked.await {
            Ok(_) => Ok(()),
            Err(fault) if fault.is_absent() || fault.is_another() => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// The output of a pod's container, as a stream.
    pub(super) async fn output(
        &self,
        name: &str,
        params: &LogParams,
    ) -> Result<impl AsyncBufRead + use<>, Fault> {
        self.request_once("log", self.pods.log_stream(name, params))
            .await
    }
}

/// Between half and all of a pause, so that many agents do not return in one wave.
fn jittered(pause: Duration) -> Duration {
    let random = uuid::Uuid::new_v4().as_bytes()[0];
    pause / 2 + pause.mul_f64(f64::from(random) / 512.0)
}

fn unusable(reason: String) -> RuntimeError {
    RuntimeError::Unusable {
        kind: Kind::Kubernetes,
        reason,
    }
}

async fn client(options: &KubernetesOptions) -> Result<Client, RuntimeError> {
    let config = match &options.access {
        Access::InCluster => Config::incluster().map_err(|e| {
            unusable(format!(
                "this is no pod with a service account: {}",
                chain(&e)
            ))
        })?,
        Access::Kubeconfig { path, context } => {
            let broken = |e: &dyn std::error::Error| {
                unusable(format!("the kubeconfig {}: {}", path.display(), chain(e)))
            };
            let file = Kubeconfig::read_from(path).map_err(|e| broken(&e))?;
            let chosen = KubeConfigOptions {
                context: context.clone(),
                ..KubeConfigOptions::default()
            };
            let config = Config::from_custom_kubeconfig(file, &chosen).await;
            config.map_err(|e| broken(&e))?
        }
    };
    stack(&config, options.engine_timeout)
        .map_err(|e| unusable(format!("the API server's access: {}", chain(&e))))
}

fn stack(config: &Config, timeout: Duration) -> kube::Result<Client> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(timeout));
    connector.set_keepalive(Some(Duration::from_secs(30)));
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(legacy::Client::builder(TokioExecutor::new()).build(connector));
    Ok(Client::new(service, config.default_namespace.clone()))
}

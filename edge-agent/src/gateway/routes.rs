//! The routing table: maps host names to apps. It is replaced as a whole, so that requests read it without a lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use fdn_core::message::{AppSpec, FunctionSpec};
use fdn_core::usage::PlanUse;
use fdn_core::workflow::Stage;
use fdn_core::{AppName, ClusterId, HostName, Revision};
use http::Method;
use tokio::sync::watch;

use super::split::Split;
use crate::apps::{Deployed, Staged};
use crate::invocations::retry::is_idempotent;
use crate::metrics::AppMetrics;
use crate::policy::Guard;

/// The target of calls for one host name.
#[derive(Clone)]
pub struct Route {
    /// The app.
    pub app: AppName,
    /// The revision that is served, or is being made ready.
    pub revision: Revision,
    /// The app's counters.
    pub metrics: Arc<AppMetrics>,
    /// The app's access policy, if its owner has set one.
    pub guard: Option<Arc<Guard>>,
    /// The versions that calls are split over, if there are several.
    pub split: Option<Arc<Split>>,
    /// The version that serves calls, or why there is none.
    pub target: Target,
    /// The stages, if the app is a workflow that is ready.
    pub staged: Option<Arc<Staged>>,
    /// The terms of its calls, known even while it is not ready.
    pub terms: Arc<CallTerms>,
}

/// The terms of an app's calls, wherever they are served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallTerms {
    /// The timeout of a call.
    pub timeout: Duration,
    /// Whether the function is declared idempotent; for a workflow, its entry stage.
    pub idempotent: bool,
    /// Whether all stages after the entry are declared idempotent: they are called by POST, whatever the client's method.
    pub rest_idempotent: bool,
    /// The clusters that plans of the app use.
    pub planned: Vec<ClusterId>,
    /// How the plans use this node's cluster.
    pub plan_use: PlanUse,
}

impl CallTerms {
    /// The terms of an app with this desired state, on a node of this cluster.
    #[must_use]
    pub fn of(spec: &AppSpec, cluster: &ClusterId) -> Self {
        let entry = spec.workflow.entry();
        let manifest_of = |stage: &Stage| {
            let mut functions = spec.functions.iter();
            let is = |f: &&FunctionSpec| f.function == stage.function && f.version == stage.version;
            functions.find(is).map(|f| &f.manifest)
        };
        let manifest = manifest_of(entry);
        let mut rest = spec.workflow.stages().iter();
        let own = manifest.map_or(Duration::ZERO, |m| m.timeout.as_duration());
        Self {
            timeout: spec
                .run
                .as_ref()
                .map_or(own, |run| run.timeout.as_duration()),
            idempotent: manifest.is_some_and(|manifest| manifest.idempotent),
            rest_idempotent: rest.all(|stage| {
                stage.name == entry.name || manifest_of(stage).is_some_and(|m| m.idempotent)
            }),
            planned: spec.primary.iter().cloned().collect(),
            plan_use: PlanUse::of(cluster, &spec.primary, &spec.leaving),
        }
    }
}

impl CallTerms {
    /// Whether a call that may have run can safely be run again elsewhere.
    #[must_use]
    pub fn may_repeat(&self, method: &Method) -> bool {
        self.rest_idempotent && is_idempotent(method, self.idempotent)
    }
}

/// What serves the calls of an app.
#[derive(Clone)]
pub enum Target {
    /// This version is ready.
    Ready(Arc<Deployed>),
    /// Nothing yet: the app is being made ready, so calls are held.
    Preparing,
    /// Nothing: the app could not be made ready; this is retried later.
    Failed,
}

/// An immutable snapshot of the routes.
#[derive(Default)]
pub struct RouteTable {
    by_host: HashMap<String, Arc<Route>>,
}

impl FromIterator<(HostName, Route)> for RouteTable {
    fn from_iter<I: IntoIterator<Item = (HostName, Route)>>(routes: I) -> Self {
        let by_host = routes
            .into_iter()
            .map(|(host, route)| (String::from(host), Arc::new(route)))
            .collect();
        Self { by_host }
    }
}

impl RouteTable {
    /// Looks up the route for a host as a client sent it: in any case, with or without port and trailing dot.
    #[must_use]
    pub fn find(&self, host: &str) -> Option<&Arc<Route>> {
        // Nearly all clients send the name in its normal form, so it is tried before normalizing.
        let bare = host.split_once(':').map_or(host, |(bare, _)| bare);
        self.by_host.get(bare).or_else(|| {
            let name = HostName::parse_lenient(host).ok()?;
            self.by_host.get(name.as_str())
        })
    }
}

/// The current routing table, with notification of changes.
pub struct Routes {
    table: ArcSwap<RouteTable>,
    changed: watch::Sender<()>,
}

impl Default for Routes {
    fn default() -> Self {
        Self {
            table: ArcSwap::default(),
            changed: watch::Sender::new(()),
        }
    }
}

impl Routes {
    /// Replaces the table and notifies subscribers.
    pub fn publish(&self, table: RouteTable) {
        self.table.store(Arc::new(table));
        self.changed.send_replace(());
    }

    /// Looks up the route of a host, like [`RouteTable::find`].
    #[must_use]
    pub fn find(&self, host: &str) -> Option<Arc<Route>> {
        self.table.load().find(host).cloned()
    }

    /// Calls `each` for every deployed version that is ready, in no particular order, including the stages of workflows; an app with several host
    /// names is passed once for each name.
    pub fn each_ready(&self, mut each: impl FnMut(&Deployed)) {
        let table = self.table.load();
        table
            .by_host
            .values()
            .for_each(|route| match (&route.staged, &route.target) {
                (Some(staged), _) => {
                    let stages = staged.stages.iter();
                    let deployed = stages.filter_map(|stage| stage.deployed.as_deref());
                    deployed.for_each(&mut each);
                }
                (None, Target::Ready(deployed)) => each(deployed),
                (None, Target::Preparing | Target::Failed) => {}
            });
    }

    /// Subscribes to changes of the table from now on.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workflow_runs_again_only_if_each_of_its_stages_may() {
        use fdn_core::manifest::Manifest;
        use fdn_core::workflow::{Declaration, FunctionLookup};
        use fdn_core::{Digest, VersionNumber};

        let text = "stages:\n  - { name: in, function: read }\n  - { name: out, function: charge, needs: [in] }\n";
        let declared = Declaration::parse(text).expect("a declaration");
        let definition = declared.resolve(|_, _| FunctionLookup::Version(VersionNumber::FIRST));
        let workflow = definition.expect("a workflow").workflow;
        let spec = |read: bool, charge: bool| AppSpec {
            holders: fdn_core::message::Holders::EVERYWHERE,
            gateway: Box::default(),
            host: "shop.fn.test".parse().expect("host"),
            functions: [("read", read), ("charge", charge)]
                .map(|(name, idempotent)| FunctionSpec {
                    function: name.parse().expect("function"),
                    version: VersionNumber::FIRST,
                    digest: Digest::of(name.as_bytes()),
                    size: 1,
                    manifest: Manifest {
                        idempotent,
                        ..Manifest::default()
                    },
                    secrets: std::collections::BTreeMap::new(),
                    forms: Vec::new(),
                })
                .into(),
            workflow: workflow.clone(),
            primary: std::collections::BTreeSet::new(),
            leaving: std::collections::BTreeSet::new(),
            run: None,
            forms: Default::default(),
            tenant: None,
        };
        let eu: ClusterId = "eu-west".parse().expect("cluster");
        let may =
            |read, charge, method| CallTerms::of(&spec(read, charge), &eu).may_repeat(&method);
        assert!(may(false, true, Method::GET) && may(true, true, Method::POST));
        assert!(!may(false, true, Method::POST));
        assert!(!may(true, false, Method::GET), "it would charge twice");
    }
    use crate::metrics::Metrics;

    fn table() -> RouteTable {
        let metrics = Metrics::new(&"n-1".parse().expect("node")).expect("metrics");
        let app: AppName = "hello".parse().expect("app");
        let route = Route {
            revision: Revision(1),
            metrics: metrics.app(&app),
            app,
            guard: None,
            split: None,
            target: Target::Preparing,
            staged: None,
            terms: Arc::default(),
        };
        [("hello.fn.test".parse().expect("host"), route)]
            .into_iter()
            .collect()
    }

    #[test]
    fn every_form_of_the_name_is_found_and_no_other() {
        let table = table();
        for host in [
            "hello.fn.test",
            "hello.fn.test:8080",
            "HELLO.fn.test",
            "Hello.Fn.Test.:80",
            "hello.fn.test.",
        ] {
            assert!(table.find(host).is_some(), "{host}");
        }
        for host in [
            "",
            ":80",
            "fn.test",
            "xhello.fn.test",
            "hello.fn.test.evil",
            "[::1]:80",
            "hello.fn.test:x",
        ] {
            let found = table.find(host).is_some();
            // A port that is not a number does not get this far: the HTTP parser rejects it.
            assert_eq!(found, host.ends_with(":x"), "{host}");
        }
    }

    #[tokio::test]
    async fn a_change_rings() {
        let routes = Routes::default();
        let mut changes = routes.changes();
        assert!(routes.find("hello.fn.test").is_none());
        routes.publish(table());
        changes.changed().await.expect("rings");
        assert!(routes.find("hello.fn.test").is_some());
    }
}

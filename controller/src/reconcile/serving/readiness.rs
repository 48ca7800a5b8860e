//! The time until a cluster can run an app.
//!
//! **Problem.** A job is sent once, to one cluster, and waits there. A cluster that has to fetch and compile its function first, or to
//! pull an image, completes it later than one that is ready, however fast it is; and one that never received the app does not run it at
//! all.
//!
//! **Method.** Where the app is ready the time is that of a cold start, and zero if an instance is running. Where it is being prepared,
//! the remaining steps are added: fetching the artifact, and compiling it or pulling the image, unless nodes report them as done.
//! Placement treats the time like the client's distance (formula 3: nothing starts before it): a slot that is busy for longer hides it,
//! and a cluster that is ready but briefly full still wins over an idle one that is ready much later.
//!
//! **Reading.** How far a node is within a step is not known, so a remaining step counts in full. A cluster whose nodes have not received
//! an app that others have received does not hold it and is excluded, as is one that has no runtime for the function, or where all nodes
//! failed to make it ready. As long as no node has received it, clusters cannot be distinguished, and the time is zero.

use fdn_core::image::ImageReference;
use fdn_core::manifest::RuntimeKind;
use fdn_core::serving::ServingState;
use fdn_core::{AppName, Millis};
use fdn_scheduling::place::Exclusion;

use super::{Phases, form};

/// The expected time to pull an image from a registry, of which nothing but the name is known here.
const PULL: Millis = Millis::new(10_000.0);

/// The time to bring one form of a function to a node that has nothing of it, by step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProvisioningCost {
    kind: RuntimeKind,
    fetch: Millis,
    prepare: Millis,
    cold_start: Millis,
}

impl ProvisioningCost {
    /// For an artifact of `bytes` over a link of `mb_per_s` (10^6 bytes per second). `compile` is the time that compiling took at the
    /// upload; `cold_start` is the start time of an instance.
    #[must_use]
    pub fn new(
        kind: RuntimeKind,
        bytes: u64,
        mb_per_s: f64,
        compile: Millis,
        cold_start: Millis,
    ) -> Self {
        let is_name = kind == RuntimeKind::Docker && bytes <= ImageReference::MAX as u64;
        Self {
            kind,
            fetch: Millis::new(bytes as f64 / (mb_per_s * 1e3)).max(Millis::ZERO),
            prepare: if is_name {
                PULL
            } else {
                compile.max(Millis::ZERO)
            },
            cold_start: cold_start.max(Millis::ZERO),
        }
    }

    /// The start time of an instance.
    #[must_use]
    pub const fn cold_start(&self) -> Millis {
        self.cold_start
    }
}

impl Phases {
    /// The time until a cluster can run a call of an app, in the form that is available first; zero if it has no node that takes work.
    ///
    /// # Errors
    /// What excludes the app from the cluster.
    pub fn readiness(
        &self,
        app: &AppName,
        forms: &[ProvisioningCost],
        at: usize,
    ) -> Result<Millis, Exclusion> {
        if self.nodes.get(at).is_none_or(|nodes| *nodes == 0) {
            return Ok(Millis::ZERO);
        }
        let runs = |of: &&ProvisioningCost| self.forms[at][form(of.kind)];
        let by_cluster = self.apps.get(app);
        let progress = by_cluster.and_then(|by_cluster| by_cluster.get(&at));
        let served = match (progress, by_cluster) {
            (None, Some(others)) if !others.is_empty() => return Err(Exclusion::NotReady),
            _ => self.served(Some(app), at),
        };
        if served == ServingState::Failed {
            return Err(Exclusion::CannotServe);
        }
        let time = |of: &ProvisioningCost| {
            if by_cluster.is_none() {
                return Millis::ZERO;
            }
            let is_fetched = progress.is_some_and(|progress| progress.is_fetched);
            let is_up = progress.is_some_and(|progress| progress.instances > 0);
            match served {
                ServingState::Ready if is_up => Millis::ZERO,
                ServingState::Ready => of.cold_start,
                _ if is_fetched => of.prepare + of.cold_start,
                _ => of.fetch + of.prepare + of.cold_start,
            }
        };
        let first = forms.iter().filter(runs).map(time).min();
        match (first, forms.first()) {
            (None, Some(of)) => Err(Exclusion::NoRuntime { kind: of.kind }),
            // Nothing is known of the function.
            (first, _) => Ok(first.unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::ClusterId;
    use fdn_core::message::{AppObserved, AppPhase, NodeStatus};
    use fdn_core::serving::NodeRuntime;

    use super::*;
    use crate::fixture;

    fn name() -> AppName {
        "hello".parse().expect("app")
    }

    fn node(cluster: &str, phase: Option<AppPhase>, instances: u32) -> NodeStatus {
        let observed = phase.map(|phase| AppObserved {
            phase,
            instances,
            ..fixture::observed("hello")
        });
        NodeStatus {
            runtimes: Some([NodeRuntime::Wasm].into()),
            apps: observed.into_iter().collect(),
            ..fixture::status(&format!("{cluster}-{instances}"), cluster)
        }
    }

    fn phases(nodes: &[NodeStatus]) -> Phases {
        let ids: Vec<ClusterId> = ["a", "b", "c"]
            .map(|id| id.parse().expect("cluster"))
            .to_vec();
        let clusters: Vec<&ClusterId> = ids.iter().collect();
        let alive: Vec<&NodeStatus> = nodes.iter().collect();
        Phases::new(&clusters, &alive)
    }

    /// 10 MB over 100 MB/s, compiled in 40 ms, started in 5.
    fn component() -> ProvisioningCost {
        let (compile, cold) = (Millis::new(40.0), Millis::new(5.0));
        ProvisioningCost::new(RuntimeKind::Wasm, 10_000_000, 100.0, compile, cold)
    }

    fn failed() -> AppPhase {
        AppPhase::Failed {
            reason: "no".to_owned(),
        }
    }

    #[test]
    fn what_is_left_of_the_way_counts() {
        let of = |nodes: &[NodeStatus]| phases(nodes).readiness(&name(), &[component()], 0);
        let ms = |ms: f64| Ok(Millis::new(ms));
        let (ready, fetching, compiling) = (
            || Some(AppPhase::Ready),
            || Some(AppPhase::Fetching),
            || Some(AppPhase::Compiling),
        );
        assert_eq!(of(&[node("a", ready(), 1)]), ms(0.0));
        assert_eq!(of(&[node("a", ready(), 0)]), ms(5.0));
        assert_eq!(of(&[node("a", compiling(), 0)]), ms(45.0));
        assert_eq!(of(&[node("a", fetching(), 0)]), ms(145.0));
        // A cluster is as far as the farthest of its nodes.
        let both = [node("a", fetching(), 0), node("a", ready(), 2)];
        assert_eq!(of(&both), ms(0.0));
        // Another one may do what one could not.
        let one = [node("a", Some(failed()), 0), node("a", fetching(), 3)];
        assert_eq!(of(&one), ms(145.0));
        assert_eq!(
            of(&[node("a", Some(failed()), 0)]),
            Err(Exclusion::CannotServe)
        );
    }

    #[test]
    fn who_was_not_told_is_closed_once_somebody_was() {
        let of = |nodes: &[NodeStatus], at| phases(nodes).readiness(&name(), &[component()], at);
        let nobody = [node("a", None, 0), node("b", None, 0)];
        assert_eq!(of(&nobody, 0), Ok(Millis::ZERO));
        assert_eq!(of(&nobody, 0), of(&nobody, 1), "all are alike");
        let one = [node("a", None, 0), node("b", Some(AppPhase::Fetching), 0)];
        assert_eq!(of(&one, 0), Err(Exclusion::NotReady));
        assert_eq!(of(&one, 1), Ok(Millis::new(145.0)));
        assert_eq!(of(&one, 2), Ok(Millis::ZERO), "it has no nodes");
        assert_eq!(of(&one, 9), Ok(Millis::ZERO));
    }

    #[test]
    fn of_several_forms_the_one_that_is_there_first_counts_of_those_that_run() {
        let none = Millis::ZERO;
        let image = ProvisioningCost::new(RuntimeKind::Docker, 200, 100.0, none, none);
        let nodes = [NodeStatus {
            runtimes: Some([NodeRuntime::Docker].into()),
            ..node("a", Some(AppPhase::Fetching), 0)
        }];
        let of = |nodes: &[NodeStatus], forms: &[ProvisioningCost]| {
            phases(nodes).readiness(&name(), forms, 0)
        };
        let pulled = of(&nodes, &[component(), image]).expect("it runs there");
        assert!(pulled >= PULL, "{pulled}");
        let kind = RuntimeKind::Wasm;
        assert_eq!(
            of(&nodes, &[component()]),
            Err(Exclusion::NoRuntime { kind })
        );
        let any = [NodeStatus {
            runtimes: None,
            ..node("a", Some(AppPhase::Fetching), 0)
        }];
        assert_eq!(of(&any, &[image, component()]), Ok(Millis::new(145.0)));
        assert_eq!(of(&any, &[]), Ok(Millis::ZERO), "nothing is known of it");
        // An archive is fetched as it is.
        let archive = ProvisioningCost::new(RuntimeKind::Docker, 1_000_000, 100.0, none, none);
        assert_eq!(of(&nodes, &[archive]), Ok(Millis::new(10.0)));
    }
}

//! A workflow of stages as a DAG of tasks.
//!
//! Task `i` of the DAG is stage `i` of the workflow. The cost of a stage is not part of the workflow: it is the measured profile of the
//! function version, which the caller provides for each stage.

use std::collections::BTreeMap;

use fdn_core::workflow::{Stage, Workflow};
use fdn_core::{Millis, Resources, StageName};

use crate::dag::{Dag, DagBuilder, DagError, Holding, TaskIndex, Transfer};

/// The run-time profile of a stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// The typical run time at speed 1.
    pub work: Millis,
    /// The resources of an instance.
    pub demand: Resources,
    /// What holds these resources.
    pub holding: Holding,
    /// The ratio of the mean run time to `work`, the typical one.
    pub mean_ratio: f64,
}

/// The DAG of a workflow, with the `profile` of each stage.
///
/// # Errors
/// When a profile's work is negative or not finite.
pub fn dag(
    workflow: &Workflow,
    mut profile: impl FnMut(&Stage) -> Profile,
) -> Result<Dag, DagError> {
    let mut builder = DagBuilder::new();
    let mut index: BTreeMap<&StageName, TaskIndex> = BTreeMap::new();
    for stage in workflow.stages() {
        let Profile {
            work,
            demand,
            holding,
            mean_ratio,
        } = profile(stage);
        let task = builder.task(stage.name.as_str(), work, demand);
        builder.holding(task, holding).mean_ratio(task, mean_ratio);
        index.insert(&stage.name, task);
    }
    for edge in workflow.edges() {
        builder.edge(
            index[&edge.from],
            index[&edge.to],
            Transfer::Data(edge.size),
        );
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use fdn_core::workflow::Edge;
    use fdn_core::{ByteSize, MebiBytes, MilliCpu, VersionNumber};

    use super::*;

    #[test]
    fn stages_keep_their_place_and_edges_their_size() {
        let stage = |name: &str| Stage {
            name: name.parse().expect("name"),
            function: "f".parse().expect("function"),
            version: VersionNumber::FIRST,
        };
        let edge = |from: &str, to: &str, size| Edge {
            from: from.parse().expect("name"),
            to: to.parse().expect("name"),
            size: ByteSize::from_bytes(size),
        };
        let workflow = Workflow::new(
            vec![stage("join"), stage("split"), stage("left")],
            vec![edge("split", "left", 10), edge("left", "join", 20)],
        )
        .expect("a workflow");
        let dag = dag(&workflow, |stage| Profile {
            work: Millis::new(if stage.name.as_str() == "left" {
                7.0
            } else {
                1.0
            }),
            demand: Resources::new(MilliCpu(100), MebiBytes(64)),
            holding: Holding::Instances(NonZeroU32::MIN),
            mean_ratio: 2.0,
        })
        .expect("a DAG");
        assert_eq!(dag.task(TaskIndex::new(2)).mean(), Millis::new(14.0));
        assert_eq!(dag.entry(), TaskIndex::new(1));
        assert_eq!(dag.task(TaskIndex::new(2)).work, Millis::new(7.0));
        assert_eq!(dag.task(TaskIndex::new(2)).name, "left");
        assert_eq!(
            dag.task(TaskIndex::new(2)).holding,
            Holding::Instances(NonZeroU32::MIN)
        );
        let parents: Vec<_> = dag.parents(TaskIndex::new(0)).collect();
        assert_eq!(
            parents,
            [(TaskIndex::new(2), Transfer::Data(ByteSize::from_bytes(20)))]
        );
    }

    #[test]
    fn a_plain_function_is_one_task() {
        let workflow = Workflow::single("hello".parse().expect("function"), VersionNumber::FIRST);
        let dag = dag(&workflow, |_| Profile {
            work: Millis::new(2.0),
            demand: Resources::default(),
            holding: Holding::Calls,
            mean_ratio: 1.0,
        })
        .expect("a DAG");
        assert_eq!((dag.len(), dag.exits()), (1, [dag.entry()].as_slice()));
    }
}

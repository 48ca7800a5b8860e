//! Workflows: a DAG of stages, each running one function version; a plain function is a workflow of one stage.
//!
//! Developers write a [`Declaration`]; what is deployed is a [`Definition`]: the DAG together with the rules for running it.
//!
//! A [`Workflow`] can only be created by its constructor, which refuses what cannot run: no stage, a duplicate stage, an edge to an
//! unknown stage, a cycle, several entries. Stages keep the given order, edges are sorted; nothing depends on a hash.

mod declare;
pub mod parts;
mod rules;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::error::{Coded, ErrorCode};
use crate::id::{FunctionName, StageName, VersionNumber};
use crate::unit::ByteSize;

pub use declare::{
    BACKOFF_MAX, Declaration, DeclarationError, DeclaredStage, Dependency, EDGES_MAX,
    FunctionLookup, RETRIES_MAX, Retries, SIZE_MAX, SIZE_UNKNOWN, TEXT_MAX, TIMEOUT_MAX,
    VersionSelector,
};
pub use rules::{BACKOFF, Condition, Definition, RunSpec, StageRules, TIMEOUT};

/// The most stages of one workflow.
pub const STAGES_MAX: usize = 256;

/// A stage of a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// The stage's name, unique in the workflow.
    pub name: StageName,
    /// The function that the stage runs.
    pub function: FunctionName,
    /// The version of that function.
    pub version: VersionNumber,
}

/// The data flow from one stage to another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// The stage that produces the data.
    pub from: StageName,
    /// The stage that takes the data.
    pub to: StageName,
    /// The expected size of the data.
    pub size: ByteSize,
}

/// A valid DAG of stages with one entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawWorkflow", into = "RawWorkflow")]
pub struct Workflow {
    stages: Vec<Stage>,
    edges: Vec<Edge>,
    entry: usize,
}

/// The stages of an app and the data flow between them: a directed acyclic graph with one entry. A plain function has one stage.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RawWorkflow {
    /// The stages, each with a unique name.
    stages: Vec<Stage>,
    /// The data flow between the stages.
    #[serde(default)]
    edges: Vec<Edge>,
}

impl PartialSchema for Workflow {
    fn schema() -> RefOr<Schema> {
        RawWorkflow::schema()
    }
}

impl ToSchema for Workflow {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        RawWorkflow::schemas(schemas);
    }
}

/// Stages and edges do not form a workflow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkflowError {
    /// There is no stage.
    #[error("the workflow has no stage; give it at least one")]
    Empty,
    /// There are too many stages.
    #[error("the workflow has {0} stages, {STAGES_MAX} are allowed; split it")]
    TooManyStages(usize),
    /// Two stages have the same name.
    #[error("stage {0} stands twice; give each stage its own name")]
    Duplicate(StageName),
    /// An edge refers to an unknown stage.
    #[error("an edge names stage {0}, which does not exist")]
    UnknownStage(StageName),
    /// Stages wait for each other.
    #[error("stage {0} is part of a cycle; a stage cannot wait for its own output")]
    Cycle(StageName),
    /// More than one stage has no parent.
    #[error("stages {0} and {1} are both entries; a workflow has exactly one")]
    SeveralEntries(StageName, StageName),
}

impl Coded for WorkflowError {
    fn code(&self) -> ErrorCode {
        ErrorCode::WorkflowInvalid
    }
}

impl Workflow {
    /// Validates stages and edges.
    ///
    /// # Errors
    /// The first defect, naming the stage.
    pub fn new(stages: Vec<Stage>, mut edges: Vec<Edge>) -> Result<Self, WorkflowError> {
        if stages.is_empty() {
            return Err(WorkflowError::Empty);
        }
        if stages.len() > STAGES_MAX {
            return Err(WorkflowError::TooManyStages(stages.len()));
        }
        let mut index = BTreeMap::new();
        for (i, stage) in stages.iter().enumerate() {
            if index.insert(&stage.name, i).is_some() {
                return Err(WorkflowError::Duplicate(stage.name.clone()));
            }
        }
        edges.sort();
        edges.dedup_by(|a, b| a.from == b.from && a.to == b.to);
        let mut parents = vec![BTreeSet::new(); stages.len()];
        for edge in &edges {
            let find = |name: &StageName| {
                index
                    .get(name)
                    .copied()
                    .ok_or_else(|| WorkflowError::UnknownStage(name.clone()))
            };
            let (from, to) = (find(&edge.from)?, find(&edge.to)?);
            parents[to].insert(from);
        }
        if let Some(i) = first_in_cycle(&parents) {
            return Err(WorkflowError::Cycle(stages[i].name.clone()));
        }
        let mut entries = (0..stages.len()).filter(|&i| parents[i].is_empty());
        let entry = entries
            .next()
            .expect("a finite graph without cycles has a stage without parents");
        if let Some(second) = entries.next() {
            return Err(WorkflowError::SeveralEntries(
                stages[entry].name.clone(),
                stages[second].name.clone(),
            ));
        }
        drop(index);
        Ok(Self {
            stages,
            edges,
            entry,
        })
    }

    /// The workflow of a plain function: one stage with the function's name.
    #[must_use]
    pub fn single(function: FunctionName, version: VersionNumber) -> Self {
        let name = function
            .as_str()
            .parse()
            .expect("function and stage names follow one rule");
        Self {
            stages: vec![Stage {
                name,
                function,
                version,
            }],
            edges: Vec::new(),
            entry: 0,
        }
    }

    /// The stages, in the order given.
    #[must_use]
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// The edges, sorted.
    #[must_use]
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Sets the measured sizes of outputs, by the stage that produces them.
    #[must_use]
    pub fn with_sizes(mut self, measured: impl Fn(&StageName) -> Option<ByteSize>) -> Self {
        for edge in &mut self.edges {
            if let Some(size) = measured(&edge.from) {
                edge.size = size;
            }
        }
        self
    }

    /// The stage that receives the request.
    #[must_use]
    pub fn entry(&self) -> &Stage {
        &self.stages[self.entry]
    }
}

impl TryFrom<RawWorkflow> for Workflow {
    type Error = WorkflowError;

    fn try_from(raw: RawWorkflow) -> Result<Self, WorkflowError> {
        Self::new(raw.stages, raw.edges)
    }
}

impl From<Workflow> for RawWorkflow {
    fn from(value: Workflow) -> Self {
        Self {
            stages: value.stages,
            edges: value.edges,
        }
    }
}

/// Removes stages whose parents are all removed; if any remain, each of them is part of a cycle or behind one. A stage that is part of one.
fn first_in_cycle(parents: &[BTreeSet<usize>]) -> Option<usize> {
    let mut left: BTreeSet<usize> = (0..parents.len()).collect();
    loop {
        let ready: Vec<usize> = left
            .iter()
            .copied()
            .filter(|&i| parents[i].is_disjoint(&left))
            .collect();
        if ready.is_empty() {
            // Each of these has a parent among them: the first that the way back meets twice is in a cycle, and not merely behind one.
            let mut met = BTreeSet::new();
            let mut at = left.first().copied()?;
            while met.insert(at) {
                at = parents[at].intersection(&left).next().copied()?;
            }
            return Some(at);
        }
        for i in ready {
            left.remove(&i);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(name: &str) -> Stage {
        Stage {
            name: name.parse().expect("stage"),
            function: "f".parse().expect("function"),
            version: VersionNumber::FIRST,
        }
    }

    fn edge(from: &str, to: &str) -> Edge {
        Edge {
            from: from.parse().expect("stage"),
            to: to.parse().expect("stage"),
            size: ByteSize::from_bytes(1),
        }
    }

    fn build(stages: &[&str], edges: &[(&str, &str)]) -> Result<Workflow, WorkflowError> {
        Workflow::new(
            stages.iter().map(|s| stage(s)).collect(),
            edges.iter().map(|(from, to)| edge(from, to)).collect(),
        )
    }

    #[test]
    fn a_diamond_is_a_workflow_and_survives_json() {
        let workflow = build(
            &["d", "a", "b", "c"],
            &[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")],
        )
        .expect("diamond");
        assert_eq!(workflow.entry().name.as_str(), "a");
        let json = serde_json::to_string(&workflow).expect("json");
        assert_eq!(
            serde_json::from_str::<Workflow>(&json).expect("own json"),
            workflow
        );
    }

    #[test]
    fn each_mistake_names_the_stage() {
        type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);
        let cases: [Case<'_>; 7] = [
            (&[], &[], "no stage"),
            (&["a", "a"], &[], "stage a stands twice"),
            (&["a"], &[("a", "b")], "stage b, which does not exist"),
            (
                &["a", "b", "c"],
                &[("a", "b"), ("b", "c"), ("c", "b")],
                "stage b is part of a cycle",
            ),
            (&["a"], &[("a", "a")], "stage a is part of a cycle"),
            // Behind a cycle is not in it.
            (
                &["a", "b", "c"],
                &[("b", "c"), ("c", "b"), ("c", "a")],
                "stage c is part of a cycle",
            ),
            (&["a", "b"], &[], "a and b are both entries"),
        ];
        for (stages, edges, expected) in cases {
            let error = build(stages, edges).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}

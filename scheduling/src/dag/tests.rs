//! What a DAG refuses, and what it makes of what it takes.

use super::*;

fn builder(tasks: usize) -> DagBuilder {
    let mut builder = DagBuilder::new();
    for i in 0..tasks {
        builder.task(format!("t{i}"), Millis::new(1.0), Resources::default());
    }
    builder
}

fn fixed(ms: f64) -> Transfer {
    Transfer::Fixed(Millis::new(ms))
}

fn error(tasks: usize, edges: &[(usize, usize)]) -> String {
    let mut b = builder(tasks);
    for (from, to) in edges {
        b.edge(TaskIndex::new(*from), TaskIndex::new(*to), fixed(1.0));
    }
    b.build().expect_err("no DAG").to_string()
}

#[test]
fn each_mistake_is_named() {
    assert_eq!(error(0, &[]), "there is no task; give at least one");
    assert_eq!(
        error(2, &[(0, 7)]),
        "an edge names task #7, but there are only 2 tasks"
    );
    assert_eq!(
        error(2, &[(0, 1), (0, 1)]),
        "two edges go from t0 to t1; join them into one"
    );
    assert_eq!(
        error(2, &[(0, 1), (1, 1)]),
        "a task waits for its own output: t1"
    );
    // Only the members of the cycle are named, not what hangs on it.
    assert_eq!(
        error(5, &[(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)]),
        "each of these tasks waits for its own output: t1, t2, t3"
    );
}

#[test]
fn amounts_must_be_amounts() {
    for bad in [f64::INFINITY, f64::NAN, -1.0] {
        assert!(Dag::single("x", Millis::new(bad), Resources::default()).is_err());
        let mut b = builder(2);
        b.edge(TaskIndex::new(0), TaskIndex::new(1), fixed(bad));
        assert!(matches!(b.build(), Err(DagError::Time { .. })));
    }
    let dag = Dag::single("x", Millis::new(-0.0), Resources::default()).expect("zero work");
    assert!(dag.task(dag.entry()).work.get().is_sign_positive());
}

#[test]
fn several_entries_get_one_in_front() {
    let mut b = builder(4);
    b.edge(TaskIndex::new(0), TaskIndex::new(2), fixed(1.0))
        .edge(TaskIndex::new(1), TaskIndex::new(2), fixed(1.0));
    let dag = b.build().expect("a DAG");
    assert_eq!((dag.len(), dag.given()), (5, 4));
    assert_eq!(dag.virtual_entry(), Some(TaskIndex::new(4)));
    assert_eq!(dag.entry(), TaskIndex::new(4));
    assert_eq!(dag.task(dag.entry()).work, Millis::ZERO);
    let mut children: Vec<usize> = dag.children(dag.entry()).map(|(i, _)| i.get()).collect();
    children.sort_unstable();
    assert_eq!(children, [0, 1, 3]);
    assert_eq!(dag.exits(), [TaskIndex::new(2), TaskIndex::new(3)]);
}

#[test]
fn one_entry_stays_alone_and_parents_come_first() {
    let mut b = builder(4);
    for (from, to) in [(3, 0), (3, 1), (0, 2), (1, 2)] {
        b.edge(TaskIndex::new(from), TaskIndex::new(to), fixed(1.0));
    }
    let dag = b.build().expect("a DAG");
    assert_eq!(dag.virtual_entry(), None);
    assert_eq!(dag.entry(), TaskIndex::new(3));
    let position = |i| {
        dag.topological()
            .iter()
            .position(|t| *t == TaskIndex::new(i))
    };
    assert!(position(3) < position(0) && position(0) < position(2));
    assert!(position(1) < position(2));
    assert!(dag.is_exit(TaskIndex::new(2)) && !dag.is_exit(TaskIndex::new(0)));
}

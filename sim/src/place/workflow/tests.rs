use fdn_core::Coded;
use serde_json::{Value, json};

use super::*;

/// A sound workflow: a, then b and c, then d.
fn sound() -> Value {
    json!({
        "name": "w", "schemaVersion": "1.5", "author": {"name": "n", "email": "e"},
        "workflow": {
            "specification": {
                "tasks": [
                    {"name": "d", "id": "d", "parents": ["b", "c"], "children": [], "inputFiles": ["bd", "in"], "outputFiles": []},
                    {"name": "c", "id": "c", "parents": ["a"], "children": ["d"], "inputFiles": ["ab", "ac"], "outputFiles": ["cd"]},
                    {"name": "b", "id": "b", "parents": ["a"], "children": ["d"], "inputFiles": ["ab", "ab"], "outputFiles": ["bd", "in"]},
                    {"name": "a", "id": "a", "parents": [], "children": ["b", "c"], "inputFiles": ["in"], "outputFiles": ["ab", "ac"]}
                ],
                "files": [
                    {"id": "ab", "sizeInBytes": 10}, {"id": "ac", "sizeInBytes": 200}, {"id": "bd", "sizeInBytes": 3000},
                    {"id": "cd", "sizeInBytes": 40000}, {"id": "in", "sizeInBytes": 500_000}
                ]
            },
            "execution": {
                "makespanInSeconds": 1.0, "executedAt": "now",
                "tasks": [
                    {"id": "a", "runtimeInSeconds": 1.5, "command": {"program": "p"}, "memoryInBytes": 1_048_577, "machine": "m"},
                    {"id": "b", "runtimeInSeconds": 0, "memoryInBytes": null, "coreCount": 1.0},
                    {"id": "c", "runtimeInSeconds": 2, "avgCPU": 97.1},
                    {"id": "d", "runtimeInSeconds": 3, "memoryInBytes": 2_097_152.0}
                ],
                "machines": [{"nodeName": "m", "cpu": {"coreCount": 8}}]
            }
        }
    })
}

fn read(value: &Value) -> Result<Workflow, Error> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), value.to_string()).expect("written");
    Workflow::read(file.path())
}

/// Where the fault is, and what is said about it, after one value has been replaced.
fn refused(pointer: &str, value: Value) -> String {
    let mut file = sound();
    *file.pointer_mut(pointer).expect("the value is there") = value;
    let error = read(&file).expect_err("refused");
    assert_eq!(error.code(), fdn_core::ErrorCode::InputInvalid);
    match error {
        Error::Input { at, expected, .. } => format!("{at}: {expected}"),
        other => panic!("{other}"),
    }
}

#[test]
fn tasks_come_in_topological_order_with_the_data_that_passes_between_them() {
    let workflow = read(&sound()).expect("sound");
    let dag = workflow.dag();
    let names: Vec<&str> = dag
        .indices()
        .map(|task| dag.task(task).name.as_str())
        .collect();
    // Both b and c are free behind a; c is first in the file.
    assert_eq!(names, ["a", "c", "b", "d"]);
    let edges: Vec<_> = dag
        .indices()
        .flat_map(|task| {
            dag.children(task)
                .map(move |(to, data)| (task.get(), to.get(), data))
        })
        .collect();
    let bytes = |size| Transfer::Data(ByteSize::from_bytes(size));
    // What a task reads twice passes once; what d reads but c does not write, and what nobody reads, does not pass.
    for edge in [
        (0, 1, bytes(210)),
        (0, 2, bytes(10)),
        (1, 3, bytes(0)),
        (2, 3, bytes(503_000)),
    ] {
        assert!(edges.contains(&edge), "{edges:?}");
    }
    assert_eq!(edges.len(), 4);
    let work = |at| dag.task(TaskIndex::new(at)).work;
    assert_eq!(
        [0, 1, 2, 3].map(work),
        [1500.0, 2000.0, 0.0, 3000.0].map(Millis::new)
    );
    let memory = |at| dag.task(TaskIndex::new(at)).demand.memory_mib.get();
    // One byte more than a MiB is two.
    assert_eq!([0, 1, 2, 3].map(memory), [2, 0, 0, 2]);
}

#[test]
fn what_is_missing_is_named_with_its_path() {
    for (pointer, value, text) in [
        (
            "/workflow/specification/tasks/1/parents/0",
            json!("x"),
            "workflow.specification.tasks[1].parents[0]: x is no task; expected the id of one",
        ),
        (
            "/workflow/specification/tasks/2/children",
            json!(["d", "x"]),
            "workflow.specification.tasks[2].children[1]: x is no task; expected the id of one",
        ),
        (
            "/workflow/specification/tasks/2/inputFiles/1",
            json!("none"),
            "workflow.specification.tasks[2].inputFiles[1]: none is no file; expected the id of one of workflow.specification.files",
        ),
        (
            "/workflow/specification/files",
            json!([]),
            "workflow.specification.tasks[0].inputFiles[0]: bd is no file; expected the id of one of workflow.specification.files",
        ),
        (
            "/workflow/execution/tasks/2/id",
            json!("x"),
            "workflow.execution.tasks[2].id: x is no task; expected the id of one of workflow.specification.tasks",
        ),
        (
            "/workflow/execution/tasks",
            json!([]),
            "workflow.execution.tasks: nothing about task d; expected its runtimeInSeconds",
        ),
        (
            "/workflow/execution/tasks/1",
            json!({"id": "b"}),
            "workflow.execution.tasks[1]: missing field `runtimeInSeconds`",
        ),
        (
            "/workflow/execution",
            json!({}),
            "workflow.execution: missing field `tasks`",
        ),
    ] {
        let found = refused(pointer, value);
        assert!(found.starts_with(text), "{found}");
    }
}

#[test]
fn what_is_there_twice_or_on_one_side_only_is_named_with_its_path() {
    for (pointer, value, text) in [
        (
            "/workflow/specification/tasks/2/id",
            json!("c"),
            "workflow.specification.tasks[2].id: task c is there already, as [1]; each id once",
        ),
        (
            "/workflow/specification/files/4/id",
            json!("ab"),
            "workflow.specification.files[4].id: file ab is there already, as [0]; each id once",
        ),
        (
            "/workflow/execution/tasks/3/id",
            json!("a"),
            "workflow.execution.tasks[3].id: task a is there already, as [0]; each id once",
        ),
        (
            "/workflow/specification/tasks/0/parents",
            json!(["b", "c", "b"]),
            "workflow.specification.tasks[0].parents[2]: b is there already; each id once",
        ),
        (
            "/workflow/specification/tasks/0/parents",
            json!(["b"]),
            "workflow.specification.tasks[0].parents: expected c as well, which names d on its side",
        ),
        (
            "/workflow/specification/tasks/3/children",
            json!(["b"]),
            "workflow.specification.tasks[3].children: expected c as well, which names a on its side",
        ),
    ] {
        assert_eq!(refused(pointer, value), text);
    }
}

#[test]
fn amounts_that_are_none_are_named_with_their_path() {
    for (pointer, value, text) in [
        (
            "/workflow/execution/tasks/0/runtimeInSeconds",
            json!(-0.5),
            "workflow.execution.tasks[0].runtimeInSeconds: -0.5; expected seconds, 0 or more",
        ),
        (
            "/workflow/execution/tasks/0/memoryInBytes",
            json!(-1),
            "workflow.execution.tasks[0].memoryInBytes: -1; expected bytes, 0 or more",
        ),
        (
            "/workflow/execution/tasks/0/runtimeInSeconds",
            json!("1"),
            "workflow.execution.tasks[0].runtimeInSeconds: invalid type: string",
        ),
        (
            "/workflow/execution/tasks/0/runtimeInSeconds",
            json!(1e308),
            "workflow.specification.tasks: task a has inf ms of work",
        ),
        (
            "/workflow/specification/files/0/sizeInBytes",
            json!(-1),
            "workflow.specification.files[0].sizeInBytes: invalid value: integer `-1`",
        ),
        (
            "/workflow/specification/tasks",
            json!([]),
            "workflow.execution.tasks[0].id: a is no task",
        ),
    ] {
        let found = refused(pointer, value);
        assert!(found.starts_with(text), "{found}");
    }
}

#[test]
fn tasks_that_wait_for_each_other_are_named() {
    let mut file = sound();
    // d comes before a as well.
    *file
        .pointer_mut("/workflow/specification/tasks/0/children")
        .expect("d") = json!(["a"]);
    *file
        .pointer_mut("/workflow/specification/tasks/3/parents")
        .expect("a") = json!(["d"]);
    let text = read(&file).expect_err("a cycle").to_string();
    assert!(
        text.ends_with(
            "workflow.specification.tasks: each of these tasks waits for its own output: d, c, b, a"
        ),
        "{text}"
    );
    let mut file = sound();
    *file
        .pointer_mut("/workflow/specification/tasks/0/children")
        .expect("d") = json!(["d"]);
    *file
        .pointer_mut("/workflow/specification/tasks/0/parents")
        .expect("d") = json!(["b", "c", "d"]);
    let text = read(&file).expect_err("a cycle").to_string();
    assert!(
        text.ends_with("a task waits for its own output: d"),
        "{text}"
    );
}

#[test]
fn a_file_without_tasks_is_no_workflow() {
    let mut file = sound();
    *file
        .pointer_mut("/workflow/specification/tasks")
        .expect("tasks") = json!([]);
    *file
        .pointer_mut("/workflow/execution/tasks")
        .expect("tasks") = json!([]);
    let text = read(&file).expect_err("nothing to place").to_string();
    assert!(
        text.ends_with("workflow.specification.tasks: there is no task; give at least one"),
        "{text}"
    );
    let error =
        read(&json!({"name": "older", "workflow": {"tasks": []}})).expect_err("another form");
    assert!(
        error
            .to_string()
            .contains(": workflow: missing field `specification`"),
        "{error}"
    );
}

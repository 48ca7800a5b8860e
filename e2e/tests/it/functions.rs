//! Every ready-made function, called through the network with the cases that stand beside its source.

use fdn_e2e::{Deadlines, Network, root};

/// The functions that come with the network.
const FUNCTIONS: [&str; 5] = ["hello", "image", "sheet", "text-stats", "json-transform"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_function_passes_its_cases_through_the_network() {
    // Compiling a whole language's interpreter takes a busy machine longer than the product's deadline.
    let mut network = Network::without_nodes(Deadlines::Long)
        .await
        .expect("controller and DNS start");
    network.start_node((0, 0), "").await.expect("a node starts");
    let cli = network.cli().expect("logged in");
    let mut failures = Vec::new();
    for name in FUNCTIONS {
        let folder = root().join("functions").join(name);
        let component = folder.join(format!("{name}.wasm"));
        assert!(
            component.is_file(),
            "{} is not built: run make functions",
            component.display()
        );
        cli.ok([
            "deploy",
            name,
            &component.display().to_string(),
            "--wait",
            "--timeout",
            "600s",
        ]);
        // Twice: a function that keeps its instance must answer the same the second time.
        for _ in 0..2 {
            let tested = cli.run(["test", &folder.display().to_string(), "--app", name]);
            if tested.code != 0 {
                failures.push(format!("{}\n{}", tested.out, tested.err));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

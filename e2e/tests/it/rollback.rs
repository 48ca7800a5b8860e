//! A new version that breaks its objective is taken back by the network itself: what real nodes count, a real controller judges.

use fdn_e2e::Embedded;
use fdn_testkit::{components, wait};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_breaks_its_objective_loses_its_calls_and_one_that_keeps_it_has_them() {
    let network = Embedded::start().await;
    let cli = network.cli();
    let file = |name: &str, bytes: Vec<u8>| {
        let path = network.folder().join(name);
        std::fs::write(&path, bytes).expect("the folder takes a file");
        path.display().to_string()
    };
    let (one, two, three) = (
        file("one.wasm", components::hello("one")),
        // It passes the probe before it is accepted, which calls `/`.
        file("two.wasm", components::faulty()),
        file("three.wasm", components::hello("three")),
    );
    let client = fdn_service::http_client::build(wait::PATIENCE).expect("a client");
    let call = async || {
        let url = format!("http://{}/trap", network.gateway());
        let call = client.get(url).header("host", "hello.fn.test").send();
        let answer = call.await.expect("an answer");
        let status = answer.status().as_u16();
        (status, answer.text().await.expect("a body"))
    };
    cli.ok(["deploy", "hello", &one, "--wait", "--timeout", "120s"]);
    assert_eq!(call().await, (200, "one".to_owned()));
    let objective = ["objective", "set", "hello", "--errors", "1"];
    let terms = ["--minimum-calls", "20", "--window", "3s"];
    cli.ok(objective.into_iter().chain(terms));

    cli.ok(["deploy", "hello", &two, "--wait", "--timeout", "120s"]);
    let mut failed = 0;
    wait::until("the version before to be back", async || {
        let (status, text) = call().await;
        failed += u32::from(status == 502);
        if failed == 0 || status != 200 {
            return Err(format!("{status} {text}"));
        }
        assert_eq!(text, "one");
        Ok(())
    })
    .await;
    assert!(failed >= 20, "it is not judged by fewer calls: {failed}");
    let shown = cli.json(["objective", "show", "hello"]);
    assert_eq!(shown["rollout"]["state"], "broken", "{shown}");
    let log = cli.ok(["audit", "-o", "json"]);
    assert!(log.contains("rollback.automatic"), "{log}");

    cli.ok(["deploy", "hello", &three, "--wait", "--timeout", "120s"]);
    wait::until("the objective to have held", async || {
        assert_eq!(call().await, (200, "three".to_owned()));
        let shown = cli.json(["objective", "show", "hello"]);
        match shown["rollout"]["state"] == "held" {
            true => Ok(()),
            false => Err(shown.to_string()),
        }
    })
    .await;
    assert_eq!(call().await.1, "three");
}

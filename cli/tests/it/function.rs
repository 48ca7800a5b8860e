//! `fdn test` and `fdn open`, as a program.

use std::os::unix::fs::PermissionsExt as _;

use fdn_cli::exit::Exit;
use fdn_core::ErrorCode;
use fdn_testkit::components;
use serde_json::Value;

use crate::binary::{fdn, run};
use crate::support::{Fake, Home, Reply, sample};

const CASES: &str = r#"[
  { "name": "greets", "request": { "method": "GET", "path": "/" }, "expect": { "status": 200, "body": "hi" } },
  { "name": "is polite", "request": { "method": "POST", "path": "/", "body": "x" }, "expect": { "status": 201, "body": "hello" } }
]"#;

#[test]
fn cases_are_called_in_this_process_and_what_differs_is_told() {
    let home = Home::new();
    home.file("f/greeter.wasm", components::hello("hi"));
    home.file("f/fdn.toml", "name = \"greeter\"\n");
    home.file("f/cases.json", CASES);
    let folder = home.folder.path().join("f").display().to_string();
    let (code, out, err) = run(&home, &["test", &folder]);
    assert_eq!(code, 1, "{out}{err}");
    for expected in [
        "greeter.wasm\n  ok    greets",
        "  FAIL  is polite",
        "status 200, expected 201",
        "-hello (no newline at the end)",
        "+hi (no newline at the end)",
        "1 of 2 passed",
    ] {
        assert!(out.contains(expected), "{expected}: {out}");
    }
    assert!(err.contains("1 of 2 cases failed"), "{err}");
    let compiled = || {
        let cache = home.folder.path().join(".cache/fdn/compiled");
        let entries = std::fs::read_dir(cache).expect("a cache");
        entries.count()
    };
    assert_eq!(compiled(), 2, "compiled code and its checksum");
    let (code, out, _) = run(&home, &["test", &folder, "-o", "json"]);
    let printed: Value = serde_json::from_str(&out).expect("one JSON value");
    assert_eq!((code, &printed["failed"]), (1, &Value::from(1)));
    assert_eq!(printed["cases"][1]["differences"][0]["got"], 200);
    assert_eq!(compiled(), 2, "not compiled again");

    let good = CASES.replace("201", "200").replace("hello", "hi");
    home.file("f/cases.json", good);
    assert_eq!(run(&home, &["test", &folder]).0, 0);
}

#[test]
fn a_component_that_is_compiled_already_must_answer_the_probe_too() {
    let home = Home::new();
    home.file("f/slow.wasm", components::sleeping(300));
    home.file("f/fdn.toml", "timeout = \"20s\"\n");
    home.file(
        "f/cases.json",
        r#"[{ "name": "sleeps", "request": { "method": "GET", "path": "/" }, "expect": { "status": 200 } }]"#,
    );
    let folder = home.folder.path().join("f").display().to_string();
    let (code, out, err) = run(&home, &["test", &folder]);
    assert_eq!(code, 0, "{out}{err}");
    home.file("f/fdn.toml", "timeout = \"50ms\"\n");
    let (code, out, err) = run(&home, &["test", &folder]);
    assert_eq!((code, out.as_str()), (2, ""), "{err}");
    assert!(err.contains("FDN-1009"), "{err}");
}

#[test]
fn a_trap_is_answered_as_by_a_gateway_with_what_the_function_wrote() {
    let home = Home::new();
    let component = home.file("f/x.wasm", components::logging("to stdout", "to stderr"));
    home.file("f/fdn.toml", "secrets = [\"KEY\"]\n");
    home.file(
        "f/cases.json",
        r#"[{ "name": "odd", "request": { "method": "GET", "path": "/" }, "expect": { "status": 500 } }]"#,
    );
    let folder = home.folder.path().join("f").display().to_string();
    let (code, _, err) = run(&home, &["test", &folder]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("--secret KEY=FILE"), "{err}");
    let secret = format!("KEY={}", home.file("key", "value"));
    let (code, out, _) = run(&home, &["test", &folder, "--secret", &secret]);
    assert_eq!(code, 1, "{out}");
    assert!(
        out.contains("the function wrote") && out.contains("to stdout"),
        "{out}"
    );
    std::fs::write(&component, components::faulty()).expect("written");
    let case = |status: u16| {
        format!(
            r#"[{{ "name": "traps", "request": {{ "method": "GET", "path": "/trap" }},
                "expect": {{ "status": {status}, "headers": {{ "x-fdn-error": "{}" }}, "contains": ["unreachable"] }} }}]"#,
            ErrorCode::FunctionTrapped
        )
    };
    home.file(
        "f/cases.json",
        case(ErrorCode::FunctionTrapped.http_status()),
    );
    let (code, out, _) = run(&home, &["test", &folder, "--secret", &secret]);
    assert_eq!(code, 0, "{out}");
    home.file("f/cases.json", case(200));
    let (code, out, _) = run(&home, &["test", &folder, "--secret", &secret]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("the function trapped"), "{out}");
    let other = format!("OTHER={}", home.file("key", "value"));
    let (code, _, err) = run(
        &home,
        &["test", &folder, "--secret", &secret, "--secret", &other],
    );
    assert_eq!(code, 2, "{err}");
    std::fs::write(&component, components::trapping()).expect("written");
    let (code, _, err) = run(&home, &["test", &folder, "--secret", &secret]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("FDN-1009") && err.contains("trapped"), "{err}");
}

#[test]
fn what_is_missing_in_a_folder_is_said_with_what_to_do() {
    let home = Home::new();
    home.file("f/cases.json", CASES);
    let folder = home.folder.path().join("f").display().to_string();
    let (code, _, err) = run(&home, &["test", &folder]);
    assert_eq!(code, 2);
    assert!(err.contains("--component"), "{err}");
    let file = home.file("core.wasm", components::core_module());
    let (code, _, err) = run(&home, &["test", &folder, "--component", &file]);
    assert_eq!(code, 2);
    assert!(err.contains("FDN-1003"), "{err}");
    let empty = home.folder.path().display().to_string();
    let (code, _, err) = run(&home, &["test", &empty]);
    assert_eq!(code, 2);
    assert!(err.contains("cases.json"), "{err}");
}

#[tokio::test]
async fn an_address_is_printed_where_there_is_no_desktop() {
    let fake = Fake::start(|request, _| match request.path.as_str() {
        "/v1/network" => Reply::json(&sample::network()),
        _ => Reply::json(&sample::detail("hello")),
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let ran = home.fdn(&["open", "console"]).await;
    assert_eq!(
        (ran.exit, ran.out),
        (Exit::Ok, format!("{}/\n", fake.url()))
    );
    let ran = home.fdn(&["open", "hello"]).await;
    let port = sample::network().gateway_port;
    let expected = format!("http://hello.fn.test:{port}/\n");
    assert_eq!((ran.exit, ran.out), (Exit::Ok, expected));
    assert!(ran.err.contains("fdn invoke hello"), "{}", ran.err);
}

#[test]
fn an_address_is_opened_where_there_is_one() {
    let home = Home::new();
    let opener = home.file("bin/xdg-open", "#!/bin/sh\necho \"$1\" >\"$HOME/opened\"\n");
    std::fs::set_permissions(&opener, std::fs::Permissions::from_mode(0o755)).expect("mode");
    let open = |path: &str| {
        let mut command = fdn(&home, &["open", "console", "--controller", "127.0.0.1:1"]);
        command.env("DISPLAY", ":0").env("PATH", path);
        command.output().expect("the program runs")
    };
    let path = home.folder.path().join("bin").display().to_string();
    let output = open(&path);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(home.read("opened"), "http://127.0.0.1:1/\n");
    let output = open("/nonexistent");
    assert_eq!(output.status.code(), Some(0), "printed all the same");
    assert_eq!(output.stdout, b"http://127.0.0.1:1/\n");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(err.contains("xdg-open cannot open it"), "{err}");
}

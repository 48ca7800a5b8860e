//! `fdn dev` on a changing folder: built, deployed, called, broken, repaired, trapping, ended.

use super::*;

/// A build that copies the file that the source names, and fails like a compiler for a broken source.
const BUILD: &str = "#!/bin/sh
if grep -q broken src/source; then
    echo 'error[E0425]: cannot find value `broken` in this scope' >&2
    echo ' --> src/lib.rs:7:5' >&2
    exit 101
fi
cp \"$(cat src/source)\" dev-app.wasm
";

struct Folder<'a> {
    home: &'a Home,
}

impl Folder<'_> {
    fn source(&self, text: &str) {
        self.home.file("f/src/source", text);
    }
}

fn start(network: &Network, folder: &str) -> Process {
    let log = network.home.folder.path().join("dev.log");
    Program::new(env!("CARGO_BIN_EXE_fdn"), ["dev", folder])
        .env("HOME", network.home.folder.path())
        .env("XDG_CONFIG_HOME", network.home.folder.path().join("config"))
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .start(&log)
        .expect("fdn dev starts")
}

async fn says(process: &Process, text: &str) {
    wait::until(text, async || {
        if process.log().contains(text) {
            Ok(())
        } else {
            Err(process.log())
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_changes_is_built_and_deployed_and_a_failing_build_keeps_what_is_there() {
    let mut network = Network::new();
    let mut up = network.up().await;
    let home = &network.home;
    let folder = Folder { home };
    let first = home.file("first.wasm", components::hello("first"));
    let second = home.file("second.wasm", components::logging("a line", "an error"));
    home.file("f/fdn.toml", "name = \"dev-app\"\n");
    let script = home.file("f/build.sh", BUILD);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(script, mode).expect("mode");
    folder.source(&first);
    // A symbolic link to the folder works like the folder.
    let link = home.folder.path().join("link");
    std::os::unix::fs::symlink(home.folder.path().join("f"), &link).expect("linked");
    let path = link.display().to_string();
    let mut dev = start(&network, &path);
    says(&dev, "deployed dev-app v1 in ").await;
    assert_eq!(network.ok(&["invoke", "dev-app"]), "first");

    folder.source(&second);
    says(&dev, "deployed dev-app v2 in ").await;
    // Log lines are followed from the first deployment on.
    wait::until("what the function writes", async || {
        network.ok(&["invoke", "dev-app"]);
        if dev.log().contains("v2 a line") {
            Ok(())
        } else {
            Err(dev.log())
        }
    })
    .await;

    // A folder that is removed and recreated, as git does, is a different one; later changes in it are noticed all the same.
    let third = home.file("third.wasm", components::faulty());
    std::fs::remove_dir_all(home.folder.path().join("f/src")).expect("removed");
    folder.source(&third);
    says(&dev, "deployed dev-app v3 in ").await;
    network.fdn(&["invoke", "dev-app", "/trap"]);
    says(&dev, "v3 [the function trapped: ").await;

    folder.source("broken");
    says(&dev, "v3 stays deployed").await;
    let log = dev.log();
    for words in [
        "error[E0425]: cannot find value `broken` in this scope\n --> src/lib.rs:7:5\n",
        "the build failed after",
        "exit status: 101",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
    network.ok(&["invoke", "dev-app"]);

    // The manifest is a source as well; a mistake in it is reported with its line.
    home.file("f/fdn.toml", "name = \"dev-app\"\ntimeout = \"soon\"\n");
    folder.source(&first);
    says(&dev, "timeout").await;
    home.file("f/fdn.toml", "name = \"dev-app\"\ntimeout = \"3s\"\n");
    says(&dev, "deployed dev-app v4 in ").await;
    assert_eq!(network.ok(&["invoke", "dev-app"]), "first");

    dev.signal(rustix::process::Signal::INT).expect("sent");
    wait::until("fdn dev to end", async || match dev.ended() {
        Some(status) if status.success() => Ok(()),
        ended => Err(format!("{ended:?}: {}", dev.log())),
    })
    .await;
    assert!(
        dev.log()
            .ends_with("ended; dev-app v4 stays deployed (fdn delete dev-app)\n")
    );
    let tested = network.fdn(&["test", &path, "--app", "dev-app"]);
    assert_eq!(tested.code, Some(2), "it has no cases: {}", tested.err);
    let case = r#"[{ "name": "greets", "request": { "method": "GET", "path": "/x" }, "expect": { "status": 200, "body": "BODY" } }]"#;
    home.file("f/cases.json", case.replace("BODY", "first"));
    let out = network.ok(&["test", &path, "--app", "dev-app"]);
    assert!(out.starts_with("http://dev-app.fn.test:"), "{out}");
    assert!(out.ends_with("1 of 1 passed\n"), "{out}");
    home.file("f/cases.json", case.replace("BODY", "second"));
    let failed = network.fdn(&["test", &path, "--app", "dev-app"]);
    assert_eq!(failed.code, Some(1), "{}", failed.err);
    assert!(failed.out.contains("+first (no newline"), "{}", failed.out);
    up.stop(STOP).expect("SIGTERM ends it");
}

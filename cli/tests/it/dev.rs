//! `fdn dev` against a fake controller.

use fdn_core::api::{LogLine, LogStream};
use fdn_core::{ErrorCode, InstanceId, Timestamp};
use fdn_testkit::components;
use fdn_testkit::process::{Process, Program};
use fdn_testkit::wait;
use rustix::process::Signal;
use uuid::Uuid;

use crate::support::{End, Fake, Home, Reply, sample};

const SOURCE: &str = "def handle():\n    raise ValueError(\"no\")\n";
const FRAME: &str = "File \"/0/app.py\", line 2, in handle";
const SOURCE_LINE: &str = "    app.py:2: raise ValueError(\"no\")\n";

/// Starts the command in a folder whose build is a script.
fn start(home: &Home, fake: &Fake, build: &str) -> Process {
    start_with(home, fake, &["--build", build])
}

/// Starts the command with further arguments.
fn start_with(home: &Home, fake: &Fake, args: &[&str]) -> Process {
    home.file("f/hello.wasm", components::hello("hi"));
    home.file("f/fdn.toml", "name = \"hello\"\n");
    let token = home.file("token", "secret-token");
    let folder = home.folder.path().join("f").display().to_string();
    let args = ["dev", &folder].into_iter().chain(args.iter().copied());
    Program::new(env!("CARGO_BIN_EXE_fdn"), args)
        .env("HOME", home.folder.path())
        .env("XDG_CONFIG_HOME", home.folder.path().join("config"))
        .env("FDN_CONTROLLER", fake.url())
        .env("FDN_TOKEN_FILE", token)
        .start(&home.folder.path().join("dev.log"))
        .expect("fdn dev starts")
}

async fn says(process: &Process, text: &str) {
    wait::until(text, async || {
        let log = process.log();
        if log.contains(text) { Ok(()) } else { Err(log) }
    })
    .await;
}

/// Stops it with a signal; returns its last line of output.
async fn ended(process: &mut Process, signal: Signal) -> String {
    process.signal(signal).expect("sent");
    wait::until("fdn dev to end", async || match process.ended() {
        Some(status) if status.success() => Ok(()),
        ended => Err(format!("{ended:?}")),
    })
    .await;
    let log = process.log();
    log.lines().last().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_node_serves_yet_is_deployed_all_the_same() {
    let fake = Fake::start(|request, _| match request.path.as_str() {
        "/v1/apps/hello/versions" => Reply::json(&sample::deployed("hello")),
        "/v1/apps/hello" => Reply::json(&sample::detail("hello")),
        _ => Reply::Silence,
    })
    .await;
    let home = Home::new();
    let mut dev = start(&home, &fake, "true");
    wait::until("the nodes to be asked for", async || {
        let asked = fake.requests();
        let asked = asked.iter().filter(|one| one.path == "/v1/apps/hello");
        if asked.count() > 1 {
            Ok(())
        } else {
            Err(dev.log())
        }
    })
    .await;
    let last = ended(&mut dev, Signal::INT).await;
    assert_eq!(last, "ended; hello v3 stays deployed (fdn delete hello)");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_app_goes_to_the_named_tenant() {
    let fake = Fake::start(|_, _| Reply::problem(ErrorCode::Forbidden, "no")).await;
    let home = Home::new();
    let mut dev = start_with(&home, &fake, &["--build", "true", "--tenant", "shop"]);
    wait::until("the version to be sent", async || {
        let sent = fake.requests();
        let to_shop = |path: &str| path == "/v1/apps/hello/versions?tenant=shop";
        if sent.iter().any(|one| to_shop(&one.path)) {
            Ok(())
        } else {
            Err(dev.log())
        }
    })
    .await;
    ended(&mut dev, Signal::INT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_names_a_place_is_shown_with_its_source() {
    let line = |version, at| {
        let line = LogLine {
            at: Timestamp(at),
            app: sample::parse("hello"),
            function: sample::parse("hello"),
            version: sample::version(version),
            node: sample::parse("eu-west-1"),
            instance: InstanceId::from_uuid(Uuid::from_u128(1)),
            request: "r".into(),
            stage: None,
            stream: LogStream::Stderr,
            text: FRAME.into(),
        };
        serde_json::to_string(&line).expect("a line")
    };
    // The version before the deployed one was built from other sources.
    let lines = vec![line(2, 1000), line(3, 2000)];
    let fake = Fake::start(move |request, _| match request.path.as_str() {
        "/v1/apps/hello/versions" => Reply::json(&sample::deployed("hello")),
        path if path.starts_with("/v1/apps/hello/logs") => Reply::Lines(lines.clone(), End::Well),
        _ => Reply::Silence,
    })
    .await;
    let home = Home::new();
    home.file("f/app.py", SOURCE);
    let mut dev = start(&home, &fake, "true");
    says(&dev, &format!("v3 {FRAME}\n{SOURCE_LINE}")).await;
    assert_eq!(dev.log().matches(SOURCE_LINE).count(), 1, "{}", dev.log());
    ended(&mut dev, Signal::INT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_fails_its_probe_is_refused_with_the_source() {
    let fake = Fake::start(|_, _| {
        let said = format!("its last output:\n  {FRAME}\nValueError: no");
        Reply::problem(ErrorCode::UploadProbeFailed, &said)
    })
    .await;
    let home = Home::new();
    home.file("f/app.py", SOURCE);
    let mut dev = start(&home, &fake, "true");
    says(&dev, &format!("{FRAME}\n{SOURCE_LINE}ValueError: no\n")).await;
    ended(&mut dev, Signal::INT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_on_its_way_is_not_called_nothing() {
    let fake = Fake::start(|_, _| Reply::Silence).await;
    let home = Home::new();
    let mut dev = start(&home, &fake, "true");
    wait::until("the version to be sent", async || {
        if fake.requests().is_empty() {
            Err(dev.log())
        } else {
            Ok(())
        }
    })
    .await;
    let last = ended(&mut dev, Signal::TERM).await;
    assert!(
        last.contains("fdn describe hello tells whether it arrived"),
        "{last}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_is_ended_with_the_command_and_what_it_started_too() {
    let fake = Fake::start(|_, _| Reply::Silence).await;
    let home = Home::new();
    let build =
        "trap 'echo tidied >../tidied; exit 1' TERM; echo $$ >../pid; while :; do sleep 0.02; done";
    let mut dev = start(&home, &fake, build);
    wait::until("the build to run", async || {
        let pid = home.read("pid");
        if pid.ends_with('\n') {
            Ok(())
        } else {
            Err(dev.log())
        }
    })
    .await;
    // The terminal was closed.
    let last = ended(&mut dev, Signal::HUP).await;
    assert_eq!(last, "ended; nothing was deployed");
    assert_eq!(home.read("tidied"), "tidied\n");
    assert!(fake.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_changes_its_own_sources_is_not_run_for_ever() {
    let fake = Fake::start(|_, _| Reply::problem(fdn_core::ErrorCode::Forbidden, "no")).await;
    let home = Home::new();
    let mut dev = start(
        &home,
        &fake,
        "echo x >>made.txt; echo y >>../builds; sleep 0.2",
    );
    says(
        &dev,
        "not built: made.txt changed during each of 3 builds in a row",
    )
    .await;
    assert_eq!(home.read("builds").lines().count(), 3);
    let mut tries = 0;
    wait::until("another build", async || {
        // A change right after a build may be attributed to the build.
        tries += 1;
        home.file("f/.gitignore", format!("made.txt\n# {tries}\n"));
        let built = home.read("builds").lines().count();
        if built > 3 { Ok(()) } else { Err(built) }
    })
    .await;
    ended(&mut dev, Signal::INT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_goes_and_comes_back_ends_nothing() {
    let fake = Fake::start(|_, _| Reply::problem(fdn_core::ErrorCode::Forbidden, "no")).await;
    let home = Home::new();
    let mut dev = start(&home, &fake, "echo y >>../builds");
    says(&dev, "built in ").await;
    let (folder, away) = (
        home.folder.path().join("f"),
        home.folder.path().join("away"),
    );
    std::fs::rename(&folder, &away).expect("moved");
    std::fs::write(away.join("fdn.toml"), "name = \"other\"\n").expect("written");
    says(&dev, "No such file").await;
    std::fs::rename(&away, &folder).expect("moved back");
    wait::until("another build", async || {
        let built = home.read("builds").lines().count();
        if built == 2 { Ok(()) } else { Err(dev.log()) }
    })
    .await;
    ended(&mut dev, Signal::INT).await;
}

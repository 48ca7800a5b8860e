//! Guarantees of containers beyond the list: the sandbox, archives, the engine's absence.

use std::path::PathBuf;
use std::time::Duration;

use fdn_core::{Coded, ErrorCode, MilliCpu};
use fdn_instances::docker::{DockerOptions, Network};
use fdn_instances::{ExitReason, InstanceState, Outbound, Runtime, StartError, StartSpec};
use fdn_testkit::wait;

use super::{Engine, GRACE, image_of};
use crate::subject::{
    PATIENCE, Program, Running, Subject, ask, begin, get, owner, spec, text, until,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sandbox_is_closed() {
    let engine = Engine::with(Network::Isolated).await;
    let running = Running::with(&engine, Program::Hello, |spec| {
        spec.pids = 20;
        spec.description.resources.cpu_milli = MilliCpu(250);
    })
    .await;
    let asked = async |path: &str| ask(&*running.instance, path).await;

    let status = asked("/read/proc/self/status").await;
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1))
            .unwrap_or_else(|| panic!("{name} in {status}"))
            .to_owned()
    };
    assert_eq!(field("NoNewPrivs:"), "1");
    for set in ["CapEff:", "CapPrm:", "CapBnd:", "CapInh:", "CapAmb:"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!(
        field("Seccomp:"),
        "2",
        "the engine's filter of system calls"
    );

    let root = asked("/write/somewhere").await;
    assert!(root.contains("Read-only file system"), "{root}");
    assert_eq!(asked("/write/tmp/here").await, "written");
    assert_eq!(
        asked("/write/data/here").await,
        "written",
        "a declared volume"
    );
    let mounts = asked("/read/proc/mounts").await;
    let bounded = |path: &str| {
        mounts
            .lines()
            .any(|m| m.contains(&format!(" {path} tmpfs")) && m.contains("size=65536k"))
    };
    assert!(bounded("/tmp") && bounded("/data"), "{mounts}");

    let threads: usize = asked("/threads/100").await.parse().expect("a number");
    assert!((1..20).contains(&threads), "{threads} threads of 20");

    wait::until("a quarter of a core", async || {
        let quota = asked("/read/sys/fs/cgroup/cpu/cpu.cfs_quota_us").await;
        let share = asked("/read/sys/fs/cgroup/cpu.max").await;
        let limited = quota.trim() == "25000" || share.starts_with("25000 100000");
        limited
            .then_some(())
            .ok_or_else(|| format!("{quota:?}, {share:?}"))
    })
    .await;

    let interfaces = asked("/read/proc/net/dev").await;
    let names: Vec<&str> = interfaces
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim())
        .collect();
    assert_eq!(names, ["lo"]);
    let out = asked("/connect/192.0.2.1:80").await;
    assert!(out.contains("unreachable"), "{out}");
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_much_memory_is_told_apart_from_other_ends() {
    let engine = Engine::with(Network::Isolated).await;
    let running = Running::start(&engine, Program::Hog).await;
    let call = running.instance.call(get("/alloc/200")).await;
    assert!(call.is_err(), "200 MiB in an instance of 64");
    let state = until(&*running.instance, "its end", |s| s.exit().is_some()).await;
    let exit = state.exit().expect("it ended");
    assert_eq!(exit.reason, ExitReason::OutOfMemory);
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_oci_layout_is_loaded_under_our_name_only() {
    let engine = Engine::with(Network::Isolated).await;
    let image = image_of(fdn_testkit::docker::oci_image("a layout"));
    let runtime = engine.runtime(owner()).await;
    let started = runtime.start(spec(image.clone(), Program::Hello)).await;
    let instance = started.expect("it starts");
    assert_eq!(ask(&*instance, "/hello").await, "hello");
    instance.stop(GRACE).await.expect("it stops");
    let saved = image_of(fdn_testkit::docker::saved_image("with a stranger's name"));
    runtime.prepare(&saved).await.expect("it loads");
    let strange = engine.client().inspect_image("stranger/app:latest").await;
    assert!(strange.is_err(), "names inside an archive are ignored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_image_is_told() {
    let engine = Engine::with(Network::Isolated).await;
    let runtime = engine.runtime(owner()).await;
    let file = tempfile::NamedTempFile::new().expect("it cannot fail here");
    std::fs::write(file.path(), "no archive at all".repeat(1000)).expect("it cannot fail here");
    let error = runtime.prepare(&image_of(file.path().to_owned())).await;
    let error = error.expect_err("it is no archive");
    assert_eq!(error.code(), ErrorCode::ImageInvalid, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_hosts_is_refused_rather_than_ignored() {
    let engine = Engine::with(Network::Isolated).await;
    let runtime = engine.runtime(owner()).await;
    let mut spec = spec(engine.image(Program::Hello), Program::Hello);
    let hosts = ["api.example.com".parse().expect("it parses")];
    spec.outbound = Outbound::Hosts(hosts.into());
    let error = runtime.start(spec).await.expect_err("it cannot be kept");
    assert!(matches!(error, StartError::Unsupported { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starts_at_once_all_answer() {
    start_at_once(4).await;
}

async fn start_at_once(count: usize) {
    let engine = Engine::with(Network::Isolated).await;
    let owner = owner();
    let runtime = engine.runtime(owner.clone()).await;
    let starts =
        (0..count).map(|_| runtime.start(spec(engine.image(Program::Hello), Program::Hello)));
    let started = futures::future::join_all(starts).await;
    let instances: Vec<_> = started.into_iter().map(|s| s.expect("it starts")).collect();
    for instance in &instances {
        assert_eq!(ask(&**instance, "/hello").await, "hello");
    }
    let stops = instances.iter().map(|instance| instance.stop(GRACE));
    for stopped in futures::future::join_all(stops).await {
        stopped.expect("it stops");
    }
    assert_eq!(engine.leftovers(&owner).await, 0);
}

/// Two networks on one machine may have nodes of the same name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_of_one_name_are_kept_apart_by_their_scopes() {
    let engine = Engine::with(Network::Isolated).await;
    let owner = owner();
    let scoped = async |scope: Option<&str>| {
        let scope = scope.map(str::to_owned);
        let change = |options: &mut DockerOptions| options.scope = scope;
        engine.runtime_with(owner.clone(), change).await
    };
    let first = scoped(Some("one")).await;
    let started = first.start(spec(engine.image(Program::Hello), Program::Hello));
    let instance = started.await.expect("it starts");
    for stranger in [scoped(Some("two")).await, scoped(None).await] {
        assert_eq!(stranger.adopt().await.expect("it answers").len(), 0);
        let collected = stranger.collect().await.expect("it answers");
        assert!(collected.removed.is_empty(), "{collected:?}");
    }
    assert_eq!(ask(&*instance, "/hello").await, "hello");
    drop((instance, first));
    let again = scoped(Some("one")).await;
    let adopted = again.adopt().await.expect("it answers");
    assert_eq!(adopted.len(), 1, "its own");
    adopted[0].stop(GRACE).await.expect("it stops");
    assert_eq!(engine.leftovers(&owner).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_is_not_there_is_told() {
    let folder = tempfile::tempdir().expect("it cannot fail here");
    let options = fdn_instances::docker::DockerOptions {
        socket: folder.path().join("none.sock"),
        ..Default::default()
    };
    let connecting = fdn_instances::docker::DockerRuntime::connect(owner(), options).await;
    let error = connecting.expect_err("nothing listens");
    assert_eq!(error.code(), ErrorCode::EngineFailed, "{error}");
}

/// Through the control group, and through the engine where the agent may not write there.
#[tokio::test(flavor = "multi_thread")]
async fn pausing_is_true_also_back_to_back_and_never_in_the_way_of_an_end() {
    for cgroups in [Some(PathBuf::from("/sys/fs/cgroup")), None] {
        pause_back_to_back(cgroups, 3).await;
    }
}

async fn pause_back_to_back(cgroups: Option<PathBuf>, times: usize) {
    let engine = Engine::with(Network::Isolated).await;
    let owner = owner();
    let by_group = cgroups.is_some();
    let runtime = engine.runtime_with(owner.clone(), |options| options.cgroups = cgroups);
    let runtime = runtime.await;
    let starts = (0..3).map(|_| runtime.start(spec(engine.image(Program::Hello), Program::Hello)));
    let started = futures::future::join_all(starts).await;
    let instances: Vec<_> = started.into_iter().map(|s| s.expect("it starts")).collect();
    // Concurrently, because the engine's record of paused containers lags behind when it is busy.
    let rounds = instances.iter().map(async |instance| {
        for round in 0..times {
            instance.pause().await.expect("it pauses");
            instance.resume().await.expect("it goes on");
            let asking = tokio::time::timeout(PATIENCE, ask(&**instance, "/hello"));
            let answer = asking.await;
            assert_eq!(answer.as_deref(), Ok("hello"), "round {round}");
        }
        instance.pause().await.expect("it pauses");
        let name = format!("fdn-{}", instance.id());
        // Events of earlier rounds may still overwrite the engine's record; the last of them is true.
        fdn_testkit::wait::until("the engine to know of its own alone", async || {
            let found = engine.client().inspect_container(&name, None).await;
            let noted = found.expect("it is there").state.and_then(|s| s.paused);
            match noted {
                Some(noted) if noted != by_group => Ok(()),
                noted => Err(format!("it notes {noted:?}")),
            }
        })
        .await;
        let exit = instance.stop(GRACE).await.expect("it stops");
        // It ended by itself, so the signal found it thawed.
        assert_eq!((exit.code, exit.reason), (Some(0), ExitReason::Stopped));
    });
    futures::future::join_all(rounds).await;
    assert_eq!(engine.leftovers(&owner).await, 0);
}

/// A program that handles SIGTERM in this way.
async fn running(engine: &Engine, mode: &str) -> Running {
    let change = |spec: &mut StartSpec| {
        let name = "PROBE".parse().expect("a name");
        spec.env.insert(name, mode.to_owned());
    };
    Running::with(engine, Program::Hello, change).await
}

/// The first process of a container does not get a signal that it does not handle: it would be waited for until the grace is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_handles_no_signal_is_not_waited_for() {
    let engine = Engine::with(Network::Isolated).await;
    for (mode, code) in [("stubborn", 137), ("sigwait", 0)] {
        let running = running(&engine, mode).await;
        let stopping = running.instance.stop(Duration::from_secs(3600));
        let stopped = tokio::time::timeout(PATIENCE, stopping).await;
        let exit = stopped.expect("it is not waited for").expect("it stops");
        let ended = (exit.code, exit.reason);
        assert_eq!(ended, (Some(code), ExitReason::Stopped), "{mode}");
        assert_eq!(engine.leftovers(&running.owner).await, 0);
    }
}

/// What it is asked may finish all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_handles_no_signal_has_the_grace_for_its_calls() {
    let engine = Engine::with(Network::Isolated).await;
    let running = running(&engine, "stubborn").await;
    let call = begin(&running.instance, "/sleep/1000").await;
    let exit = running.instance.stop(Duration::from_secs(5)).await;
    let exit = exit.expect("it stops");
    assert_eq!((exit.code, exit.reason), (Some(137), ExitReason::Stopped));
    let response = call.await.expect("no panic").expect("the call finished");
    assert_eq!(text(response).await, "slept");
}

/// A restarted agent knows which instances are paused, whoever froze them, and also removes frozen ones that are in the way.
#[tokio::test(flavor = "multi_thread")]
async fn paused_instances_are_adopted_as_paused() {
    for cgroups in [Some(PathBuf::from("/sys/fs/cgroup")), None] {
        let engine = Engine::with(Network::Isolated).await;
        let owner = owner();
        let old = engine.runtime_with(owner.clone(), |options| options.cgroups = cgroups);
        let old = old.await;
        let started = old.start(spec(engine.image(Program::Hello), Program::Hello));
        let instance = started.await.expect("it starts");
        instance.pause().await.expect("it pauses");
        // The old agent's life ends before the new one's begins.
        drop((instance, old));
        let new = engine.runtime(owner.clone()).await;
        let adopted = new.adopt().await.expect("the engine answers");
        let [adopted] = adopted.as_slice() else {
            panic!("one was adopted, not {}", adopted.len());
        };
        assert_eq!(*adopted.state().borrow(), InstanceState::Paused);
        adopted.resume().await.expect("it goes on");
        assert_eq!(ask(&**adopted, "/hello").await, "hello");
        adopted.pause().await.expect("it pauses");
        adopted.stop(GRACE).await.expect("it stops");
        assert_eq!(engine.leftovers(&owner).await, 0);
    }
}

mod soak {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn twenty_starts_at_once_all_answer() {
        let _turn = fdn_testkit::exclusive::lock().await;
        start_at_once(20).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn pausing_is_true_again_and_again() {
        for cgroups in [Some(PathBuf::from("/sys/fs/cgroup")), None] {
            pause_back_to_back(cgroups, 50).await;
        }
    }
}

//! WebAssembly components in this process.

use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use fdn_core::manifest::Manifest;
use fdn_core::{ByteSize, Digest, DurationMs, ErrorCode};
use fdn_instances::wasm::WasmRuntime;
use fdn_instances::{
    CallFailure, ExitReason, Image, ImageSource, Instance, Metrics, NoSink, Owner, Runtime,
    StartError,
};
use fdn_runtime::{Engine, EngineOptions, compile_in_process, compiled_file_name};
use fdn_testkit::components;
use fdn_testkit::folder::OwnedFolder;

use crate::contract::contract;
use crate::subject::{Program, Running, Subject, ask, get, owner, spec};

static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let options = EngineOptions {
        max_instances: 100,
        ..EngineOptions::default()
    };
    Engine::new(options).expect("an engine")
});

static FOLDER: LazyLock<OwnedFolder> =
    LazyLock::new(|| OwnedFolder::new("fdn-components-").expect("a folder"));

/// The runtimes that were made, to be asked what they hold.
#[derive(Default)]
struct Wasm(Mutex<Vec<Weak<WasmRuntime>>>);

async fn wasm() -> Wasm {
    Wasm::default()
}

fn compile(component: &[u8]) -> Image {
    let digest = Digest::of(component);
    let folder = tempfile::tempdir_in(FOLDER.path())
        .expect("a folder")
        .keep();
    let source = folder.join("component.wasm");
    std::fs::write(&source, component).expect("a file");
    let path = folder.join(compiled_file_name(&digest, ENGINE.compatibility_key()));
    compile_in_process(&source, &path).expect("it compiles");
    let manifest = Manifest {
        memory: ByteSize::from_mib(64),
        timeout: DurationMs::from_secs(60),
        cpu_time: DurationMs::from_secs(60),
        ..Manifest::default()
    };
    Image {
        digest,
        source: ImageSource::Component {
            path,
            manifest: Box::new(manifest),
        },
    }
}

#[async_trait]
impl Subject for Wasm {
    async fn runtime(&self, owner: Owner) -> Arc<dyn Runtime> {
        let sink = Arc::new(NoSink);
        let runtime = WasmRuntime::new(owner, ENGINE.clone(), sink, Metrics::default());
        let runtime = Arc::new(runtime);
        let mut made = self.0.lock().expect("no panic");
        made.push(Arc::downgrade(&runtime));
        runtime
    }

    fn image(&self, program: Program) -> Image {
        compile(&match program {
            Program::Echo => components::echo(),
            Program::Env => components::env_dump("GREETING"),
            Program::Secret => components::env_dump("TOKEN"),
            Program::Sleep => components::sleeping(3000),
            Program::Hog => components::hog(),
            _ => components::hello("hello"),
        })
    }

    fn missing_image(&self) -> Image {
        Image {
            digest: Digest::of(b"nowhere"),
            source: ImageSource::Component {
                path: FOLDER.path().join("nowhere"),
                manifest: Box::default(),
            },
        }
    }

    async fn kill(&self, _instance: &dyn Instance) {
        unreachable!("an instance is no process of its own");
    }

    async fn leftovers(&self, owner: &Owner) -> usize {
        // Nothing outlives the runtime objects: counts what those that still exist hold.
        let made: Vec<_> = {
            let made = self.0.lock().expect("no panic");
            made.iter().filter_map(Weak::upgrade).collect()
        };
        let mut left = 0;
        for runtime in made {
            if runtime.owner() == owner {
                left += runtime.adopt().await.expect("in process").len();
            }
        }
        left
    }

    async fn leave_half_made(&self, _owner: &Owner, _image: &Image) {
        unreachable!("nothing can be left");
    }
}

contract!(for_all, wasm());

#[tokio::test]
async fn an_instance_holds_the_memory_that_its_calls_may_use() {
    let runtime = Wasm::default().runtime(owner()).await;
    let mut small = spec(compile(&components::hello("x")), Program::Hello);
    small.description.concurrency = NonZeroU32::new(2).expect("it cannot fail here");
    let error = runtime.start(small).await.expect_err("64 MiB are not 128");
    assert!(
        matches!(&error, StartError::Unsupported { reason } if reason.contains("128 MiB")),
        "{error}"
    );
}

#[tokio::test]
async fn calls_beyond_the_reservation_wait() {
    let running = Running::start(&Wasm::default(), Program::Sleep).await;
    let mut first = Box::pin(running.instance.call(get("/")));
    let mut second = Box::pin(running.instance.call(get("/")));
    assert!(futures::poll!(&mut first).is_pending(), "it sleeps");
    assert!(futures::poll!(&mut second).is_pending(), "it waits");
    let answer = first.await.expect("an answer");
    // The reservation is in use until the answer's body is dropped.
    assert!(futures::poll!(&mut second).is_pending(), "it waits still");
    drop(answer);
    second.await.expect("an answer");
    running.end().await;
}

#[tokio::test]
async fn stop_gives_running_calls_their_grace_and_no_more() {
    let running = Running::start(&Wasm::default(), Program::Sleep).await;
    let mut call = Box::pin(running.instance.call(get("/")));
    assert!(futures::poll!(&mut call).is_pending(), "it sleeps");
    let (exit, answer) = tokio::join!(running.instance.stop(Duration::from_secs(60)), call);
    assert_eq!(exit.expect("it stops").reason, ExitReason::Stopped);
    assert_eq!(answer.expect("it finished").status(), 200);

    let running = Running::start(&Wasm::default(), Program::Sleep).await;
    let mut call = Box::pin(running.instance.call(get("/")));
    assert!(futures::poll!(&mut call).is_pending(), "it sleeps");
    let (exit, answer) = tokio::join!(running.instance.stop(Duration::ZERO), call);
    assert_eq!(exit.expect("it stops").reason, ExitReason::Stopped);
    assert!(
        matches!(answer, Err(CallFailure::Interrupted { .. })),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_call_that_comes_while_it_stops_is_not_sent() {
    let running = Running::start(&Wasm::default(), Program::Sleep).await;
    let mut first = Box::pin(running.instance.call(get("/")));
    assert!(futures::poll!(&mut first).is_pending(), "it sleeps");
    let mut stop = Box::pin(running.instance.stop(Duration::from_secs(60)));
    assert!(futures::poll!(&mut stop).is_pending(), "it waits for it");
    let mut late = Box::pin(running.instance.call(get("/")));
    assert!(futures::poll!(&mut late).is_pending(), "it is next");
    let first = async { drop(first.await.expect("an answer")) };
    let ((), exit, late) = tokio::join!(first, stop, late);
    assert_eq!(exit.expect("it stops").reason, ExitReason::Stopped);
    assert!(matches!(late, Err(CallFailure::NotSent { .. })), "{late:?}");
}

#[tokio::test]
async fn a_trap_ends_the_call_and_not_the_instance() {
    let runtime = Wasm::default().runtime(owner()).await;
    let image = compile(&components::trapping());
    let instance = runtime
        .start(spec(image, Program::Hello))
        .await
        .expect("it starts");
    for _ in 0..2 {
        let failure = instance.call(get("/")).await.expect_err("it traps");
        let CallFailure::Interrupted { code, .. } = failure else {
            panic!("{failure:?}");
        };
        assert_eq!(code, ErrorCode::FunctionTrapped);
    }
    assert!(!instance.log_tail().is_empty(), "the reason is in its log");
    instance.stop(Duration::ZERO).await.expect("it stops");
}

#[tokio::test]
async fn instances_of_one_file_share_one_function() {
    let runtime = Wasm::default().runtime(owner()).await;
    let image = compile(&components::hello("shared"));
    let mut instances = Vec::new();
    for _ in 0..3 {
        let started = runtime.start(spec(image.clone(), Program::Hello)).await;
        instances.push(started.expect("it starts"));
    }
    assert_eq!(ask(&*instances[0], "/").await, "shared");
    assert_eq!(runtime.adopt().await.expect("in process").len(), 3);
    for instance in instances {
        instance.stop(Duration::ZERO).await.expect("it stops");
    }
    assert!(runtime.adopt().await.expect("in process").is_empty());
}

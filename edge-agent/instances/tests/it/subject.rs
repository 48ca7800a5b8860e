//! What the contract list needs from an implementation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use fdn_core::{InstanceId, MebiBytes, MilliCpu, Resources};
use fdn_instances::{
    Image, Instance, InstanceState, Owner, Request, Response, Runtime, StartSpec, empty_body,
};
use http_body_util::BodyExt;
use uuid::Uuid;

/// How long something that must happen may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A program that an implementation can run for the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// Answers `hello`.
    Hello,
    /// Answers the request's body.
    Echo,
    /// Answers the variable `GREETING` on `/env/GREETING`.
    Env,
    /// Answers the secret `TOKEN` on `/env/TOKEN`.
    Secret,
    /// Answers after a while: `/sleep/MILLISECONDS`.
    Sleep,
    /// Uses more memory than it may when called: `/alloc/MIB`.
    Hog,
    /// Answers a head and a first piece, then nothing: `/stall`.
    Stall,
    /// Writes many lines when called: `/print/LINES`.
    Print,
    /// Ends when called: `/exit/CODE`.
    Exit,
    /// Ends at its start with status 3.
    FailsAtStart,
    /// Never listens.
    Deaf,
}

/// One implementation of the traits.
#[async_trait]
pub(crate) trait Subject: Send + Sync {
    /// Creates a new runtime object on the same engine.
    async fn runtime(&self, owner: Owner) -> Arc<dyn Runtime>;

    /// The image of a program.
    fn image(&self, program: Program) -> Image;

    /// An image that does not exist.
    fn missing_image(&self) -> Image;

    /// Kills an instance's process from outside, as `kill -9` does.
    async fn kill(&self, instance: &dyn Instance);

    /// The number of this owner's objects on the engine, in whatever state.
    async fn leftovers(&self, owner: &Owner) -> usize;

    /// Leaves an unfinished object of this owner on the engine, as a crash in the middle of a start does.
    async fn leave_half_made(&self, owner: &Owner, image: &Image);
}

/// An owner that no other test uses.
pub(crate) fn owner() -> Owner {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let node = format!("n{}-{count}", std::process::id());
    Owner {
        cluster: "contract".parse().expect("it parses"),
        node: node.parse().expect("it parses"),
    }
}

/// A specification for a program with 64 MiB.
pub(crate) fn spec(image: Image, program: Program) -> StartSpec {
    let mut spec = StartSpec::new(
        InstanceId::from_uuid(Uuid::new_v4()),
        "probe".parse().expect("it parses"),
        "probe".parse().expect("it parses"),
        image,
        Resources::new(MilliCpu(500), MebiBytes(64)),
    );
    spec.description.readiness.timeout = PATIENCE;
    let mode = match program {
        Program::FailsAtStart => Some("exit"),
        Program::Deaf => Some("deaf"),
        _ => None,
    };
    if let Some(mode) = mode {
        spec.env
            .insert("PROBE".parse().expect("it parses"), mode.to_owned());
    }
    spec
}

/// A running instance of a program; stopped by [`Running::end`].
pub(crate) struct Running {
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) instance: Arc<dyn Instance>,
    pub(crate) owner: Owner,
}

impl Running {
    pub(crate) async fn start(subject: &dyn Subject, program: Program) -> Self {
        Self::with(subject, program, |_| {}).await
    }

    pub(crate) async fn with(
        subject: &dyn Subject,
        program: Program,
        change: impl FnOnce(&mut StartSpec),
    ) -> Self {
        let owner = owner();
        let runtime = subject.runtime(owner.clone()).await;
        let mut spec = spec(subject.image(program), program);
        change(&mut spec);
        let instance = runtime.start(spec).await.expect("the instance starts");
        Self {
            runtime,
            instance,
            owner,
        }
    }

    pub(crate) async fn end(self) {
        self.instance
            .stop(Duration::from_secs(5))
            .await
            .expect("the instance stops");
    }
}

pub(crate) fn get(path: &str) -> Request {
    http::Request::builder()
        .uri(path)
        .body(empty_body())
        .expect("it cannot fail here")
}

pub(crate) async fn text(response: Response) -> String {
    let body = response.into_body().collect().await.expect("a whole body");
    String::from_utf8(body.to_bytes().to_vec()).expect("text")
}

/// Calls a path and returns the text of the answer.
pub(crate) async fn ask(instance: &dyn Instance, path: &str) -> String {
    let response = instance.call(get(path)).await.expect("an answer");
    assert_eq!(response.status(), 200, "{path}");
    text(response).await
}

/// Waits for a state.
pub(crate) async fn until(
    instance: &dyn Instance,
    what: &str,
    wanted: impl Fn(&InstanceState) -> bool,
) -> InstanceState {
    let mut state = instance.state();
    let waiting = state.wait_for(|state| wanted(state));
    let found = tokio::time::timeout(PATIENCE, waiting).await;
    found
        .unwrap_or_else(|_| panic!("{what}, not {:?}", instance.state().borrow().clone()))
        .expect("the instance holds its state")
        .clone()
}

/// Begins a call and returns once the instance is busy with it.
pub(crate) async fn begin(
    instance: &Arc<dyn Instance>,
    path: &'static str,
) -> tokio::task::JoinHandle<Result<Response, fdn_instances::CallFailure>> {
    let callee = instance.clone();
    let call = tokio::spawn(async move { callee.call(get(path)).await });
    fdn_testkit::wait::until("the call to be served", async || {
        match ask(&**instance, "/running").await.as_str() {
            "0" | "1" => Err("not yet"),
            _ => Ok(()),
        }
    })
    .await;
    call
}

//! The fake passes the list too; otherwise tests that use it would mean nothing.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fdn_core::Digest;
use fdn_instances::fake::{AtStart, FakeContext, FakeEngine, FakeProgram};
use fdn_instances::{
    Body, BoxError, Exit, ExitReason, Image, ImageSource, Instance, Owner, Request, Response,
    Runtime, full_body,
};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use crate::contract::contract;
use crate::subject::{Program, Subject, spec};

struct Fake(Arc<FakeEngine>);

async fn fake() -> Fake {
    Fake(FakeEngine::new())
}

/// The behaviour of `testkit/probe`, in memory.
async fn handle(context: FakeContext, request: Request) -> Response {
    let path = request.uri().path().trim_start_matches('/').to_owned();
    let (command, argument) = path.split_once('/').unwrap_or((&path, ""));
    let number = || argument.parse::<u64>().unwrap_or(0);
    let text = match command {
        "echo" => return http::Response::new(request.into_body()),
        "stall" => return http::Response::new(stalling()),
        "env" => {
            let environment = context.environment();
            environment.get(argument).cloned().unwrap_or_default()
        }
        "running" => context.running().to_string(),
        "sleep" => {
            tokio::time::sleep(Duration::from_millis(number())).await;
            "slept".to_owned()
        }
        "alloc" => {
            let limit = context.description().resources.memory_mib.get();
            if number() > limit {
                context.exit(Exit {
                    code: Some(137),
                    reason: ExitReason::OutOfMemory,
                });
            }
            "kept".to_owned()
        }
        "print" => {
            for line in 0..number() {
                context.print(&format!("line {line} {}", "x".repeat(100)));
            }
            "printed".to_owned()
        }
        "exit" => {
            context.print("last words");
            context.exit(Exit::ended(argument.parse().unwrap_or(1)));
            String::new()
        }
        _ => "hello".to_owned(),
    };
    http::Response::new(full_body(text))
}

fn stalling() -> Body {
    let first = futures::stream::once(async { Ok::<_, BoxError>(Frame::data("first".into())) });
    let rest = futures::stream::pending();
    StreamBody::new(futures::StreamExt::chain(first, rest)).boxed_unsync()
}

#[async_trait]
impl Subject for Fake {
    async fn runtime(&self, owner: Owner) -> Arc<dyn Runtime> {
        self.0.runtime(owner.cluster, owner.node)
    }

    fn image(&self, program: Program) -> Image {
        let behaviour = FakeProgram::new(handle);
        match program {
            Program::FailsAtStart => {
                let start = AtStart::Exits(Exit::ended(3));
                let behaviour = behaviour.at_start(start, &["fatal: told to fail"]);
                self.0.add_image("fails", behaviour)
            }
            Program::Deaf => {
                let behaviour = behaviour.at_start(AtStart::NeverReady, &["deaf: not listening"]);
                self.0.add_image("deaf", behaviour)
            }
            _ => self.0.add_image("probe", behaviour),
        }
    }

    fn missing_image(&self) -> Image {
        Image {
            digest: Digest::of(b"nowhere"),
            source: ImageSource::Registry {
                repository: "fake/nowhere".to_owned(),
                credentials: None,
            },
        }
    }

    async fn kill(&self, instance: &dyn Instance) {
        assert!(self.0.crash(instance.id()), "it runs");
    }

    async fn leftovers(&self, owner: &Owner) -> usize {
        self.0.left(owner)
    }

    async fn leave_half_made(&self, owner: &Owner, image: &Image) {
        let runtime = self.runtime(owner.clone()).await;
        let spec = spec(image.clone(), Program::Hello);
        let instance = runtime.start(spec).await.expect("it starts");
        assert!(self.0.crash(instance.id()), "it runs");
    }
}

contract!(for_all, fake());
contract!(processes, fake());

//! The behaviour of a fake image when it runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use fdn_core::api::LogStream;
use futures::future::BoxFuture;

use crate::body::{Request, Response, full_body};
use crate::fake::instance::FakeInstance;
use crate::spec::Description;
use crate::state::Exit;

type Handler = dyn Fn(FakeContext, Request) -> BoxFuture<'static, Response> + Send + Sync;

/// What happens between the start of a fake instance and its first answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AtStart {
    /// It becomes ready.
    #[default]
    Ready,
    /// It ends.
    Exits(Exit),
    /// It never answers.
    NeverReady,
}

/// A fake image: the lines that it writes at the start, what happens then, and how it answers.
#[derive(Clone)]
pub struct FakeProgram {
    /// The lines that it writes at its start.
    pub lines: Vec<String>,
    /// What happens then.
    pub at_start: AtStart,
    /// Whether it continues working when a call is abandoned before its answer, as many servers do.
    pub works_on: bool,
    handler: Arc<Handler>,
}

impl FakeProgram {
    /// A program with a handler. The handler runs on the caller's task; it is cancelled when the instance ends.
    pub fn new<F>(handler: impl Fn(FakeContext, Request) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response> + Send + 'static,
    {
        Self {
            lines: Vec::new(),
            at_start: AtStart::Ready,
            works_on: false,
            handler: Arc::new(move |context, request| Box::pin(handler(context, request))),
        }
    }

    /// A program that answers every request with 200 and this text.
    #[must_use]
    pub fn text(text: &'static str) -> Self {
        Self::new(move |_, _| async move { http::Response::new(full_body(text)) })
    }

    /// The same program, but continuing when a call is abandoned before its answer.
    #[must_use]
    pub const fn working_on(mut self) -> Self {
        self.works_on = true;
        self
    }

    /// The same program with another start.
    #[must_use]
    pub fn at_start(mut self, at_start: AtStart, lines: &[&str]) -> Self {
        self.at_start = at_start;
        self.lines = lines.iter().map(|line| (*line).to_owned()).collect();
        self
    }

    pub(crate) fn handle(
        &self,
        context: FakeContext,
        request: Request,
    ) -> BoxFuture<'static, Response> {
        (self.handler)(context, request)
    }
}

impl fmt::Debug for FakeProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeProgram")
            .field("at_start", &self.at_start)
            .finish_non_exhaustive()
    }
}

/// A handler's view of the instance in which it runs.
#[derive(Clone, Debug)]
pub struct FakeContext(pub(crate) Arc<FakeInstance>);

impl FakeContext {
    /// The description of the instance.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.0.spec().description
    }

    /// Its environment variables, including secrets and `PORT`.
    #[must_use]
    pub fn environment(&self) -> BTreeMap<String, String> {
        let mut environment = self.0.spec().environment();
        environment.insert("PORT".to_owned(), self.description().port.to_string());
        environment
    }

    /// The number of calls that it is running, including the present one.
    #[must_use]
    pub fn running(&self) -> usize {
        self.0.running()
    }

    /// Writes a line of output.
    pub fn print(&self, line: &str) {
        self.0.print(LogStream::Stdout, line);
    }

    /// Ends the instance, as if its process had exited.
    pub fn exit(&self, exit: Exit) {
        self.0.end(exit);
    }
}

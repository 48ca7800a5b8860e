//! A fake controller, captured output, and (in [`sample`]) values to print.

pub(crate) mod bills;
pub(crate) mod plans;
pub(crate) mod sample;

use std::convert::Infallible;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use clap::Parser as _;
use fdn_cli::args::Cli;
use fdn_cli::console::Console;
use fdn_cli::environment::Environment;
use fdn_cli::exit::Exit;
use fdn_core::{ErrorCode, Problem};
use futures::StreamExt as _;
use http::{Method, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::TcpListener;

/// A request that the fake controller received.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// The reply of the fake controller.
pub(crate) enum Reply {
    Full(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Lines, after which the connection stays open forever, ends regularly, or breaks off.
    Lines(Vec<String>, End),
    /// No reply, forever.
    Silence,
}

/// The end of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Well,
    Cut,
}

impl Reply {
    pub(crate) fn json(value: &impl Serialize) -> Self {
        let body = serde_json::to_vec(value).expect("a value of the API");
        Self::Full(200, vec![("content-type", "application/json".into())], body)
    }

    pub(crate) fn problem(code: ErrorCode, detail: &str) -> Self {
        let problem = Problem::new(code, detail).with_request_id("req-1");
        let body = serde_json::to_vec(&problem).expect("a problem");
        Self::Full(
            code.http_status(),
            vec![("content-type", Problem::MEDIA_TYPE.into())],
            body,
        )
    }
}

type Handler = dyn Fn(&Recorded, usize) -> Reply + Send + Sync;

/// An HTTP server whose replies are computed by a function.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Recorded>>>,
}

impl Fake {
    /// Listens on a free port of 127.0.0.1; the function also gets the number of earlier requests.
    pub(crate) async fn start(
        handler: impl Fn(&Recorded, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::start_on("127.0.0.1:0", handler).await
    }

    pub(crate) async fn start_on(
        address: &str,
        handler: impl Fn(&Recorded, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let address = listener.local_addr().expect("address");
        let requests: Arc<Mutex<Vec<Recorded>>> = Arc::default();
        let (handler, log): (Arc<Handler>, _) = (Arc::new(handler), Arc::clone(&requests));
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    continue;
                };
                let (handler, log) = (Arc::clone(&handler), Arc::clone(&log));
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        answer(request, Arc::clone(&handler), Arc::clone(&log))
                    });
                    drop(
                        http1::Builder::new()
                            .serve_connection(TokioIo::new(stream), service)
                            .await,
                    );
                });
            }
        });
        Self { address, requests }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

async fn answer(
    request: Request<Incoming>,
    handler: Arc<Handler>,
    log: Arc<Mutex<Vec<Recorded>>>,
) -> Result<Response<BoxBody<Bytes, std::io::Error>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body
        .collect()
        .await
        .map(|b| b.to_bytes().to_vec())
        .unwrap_or_default();
    let recorded = Recorded {
        method: parts.method,
        path: parts
            .uri
            .path_and_query()
            .map(ToString::to_string)
            .unwrap_or_default(),
        authorization: parts
            .headers
            .get("authorization")
            .and_then(|v| v.to_str().ok())
            .map(str::to_owned),
        headers: parts.headers,
        body,
    };
    let before = {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(recorded.clone());
        log.len() - 1
    };
    let reply = handler(&recorded, before);
    Ok(match reply {
        Reply::Full(status, headers, body) => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response
                .body(
                    Full::new(Bytes::from(body))
                        .map_err(|never| match never {})
                        .boxed(),
                )
                .expect("a response")
        }
        Reply::Lines(lines, end) => {
            let frames =
                futures::stream::iter(lines).map(|line| Ok(Frame::data(Bytes::from(line + "\n"))));
            // The server flushes when the body is pending; the connection is cut only after that.
            let cut = futures::stream::once(async {
                tokio::task::yield_now().await;
                Err(std::io::Error::other("cut"))
            });
            let cut = cut.take(usize::from(end == End::Cut));
            Response::new(BoxBody::new(StreamBody::new(frames.chain(cut))))
        }
        Reply::Silence => std::future::pending().await,
    })
}

/// An output stream that stores what is written.
#[derive(Clone, Default)]
pub(crate) struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The same for a reader who leaves after the first line.
struct FirstLine(Captured);

impl Write for FirstLine {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.text().contains('\n') {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A separate home directory for one test.
pub(crate) struct Home {
    pub(crate) folder: tempfile::TempDir,
    vars: Vec<(&'static str, String)>,
}

/// The exit code and output of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) exit: Exit,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let vars = vec![("HOME", folder.path().display().to_string())];
        Self { folder, vars }
    }

    /// A home with a token for the controller at `url`.
    pub(crate) fn logged_in(url: &str) -> Self {
        let mut home = Self::new();
        let token = home.file("token", "secret-token\n");
        home.vars.push(("FDN_CONTROLLER", url.to_owned()));
        home.vars.push(("FDN_TOKEN_FILE", token));
        home
    }

    /// Sets an environment variable for later commands.
    pub(crate) fn set(&mut self, name: &'static str, value: &str) {
        self.vars.push((name, value.to_owned()));
    }

    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("folder");
        std::fs::write(&path, content).expect("file");
        path.display().to_string()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    pub(crate) fn env(&self) -> Environment {
        Environment::of(self.vars.iter().map(|(k, v)| (*k, v.clone())))
    }

    /// Runs a command in this process.
    pub(crate) async fn fdn(&self, args: &[&str]) -> Ran {
        let out = Captured::default();
        self.run(args, Box::new(out.clone()), &out).await
    }

    /// Runs a command in this process, as `fdn … | head -1` does.
    pub(crate) async fn fdn_first_line(&self, args: &[&str]) -> Ran {
        let out = Captured::default();
        self.run(args, Box::new(FirstLine(out.clone())), &out).await
    }

    async fn run(&self, args: &[&str], to: Box<dyn Write + Send>, out: &Captured) -> Ran {
        let cli =
            Cli::try_parse_from(std::iter::once(&"fdn").chain(args)).expect("valid arguments");
        let err = Captured::default();
        let mut console = Console::new(to, Box::new(err.clone()));
        let exit = fdn_cli::main_with(&cli, &self.env(), &mut console).await;
        Ran {
            exit,
            out: out.text(),
            err: err.text(),
        }
    }
}

//! Requests per second through the whole gateway, beside nginx's static answer, `wasmtime serve` and workerd in the same run.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fdn_testkit::ports;
use fdn_testkit::process::{Process, Program};

use crate::network::Network;
use crate::{Options, median, wrk};

const CONNECTIONS: [u32; 3] = [1, 16, 64];
/// What the others are a share of: one worker that answers without looking at anything.
const NGINX: &str = "nginx, return 200";
/// How it does that.
pub(crate) const ANSWER: &str = "location / { return 200 \"hello, world\\n\"; }";
/// More than any benchmark opens.
const CONNECTIONS_OF_NGINX: usize = 16_384;

/// One server to load.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    host: String,
    /// Its own, if it has one.
    pub(crate) process: Option<Process>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "gateway: hello component, server on core 0, wrk on core 1, {} rounds of {} s, medians",
        options.rounds, options.seconds
    );
    let network = Network::start(options)?;
    let hello = options.functions.join("hello/hello.wasm");
    network.deploy("fresh", &hello, "reuse = 1\n")?;
    network.deploy("reused", &hello, "reuse = 1000\n")?;
    let mut targets = vec![
        Target {
            name: "fdn, fresh instance",
            address: network.gateway,
            host: "fresh.fn.test".into(),
            process: None,
        },
        Target {
            name: "fdn, reuse = 1000",
            address: network.gateway,
            host: "reused.fn.test".into(),
            process: None,
        },
    ];
    targets.extend(wasmtime(
        options,
        &hello,
        network.folder(),
        "wasmtime serve",
        &[],
    )?);
    targets.extend(wasmtime(
        options,
        &hello,
        network.folder(),
        "wasmtime serve, pooling, reuse 1000",
        &[
            "-O",
            "pooling-allocator=y",
            "--max-instance-reuse-count",
            "1000",
        ],
    )?);
    targets.extend(workerd(options, network.folder())?);
    targets.extend(nginx(network.folder(), NGINX, ANSWER)?);
    println!(
        "{:<38} {:>5} {:>12} {:>9} {:>9} {:>9} {:>7}",
        "server", "conns", "requests/s", "of nginx", "p50 ms", "p99 ms", "errors"
    );
    for connections in CONNECTIONS {
        let mut seen: Vec<Vec<wrk::Seen>> = targets.iter().map(|_| Vec::new()).collect();
        for _ in 0..options.rounds {
            for (target, seen) in targets.iter().zip(&mut seen) {
                seen.push(wrk::load(
                    target.address,
                    &target.host,
                    connections,
                    options.seconds,
                )?);
            }
        }
        let rate =
            |seen: &[wrk::Seen]| median(seen.iter().map(|s| s.requests_per_second).collect());
        let whole = targets.iter().zip(&seen);
        let whole = whole
            .filter(|(target, _)| target.name == NGINX)
            .map(|(_, seen)| rate(seen))
            .next();
        for (target, seen) in targets.iter().zip(seen) {
            let middle = |of: fn(&wrk::Seen) -> f64| median(seen.iter().map(of).collect());
            println!(
                "{:<38} {:>5} {:>12.0} {:>9} {:>9.3} {:>9.3} {:>7}",
                target.name,
                connections,
                rate(&seen),
                whole.map_or_else(String::new, |whole| format!("{:.3}", rate(&seen) / whole)),
                middle(|s| s.p50_ms),
                middle(|s| s.p99_ms),
                seen.iter().map(|s| s.errors).sum::<u64>()
            );
        }
    }
    Ok(())
}

/// A program on the first core.
pub(crate) fn pinned(program: &Path, args: Vec<String>) -> Program {
    let mut all = vec![
        "-c".to_owned(),
        "0".to_owned(),
        program.display().to_string(),
    ];
    all.extend(args);
    Program::new("taskset", all)
}

/// Starts a server and waits until it takes connections.
pub(crate) fn started(
    name: &'static str,
    program: &Program,
    port: u16,
    folder: &Path,
) -> Result<Target> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut process = program.start(&folder.join(format!("{port}.log")))?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(address).is_err() {
        ensure!(
            process.ended().is_none() && Instant::now() < deadline,
            "{name} does not start: {}",
            process.log()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(Target {
        name,
        address,
        host: address.to_string(),
        process: Some(process),
    })
}

fn wasmtime(
    options: &Options,
    hello: &Path,
    folder: &Path,
    name: &'static str,
    more: &[&str],
) -> Result<Option<Target>> {
    let Some(exe) = &options.wasmtime else {
        println!("({name} left out: give --wasmtime)");
        return Ok(None);
    };
    let port = ports::local();
    let mut args = vec!["serve".to_owned(), "-S".to_owned(), "cli".to_owned()];
    args.extend(more.iter().map(|a| (*a).to_owned()));
    args.extend([
        format!("--addr=127.0.0.1:{port}"),
        hello.display().to_string(),
    ]);
    match started(name, &pinned(exe, args), port, folder) {
        Ok(target) => Ok(Some(target)),
        Err(error) => {
            println!("({name} left out: {error})");
            Ok(None)
        }
    }
}

fn workerd(options: &Options, folder: &Path) -> Result<Option<Target>> {
    let Some(exe) = &options.workerd else {
        println!("(workerd left out: give --workerd)");
        return Ok(None);
    };
    let port = ports::local();
    std::fs::write(
        folder.join("hello.js"),
        "export default { async fetch(request) { return new Response('hello, world\\n'); } };\n",
    )?;
    let config = format!(
        "using Workerd = import \"/workerd/workerd.capnp\";\n\
         const config :Workerd.Config = (services = [(name = \"main\", worker = .hello)],\n\
           sockets = [(name = \"http\", address = \"127.0.0.1:{port}\", http = (), service = \"main\")]);\n\
         const hello :Workerd.Worker = (modules = [(name = \"main\", esModule = embed \"hello.js\")],\n\
           compatibilityDate = \"2025-01-01\");\n"
    );
    std::fs::write(folder.join("workerd.capnp"), config)?;
    let args = vec![
        "serve".to_owned(),
        folder.join("workerd.capnp").display().to_string(),
    ];
    started("workerd (JavaScript)", &pinned(exe, args), port, folder).map(Some)
}

/// Debian's nginx with this in its server, if it is installed.
pub(crate) fn nginx(folder: &Path, name: &'static str, server: &str) -> Result<Option<Target>> {
    let exe = Path::new("/usr/sbin/nginx");
    if !exe.exists() {
        println!("({name} left out: nginx is not installed)");
        return Ok(None);
    }
    let port = ports::local();
    let place = folder.join(format!("nginx-{port}"));
    std::fs::create_dir_all(&place)?;
    // In the foreground and in one process, as its peers are, so that it ends with this one and its memory is that of one; keep-alive connections are not
    // ended by the number of their requests.
    let config = format!(
        "daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr error;\n\
         events {{ worker_connections {CONNECTIONS_OF_NGINX}; }}\n\
         http {{\n\
           access_log off; keepalive_requests 1000000000; default_type text/plain;\n\
           client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;\n\
           uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;\n\
           server {{ listen 127.0.0.1:{port}; {server} }}\n\
         }}\n",
        folder = place.display()
    );
    let path = place.join("nginx.conf");
    std::fs::write(&path, config)?;
    let args = [
        "-c".to_owned(),
        path.display().to_string(),
        "-p".to_owned(),
        place.display().to_string(),
    ];
    started(name, &pinned(exe, args.to_vec()), port, folder).map(Some)
}

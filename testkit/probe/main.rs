//! The program inside the test image: a small HTTP server that misbehaves on request, so that tests can check limits.
//!
//! Compiled by `fdn_testkit::docker` with plain `rustc` as a static executable, so that it can be the only file of an image.
//! It uses the standard library only. `PROBE_BIND` is the address to listen on, if not all. With `PROBE=exit` it exits at once with status 3, with
//! `PROBE=deaf` it never listens, with `PROBE=stubborn` it handles no SIGTERM, and with `PROBE=sigwait` its first thread waits for it.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

static RUNNING: AtomicUsize = AtomicUsize::new(0);
static TERMINATE: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    fn signal(number: i32, handler: extern "C" fn(i32)) -> usize;
    fn pthread_sigmask(how: i32, set: *const Signals, old: *mut Signals) -> i32;
    fn sigwait(set: *const Signals, number: *mut i32) -> i32;
}

/// `sigset_t`.
#[repr(C)]
struct Signals([u64; 16]);

const SIG_BLOCK: i32 = 0;
const SIGTERM: i32 = 15;

extern "C" fn on_terminate(_: i32) {
    TERMINATE.store(true, Ordering::SeqCst);
}

fn main() {
    println!("probe starts");
    match std::env::var("PROBE").as_deref() {
        Ok("exit") => {
            eprintln!("fatal: told to fail");
            std::process::exit(3);
        }
        Ok("deaf") => {
            eprintln!("deaf: not listening");
            loop {
                thread::sleep(Duration::from_secs(3600));
            }
        }
        _ => {}
    }
    match std::env::var("PROBE").as_deref() {
        Ok("stubborn") => {}
        Ok("sigwait") => {
            let (set, mut number) = (Signals(std::array::from_fn(|n| u64::from(n == 0) << (SIGTERM - 1))), 0);
            // Before there are other threads, which get the same mask.
            unsafe { pthread_sigmask(SIG_BLOCK, &set, std::ptr::null_mut()) };
            thread::spawn(listen);
            unsafe { sigwait(&set, &mut number) };
            println!("probe ends");
            std::process::exit(0);
        }
        _ => drop(unsafe { signal(SIGTERM, on_terminate) }),
    }
    thread::spawn(|| {
        loop {
            if TERMINATE.load(Ordering::SeqCst) && RUNNING.load(Ordering::SeqCst) == 0 {
                println!("probe ends");
                std::process::exit(0);
            }
            thread::sleep(Duration::from_millis(5));
        }
    });
    listen();
}

fn listen() {
    let port: u16 = std::env::var("PORT").unwrap().parse().unwrap();
    let address = std::env::var("PROBE_BIND").unwrap_or_else(|_| "0.0.0.0".to_owned());
    let address: std::net::IpAddr = address.parse().unwrap();
    let listener = TcpListener::bind(SocketAddr::new(address, port)).unwrap();
    for stream in listener.incoming().flatten() {
        // Small stacks: many connections must fit into little memory.
        let started = thread::Builder::new().stack_size(64 << 10).spawn(move || {
            drop(serve(stream));
        });
        if started.is_err() {
            eprintln!("no thread left");
        }
    }
}

struct Head {
    path: String,
    length: Option<usize>,
    chunked: bool,
}

fn head(reader: &mut impl BufRead) -> std::io::Result<Option<Head>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or("/").to_owned();
    let mut head = Head { path, length: None, chunked: false };
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let field = line.trim_end().to_ascii_lowercase();
        if field.is_empty() {
            return Ok(Some(head));
        }
        if let Some(value) = field.strip_prefix("content-length:") {
            head.length = value.trim().parse().ok();
        }
        if field.starts_with("transfer-encoding:") && field.contains("chunked") {
            head.chunked = true;
        }
    }
}

fn serve(stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut out = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    while let Some(head) = head(&mut reader)? {
        RUNNING.fetch_add(1, Ordering::SeqCst);
        let done = answer(&head, &mut reader, &mut out);
        RUNNING.fetch_sub(1, Ordering::SeqCst);
        done?;
    }
    Ok(())
}

fn answer(head: &Head, reader: &mut impl BufRead, out: &mut TcpStream) -> std::io::Result<()> {
    let parts: Vec<&str> = head.path.trim_start_matches('/').splitn(2, '/').collect();
    let argument = parts.get(1).copied().unwrap_or("");
    let number = || argument.parse::<usize>().unwrap_or(0);
    let text = match parts[0] {
        "echo" => return echo(head, reader, out),
        "stall" => {
            out.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")?;
            thread::sleep(Duration::from_secs(3600));
            String::new()
        }
        "env" => std::env::var(argument).unwrap_or_else(|_| "(none)".to_owned()),
        "running" => RUNNING.load(Ordering::SeqCst).to_string(),
        "sleep" => {
            thread::sleep(Duration::from_millis(number() as u64));
            "slept".to_owned()
        }
        "alloc" => {
            let mut kept = Vec::new();
            for _ in 0..number() {
                kept.push(vec![1u8; 1 << 20]);
            }
            format!("{} MiB", kept.len())
        }
        "threads" => threads(number()),
        "read" => std::fs::read_to_string(format!("/{argument}")).unwrap_or_else(|e| e.to_string()),
        "write" => match std::fs::write(format!("/{argument}"), b"x") {
            Ok(()) => "written".to_owned(),
            Err(error) => error.to_string(),
        },
        "connect" => connect(argument),
        "print" => {
            for line in 0..number() {
                println!("line {line} {}", "x".repeat(100));
            }
            "printed".to_owned()
        }
        "exit" => {
            eprintln!("last words");
            std::process::exit(argument.parse().unwrap_or(1));
        }
        _ => "hello".to_owned(),
    };
    write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len())
}

/// Connects to the addresses that a host, in any notation, and a port resolve to.
fn connect(to: &str) -> String {
    let addresses = match to.to_socket_addrs() {
        Ok(addresses) => addresses,
        Err(error) => return format!("no address: {error}"),
    };
    let mut failed = "no address".to_owned();
    for address in addresses {
        match TcpStream::connect_timeout(&address, Duration::from_secs(2)) {
            Ok(_) => return "connected".to_owned(),
            Err(error) => failed = error.to_string(),
        }
    }
    failed
}

/// The number of threads that can run at the same time, up to `wanted`.
fn threads(wanted: usize) -> String {
    let mut started = Vec::new();
    let (keep, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
    for _ in 0..wanted {
        let wait = wait.clone();
        let one = thread::Builder::new().stack_size(16 << 10).spawn(move || {
            drop(wait.lock().map(|wait| wait.recv()));
        });
        match one {
            Ok(thread) => started.push(thread),
            Err(_) => break,
        }
    }
    let count = started.len();
    drop(keep);
    for thread in started {
        drop(thread.join());
    }
    count.to_string()
}

/// Sends the body back as it arrives.
fn echo(head: &Head, reader: &mut impl BufRead, out: &mut TcpStream) -> std::io::Result<()> {
    out.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    let mut left = head.length.unwrap_or(0);
    loop {
        if head.chunked && left == 0 {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            left = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
        }
        if left == 0 {
            break;
        }
        while left > 0 {
            let mut piece = vec![0; left.min(64 << 10)];
            let read = reader.read(&mut piece)?;
            if read == 0 {
                return Ok(());
            }
            left -= read;
            write!(out, "{read:x}\r\n")?;
            out.write_all(&piece[..read])?;
            out.write_all(b"\r\n")?;
        }
        if head.chunked {
            reader.read_line(&mut String::new())?;
        } else {
            break;
        }
    }
    if head.chunked {
        reader.read_line(&mut String::new())?;
    }
    out.write_all(b"0\r\n\r\n")
}

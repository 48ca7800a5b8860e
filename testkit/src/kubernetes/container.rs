//! A process that a simulated kubelet runs for a pod, and its output.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch;

use crate::{docker, process};

/// The interval of checking whether a process has ended.
const POLL: Duration = Duration::from_millis(5);

/// How a process ended, as reported by a kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) code: i32,
    pub(super) reason: &'static str,
}

#[derive(Debug)]
pub(super) struct Container {
    child: Mutex<Child>,
    log: Mutex<Log>,
    /// The number of lines, plus one at the end.
    output_changes: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Log {
    lines: Vec<(SystemTime, String)>,
    /// The number of open streams.
    open: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Container {
    /// Runs the probe with exactly this environment, on this address, with this memory limit.
    pub(super) fn run(
        environment: &BTreeMap<String, String>,
        address: Ipv4Addr,
        memory_kib: u64,
    ) -> std::io::Result<Arc<Self>> {
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "sh", "-c"])
            // Limits writable memory, which is what a memory limit is about; exceeding it aborts the probe.
            .arg(format!("ulimit -d {memory_kib}; exec \"$0\""))
            .arg(docker::probe())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .envs(environment)
            .env("PROBE_BIND", address.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = process::spawn(command)?;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let container = Arc::new(Self {
            child: Mutex::new(child),
            log: Mutex::new(Log {
                lines: Vec::new(),
                open: 2,
            }),
            output_changes: watch::Sender::new(0),
        });
        if let (Some(output), Some(errors)) = (output, errors) {
            container.read(output);
            container.read(errors);
        }
        Ok(container)
    }

    fn read(self: &Arc<Self>, from: impl Read + Send + 'static) {
        let container = self.clone();
        thread::spawn(move || {
            for line in BufReader::new(from).lines() {
                let Ok(line) = line else { break };
                let count = {
                    let mut log = lock(&container.log);
                    log.lines.push((SystemTime::now(), line));
                    log.lines.len()
                };
                container.output_changes.send_replace(count);
            }
            lock(&container.log).open -= 1;
            container.output_changes.send_modify(|count| *count += 1);
        });
    }

    /// Waits until the process and both its outputs have ended.
    pub(super) async fn wait(&self) -> Ended {
        let status = loop {
            let status = lock(&self.child).try_wait();
            match status {
                Ok(Some(status)) => break status,
                Ok(None) => tokio::time::sleep(POLL).await,
                Err(error) => panic!("a child can be waited for: {error}"),
            }
        };
        let mut output_changes = self.output_changes();
        // Cannot fail: the sender belongs to this container.
        while lock(&self.log).open > 0 && output_changes.changed().await.is_ok() {}
        let aborted = status.signal() == Some(6);
        let short = aborted
            && lock(&self.log)
                .lines
                .iter()
                .any(|(_, line)| line.contains("memory allocation of"));
        let code = status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(9));
        match code {
            _ if short => Ended {
                code: 137,
                reason: "OOMKilled",
            },
            0 => Ended {
                code,
                reason: "Completed",
            },
            _ => Ended {
                code,
                reason: "Error",
            },
        }
    }

    /// Sends a signal, unless the process has ended; returns whether it was still running.
    pub(super) fn signal(&self, signal: Signal) -> bool {
        let mut child = lock(&self.child);
        let runs = matches!(child.try_wait(), Ok(None));
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        match id.filter(|_| runs) {
            // The process was not reaped yet, so its id was not reused.
            Some(id) => kill_process(id, signal).is_ok(),
            None => false,
        }
    }

    pub(super) fn lines(&self) -> usize {
        lock(&self.log).lines.len()
    }

    /// The lines from index `at` on, and whether there will be no more.
    pub(super) fn from(&self, at: usize) -> (Vec<(SystemTime, String)>, bool) {
        let log = lock(&self.log);
        let lines = log.lines.get(at..).unwrap_or_default().to_vec();
        (lines, log.open == 0)
    }

    pub(super) fn output_changes(&self) -> watch::Receiver<usize> {
        self.output_changes.subscribe()
    }
}

/// A loopback address on which a port is free; each pod has its own.
pub(super) fn free_address(port: u16) -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..10_000 {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        // Different test processes begin at different addresses.
        let at = std::process::id()
            .wrapping_mul(2_654_435_761)
            .wrapping_add(next)
            % (64 << 16);
        let [_, high, middle, low] = at.to_be_bytes();
        let address = Ipv4Addr::new(127, 128 | high, middle, low);
        if low > 0 && TcpListener::bind((address, port)).is_ok() {
            return address;
        }
    }
    panic!("port {port} is taken on every address: something listens on all of them");
}

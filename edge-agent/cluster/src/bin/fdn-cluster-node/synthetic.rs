//! Synthetic instances: the payload says how long each lives and when it was requested.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use fdn_cluster::{Cluster, Host, InstanceEvent, StartOrder, TaskId};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::histogram::Histogram;

/// A log of events, one line each, written immediately so that it survives a kill.
#[derive(Debug)]
pub(crate) struct Journal(Option<Mutex<File>>);

impl Journal {
    pub(crate) fn open(path: Option<&Path>) -> std::io::Result<Self> {
        let open = |path| OpenOptions::new().create(true).append(true).open(path);
        Ok(Self(path.map(open).transpose()?.map(Mutex::new)))
    }

    pub(crate) fn write(&self, line: impl FnOnce() -> String) {
        if let Some(file) = &self.0 {
            let line = line() + "\n";
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(line.as_bytes())
                .expect("the journal of a test can be written");
        }
    }
}

/// The present time, in microseconds since 1970.
pub(crate) fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or(Duration::ZERO).as_micros()).unwrap_or(u64::MAX)
}

/// The payload of an instance: its lifetime in microseconds (0: until the process ends), and when it was requested.
pub(crate) fn payload(life: u64, born: u64) -> Bytes {
    let mut payload = BytesMut::with_capacity(16);
    payload.put_u64_le(life);
    payload.put_u64_le(born);
    payload.freeze()
}

/// The latencies from request to start, of instances that started here.
pub(crate) type Measured = Arc<Mutex<Histogram>>;

enum Life {
    Begins(TaskId, Duration),
    IsOver(TaskId),
}

/// The host.
pub(crate) struct Synthetic {
    journal: Arc<Journal>,
    lives: mpsc::UnboundedSender<Life>,
    measured: Measured,
}

impl Synthetic {
    pub(crate) fn new(journal: Arc<Journal>) -> (Self, Lives) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let host = Self {
            journal: Arc::clone(&journal),
            lives: sender,
            measured: Measured::default(),
        };
        (host, Lives { journal, receiver })
    }

    pub(crate) fn measured(&self) -> Measured {
        Arc::clone(&self.measured)
    }
}

impl Host for Synthetic {
    fn start(&mut self, order: StartOrder) {
        let now = micros();
        let id = order.task.0;
        self.journal.write(|| {
            let demand = order.demand;
            format!(
                "start {id} {} {}",
                demand.cpu_milli.get(),
                demand.memory_mib.get()
            )
        });
        let mut payload = order.payload;
        if payload.len() < 16 {
            // It cannot be started and ends at once. Tests do not tolerate that.
            self.journal.write(|| format!("bare {id}"));
            let _ = self.lives.send(Life::Begins(order.task, Duration::ZERO));
            return;
        }
        let (life, born) = (payload.get_u64_le(), payload.get_u64_le());
        self.measured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(now.saturating_sub(born) as f64);
        if life > 0 {
            // The receiver lives as long as the process.
            let _ = self
                .lives
                .send(Life::Begins(order.task, Duration::from_micros(life)));
        }
    }

    fn end(&mut self, task: TaskId) {
        self.journal.write(|| format!("surplus {}", task.0));
        let _ = self.lives.send(Life::IsOver(task));
    }

    fn instance_event(&mut self, event: InstanceEvent) {
        self.journal.write(|| format!("news {event:?}"));
    }
}

/// Ends instances when their lifetime is over.
pub(crate) struct Lives {
    journal: Arc<Journal>,
    receiver: mpsc::UnboundedReceiver<Life>,
}

impl Lives {
    pub(crate) async fn run(mut self, cluster: Cluster) {
        let mut ends: BinaryHeap<Reverse<(Instant, u64)>> = BinaryHeap::new();
        let mut over = HashSet::new();
        let mut batch = Vec::new();
        loop {
            let next = ends.peek().map(|Reverse((at, _))| *at);
            let next = next.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            tokio::select! {
                count = self.receiver.recv_many(&mut batch, 4096) => {
                    if count == 0 {
                        return;
                    }
                }
                () = sleep_until(next) => {}
            }
            let now = Instant::now();
            for life in batch.drain(..) {
                match life {
                    Life::Begins(task, life) => ends.push(Reverse((now + life, task.0))),
                    Life::IsOver(task) => {
                        over.insert(task.0);
                        self.end(&cluster, task.0);
                    }
                }
            }
            while let Some(Reverse((at, id))) = ends.peek().copied()
                && at <= now
            {
                ends.pop();
                if !over.remove(&id) {
                    self.end(&cluster, id);
                }
            }
        }
    }

    fn end(&self, cluster: &Cluster, id: u64) {
        self.journal.write(|| format!("end {id}"));
        cluster.ended(TaskId(id));
    }
}

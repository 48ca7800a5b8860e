//! Two kinds of load on some connections: as much as is answered, and as much as is offered.
//!
//! Offered load is planned beforehand, and each call is timed from when the plan says. All connections take the next call of the plan in turn: when all of
//! them are busy the next call waits for one, and that wait is in its time. (Timed from when it is sent, the slow calls would hide those that they delay.)

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::connection::{Connection, Http};
use crate::response::trace::drawn;

/// From when connections are opened until the first call of a plan.
pub(super) const OPENING: Duration = Duration::from_millis(500);
/// Calls before those that count.
const BEFORE: Duration = Duration::from_secs(1);
/// The runtime's timers are no finer; the rest is waited for awake.
const AWAKE: Duration = Duration::from_millis(2);

/// What is called, of how many calls.
#[derive(Clone, Debug)]
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) host: String,
    /// Its share of all calls, relative to the others'.
    pub(super) share: u64,
}

/// A call that is to be made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Planned {
    pub(super) at: Duration,
    /// In the list of hosts.
    pub(super) function: usize,
}

/// Where load is offered.
pub(super) struct Offer<'a> {
    pub(super) address: SocketAddr,
    pub(super) hosts: &'a [String],
    pub(super) connections: usize,
    /// When the plan begins.
    pub(super) begin: Instant,
    /// Whether the last moments before a call are waited for awake: on a core of its own. Otherwise calls are sent up to a millisecond late, which is in
    /// their time.
    pub(super) awake: bool,
}

/// A call that was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub(super) function: usize,
    /// From when it was planned until it was sent.
    pub(super) late: Duration,
    /// From when it was planned until its last byte; nothing if it failed.
    pub(super) took: Option<Duration>,
}

/// Which function the call of a number calls, each time alike.
fn function_of(number: u64, functions: &[Function]) -> usize {
    let whole: u64 = functions.iter().map(|one| one.share).sum();
    let mut rest = drawn(2 * number) % whole.max(1);
    for (at, function) in functions.iter().enumerate() {
        match rest.checked_sub(function.share) {
            Some(less) => rest = less,
            None => return at,
        }
    }
    0
}

/// Times at this rate whose gaps are exponential: of callers who do not know of each other.
pub(super) fn times(rate: f64) -> impl Iterator<Item = Duration> {
    let mut at = 0.0;
    (0_u64..).map(move |number| {
        let chance = (drawn(2 * number + 1) >> 11) as f64 / (1_u64 << 53) as f64;
        at -= (1.0 - chance).ln() / rate;
        Duration::from_secs_f64(at)
    })
}

/// Calls of these functions at such times.
pub(super) fn plan(functions: &[Function], rate: f64, span: Duration) -> Vec<Planned> {
    let at = times(rate).take_while(|at| *at < span);
    let planned = at.zip(0..).map(|(at, number)| Planned {
        at,
        function: function_of(number, functions),
    });
    planned.collect()
}

/// How many calls a second are answered when each of so many connections makes the next one as soon as the last is answered.
pub(super) async fn capacity(
    address: SocketAddr,
    functions: &[Function],
    connections: usize,
    span: Duration,
) -> Result<f64> {
    let functions: Arc<[Function]> = functions.into();
    let (next, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut callers: JoinSet<Result<()>> = JoinSet::new();
    for _ in 0..connections {
        let connection = Connection::open(address, Http::One, None).await?;
        let counts = (Arc::clone(&next), Arc::clone(&done));
        callers.spawn(for_ever(connection, functions.clone(), counts));
    }
    let begin = Instant::now() + BEFORE;
    let measured = async {
        sleep_until(begin).await;
        let before = done.load(Ordering::Relaxed);
        sleep_until(begin + span).await;
        (done.load(Ordering::Relaxed) - before) as f64 / begin.elapsed().as_secs_f64()
    };
    let rate = tokio::select! {
        rate = measured => rate,
        // None of them ends but by a failure.
        Some(ended) = callers.join_next() => {
            ended?.context("measuring the capacity")?;
            bail!("a caller ended")
        }
    };
    callers.shutdown().await;
    Ok(rate)
}

/// Makes one call after another until one fails; counts those that begin, and those that are answered.
async fn for_ever(
    mut connection: Connection,
    functions: Arc<[Function]>,
    (next, done): (Arc<AtomicUsize>, Arc<AtomicUsize>),
) -> Result<()> {
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed) as u64;
        let function = &functions[function_of(number, &functions)];
        connection.get(&function.host).await?;
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Makes these calls when they are due, whatever becomes of others, over so many connections.
pub(super) async fn offer(to: &Offer<'_>, plan: Vec<Planned>) -> Result<Vec<Made>> {
    let plan: Arc<[Planned]> = plan.into();
    let hosts: Arc<[String]> = to.hosts.into();
    let next = Arc::new(AtomicUsize::new(0));
    let mut open = Vec::with_capacity(to.connections);
    for _ in 0..to.connections {
        open.push(Connection::open(to.address, Http::One, None).await?);
    }
    let (address, begin, awake) = (to.address, to.begin, to.awake);
    ensure!(Instant::now() < begin, "connections are not open in time");
    let mut callers: JoinSet<Result<Vec<Made>>> = JoinSet::new();
    for mut connection in open {
        let (plan, hosts, next) = (plan.clone(), hosts.clone(), Arc::clone(&next));
        callers.spawn(async move {
            let mut made = Vec::new();
            while let Some(call) = plan.get(next.fetch_add(1, Ordering::Relaxed)) {
                let due = begin + call.at;
                until(due, awake).await;
                let late = due.elapsed();
                let answered = connection.get(&hosts[call.function]).await.is_ok();
                made.push(Made {
                    function: call.function,
                    late,
                    took: answered.then(|| due.elapsed()),
                });
                if !answered {
                    connection = Connection::open(address, Http::One, None).await?;
                }
            }
            Ok(made)
        });
    }
    let mut made = Vec::with_capacity(plan.len());
    while let Some(ended) = callers.join_next().await {
        made.extend(ended??);
    }
    Ok(made)
}

/// Waits until a moment, to the microsecond where it may be awake. Whoever is awake lets the others go on.
async fn until(due: Instant, awake: bool) {
    if !awake {
        return sleep_until(due).await;
    }
    sleep_until(due - AWAKE).await;
    while Instant::now() < due {
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use hyper::body::Incoming;

    use super::*;

    fn functions() -> [Function; 2] {
        [("light", 9), ("heavy", 1)].map(|(name, share)| Function {
            name,
            host: name.to_owned(),
            share,
        })
    }

    #[test]
    fn a_plan_has_its_rate_and_its_shares_and_is_each_time_alike() {
        let functions = functions();
        let span = Duration::from_secs(20);
        let planned = plan(&functions, 1000.0, span);
        assert!(planned.len().abs_diff(20_000) < 600, "{}", planned.len());
        assert!(planned.is_sorted_by_key(|call| call.at));
        let heavy = planned.iter().filter(|call| call.function == 1).count();
        assert!(heavy.abs_diff(2000) < 200, "{heavy}");
        // As many gaps are longer than the mean as of an exponential distribution: 1 / e.
        let gaps = planned.windows(2).map(|two| two[1].at - two[0].at);
        let long = gaps.filter(|gap| *gap > Duration::from_millis(1)).count();
        assert!(long.abs_diff(7358) < 400, "{long}");
        assert_eq!(planned, plan(&functions, 1000.0, span));
    }

    #[tokio::test]
    async fn a_call_waits_in_its_time_for_a_connection() {
        // Answers after 30 ms, one connection after another, so that calls planned 10 ms apart come later and later.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = hyper::service::service_fn(|_: http::Request<Incoming>| async {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                    let answer = http_body_util::Full::new(bytes::Bytes::from_static(b"late"));
                    Ok::<_, std::convert::Infallible>(http::Response::new(answer))
                });
                let stream = hyper_util::rt::TokioIo::new(stream);
                let server = hyper::server::conn::http1::Builder::new();
                tokio::spawn(server.serve_connection(stream, service));
            }
        });
        let span = Duration::from_millis(500);
        let hosts = ["late".to_owned()];
        let to = Offer {
            address,
            hosts: &hosts,
            connections: 1,
            begin: Instant::now() + OPENING,
            awake: true,
        };
        let planned = plan(&functions()[..1], 100.0, span);
        let made = offer(&to, planned).await.expect("all are answered");
        assert!(made.len() > 20, "{}", made.len());
        assert!(made.iter().all(|call| call.took.is_some()));
        // n calls take at least 30 n ms together; all were to be made within half a second.
        let count = u32::try_from(made.len()).unwrap();
        let last = made.iter().map(|call| call.took).max().unwrap().unwrap();
        assert!(last >= Duration::from_millis(30) * count - span);
        assert!(
            made.iter()
                .any(|call| call.late > Duration::from_millis(30))
        );
    }
}

//! Users: each call asks DNS as its own client would, goes where it is sent, over its distance, and is timed from then on when it was to be made until its last
//! byte. So a client that comes late because the machine is busy makes a call longer, never shorter.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use fdn_core::ClientPrefix;
use fdn_testkit::{dns, ports};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::figures::{Call, Ended};
use super::fleet::{Fleet, host};
use super::relay::{Relay, listen};
use super::site::{PLACES, SITES, far, gateway, node_at, nodes, round_trips, subnet};
use super::steer::Steer;
use super::trace::Arrival;

/// How long a user waits.
const PATIENCE: Duration = Duration::from_secs(90);
/// Work of one call while the capacity is measured, in ms at speed 1.
const PROBE: f64 = 200.0;
/// For how long it is measured, and how long before that calls are made that do not count.
const MEASURED: Duration = Duration::from_secs(6);
const BEFORE: Duration = Duration::from_secs(2);

/// Users everywhere, and their ways to the clusters.
pub(crate) struct Users {
    client: reqwest::Client,
    dns: SocketAddr,
    gateway_port: u16,
    /// The port of all relays.
    far_port: u16,
    hosts: Vec<String>,
    subnets: Vec<ClientPrefix>,
    /// How much longer calls take in a cluster than its speed says, and which of its nodes are known to be gone.
    state: Mutex<State>,
    _relays: Vec<Relay>,
}

#[derive(Debug)]
struct State {
    slower: [f64; SITES.len()],
    gone: Vec<(usize, usize)>,
}

impl Users {
    /// Users of these apps, each place as far from each cluster as it is.
    pub(crate) async fn new(fleet: &Fleet, apps: &[String]) -> Result<Arc<Self>> {
        let trips = round_trips()?;
        let places = 0..PLACES.len();
        let ways = places.flat_map(|place| nodes().map(move |(site, node)| (place, site, node)));
        let ways: Vec<(usize, usize, usize)> = ways.collect();
        let addresses = ways.iter().map(|(p, s, n)| IpAddr::V4(far(*p, *s, *n)));
        let far_port = ports::free(&addresses.collect::<Vec<_>>());
        let mut relays = Vec::new();
        for (place, site, node) in ways {
            let at = SocketAddr::from((far(place, site, node), far_port));
            let to = SocketAddr::from((gateway(site, node), fleet.gateway_port));
            let relay = listen(at, to, trips[place][site]).await;
            relays.push(relay.with_context(|| format!("listening at {at}"))?);
        }
        Ok(Arc::new(Self {
            client: fdn_service::http_client::build(PATIENCE)?,
            dns: fleet.dns,
            gateway_port: fleet.gateway_port,
            far_port,
            hosts: apps.iter().map(|app| host(app)).collect(),
            subnets: (0..PLACES.len()).map(subnet).collect(),
            state: Mutex::new(State {
                slower: [1.0; SITES.len()],
                gone: Vec::new(),
            }),
            _relays: relays,
        }))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls that begin from now on take so many times as long in a cluster as its speed says.
    pub(crate) fn slow(&self, site: usize, by: f64) {
        self.lock().slower[site] = by;
    }

    /// A node is gone, or there again: what rules know that do not ask DNS.
    pub(crate) fn gone(&self, node: (usize, usize), is_gone: bool) {
        let mut state = self.lock();
        state.gone.retain(|one| *one != node);
        if is_gone {
            state.gone.push(node);
        }
    }

    /// Where DNS sends an app's client at a place now: the node that stands first.
    pub(crate) async fn ask(&self, app: usize, place: usize) -> Result<(usize, usize)> {
        let (host, subnet) = (&self.hosts[app], self.subnets[place]);
        let found = dns::addresses(self.dns, host, subnet, PATIENCE).await?;
        let first = found.first().context("DNS answers with nothing")?;
        node_at(*first).with_context(|| format!("{first} is no gateway"))
    }

    /// How many slots of speed 1 are kept busy in each cluster by more calls than it can run at once, all clusters at the same time.
    pub(crate) async fn capacity(self: &Arc<Self>) -> Vec<f64> {
        let done: Arc<Vec<AtomicU64>> = Arc::new(SITES.iter().map(|_| AtomicU64::new(0)).collect());
        let mut callers = JoinSet::new();
        for (site, node) in nodes() {
            let address = SocketAddr::from((gateway(site, node), self.gateway_port));
            let took = self.length(site, PROBE);
            for caller in 0..2 * SITES[site].slots as usize {
                let (users, done) = (Arc::clone(self), Arc::clone(&done));
                let app = caller % self.hosts.len();
                callers.spawn(async move {
                    while users.call(address, app, took).await == Ended::Answered {
                        done[site].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        }
        sleep(BEFORE).await;
        let count = || -> Vec<u64> { done.iter().map(|n| n.load(Ordering::Relaxed)).collect() };
        let (begin, before) = (Instant::now(), count());
        sleep(MEASURED).await;
        let (elapsed, after) = (begin.elapsed().as_secs_f64() * 1000.0, count());
        callers.shutdown().await;
        let busy = |(after, before): (&u64, &u64)| (after - before) as f64 * PROBE / elapsed;
        after.iter().zip(&before).map(busy).collect()
    }

    /// How many milliseconds a call of this work takes in a cluster.
    fn length(&self, site: usize, work: f64) -> u64 {
        let took = work / SITES[site].speed * self.lock().slower[site];
        took.round().max(1.0) as u64
    }

    async fn call(&self, address: SocketAddr, app: usize, took: u64) -> Ended {
        let request = self.client.get(format!("http://{address}/{took}"));
        let answer = match request.header("host", &self.hosts[app]).send().await {
            Ok(answer) => answer,
            Err(_) => return Ended::Lost,
        };
        let status = answer.status().as_u16();
        match (answer.bytes().await, status) {
            (Ok(_), 200) => Ended::Answered,
            (Ok(_), status) => Ended::Refused(status),
            (Err(_), _) => Ended::Lost,
        }
    }

    /// Makes these calls, each when it is due, and waits for all of them.
    pub(crate) async fn play(
        self: &Arc<Self>,
        arrivals: &[Arrival],
        steer: &Arc<Steer>,
    ) -> Result<Vec<Call>> {
        let begin = Instant::now();
        let (mut under_way, mut made) = (JoinSet::new(), Vec::with_capacity(arrivals.len()));
        for arrival in arrivals {
            sleep_until(begin + arrival.at).await;
            while let Some(done) = under_way.try_join_next() {
                made.push(done?);
            }
            let (users, steer) = (Arc::clone(self), Arc::clone(steer));
            under_way.spawn(users.make(*arrival, steer, begin + arrival.at));
        }
        while let Some(done) = under_way.join_next().await {
            made.push(done?);
        }
        Ok(made)
    }

    async fn make(self: Arc<Self>, arrival: Arrival, steer: Arc<Steer>, due: Instant) -> Call {
        let mut call = Call {
            at: arrival.at,
            app: arrival.app,
            place: arrival.place,
            site: None,
            asked: Duration::ZERO,
            took: Duration::ZERO,
            ended: Ended::Lost,
        };
        let made = timeout(PATIENCE, self.attempt(&arrival, &steer, due, &mut call)).await;
        call.ended = made.unwrap_or(Ended::Lost);
        call.took = due.elapsed();
        call
    }

    async fn attempt(
        &self,
        arrival: &Arrival,
        steer: &Arc<Steer>,
        due: Instant,
        call: &mut Call,
    ) -> Ended {
        // Asked whoever decides: it costs all of them the same, and the network goes on knowing where its clients are.
        let Ok(answered) = self.ask(arrival.app, arrival.place).await else {
            return Ended::Lost;
        };
        sleep(steer.way(arrival.place)).await;
        call.asked = due.elapsed();
        let gone = self.lock().gone.clone();
        let wanted = (arrival.app, arrival.place, arrival.work);
        let sent = steer.send(wanted, answered, |s, n| !gone.contains(&(s, n)));
        let Some(sent) = sent else {
            return Ended::Lost;
        };
        call.site = Some(sent.site);
        let address = far(arrival.place, sent.site, sent.node);
        let took = self.length(sent.site, arrival.work);
        self.call((address, self.far_port).into(), arrival.app, took)
            .await
    }
}

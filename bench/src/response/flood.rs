//! Questions for made-up client subnets, thousands a second, while real clients go on: whether a real one loses its binding or is sent elsewhere, and what it
//! costs the controller. Clients at the places call; clients of more networks only ask, again and again, so that nothing is measured of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fdn_core::ClientPrefix;
use fdn_core::api::AppDetail;
use fdn_testkit::dns;
use serde_json::json;
use tokio::time::sleep;

use super::fleet::{Fleet, host};
use super::site::{PLACES, node_at, subnet};
use super::steer::{Rule, Steer};
use super::{Stage, block_on};
use crate::Options;
use crate::dns::question;
use crate::machines::processor_of;

/// Questions a second, each of another subnet.
const RATE: u64 = 10_000;
const FLOOD: Duration = Duration::from_secs(60);
/// How long the same is watched without them.
const QUIET: Duration = Duration::from_secs(30);
/// Calls meanwhile, in hundredths of the capacity.
const LOAD: u32 = 30;
/// Networks whose clients only ask, and how often each does.
const ASKERS: u8 = 250;
const AGAIN: Duration = Duration::from_secs(10);
/// How long it may take until all of them are bound.
const BOUND: Duration = Duration::from_secs(120);
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "flood: {RATE} questions a second for {FLOOD:?}, each of a made-up /24, beside {} networks that call at {LOAD} % of the capacity and {ASKERS} that ask \
         each {AGAIN:?}",
        PLACES.len()
    );
    block_on(measure(options))
}

async fn measure(options: &Options) -> Result<()> {
    let stage = Stage::set(options).await?;
    let app = format!("fn-{}", stage.trace.apps.first().context("no function")?.0);
    let learn = Duration::from_secs(options.response.learn);
    let span = learn + BOUND + QUIET + FLOOD;
    let pace = stage.trace.pace(stage.busy(LOAD), span);
    let arrivals = stage.trace.cut(0.0, span, pace);
    let (users, steer) = (Arc::clone(&stage.users), Steer::new(Rule::Answer)?);
    let calls = tokio::spawn(async move { users.play(&arrivals, &steer).await });
    let unanswered = Arc::new(AtomicU64::new(0));
    let asking = tokio::spawn(ask_again(
        stage.fleet.dns,
        host(&app),
        Arc::clone(&unanswered),
    ));
    let seen = watch(&stage.fleet, &app, learn).await;
    calls.abort();
    asking.abort();
    let seen = seen?;
    seen.print(unanswered.load(Ordering::Relaxed));
    options.write_json(seen.json())
}

/// Networks with clients.
fn real() -> impl Iterator<Item = ClientPrefix> {
    let places = (0..PLACES.len()).map(subnet);
    places.chain((0..ASKERS).map(asker))
}

/// The other half of the networks that benchmarks are to use (RFC 2544).
fn asker(number: u8) -> ClientPrefix {
    ClientPrefix::new(IpAddr::V4(Ipv4Addr::new(198, 19, number, 0)), 24)
}

/// Clients of the networks that only ask do so for ever; those that are not answered are counted.
async fn ask_again(server: SocketAddr, host: String, unanswered: Arc<AtomicU64>) {
    for number in (0..ASKERS).cycle() {
        let asked = dns::addresses(server, &host, asker(number), PATIENCE).await;
        unanswered.fetch_add(u64::from(asked.is_err()), Ordering::Relaxed);
        sleep(AGAIN / u32::from(ASKERS)).await;
    }
}

/// What came of it.
struct Seen {
    /// The controller's processor time as a share of a core: without the flood, and under it.
    busy: [f64; 2],
    sent: u64,
    answered: u64,
    bindings: [usize; 2],
    lost: usize,
    /// Real networks that are sent to another cluster: at the end of the quiet time, and of the flood.
    moved: [usize; 2],
}

async fn watch(fleet: &Fleet, app: &str, learn: Duration) -> Result<Seen> {
    sleep(learn).await;
    let begin = Instant::now();
    while let Some(missing) = real_without(&bound(fleet, app)?) {
        ensure!(begin.elapsed() < BOUND, "{missing} is not bound");
        sleep(Duration::from_secs(1)).await;
    }
    let first = clusters(fleet.dns, app).await?;
    let before = processor_of(fleet.controller()?)?;
    sleep(QUIET).await;
    let quiet = (processor_of(fleet.controller()?)? - before) / QUIET.as_secs_f64();
    let (calm, bound_before) = (clusters(fleet.dns, app).await?, bound(fleet, app)?);

    let (server, name) = (fleet.dns, host(app));
    let (before, begin) = (processor_of(fleet.controller()?)?, Instant::now());
    let (sent, answered) = tokio::task::spawn_blocking(move || flood(server, &name)).await??;
    let busy = (processor_of(fleet.controller()?)? - before) / begin.elapsed().as_secs_f64();
    let (after, bound_after) = (clusters(fleet.dns, app).await?, bound(fleet, app)?);
    let differ =
        |a: &Clusters, b: &Clusters| a.iter().filter(|(of, at)| b.get(of) != Some(at)).count();
    Ok(Seen {
        busy: [quiet, busy],
        sent,
        answered,
        bindings: [bound_before.len(), bound_after.len()],
        lost: real().filter(|real| !bound_after.contains(real)).count(),
        moved: [differ(&first, &calm), differ(&calm, &after)],
    })
}

/// The networks that are bound.
fn bound(fleet: &Fleet, app: &str) -> Result<BTreeSet<ClientPrefix>> {
    let text = fleet.fdn(&["describe", app, "-o", "json"])?;
    let detail: AppDetail = serde_json::from_str(&text).context("fdn describe prints an app")?;
    Ok(detail.bindings.iter().map(|one| one.prefix).collect())
}

fn real_without(bound: &BTreeSet<ClientPrefix>) -> Option<ClientPrefix> {
    real().find(|real| !bound.contains(real))
}

/// By real network, the cluster that DNS sends it to.
type Clusters = BTreeMap<ClientPrefix, usize>;

async fn clusters(server: SocketAddr, app: &str) -> Result<Clusters> {
    let mut all = Clusters::new();
    for of in real() {
        let found = dns::addresses(server, &host(app), of, PATIENCE).await?;
        let first = found.first().context("DNS answers with nothing")?;
        let (site, _) = node_at(*first).with_context(|| format!("{first} is no gateway"))?;
        all.insert(of, site);
    }
    Ok(all)
}

/// Asks for as long as the flood lasts; how many questions were sent and answered.
fn flood(server: SocketAddr, name: &str) -> Result<(u64, u64)> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(server)?;
    socket.set_nonblocking(true)?;
    let (mut sent, mut answered, mut answer) = (0_u64, 0_u64, [0_u8; 1232]);
    let begin = Instant::now();
    loop {
        let elapsed = begin.elapsed();
        let over = elapsed >= FLOOD;
        let due = u64::try_from(elapsed.as_millis())? * RATE / 1000;
        while sent < due && !over {
            // The kernel's buffer may be full: then the question is lost, like others on their way.
            drop(socket.send(&question(name, made_up(sent))));
            sent += 1;
        }
        while let Ok(length) = socket.recv(&mut answer) {
            // RCODE is the low half of the fourth byte (RFC 1035, section 4.1.1).
            answered += u64::from(length > 3 && answer[3] & 15 == 0);
        }
        if elapsed > FLOOD + Duration::from_secs(1) {
            return Ok((sent, answered));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The first three bytes of the `n`th made-up subnet, of 32/3: no two are the same, and none is that of a client here.
fn made_up(n: u64) -> [u8; 3] {
    // An odd factor permutes the numbers of 21 bits.
    let [.., a, b, c] = (n.wrapping_mul(0x9_e377) % (1 << 21)).to_be_bytes();
    [32 | a, b, c]
}

impl Seen {
    fn print(&self, unanswered: u64) {
        let [quiet, flood] = self.busy.map(|share| share * 100.0);
        println!("  controller: {quiet:.1} % of a core before, {flood:.1} % under the flood");
        println!(
            "  {} questions sent, {} answered; {} of the clients that only ask got no answer",
            self.sent, self.answered, unanswered
        );
        println!(
            "  {} bindings before, {} after; of {} real networks {} lost theirs",
            self.bindings[0],
            self.bindings[1],
            real().count(),
            self.lost
        );
        println!(
            "  real networks sent to another cluster: {} in {QUIET:?} before, {} in {FLOOD:?} of the flood",
            self.moved[0], self.moved[1]
        );
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "controller_busy": self.busy, "sent": self.sent, "answered": self.answered,
            "bindings": self.bindings, "lost": self.lost, "moved": self.moved,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_made_up_subnets_are_the_same_and_none_is_real() {
        let all: BTreeSet<[u8; 3]> = (0..1 << 21).map(made_up).collect();
        assert_eq!(all.len(), 1 << 21);
        assert!(all.iter().all(|[first, ..]| (32..64).contains(first)));
        assert!(RATE * FLOOD.as_secs() < 1 << 21);
    }
}

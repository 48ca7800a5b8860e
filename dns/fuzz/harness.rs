//! Handles untrusted bytes. A panic here is a bug, and so is a failed assertion.
//!
//! The fuzz targets call these functions, and so do the seeded mutations in the test suite.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use fdn_core::feed::{Decoder, Frame};
use fdn_core::message::{AppBindings, BindingsDesired, ClusterSpec, NetworkDesired};
use fdn_core::{AppName, ClientPrefix, GeoPoint, HostName, Revision, Timestamp};
use fdn_dns::Settings;
use fdn_dns::dnssec::Signer;
use fdn_dns::dnssec::file::KeyFile;
use fdn_dns::dnssec::key::ZoneKey;
use fdn_dns::dnssec::ring::{Ring, TimedKey};
use fdn_dns::dnssec::rollover::KeyTimes;
use fdn_dns::handler::cookie::CookieKeys;
use fdn_dns::handler::transfer::Transfers;
use fdn_dns::handler::tsig::{Algorithm, Key, Keyring, Session};
use fdn_dns::handler::{Guard, Responder, wire};
use fdn_dns::metrics::{Metrics, SigningMetrics, Transport};
use fdn_dns::policy::fleet::Network;
use fdn_dns::policy::zone::{AppTable, Names};
use fdn_dns::policy::{Policy, WhenAllDead};
use fdn_dns::published::Published;
use fdn_dns::settings::RecordName;
use fdn_dns::sync::demand::Demand;
use fdn_dns::sync::desired_state::{AppState, DesiredState, Snapshot};
use fdn_dns::sync::disk;
use fdn_service::master::MasterKeys;
use fdn_service::secret::Secret;

/// The largest answer over UDP, and the limit on its size relative to the request.
const UDP_SIZE: u16 = 1232;
const AMPLIFICATION: u16 = 10;
/// The time of all requests, in seconds since 1970.
const NOW: u32 = 1_559_731_985;
/// The records of the zone.
pub(super) const ZONE: &str = r#"
[zone]
app_service = { alpn = ["h2"], port = 443 }
[[zone.records]]
name = "fn.test"
txt = ["a text", "another"]
caa = [{ tag = "issue", value = "ca.example.org" }]
[[zone.records]]
name = "*.wild.fn.test"
txt = ["wild"]
addresses = ["192.0.2.1", "2001:db8::1"]
[identity]
nsid = "name"
version = "version"
"#;

/// Two servers with an app, two gateways and a zone with every kind of record; the second one's zone is signed.
pub(super) fn responders() -> &'static [Responder; 2] {
    static RESPONDERS: OnceLock<[Responder; 2]> = OnceLock::new();
    RESPONDERS.get_or_init(|| {
        [false, true].map(|signed| {
            let settings: Settings = toml::from_str(ZONE).expect("settings");
            let zone = settings.zone_data([127, 0, 0, 1].into()).expect("a zone");
            let (network, _) = one();
            let desired = desired_of(&feed_frames());
            let tables = tables(&desired.expect("a feed"));
            let names = Names::new(&zone, &tables, Revision(2), true).expect("names");
            let metrics = Arc::new(Metrics::new(&prometheus::Registry::new()).expect("metrics"));
            let published = Arc::new(Published::new(names, None, Arc::clone(&metrics)));
            published.set_network(Arc::new(Network::new(&network)));
            let demand = Arc::new(Demand::new(64, Arc::clone(&metrics)));
            let policy = Policy {
                when_all_dead: WhenAllDead::ServeAll,
                max_addresses: 16,
            };
            let guard = Guard {
                cookies: Some(CookieKeys::new([7; 16], vec![])),
                limiter: None,
                amplification: AMPLIFICATION,
                transfers: Transfers::new(Keyring::new(vec![key()]), &zone),
                ..settings.guard().expect("a guard")
            };
            let signer = signed.then(|| Arc::new(signer(&settings, metrics.signing.clone())));
            Responder::new(published, policy, demand, metrics, UDP_SIZE)
                .guarded(guard)
                .signing(signer)
        })
    })
}

/// The TSIG key that both servers know.
fn key() -> Arc<Key> {
    let name = RecordName::try_from("key.fn.test".to_owned()).expect("a name");
    Arc::new(Key::new(name.name(), Algorithm::Sha256, &[7; 32]))
}

/// A request signed with this key at [`NOW`].
#[allow(dead_code, reason = "only the seeds of the test-suite are signed")]
pub(super) fn signed(mut request: Vec<u8>) -> Vec<u8> {
    Session::begin(key()).sign(&mut request, u64::from(NOW));
    request
}

/// A signer with a new key for the zone.
fn signer(settings: &Settings, metrics: SigningMetrics) -> Signer {
    let zone = settings.zone.name.clone();
    let key = ZoneKey::new(&zone, &ZoneKey::generate().expect("random")).expect("a key");
    let times = KeyTimes {
        created: Timestamp(0),
        seen: None,
    };
    let timed = TimedKey {
        key: Arc::new(key),
        times,
    };
    let dnssec = &settings.zone.dnssec;
    let ring = Ring::new(zone, vec![timed], Timestamp(1), &dnssec.timing()).expect("a ring");
    Signer::new(ring, dnssec.signing(), metrics)
}

/// The encoded feed of a network with one cluster, one app and one binding.
pub(super) fn feed_frames() -> Vec<u8> {
    let (network, bindings) = one();
    let frames = [Frame::Network(network), Frame::Bindings(bindings)];
    let frames = frames.iter().map(|frame| frame.encode().expect("json"));
    frames.collect::<Vec<_>>().concat()
}

/// This network and its app.
fn one() -> (NetworkDesired, BindingsDesired) {
    let gateways = [1, 2].map(|last| SocketAddr::from(([127, 0, 1, last], 8080)));
    let prefix = |text: &str| text.parse::<ClientPrefix>().expect("a prefix");
    let point = GeoPoint::new(53.0, -6.0).expect("a point");
    let network = NetworkDesired {
        revision: Revision(1),
        clusters: vec![ClusterSpec {
            cluster: "eu-west".parse().expect("a cluster"),
            region: "eu-west".parse().expect("a region"),
            location: point,
            gateways: gateways.to_vec(),
            health: vec![],
            weights: vec![],
        }],
        locations: vec![(prefix("192.0.2.0/24"), point)],
        measured: vec![],
    };
    let bindings = BindingsDesired {
        app: "hello".parse().expect("an app"),
        revision: Revision(2),
        state: Some(AppBindings {
            holders: fdn_core::message::Holders::EVERYWHERE,
            host: "hello.fn.test".parse().expect("a host"),
            ttl_s: 20,
            bindings: vec![(
                prefix("192.0.2.0/24"),
                "eu-west".parse().expect("a cluster"),
            )],
        }),
    };
    (network, bindings)
}

/// Handles a datagram, or a message of a stream.
pub(super) fn request(bytes: &[u8]) {
    for responder in responders() {
        ask(responder, bytes);
    }
}

fn ask(responder: &Responder, bytes: &[u8]) {
    let from = SocketAddr::from(([192, 0, 2, 53], 4053));
    // A plain query is parsed by the fast path, too, which must give the same answer.
    let mut fast = Vec::new();
    if responder.respond_fast(bytes, from, &mut fast).is_some() {
        let slow = responder.reply(bytes, from, Transport::Udp, NOW);
        assert_eq!(slow.map(|reply| reply.bytes).as_ref(), Some(&fast));
    }
    let scanned = wire::scan(bytes);
    for transport in [Transport::Udp, Transport::Tcp, Transport::Tls] {
        let reply = responder.reply(bytes, from, transport, NOW);
        let Some(reply) = reply else {
            assert_eq!(
                scanned,
                Err(wire::Reject::Drop),
                "only what is dropped gets no answer"
            );
            continue;
        };
        let (asked, out) = (bytes.len(), &reply.bytes);
        assert_eq!(out[..2], bytes[..2], "the id comes back");
        assert!(out[2] & 0x80 != 0, "it is an answer");
        assert_eq!(out[2] & 0x79, bytes[2] & 0x79, "opcode and RD come back");
        assert!(wire::scan(out).is_err(), "nobody answers an answer");
        if transport == Transport::Udp {
            assert!(out.len() <= usize::from(UDP_SIZE), "{} bytes", out.len());
            let most = usize::from(AMPLIFICATION) * asked;
            assert!(
                reply.verified || out.len() < most,
                "{} bytes for {asked}",
                out.len()
            );
        }
        let stub = wire::truncated(out).expect("an answer is a whole message");
        assert!(stub.len() <= out.len() && stub[2] & 0x02 != 0);
        assert_eq!(
            wire::truncated(&stub).as_ref(),
            Some(&stub),
            "nothing is left to cut"
        );
    }
}

/// The largest accepted frame in bytes.
const FRAME_MAX: usize = 1 << 20;

/// The state of a server after a snapshot from a feed.
pub(super) fn desired_of(mut bytes: &[u8]) -> Option<DesiredState> {
    let (mut decoder, mut frames) = (Decoder::new(FRAME_MAX), Vec::new());
    while let Some((frame, _)) = decoder.take(&mut bytes).ok()? {
        frames.push(frame);
    }
    let mut desired = DesiredState::default();
    desired.snapshot(Snapshot::of(Revision(2), frames), Timestamp(1));
    Some(desired)
}

/// The encoded state on a server's disk.
pub(super) fn snapshot_file(desired: &DesiredState) -> Vec<u8> {
    let mut bytes = Vec::new();
    disk::encode(desired, &mut bytes).expect("memory takes it");
    bytes
}

fn tables(desired: &DesiredState) -> Vec<Arc<AppTable>> {
    let table = |(app, revision, state): (&AppName, Revision, &AppState)| {
        let (app, bindings) = (Arc::new(app.clone()), Arc::clone(&state.bindings));
        Arc::new(AppTable::new(
            app,
            revision,
            &state.host,
            state.ttl_s,
            bindings,
        ))
    };
    desired.apps().map(table).collect()
}

/// Decodes a state on disk or a feed, and builds its tables as for serving. A file is also tried with its correct checksum: that only
/// protects against accidental changes, not against an attacker.
pub(super) fn snapshot(bytes: &[u8]) {
    let length = bytes.len() as u64;
    let with_crc = bytes.split_last_chunk::<4>().map(|(body, _)| {
        let crc = crc32c::crc32c(body).to_le_bytes();
        [body, &crc].concat()
    });
    let read = |bytes: &[u8]| disk::decode(bytes, length).ok();
    let kept = read(bytes).or_else(|| read(&with_crc?));
    let Some(desired) = kept.or_else(|| desired_of(bytes)) else {
        return;
    };
    let zone = Settings::default()
        .zone_data([127, 0, 0, 1].into())
        .expect("the defaults");
    let tables = tables(&desired);
    let names = Names::new(&zone, &tables, desired.revision(), desired.is_complete());
    assert_eq!(
        names.map(|n| n.apps() + n.refused().len()).ok(),
        Some(tables.len())
    );
    if let Some(network) = desired.current_network() {
        assert!(Network::new(network).clusters().len() <= network.clusters.len());
    }
    let bytes = self::snapshot_file(&desired);
    let again = disk::decode(&*bytes, bytes.len() as u64).expect("what was written is read");
    let apps = |desired: &DesiredState| {
        let apps = desired.apps().map(|(app, revision, state)| {
            let entries = state.bindings.entries();
            let entries = entries.map(|(prefix, cluster)| (prefix, cluster.clone()));
            (
                app.clone(),
                revision,
                state.host.clone(),
                entries.collect::<Vec<_>>(),
            )
        });
        apps.collect::<Vec<_>>()
    };
    assert_eq!(apps(&again), apps(&desired));
}

/// The master key of the key files in [`keys`].
fn masters() -> &'static MasterKeys {
    static MASTERS: OnceLock<MasterKeys> = OnceLock::new();
    MASTERS.get_or_init(|| MasterKeys::parse(&Secret::new("5a".repeat(32))).expect("a key"))
}

/// A key file with one key that [`keys`] can open.
#[allow(dead_code, reason = "a seed of the test-suite")]
pub(super) fn key_file() -> String {
    let mut file = KeyFile::empty("fn.test".parse().expect("a zone"));
    file.add(masters(), Timestamp(1)).expect("a key");
    serde_json::to_string(&file).expect("json")
}

/// Parses key files with their sealed keys, and master keys.
pub(super) fn keys(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    drop(MasterKeys::parse(&Secret::new(text.to_owned())));
    if let Ok(file) = serde_json::from_str::<KeyFile>(text) {
        let again = serde_json::to_string(&file).expect("json");
        assert_eq!(
            serde_json::from_str::<KeyFile>(&again).ok().as_ref(),
            Some(&file)
        );
        if let Ok(opened) = file.open(masters()) {
            let tags = opened.iter().map(|opened| opened.key.tag());
            assert!(tags.eq(file.keys.iter().map(|stored| stored.tag)));
        }
    }
}

/// Parses text written by operators: cookie keys, names, prefixes, settings.
pub(super) fn text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    drop(CookieKeys::parse(text));
    if let Ok(name) = RecordName::try_from(text.to_owned()) {
        assert_eq!(RecordName::try_from(name.to_string()), Ok(name));
    }
    if let Ok(prefix) = text.parse::<ClientPrefix>() {
        assert_eq!(prefix.to_string().parse(), Ok(prefix));
    }
    drop(text.parse::<HostName>());
    if let Ok(settings) = toml::from_str::<Settings>(text)
        && settings.validate().is_ok()
    {
        drop(
            settings
                .zone_data([127, 0, 0, 1].into())
                .expect("validated"),
        );
    }
}

//! The names of the zone: its apex, the name servers, the apps, and the names that exist only because others lie below them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use fdn_core::message::AppBindings;
use fdn_core::{AppName, ClusterId, HostName, ParseError, PrefixMap, Revision};
use hickory_proto::rr::rdata::{A, AAAA, NS, SOA};
use hickory_proto::rr::{LowerName, Name, RData, Record, RecordType};

use super::Body;

/// What one app's name is answered from.
#[derive(Debug)]
pub struct AppTable {
    /// The app.
    pub app: Arc<AppName>,
    /// Its name in lower case.
    pub name: LowerName,
    /// The answer's time to live, in seconds.
    pub ttl: u32,
    /// The version of the desired state that this is.
    pub revision: Revision,
    /// Which cluster clients of a prefix are sent to.
    pub bindings: PrefixMap<Arc<ClusterId>>,
}

impl PartialEq for AppTable {
    fn eq(&self, other: &Self) -> bool {
        self.app == other.app && self.revision == other.revision
    }
}

impl Eq for AppTable {}

impl AppTable {
    /// Builds the table of an app's bindings.
    #[must_use]
    pub fn new(app: AppName, revision: Revision, state: &AppBindings) -> Self {
        let mut clusters: HashMap<&ClusterId, Arc<ClusterId>> = HashMap::new();
        let bindings = state
            .bindings
            .iter()
            .map(|(prefix, id)| {
                (
                    *prefix,
                    Arc::clone(clusters.entry(id).or_insert_with(|| Arc::new(id.clone()))),
                )
            })
            .collect();
        // RFC 2181, section 8: a time to live is at most 2^31 - 1.
        let ttl = state.ttl_s.min(i32::MAX.unsigned_abs());
        Self {
            app: Arc::new(app),
            name: LowerName::new(&name_of(&state.host)),
            ttl,
            revision,
            bindings,
        }
    }
}

/// A host name as DNS writes it.
#[must_use]
pub fn name_of(host: &HostName) -> Name {
    let mut name = Name::from_labels(host.as_str().split('.').map(str::as_bytes))
        .expect("a host name is labels of 1 to 63 octets, 253 in all");
    name.set_fqdn(true);
    name
}

/// The records of one name that do not depend on who asks.
#[derive(Debug, Default)]
pub struct FixedSet {
    records: Vec<Record>,
    /// Addresses of the name servers, sent along with NS records.
    glue: Vec<Record>,
}

impl FixedSet {
    /// The records of a type.
    #[must_use]
    pub fn body(&self, kind: RecordType) -> Body<'_> {
        let records: Vec<&Record> = self
            .records
            .iter()
            .filter(|r| r.record_type() == kind)
            .collect();
        if records.is_empty() {
            return Body::NoData;
        }
        let glue = if kind == RecordType::NS {
            self.glue.iter().collect()
        } else {
            Vec::new()
        };
        Body::Records(records, glue)
    }

    /// The time to live of its records.
    #[must_use]
    pub fn ttl(&self) -> u32 {
        self.records.first().map_or(0, |record| record.ttl)
    }
}

/// The parts of the zone that configuration gives.
#[derive(Clone, Debug)]
pub struct ZoneData {
    /// The zone's name.
    pub name: HostName,
    /// Name servers with their addresses, the primary first. At least one.
    pub servers: Vec<(HostName, Vec<IpAddr>)>,
    /// The mailbox of whoever is responsible, as a host name (`hostmaster.fn.test`).
    pub contact: HostName,
    /// Time to live of SOA, NS and the name servers' addresses, in seconds.
    pub ttl: u32,
    /// For how long a negative answer may be cached, in seconds (RFC 2308, section 4).
    pub negative_ttl: u32,
    /// SOA refresh, retry and expire, in seconds. Nobody transfers the zone; they are there because the record needs them.
    pub timers: [i32; 3],
}

/// What a name is.
#[derive(Debug)]
pub enum Entry<'a> {
    /// Not in the zone.
    Outside,
    /// In the zone, and does not exist.
    Nothing,
    /// In the zone, and nobody has told this server yet which apps exist.
    Unknown,
    /// Exists without records, because names below it exist.
    Empty,
    /// Apex or name server.
    Fixed(&'a FixedSet),
    /// An app.
    App(&'a AppTable),
}

#[derive(Debug)]
enum Kept {
    Empty,
    Fixed(FixedSet),
    App(Arc<AppTable>),
}

/// Every name of the zone at one moment.
#[derive(Debug)]
pub struct Names {
    apex: LowerName,
    labels: usize,
    /// The zone's SOA record with the time to live of negative answers.
    negative: Record,
    entries: HashMap<LowerName, Kept>,
    /// Whether the apps are known: without them nothing can be said not to exist.
    complete: bool,
    apps: usize,
    refused: Vec<(AppName, String)>,
}

impl Names {
    /// Builds the table. `serial` becomes the zone's serial number; `complete` says whether `apps` are all there are.
    ///
    /// # Errors
    /// When a name of the zone is longer than DNS allows.
    pub fn new<'a>(
        zone: &ZoneData,
        apps: impl IntoIterator<Item = &'a Arc<AppTable>>,
        serial: Revision,
        complete: bool,
    ) -> Result<Self, ParseError> {
        let origin = name_of(&zone.name);
        let primary = zone
            .servers
            .first()
            .map(|(host, _)| name_of(host))
            .ok_or_else(|| {
                ParseError::new("zone", zone.name.as_str(), "at least one name server")
            })?;
        let [refresh, retry, expire] = zone.timers;
        // RFC 1982: serial numbers are compared modulo 2^32, so the low half of the revision serves.
        let serial = u32::try_from(serial.get() & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        let soa = SOA::new(
            primary,
            name_of(&zone.contact),
            serial,
            refresh,
            retry,
            expire,
            zone.negative_ttl,
        );
        let soa = Record::from_rdata(origin.clone(), zone.ttl, RData::SOA(soa));
        let mut negative = soa.clone();
        // RFC 2308, section 3: the smaller of the record's own time to live and its minimum field.
        negative.ttl = zone.ttl.min(zone.negative_ttl);
        let mut names = Self {
            apex: LowerName::new(&origin),
            labels: usize::from(origin.num_labels()),
            negative,
            entries: HashMap::new(),
            complete,
            apps: 0,
            refused: Vec::new(),
        };
        names.add_fixed(zone, soa);
        for table in apps {
            names.add_app(table);
        }
        Ok(names)
    }

    fn add_fixed(&mut self, zone: &ZoneData, soa: Record) {
        let origin = soa.name.clone();
        let mut apex = FixedSet {
            records: vec![soa],
            glue: Vec::new(),
        };
        for (host, addresses) in &zone.servers {
            let name = name_of(host);
            apex.records.push(Record::from_rdata(
                origin.clone(),
                zone.ttl,
                RData::NS(NS(name.clone())),
            ));
            let lower = LowerName::new(&name);
            if !self.apex.zone_of(&lower) {
                continue;
            }
            let records: Vec<Record> = addresses
                .iter()
                .map(|addr| Record::from_rdata(name.clone(), zone.ttl, address(*addr)))
                .collect();
            apex.glue.extend(records.iter().cloned());
            if lower == self.apex {
                apex.records.extend(records);
            } else {
                self.insert(
                    lower,
                    Kept::Fixed(FixedSet {
                        records,
                        glue: Vec::new(),
                    }),
                );
            }
        }
        self.entries.insert(self.apex.clone(), Kept::Fixed(apex));
    }

    fn add_app(&mut self, table: &Arc<AppTable>) {
        let reason = if !self.apex.zone_of(&table.name) {
            "its name is not in the zone"
        } else {
            match self.entries.get(&table.name) {
                None | Some(Kept::Empty) => {
                    self.insert(table.name.clone(), Kept::App(Arc::clone(table)));
                    self.apps += 1;
                    return;
                }
                Some(Kept::Fixed(_)) => "its name belongs to the zone itself",
                Some(Kept::App(_)) => "another app has its name",
            }
        };
        self.refused
            .push((table.app.as_ref().clone(), reason.to_owned()));
    }

    /// Inserts a name and marks those between it and the apex as existing (RFC 4592, section 2.2.2).
    fn insert(&mut self, name: LowerName, kept: Kept) {
        let mut above = name.base_name();
        self.entries.insert(name, kept);
        while above != self.apex && self.apex.zone_of(&above) {
            let next = above.base_name();
            self.entries.entry(above).or_insert(Kept::Empty);
            above = next;
        }
    }

    /// What `name` is.
    #[must_use]
    pub fn find(&self, name: &LowerName) -> Entry<'_> {
        match self.entries.get(name) {
            Some(Kept::Fixed(set)) => Entry::Fixed(set),
            Some(Kept::App(table)) => Entry::App(table),
            Some(Kept::Empty) => Entry::Empty,
            None if !self.apex.zone_of(name) => Entry::Outside,
            None if self.complete => Entry::Nothing,
            None => Entry::Unknown,
        }
    }

    /// The SOA record of negative answers (RFC 2308, section 3).
    #[must_use]
    pub const fn negative(&self) -> &Record {
        &self.negative
    }

    /// How many labels the zone's name has.
    #[must_use]
    pub const fn zone_labels(&self) -> usize {
        self.labels
    }

    /// Whether the apps are known.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.complete
    }

    /// How many apps are answered for.
    #[must_use]
    pub const fn apps(&self) -> usize {
        self.apps
    }

    /// Apps that cannot be answered for, and why.
    #[must_use]
    pub fn refused(&self) -> &[(AppName, String)] {
        &self.refused
    }
}

/// The record data of an address.
#[must_use]
pub const fn address(addr: IpAddr) -> RData {
    match addr {
        IpAddr::V4(v4) => RData::A(A(v4)),
        IpAddr::V6(v6) => RData::AAAA(AAAA(v6)),
    }
}

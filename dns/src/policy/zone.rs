//! The names of the zone: its apex, the name servers, the operator's own records, the apps, and empty non-terminals: names that exist only
//! because others exist below them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use fdn_core::message::{Holders, TxtRecords};
use fdn_core::{AppName, HostName, ParseError, RecordName, Revision, txt};
use hickory_proto::rr::rdata::{A, AAAA, NS, SOA};
use hickory_proto::rr::{LowerName, Name, RData, Record, RecordType};
use prometheus::IntCounter;

use super::Body;
use super::bindings::Bindings;
use super::records::{NamedRecords, Service, text};
use super::wire_index::WireIndex;

/// The data for answers about one app.
#[derive(Debug)]
pub struct AppTable {
    /// The app.
    pub app: Arc<AppName>,
    /// Its host name in lower case.
    pub name: LowerName,
    /// The TTL of answers, in seconds.
    pub ttl: u32,
    /// The revision of the desired state.
    pub revision: Revision,
    /// The bindings of client prefixes to clusters.
    pub bindings: Arc<Bindings>,
    /// The clusters that have the app; answers name no others.
    pub holders: Holders,
    /// The counter of its answers, if there is one.
    answers: Option<IntCounter>,
}

impl PartialEq for AppTable {
    fn eq(&self, other: &Self) -> bool {
        self.app == other.app && self.revision == other.revision
    }
}

impl Eq for AppTable {}

impl AppTable {
    /// The table of an app. `ttl` is in seconds.
    #[must_use]
    pub fn new(
        app: Arc<AppName>,
        revision: Revision,
        host: &HostName,
        ttl: u32,
        bindings: Arc<Bindings>,
    ) -> Self {
        Self {
            app,
            name: LowerName::new(&name_of(host)),
            // RFC 2181, section 8: a TTL is at most 2^31 - 1.
            ttl: ttl.min(i32::MAX.unsigned_abs()),
            revision,
            bindings,
            holders: Holders::EVERYWHERE,
            answers: None,
        }
    }

    /// The same table for an app that only some clusters have.
    #[must_use]
    pub fn held_by(self, holders: Holders) -> Self {
        Self { holders, ..self }
    }

    /// The same table with a counter of its answers.
    #[must_use]
    pub fn counted_by(self, answers: IntCounter) -> Self {
        Self {
            answers: Some(answers),
            ..self
        }
    }

    /// Counts an answer.
    pub fn count(&self) {
        if let Some(answers) = &self.answers {
            answers.inc();
        }
    }

    /// The table of an app from a message.
    #[cfg(test)]
    pub(crate) fn of(
        app: AppName,
        revision: Revision,
        state: &fdn_core::message::AppBindings,
    ) -> Self {
        let bindings = Bindings::new(state.bindings.iter().cloned()).expect("few clusters");
        Self::new(
            Arc::new(app),
            revision,
            &state.host,
            state.ttl_s,
            Arc::new(bindings),
        )
        .held_by(state.holders.clone())
    }
}

/// A host name as a DNS name.
#[must_use]
pub fn name_of(host: &HostName) -> Name {
    let mut name = Name::from_labels(host.as_str().split('.').map(str::as_bytes))
        .expect("a host name is labels of 1 to 63 bytes, 253 in all");
    name.set_fqdn(true);
    name
}

/// Text records set through the API, as records of the zone. Values beyond the limit of a name are ignored.
#[must_use]
pub fn texts_of(name: &RecordName, state: &TxtRecords) -> NamedRecords {
    let mut owner = Name::from_labels(name.as_str().split('.').map(str::as_bytes))
        .expect("the name of a record is labels of 1 to 63 bytes, 253 in all");
    owner.set_fqdn(true);
    let values = state.values.iter().take(txt::VALUES_MAX);
    NamedRecords {
        name: owner,
        // RFC 2181, section 8: a TTL is at most 2^31 - 1.
        ttl: state.ttl_s.min(i32::MAX.unsigned_abs()),
        data: values.map(|value| text(value)).collect(),
    }
}

/// The records of one name that do not depend on the client.
#[derive(Clone, Debug, Default)]
pub struct FixedSet {
    records: Vec<Record>,
    /// The addresses of the name servers, sent along with NS records.
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

    /// Adds text records to the existing ones: each value is in the set once (RFC 2181, section 5), and the set keeps the TTL that it
    /// already has (section 5.2).
    fn add_texts(&mut self, named: &NamedRecords) {
        let is_text = |record: &&Record| record.record_type() == RecordType::TXT;
        let ttl = self.records.iter().find(is_text);
        let ttl = ttl.map_or(named.ttl, |record| record.ttl);
        for data in &named.data {
            if !self.records.iter().any(|record| record.data == *data) {
                let record = Record::from_rdata(named.name.clone(), ttl, data.clone());
                self.records.push(record);
            }
        }
    }

    /// The distinct types of its records.
    #[must_use]
    pub fn types(&self) -> Vec<RecordType> {
        let mut types: Vec<RecordType> = self.records.iter().map(Record::record_type).collect();
        types.sort();
        types.dedup();
        types
    }

    /// The TTL of its first record, in seconds.
    #[must_use]
    pub fn ttl(&self) -> u32 {
        self.records.first().map_or(0, |record| record.ttl)
    }
}

/// The configured parts of the zone.
#[derive(Clone, Debug)]
pub struct ZoneData {
    /// The zone's name.
    pub name: HostName,
    /// Name servers with their addresses, the primary first. At least one.
    pub servers: Vec<(HostName, Vec<IpAddr>)>,
    /// The mailbox of the responsible person, as a host name (`hostmaster.fn.test`).
    pub contact: HostName,
    /// The TTL of SOA, NS and the name servers' addresses, in seconds.
    pub ttl: u32,
    /// How long a negative answer may be cached, in seconds (RFC 2308, section 4).
    pub negative_ttl: u32,
    /// An offset to the serial number.
    pub serial: u32,
    /// SOA refresh, retry and expire, in seconds.
    pub timers: [i32; 3],
    /// The operator's own records, each name once.
    pub records: Vec<NamedRecords>,
    /// The HTTPS record of all apps (RFC 9460); `None`: apps have none.
    pub app_service: Option<Service>,
}

/// The result of looking up a name.
#[derive(Debug)]
pub enum Entry<'a> {
    /// Not in the zone.
    Outside,
    /// In the zone, but it does not exist.
    Nothing,
    /// In the zone, but the server does not know yet which apps exist.
    Unknown,
    /// Exists without records, because names below it exist.
    Empty,
    /// The apex, a name server, or a name of the operator's own records.
    Fixed(&'a FixedSet),
    /// Does not exist, but is covered by a wildcard.
    Wildcard(&'a FixedSet),
    /// An app.
    App(&'a AppTable),
}

#[derive(Clone, Debug)]
enum StoredEntry {
    Empty,
    Fixed(FixedSet),
    /// An app, by the index of its table.
    App(usize),
}

/// All names of the zone at one revision.
///
/// Tables are stored separately from the names, which several versions share: a change of bindings replaces tables, but no names.
#[derive(Clone, Debug)]
pub struct Names {
    apex: LowerName,
    labels: usize,
    /// The zone's SOA record with the TTL of negative answers.
    negative: Record,
    entries: Arc<HashMap<LowerName, StoredEntry>>,
    tables: Vec<Arc<AppTable>>,
    /// The index of each app's table.
    slots: Arc<HashMap<Arc<AppName>, usize>>,
    /// The index of the tables by encoded name.
    wire_index: Arc<WireIndex>,
    /// Whether all apps are known: otherwise no name can be said not to exist.
    complete: bool,
    /// Whether there is any wildcard: without one, the search for it is skipped.
    wildcards: bool,
    app_service: Option<RData>,
    refused: Vec<(AppName, String)>,
}

impl Names {
    /// Builds the names. `serial` becomes the zone's serial number; `complete` says whether `apps` are all apps.
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
        // RFC 1982: serial numbers are compared modulo 2^32, so the low half of the revision suffices.
        let serial = u32::try_from(serial.get() & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        let serial = serial.wrapping_add(zone.serial);
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
        // RFC 2308, section 3: the lower of the record's own TTL and its minimum field.
        negative.ttl = zone.ttl.min(zone.negative_ttl);
        let mut names = Self {
            apex: LowerName::new(&origin),
            labels: usize::from(origin.num_labels()),
            negative,
            entries: Arc::default(),
            tables: Vec::new(),
            slots: Arc::default(),
            wire_index: Arc::default(),
            complete,
            wildcards: false,
            app_service: zone.app_service.as_ref().map(Service::https),
            refused: Vec::new(),
        };
        names.add_fixed(zone, soa);
        for named in &zone.records {
            names.add_records(named);
        }
        for table in apps {
            names.add_app(table);
        }
        names.wire_index = Arc::new(WireIndex::new(&names.tables));
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
                    StoredEntry::Fixed(FixedSet {
                        records,
                        glue: Vec::new(),
                    }),
                );
            }
        }
        Arc::make_mut(&mut self.entries).insert(self.apex.clone(), StoredEntry::Fixed(apex));
    }

    /// Adds records to the existing ones of a name.
    fn add_records(&mut self, named: &NamedRecords) {
        let name = LowerName::new(&named.name);
        if !self.apex.zone_of(&name) {
            return;
        }
        self.wildcards |= name.is_wildcard();
        let records = named
            .data
            .iter()
            .map(|data| Record::from_rdata(named.name.clone(), named.ttl, data.clone()));
        if let Some(StoredEntry::Fixed(set)) = Arc::make_mut(&mut self.entries).get_mut(&name) {
            set.records.extend(records);
        } else {
            let records = records.collect();
            self.insert(
                name,
                StoredEntry::Fixed(FixedSet {
                    records,
                    glue: Vec::new(),
                }),
            );
        }
    }

    /// Adds text records set through the API, to be called after everything else was added: they are merged with the operator's own records of
    /// the same name, and ignored if the name is an app's.
    pub fn add_texts<'a>(&mut self, texts: impl IntoIterator<Item = &'a NamedRecords>) {
        for named in texts {
            let name = LowerName::new(&named.name);
            if !self.apex.zone_of(&name) || named.data.is_empty() {
                continue;
            }
            match Arc::make_mut(&mut self.entries).get_mut(&name) {
                Some(StoredEntry::App(_)) => {}
                Some(StoredEntry::Fixed(set)) => set.add_texts(named),
                Some(StoredEntry::Empty) | None => {
                    let mut set = FixedSet::default();
                    set.add_texts(named);
                    self.insert(name, StoredEntry::Fixed(set));
                }
            }
        }
    }

    fn add_app(&mut self, table: &Arc<AppTable>) {
        let reason = if !self.apex.zone_of(&table.name) {
            "its name is not in the zone"
        } else {
            match self.entries.get(&table.name) {
                None | Some(StoredEntry::Empty) => {
                    let slot = self.tables.len();
                    self.insert(table.name.clone(), StoredEntry::App(slot));
                    self.tables.push(Arc::clone(table));
                    Arc::make_mut(&mut self.slots).insert(Arc::clone(&table.app), slot);
                    return;
                }
                Some(StoredEntry::Fixed(_)) => "its name belongs to the zone itself",
                Some(StoredEntry::App(_)) => "another app has its name",
            }
        };
        self.refused
            .push((table.app.as_ref().clone(), reason.to_owned()));
    }

    /// Inserts a name, and marks the names between it and the apex as existing (RFC 4592, section 2.2.2).
    fn insert(&mut self, name: LowerName, entry: StoredEntry) {
        let mut above = name.base_name();
        let entries = Arc::make_mut(&mut self.entries);
        entries.insert(name, entry);
        while above != self.apex && self.apex.zone_of(&above) {
            let next = above.base_name();
            entries.entry(above).or_insert(StoredEntry::Empty);
            above = next;
        }
    }

    /// The same names with new tables for some of their apps; `None` if one of the apps is not here under its name, so that everything must be
    /// rebuilt.
    #[must_use]
    pub fn with_tables(&self, changed: impl IntoIterator<Item = Arc<AppTable>>) -> Option<Self> {
        let mut names = self.clone();
        for table in changed {
            let held = names.tables.get_mut(*self.slots.get(&table.app)?)?;
            if held.name != table.name {
                return None;
            }
            *held = table;
        }
        Some(names)
    }

    /// Looks up a name.
    #[must_use]
    pub fn find(&self, name: &LowerName) -> Entry<'_> {
        match self.entries.get(name) {
            Some(StoredEntry::Fixed(set)) => Entry::Fixed(set),
            Some(StoredEntry::App(slot)) => self
                .tables
                .get(*slot)
                .map_or(Entry::Nothing, |table| Entry::App(table)),
            Some(StoredEntry::Empty) => Entry::Empty,
            None if !self.apex.zone_of(name) => Entry::Outside,
            None if !self.complete => Entry::Unknown,
            None => self.wildcard(name).map_or(Entry::Nothing, Entry::Wildcard),
        }
    }

    /// The table of the app with this uncompressed encoded name. `None` is not conclusive: use [`Names::find`] then.
    #[must_use]
    pub fn app_of_wire(&self, name: &[u8]) -> Option<&AppTable> {
        self.wire_index.find(name, &self.tables)
    }

    /// The wildcard that covers a nonexistent name: only the one directly below its closest encloser (RFC 4592,
    /// section 3.3.1). A name that exists, even as an empty non-terminal, is never covered by a wildcard.
    fn wildcard(&self, name: &LowerName) -> Option<&FixedSet> {
        if !self.wildcards {
            return None;
        }
        let mut below = name.clone();
        loop {
            let above = below.base_name();
            // The apex always exists, so the loop ends there at the latest.
            if above == self.apex || self.entries.contains_key(&above) {
                return match self.entries.get(&below.into_wildcard()) {
                    Some(StoredEntry::Fixed(set)) => Some(set),
                    Some(StoredEntry::App(_) | StoredEntry::Empty) | None => None,
                };
            }
            below = above;
        }
    }

    /// Whether a wildcard covers this name.
    #[must_use]
    pub fn is_wild(&self, name: &LowerName) -> bool {
        self.wildcards && matches!(self.find(name), Entry::Wildcard(_))
    }

    /// The data of the record of this type that all apps have, if there is one.
    #[must_use]
    pub fn app_service(&self, kind: RecordType) -> Option<&RData> {
        self.app_service
            .as_ref()
            .filter(|_| kind == RecordType::HTTPS)
    }

    /// The SOA record of negative answers (RFC 2308, section 3).
    #[must_use]
    pub const fn negative(&self) -> &Record {
        &self.negative
    }

    /// The TTL of the zone's own records, including its SOA record, in seconds.
    #[must_use]
    pub fn apex_ttl(&self) -> u32 {
        match self.entries.get(&self.apex) {
            Some(StoredEntry::Fixed(set)) => set.ttl(),
            Some(StoredEntry::App(_) | StoredEntry::Empty) | None => self.negative.ttl,
        }
    }

    /// The number of labels of the zone's name.
    #[must_use]
    pub const fn zone_labels(&self) -> usize {
        self.labels
    }

    /// Whether all apps are known.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.complete
    }

    /// The number of apps with a table.
    #[must_use]
    pub fn apps(&self) -> usize {
        self.tables.len()
    }

    /// The apps that could not be added, and why.
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

//! Lookups of the proofs of host names in the DNS, without any cache.

use std::net::SocketAddr;

use fdn_core::HostName;
use fdn_core::domain::{challenge, proof};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;

use crate::settings::DomainSettings;

/// The most records of a name that are read.
const RECORDS_MAX: usize = 64;

/// The result of looking for a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProofLookup {
    /// The proof is there.
    Proof,
    /// The proof is missing; the text says what was found.
    Missing(String),
    /// The lookup failed; the text says why.
    Unknown(String),
}

impl ProofLookup {
    /// The result in one word, for metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Proof => "proof",
            Self::Missing(_) => "missing",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// Looks for proofs with the resolvers of the settings, or those of the machine.
pub struct Proofs {
    /// The resolver, or why there is none: a controller can run on a machine without a resolver, it only cannot verify domains.
    resolver: Result<TokioResolver, String>,
}

impl Proofs {
    /// Sets up the resolver according to the settings.
    #[must_use]
    pub fn open(settings: &DomainSettings) -> Self {
        let resolver = resolver(settings)
            .map_err(|error| format!("there is no resolver, set domains.resolvers: {error}"));
        Self { resolver }
    }

    /// Looks for the proof of a host with this token.
    pub async fn look_up(&self, host: &HostName, token: &str) -> ProofLookup {
        let name = challenge(host);
        let wanted = proof(token);
        // The final dot keeps the machine's search list from being applied.
        let resolver = match &self.resolver {
            Ok(resolver) => resolver,
            Err(problem) => return ProofLookup::Unknown(problem.clone()),
        };
        match resolver.txt_lookup(format!("{name}.")).await {
            Ok(found) => {
                let texts = found.answers().iter().take(RECORDS_MAX);
                let texts = texts.filter_map(|record| match &record.data {
                    RData::TXT(text) => Some(text.txt_data.concat()),
                    _ => None,
                });
                let there = texts.clone().any(|text| text == wanted.as_bytes());
                if there {
                    return ProofLookup::Proof;
                }
                let count = texts.count();
                ProofLookup::Missing(format!(
                    "{name} has {count} TXT records and none is {wanted}"
                ))
            }
            Err(error) if error.is_no_records_found() => {
                ProofLookup::Missing(format!("{name} has no TXT record"))
            }
            Err(error) => ProofLookup::Unknown(format!("{name} cannot be looked up now: {error}")),
        }
    }
}

fn resolver(settings: &DomainSettings) -> Result<TokioResolver, NetError> {
    let mut builder = if settings.resolvers.is_empty() {
        TokioResolver::builder_tokio()?
    } else {
        let servers = settings.resolvers.iter().map(|server| name_server(*server));
        let config = ResolverConfig::from_name_servers(servers.collect());
        TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
    };
    let options = builder.options_mut();
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options.timeout = settings.timeout.as_duration();
    options.attempts = 2;
    builder.build()
}

fn name_server(server: SocketAddr) -> NameServerConfig {
    let at = |mut connection: ConnectionConfig| {
        connection.port = server.port();
        connection
    };
    let connections = vec![at(ConnectionConfig::udp()), at(ConnectionConfig::tcp())];
    NameServerConfig::new(server.ip(), true, connections)
}

//! The server as a machine of a network: how it joins, its identity, and its connection to the controllers.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use fdn_core::enrol::{EnrolRequest, Machine, NodeAddresses, Role};
use fdn_core::{ClusterId, DurationMs, NodeId, Timestamp};
use fdn_link::join::{
    ApiAccess, Controller, Identity, JoinError, Joined, RenewParts, Renewer, bundle, controllers,
    read_token,
};
use fdn_link::{Connection, ControllerLinkSettings, Link, LinkMetrics, disk};
use fdn_service::CancellationToken;
use fdn_service::pki::{Facts, NodeKey};
use prometheus::{IntGauge, Registry};
use tracing::{info, warn};

use crate::error::Error;
use crate::settings::Settings;
use crate::sync::AuthoritiesHandler;

/// The first and the longest back-off after a failed renewal.
const RENEW_RETRY: (DurationMs, DurationMs) =
    (DurationMs::from_secs(10), DurationMs::from_secs(600));

/// Arguments of `fdn-dns join`.
#[derive(Clone, Debug, Args)]
pub struct JoinArgs {
    /// The controller's URL.
    #[arg(value_name = "URL")]
    pub url: String,
    /// File holding the join token that `fdn dns token` printed; - for standard input.
    #[arg(long, value_name = "FILE")]
    pub token_file: PathBuf,
    /// File with the certificates of the authorities (PEM) that the controller's https certificate is checked against, in place of the web's; a copy is kept.
    #[arg(long, env = "FDN_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// The proxy that carries connections to controllers, as http://HOST:PORT, if this network lets none out itself; it is kept, unless centre.proxy is set.
    #[arg(long, env = "FDN_PROXY", value_name = "URL")]
    pub proxy: Option<String>,
    /// The cluster that this machine is meant for; a token for another one is refused.
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<ClusterId>,
    /// The address by which others reach this machine; without it, the one it reaches the controller from.
    #[arg(long, value_name = "IP")]
    pub address: Option<IpAddr>,
    /// Join anew although this machine has joined: it was removed, and has not heard of that.
    #[arg(long)]
    pub again: bool,
    /// Join although what is sent could be read on the way: the controller's address is http:// and not on this machine.
    #[arg(long)]
    pub allow_plain_http: bool,
}

/// Makes this machine a DNS server of a network, under the name and in the data directory of its settings. Returns the content of its certificate,
/// and whether it had joined before.
///
/// # Errors
/// When the controller refuses, cannot be reached or is not trusted, or a file cannot be written.
pub async fn join(
    args: &JoinArgs,
    settings: &Settings,
    now: Timestamp,
) -> Result<(Facts<Machine>, bool), Error> {
    let name: NodeId = settings.server.parse().map_err(|_| Error::Setting {
        key: "server",
        reason: "must be a name of letters, digits and hyphens, as nodes have".to_owned(),
    })?;
    let access = ApiAccess {
        ca_file: args.ca_file.clone(),
        proxy: args.proxy.clone().or_else(|| settings.centre.proxy.clone()),
    };
    let controller = Controller::new(&args.url, access)?;
    let identity = Identity::below(&settings.data_dir);
    if let Some(facts) = identity.facts()? {
        let machine = &facts.identity;
        if machine.role != Role::Dns || machine.name != name {
            return Err(JoinError::Another {
                identity: facts.identity,
                data: settings.data_dir.clone(),
            }
            .into());
        }
        let usable = now < facts.expires_at && identity.joined.exists();
        if usable && !args.again {
            let ca_file = identity.store_api_ca(args.ca_file.as_deref())?;
            if ca_file.is_some() || args.proxy.is_some() {
                let mut joined = Joined::read(&identity)?;
                joined.ca_file = ca_file.or(joined.ca_file);
                joined.proxy = args.proxy.clone().or(joined.proxy);
                joined.write(&identity)?;
            }
            return Ok((facts, true));
        }
    }
    controller.check_safety(args.allow_plain_http)?;
    let token = read_token(&args.token_file)?;
    let controller = controller.pinned_to(&token)?;
    let addresses = addresses(args, settings, &controller)?;
    identity.prepare()?;
    let key = NodeKey::read_or_create(&identity.key)?;
    let answer = controller
        .enrol(&EnrolRequest {
            token: token.shown(),
            role: Role::Dns,
            csr: key.request(&name)?,
            node: name,
            addresses: addresses.clone(),
            cluster: args.cluster.clone(),
            region: None,
        })
        .await?;
    let joined = Joined {
        controllers: controllers(&answer, &controller.host_and_port().0),
        controller: controller.url(),
        ca_file: controller.store_api_ca(&identity)?,
        proxy: args.proxy.clone(),
        addresses,
    };
    joined.write(&identity)?;
    Ok((identity.write(Role::Dns, &answer)?, false))
}

/// The addresses by which others reach this server: those it listens on; a wildcard address is replaced by the given address, or the one that
/// it reaches the controller from.
fn addresses(
    args: &JoinArgs,
    settings: &Settings,
    controller: &Controller,
) -> Result<NodeAddresses, Error> {
    let first = settings.listen.first().copied().ok_or(Error::Setting {
        key: "listen",
        reason: "must name at least one address".to_owned(),
    })?;
    let towards = match args.address {
        Some(address) => address,
        None => controller.own_address()?,
    };
    let reached = |at: SocketAddr| match at.ip().is_unspecified() {
        true => SocketAddr::new(towards, at.port()),
        false => at,
    };
    let addresses = NodeAddresses {
        gateway: reached(first),
        admin: reached(settings.admin),
        peer: None,
        names: Vec::new(),
    };
    addresses.check().map_err(|e| Error::Setting {
        key: "listen",
        reason: e.to_string(),
    })?;
    Ok(addresses)
}

/// The parts of the membership that the server needs.
pub(crate) struct Member {
    /// The server's name in its reports.
    pub(crate) name: String,
    /// The connection to the controllers.
    pub(crate) connection: Connection,
    /// Called with the network's authorities when they change.
    pub(crate) on_authorities: AuthoritiesHandler,
    /// Renews the server's certificate; `None` if the connection was given.
    pub(crate) renewer: Option<Renewer>,
}

impl Member {
    /// Uses the given connection, or else the identity in the data directory.
    pub(crate) fn of(
        settings: &Settings,
        connection: Option<Connection>,
        registry: &Registry,
        stop: &CancellationToken,
    ) -> Result<Self, Error> {
        if let Some(connection) = connection {
            return Ok(Self {
                name: settings.server.clone(),
                connection,
                on_authorities: Box::new(|_| {}),
                renewer: None,
            });
        }
        let identity = Identity::below(&settings.data_dir);
        let facts = identity.facts()?.ok_or(Error::Setting {
            key: "data_dir",
            reason: "holds no identity of a DNS server; join a network first: fdn-dns join"
                .to_owned(),
        })?;
        let joined = Joined::read(&identity)?;
        let mut centre: ControllerLinkSettings = settings.centre.clone();
        if centre.controllers.is_empty() {
            centre.controllers.clone_from(&joined.controllers);
        }
        if centre.proxy.is_none() {
            centre.proxy.clone_from(&joined.proxy);
        }
        let access = ApiAccess {
            ca_file: joined.ca_file.clone(),
            proxy: centre.proxy.clone(),
        };
        let api = Controller::of_member(&joined.controller, access, "fdn-dns join")?;
        let files = identity.files();
        let metrics =
            LinkMetrics::new(registry, "fdn_dns").map_err(fdn_service::ServiceError::from)?;
        let connection = Link::start(&centre, files.clone(), metrics, stop.clone())?;
        let expires = IntGauge::new(
            "fdn_dns_identity_expires_seconds",
            "When the server's certificate in the network ends, in seconds since 1970.",
        )
        .and_then(|gauge| {
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        })
        .map_err(fdn_service::ServiceError::from)?;
        let ca = files.ca.clone();
        let renewer = Renewer::new(RenewParts {
            controllers: connection.controllers.clone(),
            answer_timeout: centre.answer_timeout.as_duration(),
            controller: api,
            files,
            retry: RENEW_RETRY.0,
            retry_max: RENEW_RETRY.1,
            token_file: identity.token.clone(),
            addresses: joined.addresses,
            renewed: Box::new(move |_, authorities| {
                disk::replace_public(&ca, bundle(authorities).as_bytes())
            }),
            expires,
        });
        let ca = identity.ca.clone();
        info!(machine = %facts.identity, "a DNS server of the network");
        Ok(Self {
            name: facts.identity.name.to_string(),
            connection,
            on_authorities: Box::new(move |authorities| replace_authorities(&ca, authorities)),
            renewer: Some(renewer),
        })
    }
}

/// Writes the authorities that controllers' certificates are checked against, if they changed.
fn replace_authorities(ca: &std::path::Path, authorities: &[String]) {
    let bundle = bundle(authorities);
    if authorities.is_empty() || std::fs::read_to_string(ca).is_ok_and(|now| now == bundle) {
        return;
    }
    match disk::replace_public(ca, bundle.as_bytes()) {
        Ok(()) => info!(
            count = authorities.len(),
            "the network's authorities changed"
        ),
        Err(error) => warn!(%error, "the network's new authorities cannot be kept"),
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::Revision;
    use fdn_core::enrol::{EnrolResponse, IssuedCertificate};
    use fdn_service::now;
    use fdn_service::pki::{Authority, Bearer, Subject};
    use prometheus::Registry;

    use super::*;

    const DAY: u64 = 86_400_000;

    /// The settings of a DNS server that has joined, with this file of the API's authorities.
    fn joined(data: &std::path::Path, ca_file: Option<PathBuf>) -> (Settings, Identity, Authority) {
        let identity = Identity::below(data);
        identity.prepare().expect("a folder");
        let key = NodeKey::read_or_create(&identity.key).expect("a key");
        let (from, end) = (now(), Timestamp(now().get() + DAY));
        let authority = Authority::create(from, end).expect("an authority");
        let machine = "fdn://cluster/eu/dns/ns-1".parse().expect("a machine");
        let subject = Subject {
            bearer: Bearer::Machine(machine),
            addresses: Vec::new(),
            names: Vec::new(),
        };
        let issued = authority.issue(&subject, &key.public(), from, end);
        let issued = issued.expect("a certificate");
        let answer = EnrolResponse {
            node: "ns-1".parse().expect("a name"),
            cluster: "eu".parse().expect("a cluster"),
            region: "eu".parse().expect("a region"),
            location: fdn_core::GeoPoint::new(53.0, -6.0).expect("a position"),
            identity: IssuedCertificate {
                certificate: issued.certificate,
                serial: issued.serial,
                issued_at: from,
                expires_at: end,
                authorities: vec![authority.certificate().to_owned()],
            },
            node_token: "fdn-node.ns-1.secret".to_owned(),
            controllers: vec!["127.0.0.1:1".to_owned()],
            seeds: Vec::new(),
            revision: Revision(7),
        };
        let at: SocketAddr = "127.0.0.1:5300".parse().expect("an address");
        let kept = Joined {
            controllers: answer.controllers.clone(),
            controller: "https://127.0.0.1:2".to_owned(),
            ca_file,
            proxy: None,
            addresses: NodeAddresses {
                gateway: at,
                admin: at,
                peer: None,
                names: Vec::new(),
            },
        };
        kept.write(&identity).expect("written");
        identity.write(Role::Dns, &answer).expect("written");
        let settings = Settings {
            server: "ns-1".to_owned(),
            data_dir: data.to_owned(),
            ..Settings::default()
        };
        (settings, identity, authority)
    }

    #[tokio::test]
    async fn authorities_of_the_api_are_taken_anew_and_are_not_needed_to_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let lost = folder.path().join("identity/api-ca.pem");
        let (settings, identity, authority) = joined(folder.path(), Some(lost.clone()));
        let stop = CancellationToken::new();
        for empty in [false, true] {
            if empty {
                std::fs::write(&lost, "").expect("written");
            }
            let member = Member::of(&settings, None, &Registry::new(), &stop);
            assert!(member.expect("it starts").renewer.is_some());
        }
        stop.cancel();
        let given = folder.path().join("given.pem");
        std::fs::write(&given, authority.certificate()).expect("written");
        let args = JoinArgs {
            url: "https://127.0.0.1:2".to_owned(),
            token_file: folder.path().join("no token is needed"),
            ca_file: Some(given),
            proxy: None,
            cluster: None,
            address: None,
            again: false,
            allow_plain_http: false,
        };
        let (_, before) = join(&args, &settings, now()).await.expect("joined");
        assert!(before);
        let text = std::fs::read_to_string(&lost).expect("there");
        assert_eq!(text, authority.certificate());
        let kept = Joined::read(&identity).expect("kept");
        assert_eq!(kept.ca_file, Some(lost));
    }
}

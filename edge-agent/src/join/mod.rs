//! `fdn-edge-agent join`: makes this machine a node of a network, with one command and a join token.
//!
//! The private key is generated here and never leaves the machine. The controller's response is written below `DATA/identity`, the certificate
//! last, so that its presence means that everything is there. Then a configuration file is written with which `fdn-edge-agent run` starts, also
//! without the network. Joining again changes nothing on a node that has joined, except the authorities of the API, if some are given; after a
//! lost response it continues with the same key. [`fdn_link::join`] has the parts that DNS servers share.

mod config;
mod place;

use std::path::PathBuf;

use clap::Args;
use fdn_core::enrol::{EnrolRequest, EnrolResponse, Machine, Role};
use fdn_core::fleet::FleetDesired;
use fdn_core::{ClusterId, HostName, NodeId, RegionName, Timestamp};
use fdn_service::pki::{Facts, NodeKey};

use fdn_link::join::read_token;
pub use fdn_link::join::{ApiAccess, Controller, Identity, JoinError};

use crate::error::Error;

/// Arguments of `fdn-edge-agent join`.
#[derive(Clone, Debug, Args)]
pub struct JoinArgs {
    /// The controller's URL.
    #[arg(value_name = "URL")]
    pub url: String,
    /// File holding the join token that `fdn node token` printed; - for standard input.
    #[arg(long, value_name = "FILE")]
    pub token_file: PathBuf,
    /// File with the certificates of the authorities (PEM) that the controller's https certificate is checked against, in place of the web's; a copy is kept.
    #[arg(long, env = "FDN_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// The proxy that carries connections to controllers, as http://HOST:PORT, if this network lets none out itself; it is written to the configuration.
    #[arg(long, env = "FDN_PROXY", value_name = "URL")]
    pub proxy: Option<String>,
    /// The node's name, unique in the network; the machine's host name without it.
    #[arg(long, value_name = "NAME")]
    pub node: Option<NodeId>,
    /// The cluster that this machine is meant for; a token for another one is refused.
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<ClusterId>,
    /// The region that this machine is meant for; a token for another one is refused.
    #[arg(long, value_name = "NAME")]
    pub region: Option<RegionName>,
    /// The folder for identity, desired state and artifacts.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/fdn/edge-agent")]
    pub data: PathBuf,
    /// The configuration file to write. One that is there is kept if it is for this node.
    #[arg(long, value_name = "FILE", default_value = "/etc/fdn/edge-agent.toml")]
    pub config: PathBuf,
    /// The address by which others reach this machine; without it, the one it reaches the controller from.
    #[arg(long, value_name = "IP")]
    pub address: Option<std::net::IpAddr>,
    /// The port of the gateway, for clients.
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub gateway_port: u16,
    /// The port for health and metrics.
    #[arg(long, value_name = "PORT", default_value_t = 8081)]
    pub admin_port: u16,
    /// The port for the other nodes of the cluster, by which they start instances for each other.
    #[arg(long, value_name = "PORT", default_value_t = 8443)]
    pub peer_port: u16,
    /// Take no part in the cluster: this node starts instances on itself only, and opens no port for the others.
    #[arg(long, conflicts_with = "peer_port")]
    pub no_peers: bool,
    /// The port for calls of workflows' stages from other clusters; without it this node runs all stages itself.
    #[arg(long, value_name = "PORT")]
    pub stage_port: Option<u16>,
    /// The port for controllers, which ask for logs and calls and send jobs; with --stage-port they use that one.
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 8444,
        conflicts_with = "stage_port"
    )]
    pub controller_port: u16,
    /// A host name of this machine for its certificate; may be given several times.
    #[arg(long = "name", value_name = "HOST")]
    pub names: Vec<HostName>,
    /// Join anew although this machine has joined: it was removed, and has not heard of that.
    #[arg(long)]
    pub again: bool,
    /// Join although what is sent could be read on the way: the controller's address is http:// and not on this machine.
    #[arg(long)]
    pub allow_plain_http: bool,
}

impl JoinArgs {
    fn api_access(&self) -> ApiAccess {
        ApiAccess {
            ca_file: self.ca_file.clone(),
            proxy: self.proxy.clone(),
        }
    }
}

/// The result of joining.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joined {
    /// The machine is now a node.
    New(Box<Summary>),
    /// The machine was a node before; nothing was changed except the authorities of the controllers' API, if some were given.
    Before(Box<Summary>),
}

/// What to show to a person about a node that joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The facts of its certificate: its subject and expiry.
    pub facts: Facts<Machine>,
    /// The configuration file.
    pub config: PathBuf,
    /// The accepted authorities of the controllers' API, unless the configuration names them as its `controller.ca_file`.
    pub unnamed: Option<PathBuf>,
}

/// Makes this machine a node.
///
/// # Errors
/// When the controller refuses, or cannot be reached or trusted, or a file cannot be written.
pub async fn join(args: &JoinArgs, now: Timestamp) -> Result<Joined, Error> {
    let controller = Controller::new(&args.url, args.api_access())?;
    let node = match &args.node {
        Some(node) => node.clone(),
        None => place::host_name()?,
    };
    let identity = Identity::below(&args.data);
    if let Some(facts) = before(args, &identity, &node, now)?
        && !args.again
    {
        let unnamed = take_authorities(args, &identity)?;
        return Ok(Joined::Before(Box::new(summary(args, facts, unnamed))));
    }
    controller.check_safety(args.allow_plain_http)?;
    config::check(&args.config, &node, args.cluster.as_ref())?;
    let token = read_token(&args.token_file)?;
    let controller = controller.pinned_to(&token)?;
    let addresses = place::addresses(args, &controller)?;
    identity.prepare()?;
    let key = NodeKey::read_or_create(&identity.key)?;
    let request = EnrolRequest {
        token: token.shown(),
        role: Role::Node,
        csr: key.request(&node)?,
        node,
        addresses,
        cluster: args.cluster.clone(),
        region: args.region.clone(),
    };
    let answer: EnrolResponse = controller.enrol(&request).await?;
    let api_ca = controller.store_api_ca(&identity)?;
    let facts = identity.write(Role::Node, &answer)?;
    let asked = (&controller, api_ca.clone());
    config::write(args, asked, &identity, &request.addresses, &answer)?;
    let unnamed = config::unnamed(&args.config, api_ca)?;
    Ok(Joined::New(Box::new(summary(args, facts, unnamed))))
}

fn summary(args: &JoinArgs, facts: Facts<Machine>, unnamed: Option<PathBuf>) -> Summary {
    Summary {
        facts,
        config: args.config.clone(),
        unnamed,
    }
}

/// Stores the API authorities given to a machine that has joined; returns their file if the configuration does not name it.
fn take_authorities(args: &JoinArgs, identity: &Identity) -> Result<Option<PathBuf>, Error> {
    let kept = identity.store_api_ca(args.ca_file.as_deref())?;
    config::unnamed(&args.config, kept)
}

/// The facts of the certificate, if this machine has joined as this node and can start.
fn before(
    args: &JoinArgs,
    identity: &Identity,
    node: &NodeId,
    now: Timestamp,
) -> Result<Option<Facts<Machine>>, Error> {
    let Some(facts) = identity.facts()? else {
        return Ok(None);
    };
    let cluster = args.cluster.as_ref();
    let meant = cluster.unwrap_or(&facts.identity.cluster);
    if facts.identity.name != *node || facts.identity.cluster != *meant {
        return Err(JoinError::Another {
            identity: facts.identity,
            data: args.data.clone(),
        }
        .into());
    }
    let usable = now < facts.expires_at && !was_removed(&args.data, &facts);
    Ok((usable && args.config.exists()).then_some(facts))
}

/// Whether the node knows that its certificate was revoked.
fn was_removed(data: &std::path::Path, facts: &Facts<Machine>) -> bool {
    let kept = std::fs::read(data.join("state/fleet.json")).ok();
    let kept = kept.and_then(|bytes| serde_json::from_slice::<FleetDesired>(&bytes).ok());
    kept.is_some_and(|fleet| fleet.revoked.iter().any(|one| one.serial == facts.serial))
}

#[cfg(test)]
mod tests;

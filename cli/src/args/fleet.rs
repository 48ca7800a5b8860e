//! `fdn cluster` and `fdn node`: what operators of machines type.

use clap::{Args, Subcommand};
use fdn_core::{
    ClusterId, DeviceId, DurationMs, GeoPoint, JoinTokenId, NodeId, ParseError, RegionName,
};

use super::{ConnectArgs, OutputArgs, ShowArgs};

/// Arguments of `fdn cluster`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct ClusterArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ClusterCommand,
}

/// What to do with clusters.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Make a cluster, into which machines can be let
    Create(CreateClusterArgs),
    /// List the clusters
    List(ShowArgs),
    /// Show everything about a cluster: capacity, devices, stages, queue, versions, nodes
    Describe(DescribeClusterArgs),
}

/// Arguments of `fdn cluster create`.
#[derive(Debug, Args)]
pub struct CreateClusterArgs {
    /// The cluster's name
    pub name: ClusterId,
    /// Its region; made if it is new
    #[arg(long, value_name = "NAME")]
    pub region: RegionName,
    /// Where it is, in degrees; the region's place if not given
    #[arg(long, value_name = "LAT,LON", value_parser = parse_location, allow_hyphen_values = true)]
    pub location: Option<GeoPoint>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn cluster describe`.
#[derive(Debug, Args)]
pub struct DescribeClusterArgs {
    /// The cluster
    pub name: ClusterId,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

fn parse_location(text: &str) -> Result<GeoPoint, ParseError> {
    let error = || ParseError::new("position", text, "LAT,LON in degrees, such as 53.35,-6.26");
    let (lat, lon) = text.split_once(',').ok_or_else(error)?;
    let degrees = |text: &str| text.trim().parse::<f64>().map_err(|_| error());
    GeoPoint::new(degrees(lat)?, degrees(lon)?)
}

/// Arguments of `fdn node`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct NodeArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: NodeCommand,
}

/// What to do with nodes.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Make, list or take back tokens by which machines join a cluster
    Token(Box<TokenArgs>),
    /// List the nodes
    List(ShowArgs),
    /// Show everything about a node: certificate, capacity, devices, apps
    Describe(OneNodeArgs),
    /// Let a node take no new work, and wait until what it has ends
    Drain(DrainArgs),
    /// Let a node take work again
    Uncordon(OneNodeArgs),
    /// Put a GPU device back into service that its node took out of it
    Restore(RestoreArgs),
    /// Remove nodes: their certificates no longer count
    Remove(RemoveNodeArgs),
}

/// Arguments of `fdn node token`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  fdn node token --cluster eu-west > token          # on your machine
  fdn-edge-agent join https://controller.example.org --token-file token    # on the new one
For a DNS server: fdn dns token, and there fdn-dns join.")]
pub struct TokenArgs {
    /// The cluster that machines are let into
    #[arg(long, value_name = "NAME", required_unless_present_any = ["list", "revoke"])]
    pub cluster: Option<ClusterId>,
    /// How long the token is good for
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    pub ttl: DurationMs,
    /// How many machines it lets in
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub uses: u32,
    /// List the tokens instead
    #[arg(long, conflicts_with_all = ["cluster", "revoke"])]
    pub list: bool,
    /// Take a token back instead
    #[arg(long, value_name = "ID", conflicts_with_all = ["cluster", "list"])]
    pub revoke: Option<JoinTokenId>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of the commands about one node.
#[derive(Debug, Args)]
pub struct OneNodeArgs {
    /// The node
    pub name: NodeId,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn node restore`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  fdn node restore eu-west-1 GPU-5f1c7d2a-9c0e-4e21-8a0b-0b9c5b1c2d3e")]
pub struct RestoreArgs {
    /// The node
    pub name: NodeId,
    /// The device, as `fdn node describe` shows it
    pub device: DeviceId,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn node drain`.
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// The node
    pub name: NodeId,
    /// Return as soon as the controller has accepted it
    #[arg(long)]
    pub no_wait: bool,
    /// How long to wait, such as 30s or 5m
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub timeout: DurationMs,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn node remove`.
#[derive(Debug, Args)]
pub struct RemoveNodeArgs {
    /// The nodes
    #[arg(required = true)]
    pub names: Vec<NodeId>,
    /// Remove them although they take or do work; calls that run there are lost
    #[arg(long)]
    pub force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_two_angles() {
        let point = parse_location("53.35, -6.26").expect("a position");
        assert!((point.lat() - 53.35).abs() < 1e-9 && (point.lon() + 6.26).abs() < 1e-9);
        for bad in ["", "53.35", "53.35;-6", "91,0", "a,b"] {
            assert!(parse_location(bad).is_err(), "{bad}");
        }
    }
}

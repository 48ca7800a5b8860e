//! `fdn traffic`: which versions an app's calls go to.

use clap::{Args, Subcommand, ValueEnum};
use fdn_core::policy::traffic::{Share, Sticky};
use fdn_core::{AppName, ParseError};

use super::policy::OneAppArgs;
use super::{ConnectArgs, OutputArgs};

/// Arguments of `fdn traffic`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct TrafficArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TrafficCommand,
}

/// What to do with an app's calls.
#[derive(Debug, Subcommand)]
pub enum TrafficCommand {
    /// Show which versions an app's calls go to
    Show(OneAppArgs),
    /// Split an app's calls between versions by weight
    Set(SetTrafficArgs),
    /// Send all calls to the current version again
    Clear(OneAppArgs),
}

/// Arguments of `fdn traffic set`.
#[derive(Debug, Args)]
pub struct SetTrafficArgs {
    /// The app
    pub app: AppName,
    /// A version and its weight, from 0 to 10000, relative to the sum of all: v3=90 v4=10
    #[arg(required = true, value_name = "VERSION=WEIGHT", value_parser = parse_share)]
    pub shares: Vec<Share>,
    /// What keeps a client with its version
    #[arg(long, value_enum, value_name = "BY", default_value_t)]
    pub sticky: StickyBy,
    /// Let calls name their version in x-fdn-pin, also one of weight 0
    #[arg(long)]
    pub pin: bool,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// What keeps a client with its version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum StickyBy {
    /// Nothing: each call is drawn anew.
    #[default]
    None,
    /// A cookie.
    Cookie,
    /// The client's address.
    Address,
}

impl From<StickyBy> for Sticky {
    fn from(by: StickyBy) -> Self {
        match by {
            StickyBy::None => Self::None,
            StickyBy::Cookie => Self::Cookie,
            StickyBy::Address => Self::Address,
        }
    }
}

fn parse_share(text: &str) -> Result<Share, ParseError> {
    let error = || ParseError::new("share", text, "VERSION=WEIGHT, such as v4=10");
    let (version, weight) = text.split_once('=').ok_or_else(error)?;
    Ok(Share {
        version: super::parse_version(version).map_err(|_| error())?,
        weight: weight.parse().map_err(|_| error())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_version_and_a_weight() {
        let share = parse_share("v4=10").expect("a share");
        assert_eq!((share.version.get(), share.weight), (4, 10));
        assert_eq!(parse_share("4=0").expect("a share").weight, 0);
        for bad in ["v4", "v0=1", "v4=-1", "v4=", "=1"] {
            assert!(parse_share(bad).is_err(), "{bad}");
        }
    }
}

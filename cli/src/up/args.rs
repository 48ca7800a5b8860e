//! The arguments of `fdn up`. Their defaults are the network used in the documentation.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueHint};
use fdn_core::{GeoPoint, HostName, ParseError, RegionName};

/// Arguments of `fdn up`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Node K of region N listens on 127.0.N.K: the gateway on --gateway-port; health and metrics on
--admin-port. Everything is kept in the data directory; a second start resumes with all that was
deployed. Ctrl-C stops cleanly.
Where a Docker engine answers on this machine (at /var/run/docker.sock, or DOCKER_HOST=unix://PATH),
container images can be deployed; what runs of them ends with the network.
The context that `fdn deploy` and the other commands use is written at each start, token included.
FDN_LOG=info (or debug) shows what the parts of the network log.")]
pub struct UpArgs {
    /// Where everything is kept; without it, $XDG_DATA_HOME/fdn or ~/.local/share/fdn
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub data_dir: Option<PathBuf>,
    /// The zone of the apps' host names
    #[arg(long, value_name = "ZONE", default_value = "fn.test")]
    pub zone: HostName,
    /// Where API and console listen
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8600")]
    pub listen: SocketAddr,
    /// Where DNS listens (UDP and TCP)
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:5300")]
    pub dns: SocketAddr,
    /// Where health and metrics of DNS are served
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8602")]
    pub dns_admin: SocketAddr,
    /// The port of all gateways
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub gateway_port: u16,
    /// The port for health and metrics of all nodes
    #[arg(long, value_name = "PORT", default_value_t = 8081)]
    pub admin_port: u16,
    /// A region and where it is, such as eu-west=53.35,-6.26; may be given several times
    #[arg(
        long = "region",
        value_name = "NAME=LAT,LON",
        allow_hyphen_values = true,
        default_values = ["eu-west=53.35,-6.26", "us-east=39.04,-77.49", "ap-south=19.08,72.88"]
    )]
    pub regions: Vec<RegionArg>,
    /// Nodes in each region
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub nodes: u8,
    /// Run no container images, though a Docker engine may answer on this machine
    #[arg(long)]
    pub no_docker: bool,
    /// The context to write; one that another network owns is left alone
    #[arg(long, value_name = "NAME", default_value = crate::config::LOCAL_CONTEXT)]
    pub context: String,
}

/// A `--region NAME=LAT,LON`.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionArg {
    /// The region, and the name of its cluster.
    pub name: RegionName,
    /// Its location.
    pub location: GeoPoint,
}

impl FromStr for RegionArg {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || {
            ParseError::new(
                "region",
                text,
                "NAME=LATITUDE,LONGITUDE, such as eu-west=53.35,-6.26",
            )
        };
        let (name, place) = text.split_once('=').ok_or_else(error)?;
        let (lat, lon) = place.split_once(',').ok_or_else(error)?;
        let degrees = |s: &str| s.trim().parse::<f64>().map_err(|_| error());
        Ok(Self {
            name: name.parse()?,
            location: GeoPoint::new(degrees(lat)?, degrees(lon)?)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_a_name_and_a_position() {
        let region: RegionArg = "us-east=39.04,-77.49".parse().expect("region");
        assert_eq!(
            (region.name.as_str(), region.location.lon()),
            ("us-east", -77.49)
        );
        for bad in ["us-east", "us-east=39.04", "US=1,2", "a=91,0", "a=x,y"] {
            assert!(bad.parse::<RegionArg>().is_err(), "{bad}");
        }
    }
}

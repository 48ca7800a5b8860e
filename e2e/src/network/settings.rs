//! What the processes of the network are set to: their secrets and configuration files.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use anyhow::Result;

use super::{Network, REGIONS, Region, ZONE};

/// How all processes log.
const LOG: &str = "[log]\nformat = \"json\"\n";

/// What functions may reach of this machine: the servers that tests start.
const OWN_SERVERS: &str = "[runtime]\nprivate_networks = [\"127.0.0.1\"]\n";

impl Network {
    pub(super) fn write_secrets(&self) -> Result<()> {
        for name in ["network.token", "network.key", "admin.password"] {
            fdn_service::secret::read_or_create(&self.path(name))?;
        }
        Ok(())
    }

    pub(super) fn write_controller(&self, database: &str, more: &str) -> Result<()> {
        let path = self.folder.path().display();
        let controllers = match &self.namespace {
            Some(_) => format!("\"{}\"", self.edge),
            // Where machines asked when they joined.
            None => String::new(),
        };
        let mut text = format!(
            "listen = \"{}\"\nzone = \"{ZONE}\"\ndns = \"{}\"\ngateway_port = {}\n\
             [edge]\nlisten = \"{}\"\ncontrollers = [{controllers}]\n\
             [network]\ntoken_file = \"{path}/network.token\"\nkey_file = \"{path}/network.key\"\n\
             [broker]\nurl = \"{}\"\nnamespace = \"e2e\"\n{LOG}\
             [database]\nurl = \"{database}\"\n[artifacts]\nlocal = \"{path}/artifacts\"\n\
             [accounts]\ninitial_password_file = \"{path}/admin.password\"\n[uploads]\nimage_limit = \"4MiB\"\n{}",
            self.api,
            self.dns_address,
            self.gateway_port,
            self.edge,
            self.rabbit.url(),
            self.deadlines.of_uploads_and_logs()
        );
        for region in REGIONS {
            let (lat, lon) = region.clients;
            writeln!(
                text,
                "[[geo.locations]]\nprefix = \"{}\"\nlat = {lat}\nlon = {lon}",
                region.subnet
            )?;
        }
        text += more;
        self.write("controller.toml", &text)
    }

    pub(super) fn write_dns(
        &self,
        name: &str,
        listen: SocketAddr,
        admin: SocketAddr,
    ) -> Result<()> {
        let path = self.folder.path().display();
        let text = format!(
            "server = \"{name}\"\nlisten = [\"{listen}\"]\ndata_dir = \"{path}/{name}\"\nadmin = \"{admin}\"\n[zone]\nname = \"{ZONE}\"\n{LOG}{}",
            self.deadlines.of_dns()
        );
        self.write(&format!("{name}.toml"), &text)
    }

    pub(crate) fn write_agent(
        &self,
        name: &str,
        region: &Region,
        ip: IpAddr,
        more: &str,
    ) -> Result<()> {
        let admin_port = self.admin_port;
        let path = self.folder.path().display();
        let (lat, lon) = region.location;
        let text = format!(
            "node = \"{name}\"\ncluster = \"{0}\"\nregion = \"{0}\"\nlocation = {{ lat = {lat}, lon = {lon} }}\n\
             data = \"{path}/{name}\"\n[gateway]\nlisten = \"{ip}:{1}\"\nworkers = 1\n[admin]\nlisten = \"{ip}:{admin_port}\"\n\
             [controller]\nurl = \"http://{2}\"\n[centre]\ncontrollers = [\"{3}\"]\n[stop]\ndrain = \"1s\"\n{LOG}\
             [network]\ntoken_file = \"{path}/{name}/identity/node.token\"\n\
             [tls]\nca = \"{path}/{name}/identity/ca.pem\"\ncertificate = \"{path}/{name}/identity/node.pem\"\n\
             key = \"{path}/{name}/identity/node.key\"\n",
            region.name, self.gateway_port, self.api, self.edge
        );
        // Networks of several tests have nodes at one address; what takes part in workflows says so itself.
        let listener = match more.contains("[workflows]") {
            true => String::new(),
            false => format!("[workflows]\nlisten = \"{ip}:0\"\n"),
        };
        self.write(
            &format!("{name}.toml"),
            &(text + self.deadlines.of_agent() + OWN_SERVERS + &listener + more),
        )
    }

    /// Adds what all nodes of tests have to the configuration that joining wrote; who joins again keeps it.
    pub(super) fn lengthen(&self, name: &str) -> Result<()> {
        let file = format!("{name}.toml");
        let mut text = std::fs::read_to_string(self.path(&file))?;
        if !text.contains("[admission]") {
            text.push('\n');
            text.push_str(self.deadlines.of_agent());
            text.push_str(OWN_SERVERS);
            self.write(&file, &text)?;
        }
        Ok(())
    }
}

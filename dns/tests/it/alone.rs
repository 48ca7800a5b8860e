//! A server's process whose controllers are unreachable: the identity and the settings that it starts with. The benchmark of bindings starts one
//! as well.

use std::net::SocketAddr;
use std::path::Path;

use fdn_core::Timestamp;
use fdn_core::enrol::{Machine, NodeAddresses, Role};
use fdn_link::join::{Identity, Joined};
use fdn_service::pki::{Authority, Bearer, NodeKey, Subject};

/// Turns a data directory into that of a DNS server that joined a network whose controllers are unreachable.
pub(crate) fn join(dir: &Path) {
    let (now, name) = (fdn_service::now(), "dns-1".parse().expect("a name"));
    let end = Timestamp(now.get() + 86_400_000);
    let identity = Identity::below(dir);
    identity.prepare().expect("a folder");
    let authority = Authority::create(now, end).expect("an authority");
    let key = NodeKey::read_or_create(&identity.key).expect("a key");
    let subject = Subject {
        bearer: Bearer::Machine(Machine {
            role: Role::Dns,
            cluster: "eu-west".parse().expect("cluster"),
            name,
        }),
        addresses: Vec::new(),
        names: Vec::new(),
    };
    let issued = authority.issue(&subject, &key.public(), now, end);
    let issued = issued.expect("a certificate");
    std::fs::write(&identity.ca, authority.certificate()).expect("written");
    std::fs::write(&identity.certificate, issued.certificate).expect("written");
    let here = SocketAddr::from(([127, 0, 0, 1], 1));
    let joined = Joined {
        controllers: vec!["127.0.0.1:1".to_owned()],
        controller: "http://127.0.0.1:1".to_owned(),
        ca_file: None,
        proxy: None,
        addresses: NodeAddresses {
            gateway: here,
            admin: here,
            peer: None,
            names: Vec::new(),
        },
    };
    joined.write(&identity).expect("written");
}

/// The settings of such a server. Its gateways need not exist: their checks would have to fail more often than they are made.
pub(crate) fn config(dir: &Path, listen: u16, admin: u16) -> String {
    format!(
        "data_dir = {:?}\nlisten = [\"127.0.0.1:{listen}\"]\nadmin = \"127.0.0.1:{admin}\"\n\
         [health]\nfall = 1000\n",
        dir.display().to_string()
    )
}

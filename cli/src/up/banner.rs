//! The text that `fdn up` prints when the network is ready: addresses, and what to type next.

use super::engine::Engine;
use super::plan::Plan;

/// The content of the text.
#[derive(Clone, Debug)]
pub struct Banner<'a> {
    /// The plan of the network.
    pub plan: &'a Plan,
    /// The engine that runs container images, if there is one.
    pub engine: Option<&'a Engine>,
    /// The name of the first user.
    pub admin: &'a str,
    /// The first user's password, at the first start only.
    pub password: Option<&'a str>,
    /// The file of the password, for all later starts.
    pub password_file: &'a str,
}

impl Banner<'_> {
    /// The lines.
    #[must_use]
    pub fn text(&self) -> String {
        let plan = self.plan;
        let login = match self.password {
            Some(password) => format!("({} / {password}, printed once)", self.admin),
            None => format!(
                "({} / the password printed at the first start; it stands in {})",
                self.admin, self.password_file
            ),
        };
        let regions: Vec<String> = plan
            .first_nodes()
            .map(|n| format!("{} {}", n.region, n.gateway))
            .collect();
        let nodes = match plan.nodes_per_region {
            1 => "(1 node each)".to_owned(),
            n => format!("({n} nodes each)"),
        };
        let app = format!("hello.{}", plan.zone);
        let mut lines = vec![
            row("console", &format!("http://{}        {login}", plan.listen)),
            row(
                "DNS",
                &format!("{} (udp+tcp), zone {}", plan.dns, plan.zone),
            ),
            row("regions", &format!("{}   {nodes}", regions.join("   "))),
        ];
        if let Some(engine) = self.engine {
            let socket = engine.socket.display();
            let text = format!("can be deployed too; the Docker engine at {socket} runs them");
            lines.push(row("images", &text));
        }
        lines.push(row("try", "fdn deploy hello functions/hello/hello.wasm"));
        lines.push(row(
            "",
            &format!(
                "dig @{} -p {} {app} +subnet=203.0.113.0/24",
                plan.dns.ip(),
                plan.dns.port()
            ),
        ));
        let invoke = "(resolves through the network's own DNS, prints answer, cluster, timings)";
        lines.push(row(
            "",
            &format!("fdn invoke hello -d 'world'          {invoke}"),
        ));
        lines.join("\n")
    }
}

fn row(title: &str, text: &str) -> String {
    format!("  {title:<11}{text}")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn plan(flags: &[&str]) -> Plan {
        let all = ["fdn", "up"].iter().chain(flags);
        let Command::Up(args) = Cli::try_parse_from(all).expect("arguments").command else {
            panic!("another command")
        };
        Plan::of(&args).expect("plan")
    }

    #[test]
    fn the_block_is_the_documented_one() {
        let plan = plan(&[]);
        let banner = Banner {
            plan: &plan,
            engine: None,
            admin: "admin",
            password: Some("PASSWORD"),
            password_file: "/d/p",
        };
        let expected = "\x20 console    http://127.0.0.1:8600        (admin / PASSWORD, printed once)
  DNS        127.0.0.1:5300 (udp+tcp), zone fn.test
  regions    eu-west 127.0.1.1:8080   us-east 127.0.2.1:8080   ap-south 127.0.3.1:8080   (2 nodes each)
  try        fdn deploy hello functions/hello/hello.wasm
             dig @127.0.0.1 -p 5300 hello.fn.test +subnet=203.0.113.0/24
             fdn invoke hello -d 'world'          (resolves through the network's own DNS, prints answer, cluster, timings)";
        assert_eq!(banner.text(), expected);
        let later = Banner {
            password: None,
            ..banner
        };
        assert!(!later.text().contains("PASSWORD") && later.text().contains("/d/p"));
        let engine = Engine {
            socket: "/run/docker.sock".into(),
            isolates: true,
        };
        let with_engine = Banner {
            engine: Some(&engine),
            ..later.clone()
        };
        let added: Vec<String> = with_engine
            .text()
            .lines()
            .filter(|line| !later.text().contains(line))
            .map(str::to_owned)
            .collect();
        assert_eq!(
            added,
            ["  images     can be deployed too; the Docker engine at /run/docker.sock runs them"]
        );
    }

    #[test]
    fn flags_show_in_the_block() {
        let flags = [
            "--zone",
            "x.test",
            "--dns",
            "127.0.0.1:53",
            "--gateway-port",
            "90",
            "--nodes",
            "1",
        ];
        let plan = plan(&flags);
        let banner = Banner {
            plan: &plan,
            engine: None,
            admin: "admin",
            password: None,
            password_file: "/d/p",
        };
        let text = banner.text();
        for expected in [
            "127.0.0.1:53 ",
            "-p 53 hello.x.test",
            "eu-west 127.0.1.1:90 ",
            "(1 node each)",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}

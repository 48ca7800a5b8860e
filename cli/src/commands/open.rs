//! `fdn open`: prints the URL of an app or of the console, and opens it if there is a desktop.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::invoke::request::authority;
use super::target;
use crate::args::OpenArgs;
use crate::client::Client;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;

/// The argument for the console.
const CONSOLE: &str = "console";
/// How long to wait for the opener to fail; if it is the browser itself, it keeps running.
const OPENER: Duration = Duration::from_secs(2);

/// Runs the command.
///
/// # Errors
/// When the app does not exist, or the controller cannot be reached.
pub async fn run(
    args: &OpenArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let target = target(&args.connect, env)?;
    let url = if args.what.as_str() == CONSOLE {
        target.controller.to_string()
    } else {
        let client = Client::new(&target)?;
        let host = client.app(&args.what).await?.summary.host;
        let port = match target.context.as_ref().and_then(|c| c.gateway_port) {
            Some(port) => port,
            None => client.network().await?.gateway_port,
        };
        if !resolves(host.as_str(), port).await {
            console.note(&format!(
                "fdn: this machine's DNS server does not know {host}; `fdn invoke {}` asks the network's own",
                args.what
            ));
        }
        format!("http://{}/", authority(&host, port))
    };
    console.line(&url)?;
    open(&url, env, console).await;
    Ok(())
}

/// Whether a browser can resolve the host.
async fn resolves(host: &str, port: u16) -> bool {
    let found = tokio::time::timeout(OPENER, tokio::net::lookup_host((host, port))).await;
    found.is_ok_and(|found| found.is_ok_and(|mut addresses| addresses.next().is_some()))
}

/// The program that opens URLs on this desktop, if there is one.
fn opener(env: &Environment) -> Option<&'static str> {
    if cfg!(target_os = "macos") {
        return Some("open");
    }
    let desktop = env.get("DISPLAY").or_else(|| env.get("WAYLAND_DISPLAY"));
    desktop.map(|_| "xdg-open")
}

/// Opens a URL. Failures are only reported, since the URL was printed.
async fn open(url: &str, env: &Environment, console: &mut Console) {
    let Some(opener) = opener(env) else { return };
    let child = Command::new(opener)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let failed = match child {
        Ok(mut child) => match tokio::time::timeout(OPENER, child.wait()).await {
            Ok(Ok(status)) if !status.success() => Some(status.to_string()),
            _ => None,
        },
        Err(error) => Some(error.to_string()),
    };
    if let Some(reason) = failed {
        console.note(&format!("fdn: {opener} cannot open it ({reason})"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn without_a_desktop_nothing_is_opened() {
        assert_eq!(opener(&Environment::default()), None);
        for name in ["DISPLAY", "WAYLAND_DISPLAY"] {
            let env = Environment::of([(name, ":0".to_owned())]);
            assert_eq!(opener(&env), Some("xdg-open"));
        }
    }
}

//! Connections through an HTTP proxy, for networks that allow no other way out: CONNECT (RFC 9110, 9.3.6) to a controller. The tunnelled traffic
//! is TLS between machine and controller as without a proxy; the proxy sees only the destination.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::LinkError;
use crate::settings::host_of;

/// The longest response head of a proxy that is accepted, in bytes.
const HEAD_MAX: usize = 8 << 10;
const END: &[u8] = b"\r\n\r\n";

/// The `HOST:PORT` of a proxy's URL; `None` if the URL is not of the form `http://HOST:PORT`.
pub(crate) fn address(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("http://")?;
    let address = rest.strip_suffix('/').unwrap_or(rest);
    let host = host_of(address)?;
    (!host.contains(['/', '@', '?', '#'])).then_some(address)
}

/// Opens a connection to `to` through the proxy at `url`.
pub(crate) async fn connect(url: &str, to: &str) -> Result<TcpStream, LinkError> {
    let failed = |what: &str| LinkError::Broken(format!("the proxy {url}: {what}"));
    let proxy = address(url).ok_or_else(|| failed("is no http://HOST:PORT"))?;
    let stream = TcpStream::connect(proxy).await;
    let mut stream = stream.map_err(|e| failed(&e.to_string()))?;
    let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
    let sent = stream.write_all(request.as_bytes()).await;
    sent.map_err(|e| failed(&e.to_string()))?;
    let mut head = Vec::new();
    // The controller sends nothing before the client does, so all bytes up to then are the proxy's.
    while !head.ends_with(END) {
        let read = stream.read_buf(&mut head).await;
        match read.map_err(|e| failed(&e.to_string()))? {
            0 => return Err(failed("it ended the connection")),
            _ if head.len() > HEAD_MAX => return Err(failed("its answer is too long")),
            _ => {}
        }
    }
    let line = head.split(|byte| *byte == b'\r').next();
    let line = String::from_utf8_lossy(line.unwrap_or_default());
    if is_carried(&line) {
        return Ok(stream);
    }
    Err(failed(&format!("it does not connect to {to}: {line}")))
}

/// Whether the first line of a proxy's answer reports success.
fn is_carried(line: &str) -> bool {
    let mut words = line.split(' ');
    let version = words.next();
    let status = words.next().and_then(|status| status.parse::<u16>().ok());
    version.is_some_and(|version| version.starts_with("HTTP/1."))
        && status.is_some_and(|status| (200..300).contains(&status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_a_host_with_a_port_and_says_yes_by_its_status() {
        for (url, expected) in [
            (
                "http://proxy.example.org:3128",
                Some("proxy.example.org:3128"),
            ),
            ("http://[2001:db8::1]:3128/", Some("[2001:db8::1]:3128")),
            ("http://proxy.example.org", None),
            ("https://proxy.example.org:3128", None),
            ("http://user:word@proxy.example.org:3128", None),
            ("http://proxy.example.org:3128/way", None),
            ("proxy.example.org:3128", None),
        ] {
            assert_eq!(address(url), expected, "{url}");
        }
        assert!(is_carried("HTTP/1.1 200 Connection established"));
        assert!(is_carried("HTTP/1.0 200"));
        for no in ["HTTP/1.1 407 Proxy Authentication Required", "SSH-2.0", ""] {
            assert!(!is_carried(no), "{no}");
        }
    }
}
